//! The description of a simulation, as a plan file holds it, and the results of a run. This module
//! is plain data; [`crate::experiment`] runs it.
//!
//! | module | contents |
//! |---|---|
//! | [`fabric`] | shape, rates, delays and buffers of the network |
//! | [`demand`] | traffic, load and when the run ends |
//! | [`options`] | parameters of the scheme that differ from its defaults |
//! | [`outcome`] | everything measured |
//!
//! If a scenario has an unknown key, reading it fails.

mod alarms;
mod beside;
mod collective;
pub mod demand;
mod error;
pub mod fabric;
mod hull;
mod nic;
pub mod options;
pub mod outcome;
mod queue_bytes;
mod reports;
mod transports;
pub mod units;
mod workflows;

pub use beside::SecondScheme;
pub use collective::{CollectiveTraffic, Operation, RankPlacement};
pub use demand::{
    Basis, Diverging, Exchange, FlowFormat, FlowGroup, LoadedLinks, OfferedLoad, Probes, Stop,
    Traffic, TrafficEnding,
};
pub use error::ScenarioError;
pub use fabric::{Buffer, Fabric, GraphFormat, Impaired, Paused, Routing, Shape};
pub use hull::{PacerOptions, PhantomOptions, PhantomOrderName, PhantomPlaceName};
pub use nic::{CpuOptions, InterruptsName, NicOptions};
pub use options::*;
pub use outcome::{ScenarioOutcome, SizeTable};
pub use queue_bytes::QueueBytes;
pub use transports::{NdpOptions, PFabricOptions, SwitchKind, SwitchOptions};
pub use units::{Bandwidth, Span, UnitError};
pub use workflows::{Burst, WorkflowClass, WorkflowTraffic};

use serde::{Deserialize, Serialize};

/// One simulation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scenario {
    /// A name in [`crate::scheme::SCHEMES`].
    pub scheme: String,
    /// Parameters of the scheme that differ from its defaults.
    pub options: SchemeOptions,
    /// A second scheme on a share of the hosts. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beside: Option<SecondScheme>,
    /// The network.
    pub fabric: Fabric,
    /// Which hosts send messages to which, and the sizes of messages.
    pub traffic: Traffic,
    /// Messages that measure how long packets wait. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probes: Option<Probes>,
    /// How much traffic there is. Closed loops and lists of messages ignore it.
    #[serde(deserialize_with = "demand::load")]
    pub load: OfferedLoad,
    /// When the run ends.
    pub stop: Stop,
    /// Messages that start before this time are not measured. The default is 0 because the Homa
    /// authors measured from the empty start.
    pub warm_up: Span,
    /// Seed of all random numbers. Runs of the same scenario with the same seed are identical.
    pub seed: u64,
    /// Partitions of the network, which threads can simulate side by side. Their number may change
    /// random draws and the order of what happens at the same picosecond; the number of threads
    /// changes nothing. Default: 1.
    #[serde(skip_serializing_if = "is_one")]
    pub partitions: u32,
    /// The divisor of latencies.
    pub slowdown: SlowdownBy,
    /// Measures besides latency.
    pub measures: Measures,
}

/// Scenarios of one partition are written without it, as before there were several.
fn is_one(partitions: &u32) -> bool {
    *partitions == 1
}

impl Default for Scenario {
    /// The scheme `homa` on the network of Homa §5.2, with W1 at 80 % load. W1 is the only one of
    /// the five workloads for which the default number of messages shows whether the load is
    /// sustained.
    fn default() -> Self {
        Self {
            scheme: "homa".to_owned(),
            options: SchemeOptions::default(),
            beside: None,
            fabric: Fabric::default(),
            traffic: Traffic::AllToAll {
                workload: "w1".to_owned(),
                exchange: Exchange::OneWay,
                max_bytes: None,
            },
            probes: None,
            load: OfferedLoad::new(0.8, Basis::Paper),
            stop: Stop::default(),
            warm_up: Span(0),
            seed: 1,
            partitions: 1,
            slowdown: SlowdownBy::Authors,
            measures: Measures::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scenario_round_trips_and_unknown_keys_are_refused() {
        let scenario = Scenario {
            options: SchemeOptions { overcommitment: Some(2), ..SchemeOptions::default() },
            warm_up: Span::millis(3),
            ..Scenario::default()
        };
        let text = serde_json::to_string(&scenario).unwrap();
        assert_eq!(serde_json::from_str::<Scenario>(&text).unwrap(), scenario);
        assert_eq!(serde_json::from_str::<Scenario>("{}").unwrap(), Scenario::default());
        for wrong in [
            r#"{"lod": 1}"#,
            r#"{"fabric": {"host_link": 10}}"#,
            r#"{"fabric": {"shape": {"kind": "leaf-spine", "racks": 2}}}"#,
            r#"{"traffic": {"pattern": "all-to-all", "workload": "w3", "size": 3}}"#,
            r#"{"measures": {"queue": true}}"#,
        ] {
            assert!(serde_json::from_str::<Scenario>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_load_that_is_a_number_names_its_key() {
        for (given, meant) in [("80", "0.8"), ("55.5", "0.555"), ("0.7", "0.7")] {
            let text = format!("{{\"load\": {given}}}");
            let refused = serde_json::from_str::<Scenario>(&text).unwrap_err().to_string();
            assert!(refused.contains(&format!("write `load.fraction = {meant}`")), "{refused}");
        }
        let text = r#"{"load": {"fraction": 0.5, "basis": "wire"}}"#;
        let load = serde_json::from_str::<Scenario>(text).unwrap().load;
        assert_eq!(load, OfferedLoad::new(0.5, Basis::Wire));
    }
}
