//! Faults of links and hosts: turns a plan's lists of impaired links and paused hosts into changes
//! of the fabric at given times, and into packet loss on some links.

use std::collections::BTreeMap;

use homa_workload::rng::Rng;

use crate::engine::{DirectedLink, Fault, LinkChange, PacketFate};
use crate::scenario::{Impaired, Paused, Scenario, ScenarioError};
use crate::time::{SimDuration, SimTime};
use crate::topology::{HostId, NodeId, PortId, PortSpec, Wiring};

use super::network::{ScenarioNetwork, least_mbps};

/// A change of one direction of a link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    pub port: PortId,
    pub at: SimTime,
    pub what: LinkChange,
}

/// One direction of a link that loses packets for some time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lossy {
    port: u32,
    ppm: u32,
    from: SimTime,
    until: SimTime,
}

/// A host that is paused for some time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pause {
    pub host: HostId,
    pub at: SimTime,
    pub length: SimDuration,
}

/// Pauses of hosts from the plan's list.
pub(super) fn pauses(list: &[Paused], wiring: &Wiring) -> Result<Vec<Pause>, ScenarioError> {
    let pause = |(place, one): (usize, &Paused)| {
        let wrong = |text: &str| {
            ScenarioError::field("fabric.paused", format!("{text} (entry {})", place + 1))
        };
        let number = one.host.strip_prefix('h').and_then(|digits| digits.parse().ok());
        let host = number.filter(|host| *host < wiring.hosts());
        let host = host.ok_or_else(|| {
            let last = wiring.hosts() - 1;
            wrong(&format!("name a host h0 to h{last}, not `{}`", one.host))
        })?;
        let (at, until) = (one.at.after_start(), one.until.after_start());
        if until <= at {
            return Err(wrong("end after it begins: `until` later than `at`"));
        }
        Ok(Pause { host: HostId(host), at, length: until.since(at) })
    };
    list.iter().enumerate().map(pause).collect()
}

/// Changes and losses of links from the plan's list. `names` are the switches by name, and `frame`
/// the wire bytes of the largest frame.
pub(super) fn impair(
    list: &[Impaired],
    (wiring, frame): (&Wiring, u32),
    names: &BTreeMap<String, NodeId>,
) -> Result<(Vec<Change>, Vec<Lossy>), ScenarioError> {
    let (mut changes, mut lossy) = (Vec::new(), Vec::new());
    for (place, one) in list.iter().enumerate() {
        let wrong = |text: String| {
            ScenarioError::field("fabric.impaired", format!("{text} (entry {})", place + 1))
        };
        let (at, until) = (one.at.after_start(), one.until.map(|span| span.after_start()));
        if until.is_some_and(|until| until <= at) {
            return Err(wrong("end after it begins: `until` later than `at`".to_owned()));
        }
        if one.loss_ppm.is_some_and(|ppm| ppm > 1_000_000) {
            return Err(wrong("lose at most 1000000 packets per million".to_owned()));
        }
        for port in ports(one, wiring, names).map_err(wrong)? {
            if let Some(ppm) = one.loss_ppm {
                let until = until.unwrap_or(SimTime::MAX);
                lossy.push(Lossy { port: port.0, ppm, from: at, until });
            }
            let own = wiring.ports()[port.0 as usize];
            let (what, back) = match (one.rate, one.loss_ppm) {
                (Some(rate), _) => {
                    let rate = rate.rate();
                    if !(PortSpec { rate, ..own }).fits(frame) {
                        let least = least_mbps(frame);
                        return Err(wrong(format!("have a rate of at least {least}Mbps")));
                    }
                    if rate.0 > own.rate.0 {
                        let most = own.rate.0 as f64 / 1e9;
                        return Err(wrong(format!("have no more than the link's {most} Gbit/s")));
                    }
                    (LinkChange::Rate(rate), LinkChange::Rate(own.rate))
                }
                (None, Some(_)) => continue,
                (None, None) => (LinkChange::Fail, LinkChange::Recover),
            };
            changes.push(Change { port, at, what });
            changes.extend(until.map(|at| Change { port, at, what: back }));
        }
    }
    Ok((changes, lossy))
}

