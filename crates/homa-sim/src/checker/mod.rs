//! The independent judge: watches a run from outside and says where a promise was broken.
//!
//! It knows what applications asked for, what packets went by and what transports reported, and
//! nothing of how a transport works. It checks that
//! * an incoming message's bytes all came from its sender, for its RPC, each to its own place, and
//!   are all there when it is delivered (messages carry no bytes here, so this stands for "bytes in
//!   place");
//! * every call ends once, in its response or in an error that the circumstances justify, in time;
//! * requests run as often as the profile promises ([`Promises`]);
//! * names (RPC handles, messages) are used only while they are valid, and all are given back;
//! * memory for incoming messages stays in its budget;
//! * whoever forges packets has nothing executed in the name of others, and no host sends more to
//!   whom it does not know than three times what came in that name.
//!
//! Left out: performance; order of grants; anything about a transport's inside, which the swarm
//! asks the endpoint itself. That is Homa's judge; [`MessageChecker`] is that of any transport.

mod amplification;
mod events;
mod intervals;
mod messages;
mod packets;
mod record;
#[cfg(test)]
pub(crate) mod saboteur;

use std::collections::BTreeMap;

use homa_proto::{Duration, Event, Packet, Receipt, RpcId, Submit, SubmitError, Submitted};

use crate::engine::Probe;
use crate::time::{SimDuration, SimTime};
use crate::topology::HostId;
use crate::transport::{Label, Transport, as_received};

use amplification::Exchanged;
pub use messages::{MessageChecker, MessagePromises};
use record::HostRecord;
pub use record::{Call, Ending};

/// What a profile owes its users in the circumstances of a run.
#[derive(Clone, Debug)]
pub struct Promises {
    /// A request may run again although its call did not say that it is idempotent.
    pub may_repeat: bool,
    /// The shortest silence after which a peer may be called unreachable; `None`: never.
    pub unreachable_after: Option<Duration>,
    /// Hosts that stood still, each time from when until when: apart from the first
    /// [`STANDSTILL_NOTICED`] of it, that is nobody's silence.
    pub pauses: Vec<(HostId, SimTime, SimTime)>,
    /// When clients got another address: of a call in progress then, they may hear no more.
    pub moves: Vec<(HostId, SimTime)>,
    /// So many addresses behind those of the hosts are no honest host's: the first is that of a
    /// hostile one, at the others is nobody. Packets from them say in [`Packet::peer`] whose name
    /// they come in.
    pub strangers: u32,
    /// A call may end in "indeterminate" when its server lost or forgot its state.
    pub indeterminate: bool,
    /// A call whose deadline is later has no excuse to miss it: the network healed, and there was
    /// time for everything that was asked for.
    pub healthy_from: SimTime,
    /// How long after its deadline a call may end (pauses of its host, say).
    pub deadline_slack: SimDuration,
    /// Largest message, bytes.
    pub max_message: u32,
    /// Message bytes per packet by which a sender may exceed what it may send.
    pub max_payload: u32,
    /// Most unscheduled bytes of a message.
    pub max_unscheduled: u32,
    /// Bytes of undelivered incoming messages a host may hold.
    pub memory_budget: u64,
    /// Most RPCs as client and as server each.
    pub max_rpcs: u32,
}

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// When.
    pub at: SimTime,
    /// Where; `None`: at no particular host.
    pub host: Option<HostId>,
    /// Which promise.
    pub rule: &'static str,
    /// The circumstances.
    pub detail: String,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.3} us", self.at.0 as f64 / 1e6)?;
        if let Some(host) = self.host {
            write!(f, ", host {}", host.0)?;
        }
        write!(f, ": {}: {}", self.rule, self.detail)
    }
}

/// A host may count as silence what passed until its next timer, and standstills that are short.
pub const STANDSTILL_NOTICED: SimDuration = SimDuration::millis(15);

impl Promises {
    /// The client's address changed while the call was in progress.
    fn moved(&self, call: &Call, until: SimTime) -> bool {
        let during = call.submitted..=until;
        self.moves.iter().any(|(host, at)| *host == call.client && during.contains(at))
    }

    /// The silence that a host may have noticed from one time to another.
    fn silence(&self, host: HostId, from: SimTime, to: SimTime) -> SimDuration {
        let pauses = self.pauses.iter().filter(|(paused, ..)| *paused == host);
        let still = pauses.map(|&(_, start, end)| {
            let overlap = end.min(to).0.saturating_sub(start.max(from).0);
            overlap.saturating_sub(STANDSTILL_NOTICED.0)
        });
        SimDuration(to.0.saturating_sub(from.0).saturating_sub(still.sum()))
    }
}

/// Violations kept; one bug breaks many promises.
const MAX_VIOLATIONS: usize = 20;

/// See the module's description. Give it to [`crate::engine::Simulation`] as its probe.
pub struct Checker {
    promises: Promises,
    hosts: Vec<HostRecord>,
    /// By the cookie of the request; the applications never use a cookie twice.
    calls: BTreeMap<u64, Call>,
    /// The call that a client's id on the wire stands for.
    by_id: BTreeMap<(HostId, RpcId), u64>,
    /// Bytes between hosts and addresses, while it counts who sends how much.
    exchanged: Exchanged,
    violations: Vec<Violation>,
    quiet_from: SimTime,
    packets: u64,
}

