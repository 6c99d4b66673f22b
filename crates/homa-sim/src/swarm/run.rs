//! Running one scenario: every host an endpoint, the checker watching, then silence.

use homa_proto::{Config, Coverage, Credit, Endpoint};

use crate::checker::{Checker, Ending, Violation};
use crate::engine::{Halt, Probe, RandomFaults, Simulation};
use crate::fabric::StrictPriority;
use crate::time::{SimDuration, SimTime};
use crate::topology::{HostId, NodeId, PortId, PortSpec};
use crate::traffic::planned::last_call;
use crate::traffic::{Planned, SERVER_PORT};
use crate::transport::{Homa, Moves};

use super::hostile::Attacker;
use super::resident::Resident;
use super::scenario::{HostFault, Rack, Scenario};

/// More events than any scenario needs: a run that has more is going round in circles.
const MAX_EVENTS: u64 = 20_000_000;

/// How a scenario went.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// There was a hostile host.
    pub hostile: bool,
    /// Broken promises; empty when all is well.
    pub violations: Vec<Violation>,
    /// Calls accepted.
    pub calls: u64,
    /// Calls answered.
    pub answered: u64,
    /// Calls that failed with a typed error.
    pub failed: u64,
    /// Packets sent.
    pub packets: u64,
    /// Two runs of a seed have the same.
    pub trace_hash: u64,
    /// What the endpoints counted, over all hosts alive at the end, by name.
    pub counters: Vec<(&'static str, u64)>,
    /// Which inputs met which states, over the same hosts.
    pub coverage: Coverage,
}

impl Outcome {
    /// A run that could not be judged otherwise.
    pub(super) fn broken(rule: &'static str, detail: String) -> Self {
        let violation = Violation { at: SimTime::ZERO, host: None, rule, detail };
        Self { violations: vec![violation], ..Self::default() }
    }
}

type Swarm<P> = Simulation<(Resident, StrictPriority, Planned, (Checker, P), RandomFaults)>;

/// Runs a scenario to its end and judges it; `watcher` may look on.
pub fn run<P: Probe<Resident>>(scenario: &Scenario, watcher: P) -> Outcome {
    let mut network = build(scenario, watcher);
    let finished = advance(&mut network, scenario);
    let now = network.now();
    if finished {
        network.probe_mut().0.finish(now);
        look_inside(&mut network, scenario);
    } else {
        let detail = format!("{MAX_EVENTS} events by {now:?}");
        network.probe_mut().0.report(now, HostId(0), "a run comes to rest", detail);
    }
    Outcome { hostile: scenario.hostile.is_some(), ..outcome(&network) }
}

fn build<P: Probe<Resident>>(scenario: &Scenario, watcher: P) -> Swarm<P> {
    let (config, rack) = (scenario.config.clone(), scenario.network);
    let (seed, hosts) = (scenario.seed, scenario.hosts);
    let hostile = scenario.hostile;
    let addresses = hosts + hostile.map_or(0, |hostile| hostile.addresses());
    let moves = (!scenario.moves.is_empty()).then(|| Moves {
        hosts: addresses,
        at: scenario.moves.iter().map(|(host, at)| (*host, at.protocol())).collect(),
    });
    let payload = rack.framing.payload_at(rack.mtu);
    let make = Box::new(move |host: HostId, life: u32| {
        if let Some(plan) = hostile.filter(|hostile| hostile.address == host) {
            return Resident::Hostile(Box::new(Attacker::new(plan, seed, payload)));
        }
        // Far apart for every host and life, so that RPC ids of two lives never meet.
        let own = (u64::from(host.0) << 32 | u64::from(life)) + 1;
        let seed = seed ^ own.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let transport = transport(config.clone().seed(seed), &rack);
        let transport = match &moves {
            Some(moves) => transport.with_moves(moves.clone()),
            None => transport,
        };
        Resident::Honest(Box::new(transport), hostile.map(|hostile| hostile.address))
    });
    let checker = Checker::new(hosts, scenario.promises.clone());
    let parts = (Planned::new(scenario.calls.clone()), (checker, watcher), scenario.links.clone());
    let (wiring, fabric) =
        (scenario.network.wire(hosts + u32::from(hostile.is_some())), scenario.network.fabric());
    let mut network = Simulation::new(wiring, fabric, make, parts);
    let wakes: Vec<_> = network.application().wakes().collect();
    for (host, at, token) in wakes {
        network.wake_host_at(host, at, token);
    }
    for impaired in &scenario.impaired {
        let host = NodeId(impaired.host.0);
        let end = |port: &PortSpec| if impaired.up { port.from } else { port.to };
        let port = network.wiring().ports().iter().position(|port| end(port) == host);
        for (at, change) in impaired.changes(rack.rate.rate()) {
            port.iter().for_each(|&port| network.change_link(PortId(port as u32), at, change));
        }
    }
    for fault in &scenario.host_faults {
        match *fault {
            HostFault::Pause(host, at, length) => network.pause(host, at, length),
            HostFault::Crash(host, at, downtime) => network.crash(host, at, downtime),
        }
    }
    network
}

