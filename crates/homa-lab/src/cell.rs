//! One simulation of a plan, and the name its result is stored under.

use std::fmt::Write;
use std::path::PathBuf;

use homa_sim::scenario::{Scenario, Shape, Traffic};
use homa_workload::framing::{FULL_FRAME, Framing};
use homa_workload::load::mean_wire_bytes;
use homa_workload::sizes::{Reading, Workload};
use serde::{Deserialize, Serialize};

/// A simulation: its place in the plan and all it needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// What sets it apart from the other cells: axis and value, in the plan's order.
    pub axes: Vec<(String, String)>,
    /// Everything, defaults written out. Holds the seed.
    pub scenario: Scenario,
}

impl Cell {
    /// A short name for people: `traffic.workload=w4 load.fraction=0.8 seed=1`.
    pub fn label(&self) -> String {
        let mut label = String::new();
        for (axis, value) in &self.axes {
            let _ = write!(label, "{axis}={value} ");
        }
        let _ = write!(label, "seed={}", self.scenario.seed);
        label
    }

    /// Thirty-two hexadecimal digits that change with anything that decides the result: the
    /// scenario, the tables it names, the program.
    pub fn key(&self, program: &str) -> String {
        let mut hash = Hash::new();
        hash.add(program.as_bytes());
        hash.add(serde_json::to_string(&self.scenario).unwrap_or_default().as_bytes());
        for input in self.inputs() {
            hash.add(&std::fs::read(&input).unwrap_or_default());
        }
        hash.text()
    }

    /// Files that the scenario reads.
    pub(crate) fn inputs(&self) -> Vec<PathBuf> {
        let mut scenario = self.scenario.clone();
        let named = named_files(&mut scenario).into_iter().map(|name| PathBuf::from(path_of(name)));
        named.filter(|path| path.is_file()).collect()
    }

    /// About how many packets it moves: for the order of work and the time left, nothing else.
    pub fn weight(&self) -> f64 {
        const GUESS: f64 = 1e6;
        let scenario = &self.scenario;
        let (Traffic::AllToAll { workload, .. }
        | Traffic::ClientsServers { workload, .. }
        | Traffic::ManyToOne { workload, .. }) = &scenario.traffic
        else {
            let by_time = scenario.stop.time.map_or(GUESS, |time| time.0 as f64 / 1e12 * 1e7);
            return scenario.stop.messages.map_or(by_time, |messages| messages as f64 * 20.0);
        };
        let sizes = Workload::parse(workload).ok().and_then(|workload| workload.sizes().ok());
        let Some(sizes) = sizes else { return GUESS };
        let wire = mean_wire_bytes(&sizes, Framing::Paper);
        let by_time = scenario.stop.time.map_or(f64::INFINITY, |time| {
            let hosts = f64::from(scenario.fabric.shape.hosts().unwrap_or(2));
            let bits = scenario.load.fraction * scenario.fabric.host_link.0 as f64 * hosts;
            time.0 as f64 / 1e12 * bits / 8.0 / wire
        });
        let by_count = scenario.stop.messages.map_or(f64::INFINITY, |messages| messages as f64);
        match by_count.min(by_time) {
            messages if messages.is_finite() => messages * (1.0 + 2.0 * wire / FULL_FRAME as f64),
            _ => GUESS,
        }
    }
}

/// What in a scenario may name a file. Every kind of traffic and shape stands here, so that a new
/// one that reads a file cannot be forgotten.
pub(crate) fn named_files(scenario: &mut Scenario) -> Vec<&mut String> {
    let named = match &mut scenario.traffic {
        Traffic::AllToAll { workload, .. }
        | Traffic::ClientsServers { workload, .. }
        | Traffic::ManyToOne { workload, .. } => Some(workload),
        Traffic::Flows { file, .. } => Some(file),
        Traffic::Incast { .. }
        | Traffic::Collective(_)
        | Traffic::Permutation { .. }
        | Traffic::FanIn { .. }
        | Traffic::LongFlows { .. }
        | Traffic::Workflows(_) => None,
    };
    let graph = match &mut scenario.fabric.shape {
        Shape::Graph { file, .. } => Some(file),
        Shape::SingleSwitch { .. }
        | Shape::LeafSpine { .. }
        | Shape::FatTree { .. }
        | Shape::Pods { .. } => None,
    };
    named.into_iter().chain(graph).collect()
}

/// The path in what names a file, behind the words that say how a table of sizes is read.
pub(crate) fn path_of(name: &str) -> &str {
    Reading::split(name).1
}

/// FNV-1a over 128 bits: stable between versions of the compiler, which `std`'s hasher is not.
#[derive(Clone, Debug)]
pub struct Hash(u128);

impl Hash {
    /// Of nothing.
    pub fn new() -> Self {
        Self(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d)
    }

    /// Adds bytes and their number.
    pub fn add(&mut self, bytes: &[u8]) {
        const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
        for byte in bytes.iter().chain(&(bytes.len() as u64).to_le_bytes()) {
            self.0 = (self.0 ^ u128::from(*byte)).wrapping_mul(PRIME);
        }
    }

    /// In hexadecimal.
    pub fn text(&self) -> String {
        format!("{:032x}", self.0)
    }
}

impl Default for Hash {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use homa_sim::scenario::{Exchange, Span};

    use super::*;

    #[test]
    fn the_key_follows_everything_that_decides_the_result() {
        let cell = Cell { axes: Vec::new(), scenario: Scenario::default() };
        let key = cell.key("1");
        assert_eq!(key.len(), 32);
        assert_ne!(key, cell.key("2"), "another program");
        let mut other = cell.clone();
        other.scenario.seed += 1;
        assert_ne!(key, other.key("1"), "another seed");
        let mut named = cell.clone();
        named.axes.push(("load".into(), "0.8".into()));
        assert_eq!(key, named.key("1"), "the same simulation under another name");
    }

    #[test]
    fn the_key_follows_the_content_of_tables() {
        let path = std::env::temp_dir().join(format!("homa-cell-{}.csv", std::process::id()));
        let mut cell = Cell { axes: Vec::new(), scenario: Scenario::default() };
        let (file, exchange) = (path.display().to_string(), Exchange::OneWay);
        cell.scenario.traffic = Traffic::Flows { file, format: None, exchange };
        std::fs::write(&path, "a").unwrap();
        let first = cell.key("1");
        std::fs::write(&path, "b").unwrap();
        assert_ne!(first, cell.key("1"));
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn heavier_workloads_weigh_more() {
        let weight = |workload: &str| {
            let mut scenario = Scenario::default();
            let traffic = Traffic::AllToAll {
                workload: workload.into(),
                exchange: Default::default(),
                max_bytes: None,
            };
            scenario.traffic = traffic;
            Cell { axes: Vec::new(), scenario }.weight()
        };
        assert!(weight("w1") < weight("w3") && weight("w3") < weight("w4"));
        assert!(weight("w4") < weight("w5"));
        let mut timed = Cell { axes: Vec::new(), scenario: Scenario::default() };
        timed.scenario.stop.messages = Some(1_000_000_000);
        timed.scenario.stop.time = Some(Span::millis(1));
        assert!(timed.weight() < weight("w3"), "44 messages a microsecond at most");
    }
}