/// All links between the two ends, in both directions unless `one_way` is set.
fn ports(
    one: &Impaired,
    wiring: &Wiring,
    names: &BTreeMap<String, NodeId>,
) -> Result<Vec<PortId>, String> {
    let node = |name: &str| node(name, wiring.hosts(), names);
    let (a, b) = (node(&one.from)?, node(&one.to)?);
    let joins = |port: &PortSpec| {
        (port.from, port.to) == (a, b) || (!one.one_way && (port.from, port.to) == (b, a))
    };
    let found = (0..).zip(wiring.ports()).filter(|(_, port)| joins(port));
    let found: Vec<PortId> = found.map(|(at, _)| PortId(at)).collect();
    if !found.is_empty() {
        return Ok(found);
    }
    let name_of = |node: NodeId| match names.iter().find(|(_, known)| **known == node) {
        Some((name, _)) => name.clone(),
        None => format!("h{}", node.0),
    };
    let neighbours = wiring.ports().iter().filter(|port| port.from == a);
    let neighbours: Vec<String> = neighbours.take(20).map(|port| name_of(port.to)).collect();
    Err(format!("join neighbours; those of `{}` are {}", one.from, neighbours.join(", ")))
}

fn node(name: &str, hosts: u32, names: &BTreeMap<String, NodeId>) -> Result<NodeId, String> {
    if let Some(node) = names.get(name) {
        return Ok(*node);
    }
    let host = name.strip_prefix('h').and_then(|digits| digits.parse().ok());
    if let Some(host) = host.filter(|host| *host < hosts) {
        return Ok(NodeId(host));
    }
    let switches: Vec<&str> = names.keys().take(20).map(String::as_str).collect();
    Err(format!(
        "name a host h0 to h{} or a switch such as {}, not `{name}`",
        hosts - 1,
        switches.join(", ")
    ))
}

/// The loss, duplication and reordering of packets that a scenario asks for.
#[derive(Clone, Debug)]
pub(super) struct LinkFaults {
    rng: Rng,
    hosts: u32,
    loss_ppm: u32,
    duplicate_ppm: u32,
    reorder_ppm: u32,
    /// Nanoseconds.
    reorder_by: u32,
    until: SimTime,
    lossy: Vec<Lossy>,
}

impl LinkFaults {
    pub fn new(scenario: &Scenario, network: &ScenarioNetwork) -> Self {
        Self {
            rng: Rng::stream(scenario.seed, "faults"),
            hosts: network.wiring.hosts(),
            loss_ppm: scenario.fabric.loss_ppm,
            duplicate_ppm: scenario.fabric.duplicate_ppm,
            reorder_ppm: scenario.fabric.reorder_ppm,
            reorder_by: (scenario.fabric.reorder_by.0 / 1_000) as u32,
            until: scenario.fabric.faults_until.map_or(SimTime::MAX, |span| span.after_start()),
            lossy: network.lossy.clone(),
        }
    }

    /// False if no packet is ever lost, duplicated or delayed.
    pub fn any(&self) -> bool {
        self.loss_ppm + self.duplicate_ppm + self.reorder_ppm > 0 || !self.lossy.is_empty()
    }

    /// The loss rate of this link, including that of all links.
    fn loss_ppm(&self, now: SimTime, link: DirectedLink) -> u32 {
        let port = match link {
            DirectedLink::Up(host) => host.0,
            DirectedLink::Down(host) => self.hosts + host.0,
            DirectedLink::Between(port) => port.0,
        };
        let here = |lossy: &&Lossy| lossy.port == port && lossy.from <= now && now < lossy.until;
        let extra: u32 = self.lossy.iter().filter(here).map(|lossy| lossy.ppm).sum();
        let everywhere = if now < self.until { self.loss_ppm } else { 0 };
        everywhere.saturating_add(extra)
    }
}

impl<K> Fault<K> for LinkFaults {
    fn fate(&mut self, now: SimTime, link: DirectedLink, _: &K) -> PacketFate {
        let loss_ppm = self.loss_ppm(now, link);
        let draw = self.rng.uniform_below(1_000_000);
        if draw < loss_ppm {
            return PacketFate::Lose;
        }
        let rest = draw - loss_ppm;
        if now >= self.until || rest >= self.duplicate_ppm + self.reorder_ppm {
            PacketFate::Pass
        } else if rest < self.duplicate_ppm {
            PacketFate::Duplicate(SimDuration::ZERO)
        } else {
            let extra = self.rng.uniform_below(self.reorder_by) + 1;
            PacketFate::Delay(SimDuration::nanos(u64::from(extra)))
        }
    }
}
