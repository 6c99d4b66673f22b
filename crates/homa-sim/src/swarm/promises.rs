//! The guarantees of a scenario's profile, given the scenario's faults.
//!
//! A call must meet its deadline if the deadline is later than [`Promises::healthy_from`]. By then
//! the last fault is over, and there was time to do everything that was asked for twice, one thing
//! after the other. In three cases no such time exists, because something outlasts the faults:
//! * A host that died, a client whose address changed, or a hostile host that answered for its
//!   address leaves messages and RPCs at its peers, which forget them only after seconds. While
//!   these fill a small memory, or all of a small `max_rpcs` (half of it, if hosts have quotas),
//!   requests of others are refused.
//! * In the paper's profile, which has no acks, a request may be executed again although its client
//!   already has the response. The second response keeps its place until the server gives it up.
//! * If nothing tells a client that its call was refused (Homa §3.8; also idempotent calls), it
//!   resends the request, which runs again, about every RESEND interval until the call's deadline,
//!   and retransmissions go before other data (§3.7). If that takes half of the time, or takes the
//!   places of a small `max_rpcs` whenever others ask for one, others wait.

use homa_proto::{Completion, Config, Profile, UnscheduledLimit};

use crate::checker::Promises;
use crate::engine::RandomFaults;
use crate::time::{LinkRate, SimDuration, SimTime};
use crate::topology::HostId;

use crate::traffic::PlannedCall;

use super::hostile::Hostile;
use super::scenario::{HostFault, Impaired, SwarmNetwork, WARM_UP};

/// Timers of the protocol may be this coarse.
const TICK: SimDuration = SimDuration::millis(2);

/// Headers, control packets and similar overhead of a call, plus a period of the longest RESEND
/// timer.
const CALL_OVERHEAD: SimDuration = SimDuration::millis(5);

/// More than the messages of any scenario need together.
const AMPLE_MEMORY: u64 = 100_000_000;

/// All faults of a scenario.
pub(super) struct ScenarioFaults<'a> {
    pub links: &'a RandomFaults,
    pub impaired: &'a [Impaired],
    pub hosts: &'a [HostFault],
    pub moves: &'a [(HostId, SimTime)],
    pub hostile: Option<&'a Hostile>,
}

impl ScenarioFaults<'_> {
    /// When each of them is over.
    fn ends(&self) -> impl Iterator<Item = SimTime> {
        let hosts = self.hosts.iter().map(|fault| match *fault {
            HostFault::Pause(_, at, length) => at + length,
            HostFault::Crash(_, at, downtime) => at + downtime.unwrap_or(SimDuration::ZERO),
        });
        let links = self.impaired.iter().map(|impaired| impaired.until);
        let moves = self.moves.iter().map(|(_, at)| *at);
        let hostile = self.hostile.map(|hostile| hostile.until);
        hosts.chain(links).chain(moves).chain(hostile).chain([self.links.heals_at])
    }

    /// When hosts pause; overlapping pauses are merged.
    fn pauses(&self) -> Vec<(HostId, SimTime, SimTime)> {
        let pauses = self.hosts.iter().filter_map(|fault| match *fault {
            HostFault::Pause(host, at, length) => Some((host, at, at + length)),
            HostFault::Crash(..) => None,
        });
        let mut pauses: Vec<_> = pauses.collect();
        pauses.sort_unstable();
        pauses.dedup_by(|next, kept| {
            let one = next.0 == kept.0 && next.1 <= kept.2;
            if one {
                kept.2 = kept.2.max(next.2);
            }
            one
        });
        pauses
    }

    /// The hostile host validates its address, and later abandons the requests that it started.
    fn has_greedy_host(&self) -> bool {
        self.hostile.is_some_and(|hostile| hostile.answers)
    }

    fn has_dead_host(&self) -> bool {
        self.hosts.iter().any(|fault| matches!(fault, HostFault::Crash(_, _, None)))
    }
}

/// The server refuses the call, or its response is too long.
fn is_refused(config: &Config, call: &PlannedCall) -> bool {
    call.refused || call.response_bytes > config.max_message
}