impl Checker {
    /// A judge of `hosts` hosts.
    pub fn new(hosts: u32, promises: Promises) -> Self {
        Self {
            promises,
            hosts: (0..hosts).map(|_| HostRecord::default()).collect(),
            calls: BTreeMap::new(),
            by_id: BTreeMap::new(),
            exchanged: Exchanged::default(),
            violations: Vec::new(),
            quiet_from: SimTime::MAX,
            packets: 0,
        }
    }

    /// From here on no host may send anything.
    pub fn expect_quiet(&mut self, from: SimTime) {
        self.quiet_from = from;
    }

    /// What was broken so far.
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// Adds a finding of somebody who could look inside a host.
    pub fn report(&mut self, at: SimTime, host: HostId, rule: &'static str, detail: String) {
        self.violation(at, Some(host), rule, detail);
    }

    /// The calls, by cookie.
    pub fn calls(&self) -> impl Iterator<Item = (u64, &Call)> {
        self.calls.iter().map(|(&cookie, call)| (cookie, call))
    }

    /// Packets transmitted.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// Every call has ended.
    pub fn all_ended(&self) -> bool {
        self.calls.values().all(|call| call.ending != Ending::Open)
    }

    /// Judges the end of a run: the network healed, everything had time to drain.
    pub fn finish(&mut self, now: SimTime) {
        let open: Vec<u64> =
            self.calls().filter(|(_, call)| call.ending == Ending::Open).map(|(c, _)| c).collect();
        for cookie in open {
            let call = &self.calls[&cookie];
            let (host, detail) = (call.client, format!("call {cookie}: {call:?}"));
            self.violation(now, Some(host), "every call ends", detail);
        }
        for index in 0..self.hosts.len() {
            let host = HostId(index as u32);
            let record = &self.hosts[index];
            if !record.down {
                let rpcs: Vec<String> =
                    record.rpcs.iter().map(|(handle, rpc)| format!("{handle:?} {rpc:?}")).collect();
                let messages: Vec<String> =
                    record.messages.iter().map(|(id, m)| format!("{id:?} {m:?}")).collect();
                self.leftovers(now, host, "no RPC is left over", rpcs);
                self.leftovers(now, host, "no message is left over", messages);
            }
        }
    }

    fn leftovers(&mut self, now: SimTime, host: HostId, rule: &'static str, left: Vec<String>) {
        if let Some(first) = left.first() {
            let detail = format!("{} left, the first is {first}", left.len());
            self.violation(now, Some(host), rule, detail);
        }
    }

    fn violation(&mut self, at: SimTime, host: Option<HostId>, rule: &'static str, detail: String) {
        if self.violations.len() < MAX_VIOLATIONS {
            self.violations.push(Violation { at, host, rule, detail });
        }
    }

    fn is_honest(&self, host: HostId) -> bool {
        (host.0 as usize) < self.hosts.len()
    }

    /// Records a violation unless `holds`.
    fn require(
        &mut self,
        holds: bool,
        (at, host): (SimTime, HostId),
        rule: &'static str,
        detail: impl FnOnce() -> String,
    ) -> bool {
        if !holds {
            self.violation(at, Some(host), rule, detail());
        }
        holds
    }

    fn host(&mut self, host: HostId) -> &mut HostRecord {
        &mut self.hosts[host.0 as usize]
    }

    /// `host` lost everything.
    fn forget(&mut self, host: HostId) {
        *self.host(host) = HostRecord { down: true, ..HostRecord::default() };
        for call in self.calls.values_mut() {
            if call.client == host && call.ending == Ending::Open {
                call.ending = Ending::ClientCrashed;
            }
            if call.server == host {
                call.server_forgot = true;
                call.executed.clear();
            }
        }
    }
}

impl<T: Transport<Packet = Packet>> Probe<T> for Checker {
    fn submitted(
        &mut self,
        now: SimTime,
        host: HostId,
        what: &Submit,
        result: &Result<Submitted, SubmitError>,
    ) {
        self.on_submit((now, host), what, result);
    }

    fn event(&mut self, now: SimTime, host: HostId, event: &Event) {
        self.on_event((now, host), event);
    }

    fn transmitted(&mut self, now: SimTime, host: HostId, _: u32, packet: &Packet, _: &Label) {
        if self.is_honest(host) {
            self.on_transmit((now, host), packet);
        }
    }

    fn received(
        &mut self,
        now: SimTime,
        host: HostId,
        from: HostId,
        _: u32,
        packet: &Packet,
        receipt: &Receipt,
    ) {
        if self.is_honest(host) {
            let forged = !self.is_honest(from);
            let from = if forged { HostId(packet.peer.0) } else { from };
            self.on_receive((now, host), &as_received(from, packet), (receipt, forged));
        }
    }

    fn crashed(&mut self, _: SimTime, host: HostId) {
        self.forget(host);
    }

    fn restarted(&mut self, now: SimTime, host: HostId) {
        (self.host(host).down, self.host(host).up) = (false, now);
    }
}

#[cfg(test)]
mod tests;
