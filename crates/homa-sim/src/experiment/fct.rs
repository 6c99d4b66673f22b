//! Completion times as HPCC's simulator writes them, for scripts that read its `fct.txt`: a line
//! `sip dip sport dport bytes start_ns fct_ns ideal_ns` for every message, in the order of arrival.
//!
//! Addresses are those of its nodes: node `n` is `0b000001 + n << 8` in hexadecimal. A sender takes
//! a new port for each message, from 10000 on; receivers have port 100. Starts are those of the
//! file from which messages were read. The last number is the time by which latencies are divided.

use std::collections::BTreeMap;
use std::io::{self, Write};

use crate::scenario::outcome::FlowTime;
use crate::scenario::{Measures, Scenario, ScenarioError, ScenarioOutcome};

use super::demand::Demand;
use super::network::ScenarioNetwork;

/// Its first port of senders, and the port of receivers in its traffic.
const PORTS: (u32, u32) = (10_000, 100);

/// The scenario with every measured message in `flows` of the outcome.
pub(super) fn with_every_message(scenario: &Scenario) -> Scenario {
    let measures = Measures { flows_above: Some(0), ..scenario.measures.clone() };
    Scenario { measures, ..scenario.clone() }
}

/// Writes the messages of an outcome, and removes those that the scenario does not ask for.
pub(super) fn take(
    out: &mut dyn Write,
    scenario: &Scenario,
    parts: (&ScenarioNetwork, &Demand),
    outcome: &mut ScenarioOutcome,
) -> Result<(), ScenarioError> {
    write(out, &outcome.flows, parts).map_err(|error| ScenarioError::File {
        path: "the completion times".to_owned(),
        reason: error.to_string(),
    })?;
    let above = scenario.measures.flows_above.unwrap_or(u32::MAX);
    outcome.flows.retain(|flow| flow.bytes > above);
    Ok(())
}

/// Writes all messages, and flushes.
fn write(
    out: &mut dyn Write,
    flows: &[FlowTime],
    (network, demand): (&ScenarioNetwork, &Demand),
) -> io::Result<()> {
    let nodes = network.nodes().into_iter().flatten();
    let nodes: BTreeMap<u32, u32> = nodes.map(|(node, host)| (*host, *node)).collect();
    let address = |host: u32| address(nodes.get(&host).copied().unwrap_or(host));
    let begins_ns = demand.notes.begins.0 as f64 / 1e3;
    for flow in flows {
        let ns = |us: f64| (us * 1e3).round() as u64;
        let (from, to) = (address(flow.src), address(flow.dst));
        let port = PORTS.0.wrapping_add(flow.number - 1) as u16;
        let start = (begins_ns + flow.start_us * 1e3).round() as u64;
        let ideal = flow.slowdown.map_or(flow.us, |slowdown| flow.us / slowdown);
        writeln!(
            out,
            "{from:08x} {to:08x} {port} {} {} {start} {} {}",
            PORTS.1,
            flow.bytes,
            ns(flow.us),
            ns(ideal).max(1)
        )?;
    }
    out.flush()
}

/// The address of a node.
const fn address(node: u32) -> u32 {
    0x0b00_0001_u32.wrapping_add((node / 256) << 16).wrapping_add((node % 256) << 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_those_of_hpcc() {
        let cases = [(0, 0x0b00_0001), (1, 0x0b00_0101), (256, 0x0b01_0001), (319, 0x0b01_3f01)];
        for (node, expected) in cases {
            assert_eq!(address(node), expected, "{node}");
            assert_eq!(address(node) >> 8 & 0xffff, node, "its scripts take nodes from them");
        }
    }
}