/// When deadlines have to be met again; see the module's description.
fn healthy_from(
    config: &Config,
    network: &SwarmNetwork,
    faults: &ScenarioFaults<'_>,
    calls: &[PlannedCall],
) -> SimTime {
    // The quota of a greedy host leaves at least half of the places to all others.
    let places = config.max_rpcs as usize / if faults.has_greedy_host() { 2 } else { 1 };
    // If a client moves during a call, its server may keep one part of the call for each address.
    let few_places = places < calls.len() * (1 + faults.moves.len());
    let unwanted = few_places && config.completion == Completion::AtLeastOnce;
    let small = few_places || config.memory_budget < AMPLE_MEMORY;
    let left = faults.has_dead_host() || faults.has_greedy_host() || !faults.moves.is_empty();
    if unwanted || small && left {
        return SimTime::MAX;
    }
    let twice = |bytes: u32| 2 * network.rate.serialisation(bytes).0;
    let bytes = |call: &PlannedCall| call.request_bytes + call.response_bytes;
    let work = |call: &PlannedCall| twice(bytes(call)) + call.service.0 + CALL_OVERHEAD.0;
    let all: u64 = calls.iter().map(work).sum();
    let runs_again = |call: &&PlannedCall| {
        is_refused(config, call) && (config.profile != Profile::Default || call.idempotent)
    };
    // The bound on a message is either its link or one window per round trip.
    let packet = network.rate.serialisation(network.mtu);
    let trip = 4 * network.propagation.0 + 2 * (network.software_delay.0 + packet.0);
    let window = u64::from(config.rtt_bytes.max(1));
    let paced = |bytes: u32| (2 * trip * u64::from(bytes) / window).max(twice(bytes));
    let round: u64 = calls.iter().filter(runs_again).map(|call| paced(call.request_bytes)).sum();
    let busy = round > SimDuration::from_protocol(config.loss.resend_after).0;
    let crowded = busy || few_places;
    let last = |call: &PlannedCall| {
        let given_up = call.at + SimDuration::from_protocol(call.allowed);
        if crowded && runs_again(&call) { given_up } else { call.at }
    };
    let calm = calls.iter().map(last).chain(faults.ends()).max().unwrap_or(WARM_UP);
    // Requests from unvalidated addresses give way to others, and are dropped after a second. The
    // packets of a hostile host take time on the links.
    let hostile = faults.hostile.map_or(0, |hostile| {
        SimDuration::millis(1_000).0 + u64::from(hostile.packets) * twice(network.mtu)
    });
    calm + SimDuration(all + hostile) + SimDuration::millis(500)
}

/// The promises of a scenario. `slowest` is the lowest rate that a link has at any time.
pub(super) fn promises(
    config: &Config,
    (network, slowest): (&SwarmNetwork, LinkRate),
    faults: &ScenarioFaults<'_>,
    calls: &[PlannedCall],
) -> Promises {
    // The kernel module forgets an RPC and executes again whatever arrives afterwards: late copies,
    // packets that a RESEND overtook because a queue held them longer than the resend timer, and
    // requests that its server refused.
    let late = slowest.serialisation(network.buffer_bytes as u32) > SimDuration::millis(1);
    let refusals = calls.iter().any(|call| is_refused(config, call));
    let copies = faults.links.duplicate_ppm + faults.links.delay_ppm > 0;
    let calm = faults.hosts.is_empty() && !copies && !late && !refusals;
    let pauses = faults.hosts.iter().map(|fault| match fault {
        HostFault::Pause(_, _, length) => length.0,
        HostFault::Crash(..) => 0,
    });
    Promises {
        healthy_from: healthy_from(config, network, faults, calls),
        may_repeat: match config.completion {
            Completion::AtLeastOnce => true,
            Completion::Acked { suppress_duplicates, .. } => !suppress_duplicates && !calm,
        },
        unreachable_after: config.loss.timeout,
        pauses: faults.pauses(),
        moves: faults.moves.to_vec(),
        foreign_addresses: faults.hostile.map_or(0, Hostile::addresses),
        indeterminate: config.profile == Profile::Default,
        deadline_slack: SimDuration(pauses.sum::<u64>() + TICK.0),
        max_message: config.max_message,
        max_payload: network.framing.payload_at(network.mtu),
        max_unscheduled: match config.unscheduled {
            UnscheduledLimit::RttBytes => config.rtt_bytes_max,
            UnscheduledLimit::Fixed(bytes) => bytes,
        },
        // One message may exceed the budget, so that one message can always complete.
        memory_budget: config.memory_budget + u64::from(config.max_message),
        max_rpcs: config.max_rpcs,
    }
}