fn transport(config: Config, rack: &Rack) -> Homa {
    let config = match config.validate() {
        Ok(config) => config,
        Err(error) => unreachable!("scenarios draw valid configurations: {error}"),
    };
    let mut endpoint = Endpoint::new(config);
    endpoint.listen(SERVER_PORT);
    Homa::new(endpoint, rack.framing).with_mtu(rack.mtu)
}

/// Runs until every call ended, then until the endpoints had time to forget, then through silence.
fn advance<P: Probe<Resident>>(network: &mut Swarm<P>, scenario: &Scenario) -> bool {
    let step = SimDuration::millis(20);
    let run_until =
        |network: &mut Swarm<P>, end| network.run_until(end, MAX_EVENTS) != Halt::Events;
    let mut end = last_call(&scenario.calls).max(scenario.links.heals_at);
    let last = end + SimDuration::millis(60_000);
    let mut fine = run_until(network, end);
    while fine && !network.probe().0.all_ended() && end < last {
        end += step;
        fine = run_until(network, end);
    }
    // Servers forget silent clients, give up responses that nobody acknowledges (2 s); restarted
    // hosts are back.
    let loss = scenario.config.loss.server_silence;
    end += SimDuration::from_protocol(loss) + SimDuration::millis(15_000);
    fine = fine && run_until(network, end);
    network.probe_mut().0.expect_quiet(end);
    end += SimDuration::millis(20_000);
    fine && run_until(network, end)
}

/// What only the endpoints themselves can say: nothing left, nothing planned.
fn look_inside<P: Probe<Resident>>(network: &mut Swarm<P>, scenario: &Scenario) {
    let now = network.now();
    for host in (0..scenario.hosts).map(HostId) {
        let resident = network.transport(host).and_then(Resident::honest);
        let Some(endpoint) = resident.map(Homa::endpoint) else { continue };
        let (clients, servers) = endpoint.rpcs();
        let deadline = endpoint.deadline().map(SimTime::from_protocol);
        let ready = endpoint.has_packet();
        let credit = endpoint.credit();
        let soon = deadline.is_some_and(|at| at < now + SimDuration::millis(1_000));
        if clients > 0 || servers > 0 {
            let detail = format!("{clients} as client, {servers} as server");
            network.probe_mut().0.report(now, host, "endpoints forget", detail);
        }
        if credit != Credit::default() {
            network.probe_mut().0.report(now, host, "credit is conserved", format!("{credit:?}"));
        }
        if soon || ready {
            let detail = format!("deadline {deadline:?}, packet ready: {ready}");
            network.probe_mut().0.report(now, host, "endpoints come to rest", detail);
        }
    }
    if network.packets_in_flight() > 0 {
        let detail = format!("{} packets", network.packets_in_flight());
        network.probe_mut().0.report(now, HostId(0), "the network drains", detail);
    }
}

fn outcome<P: Probe<Resident>>(network: &Swarm<P>) -> Outcome {
    let checker = &network.probe().0;
    let count = |wanted: fn(&Ending) -> bool| {
        checker.calls().filter(|(_, call)| wanted(&call.ending)).count() as u64
    };
    let mut counters: Vec<(&'static str, u64)> = Vec::new();
    let mut coverage = Coverage::default();
    for endpoint in network.transports().filter_map(Resident::honest).map(Homa::endpoint) {
        coverage.merge(endpoint.coverage());
        for (index, (name, value)) in endpoint.counters().iter().enumerate() {
            match counters.get_mut(index) {
                Some((_, sum)) => *sum += value,
                None => counters.push((name, value)),
            }
        }
    }
    Outcome {
        hostile: false,
        violations: checker.violations().to_vec(),
        calls: checker.calls().count() as u64,
        answered: count(|ending| *ending == Ending::Answered),
        failed: count(|ending| matches!(ending, Ending::Failed(_))),
        packets: checker.packets(),
        trace_hash: network.trace_hash(),
        counters,
        coverage,
    }
}
