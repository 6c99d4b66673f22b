//! Messages planned one by one, under the checker that knows nothing else.

use crate::checker::{MessageChecker, MessagePromises};
use crate::engine::Halt;
use crate::scenario::{Buffer, Scenario, ScenarioError};
use crate::scheme::{Queue, Scheme};
use crate::time::SimTime;
use crate::topology::PortId;
use crate::traffic::PlannedCall;

use super::applications::Applications;
use super::checks::check;
use super::demand::Demand;
use super::network::Network;
use super::parts::{self, Parts};
use super::start::Watching;

/// What came of planned messages.
#[derive(Clone, Debug)]
pub struct Rehearsal {
    /// The judge, with its verdict.
    pub checker: MessageChecker,
    /// Equal when the same packets moved at the same times.
    pub trace_hash: u64,
}

/// When the network must be whole, and when at rest.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// No deadline is excused that is later: the network has been whole for long enough.
    pub healthy_from: SimTime,
    /// By then nothing is left to happen.
    pub rest_by: SimTime,
}

/// More events than small scenarios need: a run that has more is going round in circles.
const MAX_EVENTS: u64 = 20_000_000;

/// Sends `calls` in place of a scenario's traffic, which only says what sizes a scheme expects, and
/// judges what comes of them. Stop rules and measures have no meaning here.
pub fn rehearse(
    scenario: &Scenario,
    calls: Vec<PlannedCall>,
    times: Times,
) -> Result<Rehearsal, ScenarioError> {
    check(scenario)?;
    let row = parts::row(&scenario.scheme)?;
    if scenario.beside.is_some() {
        let what = "single messages where hosts are of two kinds".to_owned();
        return Err(ScenarioError::Unsupported { what });
    }
    if row.is_bound() {
        let what = format!("single messages under {}, a bound that sends none", row.name);
        return Err(ScenarioError::Unsupported { what });
    }
    let network = Network::new(scenario, row)?;
    let demand = Demand::new(scenario, network.wiring.hosts())?;
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
        checker.report(now, "nothing is dropped where there is room", detail);
    }
    Ok(Rehearsal { checker, trace_hash })
}

fn has_faults(scenario: &Scenario) -> bool {
    let fabric = &scenario.fabric;
    let rates = [fabric.loss_ppm, fabric.duplicate_ppm, fabric.reorder_ppm];
    rates.iter().any(|ppm| *ppm > 0) || !fabric.impaired.is_empty() || !fabric.paused.is_empty()
}

/// The ports of switches may drop: the design counts on it, or memory ends.
fn may_drop(scenario: &Scenario, row: &Scheme) -> bool {
    let fabric = &scenario.fabric;
    // What is copied or held up comes faster than a pause expects; and where a link becomes faster,
    // a control frame may still wait behind one that began when it was slow.
    let changes = fabric.impaired.iter().any(|link| link.rate.is_some());
    let disturbed = fabric.duplicate_ppm > 0 || fabric.reorder_ppm > 0 || changes;
    // Headers for which there is no room go back once, and control packets do not (NDP §3.2.4).
    let trims = matches!(row.queue, Queue::Trimming(_));
    let limited = if row.is_lossless() { disturbed } else { fabric.buffer != Buffer::Unlimited };
    row.loses_by_design || trims || limited
}
