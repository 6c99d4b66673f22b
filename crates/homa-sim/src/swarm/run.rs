//! Runs one scenario: every host is an endpoint, the checker observes, and silence must follow.

use homa_proto::{Config, Coverage, Credit, Endpoint};

use crate::checker::{CallEnding, Checker, Violation};
use crate::engine::{Halt, Probe, RandomFaults, Simulation};
use crate::fabric::StrictPriority;
use crate::time::{SimDuration, SimTime};
use crate::topology::{HostId, NodeId, PortId, PortSpec};
use crate::traffic::planned::last_call;
use crate::traffic::{Planned, SERVER_PORT};
use crate::transport::{Homa, Moves};

use super::hostile::Attacker;
use super::resident::SwarmHost;
use super::scenario::{HostFault, Scenario, SwarmNetwork};

/// More events than any scenario needs: a run with more of them is in a loop.
const MAX_EVENTS: u64 = 20_000_000;

/// The result of a scenario.
#[derive(Clone, Debug, Default)]
pub struct SwarmOutcome {
    /// There was a hostile host.
    pub hostile: bool,
    /// Broken promises; empty if there are none.
    pub violations: Vec<Violation>,
    /// Calls accepted.
    pub calls: u64,
    /// Calls answered.
    pub answered: u64,
    /// Calls that failed with a typed error.
    pub failed: u64,
    /// Packets sent.
    pub packets: u64,
    /// Hash of the trace, equal in two runs of a seed.
    pub trace_hash: u64,
    /// Counters of the endpoints, by name, summed over all hosts that are alive at the end.
    pub counters: Vec<(&'static str, u64)>,
    /// Which inputs occurred in which states, over the same hosts.
    pub coverage: Coverage,
}

impl SwarmOutcome {
    /// The outcome of a run that could not be completed.
    pub(super) fn broken(rule: &'static str, detail: String) -> Self {
        let violation = Violation { at: SimTime::ZERO, host: None, rule, detail };
        Self { violations: vec![violation], ..Self::default() }
    }
}

type Swarm<P> = Simulation<(SwarmHost, StrictPriority, Planned, (Checker, P), RandomFaults)>;

/// Runs a scenario to its end and checks it; `watcher` observes it as well.
pub fn run<P: Probe<SwarmHost>>(scenario: &Scenario, watcher: P) -> SwarmOutcome {
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
    SwarmOutcome { hostile: scenario.hostile.is_some(), ..outcome(&network) }
}

fn build<P: Probe<SwarmHost>>(scenario: &Scenario, watcher: P) -> Swarm<P> {
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
            return SwarmHost::Hostile(Box::new(Attacker::new(plan, seed, payload)));
        }
        // Seeds are far apart for every host and life, so that the RPC ids of two lives never
        // collide.
        let own = (u64::from(host.0) << 32 | u64::from(life)) + 1;
        let seed = seed ^ own.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let transport = transport(config.clone().seed(seed), &rack);
        let transport = match &moves {
            Some(moves) => transport.with_moves(moves.clone()),
            None => transport,
        };
        SwarmHost::Honest(Box::new(transport), hostile.map(|hostile| hostile.address))
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

fn transport(config: Config, rack: &SwarmNetwork) -> Homa {
    let config = match config.validate() {
        Ok(config) => config,
        Err(error) => unreachable!("scenarios draw valid configurations: {error}"),
    };
    let mut endpoint = Endpoint::new(config);
    endpoint.listen(SERVER_PORT);
    Homa::new(endpoint, rack.framing).with_mtu(rack.mtu)
}

/// Runs until every call ended, then until the endpoints had time to forget them, then checks for
/// silence.
fn advance<P: Probe<SwarmHost>>(network: &mut Swarm<P>, scenario: &Scenario) -> bool {
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
    // By then servers have forgotten silent clients and given up responses without acknowledgement
    // (2 s), and restarted hosts are back.
    let loss = scenario.config.loss.server_silence;
    end += SimDuration::from_protocol(loss) + SimDuration::millis(15_000);
    fine = fine && run_until(network, end);
    network.probe_mut().0.expect_quiet(end);
    end += SimDuration::millis(20_000);
    fine && run_until(network, end)
}

/// Checks what only the endpoints can tell: nothing is left, and nothing is planned.
fn look_inside<P: Probe<SwarmHost>>(network: &mut Swarm<P>, scenario: &Scenario) {
    let now = network.now();
    for host in (0..scenario.hosts).map(HostId) {
        let resident = network.transport(host).and_then(SwarmHost::honest);
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

fn outcome<P: Probe<SwarmHost>>(network: &Swarm<P>) -> SwarmOutcome {
    let checker = &network.probe().0;
    let count = |wanted: fn(&CallEnding) -> bool| {
        checker.calls().filter(|(_, call)| wanted(&call.ending)).count() as u64
    };
    let mut counters: Vec<(&'static str, u64)> = Vec::new();
    let mut coverage = Coverage::default();
    for endpoint in network.transports().filter_map(SwarmHost::honest).map(Homa::endpoint) {
        coverage.merge(endpoint.coverage());
        for (index, (name, value)) in endpoint.counters().iter().enumerate() {
            match counters.get_mut(index) {
                Some((_, sum)) => *sum += value,
                None => counters.push((name, value)),
            }
        }
    }
    SwarmOutcome {
        hostile: false,
        violations: checker.violations().to_vec(),
        calls: checker.calls().count() as u64,
        answered: count(|ending| *ending == CallEnding::Answered),
        failed: count(|ending| matches!(ending, CallEnding::Failed(_))),
        packets: checker.packets(),
        trace_hash: network.trace_hash(),
        counters,
        coverage,
    }
}
