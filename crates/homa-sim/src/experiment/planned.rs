//! Sends messages that are planned one by one and judges them with a checker that works for every
//! transport.

use crate::checker::{MessageChecker, MessagePromises};
use crate::engine::Halt;
use crate::scenario::{Buffer, Scenario, ScenarioError, SwitchKind};
use crate::scheme::{Scheme, SwitchQueue};
use crate::time::SimTime;
use crate::topology::PortId;
use crate::traffic::PlannedCall;

use super::applications::Applications;
use super::checks::check;
use super::demand::Demand;
use super::network::ScenarioNetwork;
use super::parts::{self, Parts};
use super::start::Watching;

/// The result of planned messages.
#[derive(Clone, Debug)]
pub struct Rehearsal {
    /// The checker with its verdict.
    pub checker: MessageChecker,
    /// Two runs have the same hash if the same packets moved at the same times.
    pub trace_hash: u64,
}

/// When the network must have recovered from all faults, and when it must be empty.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// A message may fail if its deadline is earlier. Later deadlines must be met, because the
    /// network has had no faults for long enough.
    pub healthy_from: SimTime,
    /// No event may be pending after this time.
    pub rest_by: SimTime,
}

/// More events than a small scenario needs. A run with more of them is in a livelock.
const MAX_EVENTS: u64 = 20_000_000;

/// Sends `calls` instead of the scenario's traffic and judges the result. The scenario's traffic
/// only defines the sizes that the scheme expects; its stop rule and measures are ignored.
pub fn rehearse(
    scenario: &Scenario,
    calls: Vec<PlannedCall>,
    times: Times,
) -> Result<Rehearsal, ScenarioError> {
    check(scenario)?;
    let row = parts::row(&scenario.scheme)?;
    if scenario.beside.is_some() {
        let what = "single messages with a second scheme (`beside`)".to_owned();
        return Err(ScenarioError::Unsupported { what });
    }
    if row.is_bound() {
        let what = format!("single messages under {}, a bound that sends none", row.name);
        return Err(ScenarioError::Unsupported { what });
    }
    let network = ScenarioNetwork::new(scenario, row)?;
    let demand = Demand::new(scenario, &network)?;
    let parts = Parts::new(scenario, (row, &network, &demand))?;
    let (network, demand) = (&network, &demand);
    let experiment = parts.experiment(scenario, network, demand)?;
    let hosts = experiment.hosts;
    let promises = MessagePromises {
        may_repeat: hosts.may_repeat(),
        names_places: hosts.names_places(),
        healthy_from: times.healthy_from,
        has_faults: has_faults(scenario) || may_drop(scenario, row),
    };
    let mut checker = MessageChecker::new(network.wiring.hosts(), promises);
    let generator = experiment.generator()?;
    let applications =
        Applications { generator, planned: Some(crate::traffic::Planned::new(calls)) };
    let watching = Watching { messages: Some(&mut checker), ..Watching::default() };
    let mut sim = experiment.start(applications, watching);
    let halt = sim.run_until(times.rest_by, MAX_EVENTS);
    let (now, trace_hash) = (sim.now(), sim.trace_hash());
    let ports = 0..network.wiring.ports().len() as u32;
    let dropped: u64 = ports.map(|port| sim.dropped_frames(PortId(port))).sum();
    let pending = (sim.pending(), sim.packets_in_flight());
    drop(sim);
    checker.finish(now);
    if halt != Halt::Drained {
        let detail = format!("{halt:?}: {} events and {} packets are left", pending.0, pending.1);
        checker.report(now, "the network comes to rest", detail);
    }
    if dropped > 0 && !may_drop(scenario, row) {
        let detail = format!("{dropped} frames");
        checker.report(now, "no frame is dropped if there is room", detail);
    }
    Ok(Rehearsal { checker, trace_hash })
}

fn has_faults(scenario: &Scenario) -> bool {
    let fabric = &scenario.fabric;
    let rates = [fabric.loss_ppm, fabric.duplicate_ppm, fabric.reorder_ppm];
    rates.iter().any(|ppm| *ppm > 0) || !fabric.impaired.is_empty() || !fabric.paused.is_empty()
}

/// Whether ports of switches may drop frames, because the design relies on drops or because buffers
/// are limited.
fn may_drop(scenario: &Scenario, row: &Scheme) -> bool {
    let fabric = &scenario.fabric;
    // Duplicated and delayed frames can arrive faster than the pause threshold assumes. If a link
    // becomes faster, a pause frame may still wait behind a frame that began at the slow rate.
    let changes = fabric.impaired.iter().any(|link| link.rate.is_some());
    let disturbed = fabric.duplicate_ppm > 0 || fabric.reorder_ppm > 0 || changes;
    // A full header queue returns headers to their sender only once, and never control packets
    // (NDP §3.2.4), so trimming switches can drop.
    let trims = matches!(row.queue, SwitchQueue::Trimming(_));
    let kind = scenario.options.switch.and_then(|switch| switch.kind);
    let limited = match row.is_lossless() || kind == Some(SwitchKind::Shared) {
        true => disturbed,
        false => fabric.buffer != Buffer::Unlimited,
    };
    row.loses_by_design || trims || limited
}
