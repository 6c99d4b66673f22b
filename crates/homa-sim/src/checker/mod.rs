//! The independent checker: it observes a run from outside and reports every broken promise.
//!
//! It sees what applications asked for, which packets were sent and what transports reported, but
//! not how a transport works. It checks that
//! * every byte of an incoming message came from its sender, for its RPC, to the right offset, and
//!   that all bytes are there when the message is delivered (messages carry no bytes here, so this
//!   stands for "bytes in place");
//! * every call ends once and in time, in its response or in an error that the circumstances
//!   justify;
//! * requests run as often as the profile promises ([`Promises`]);
//! * names (RPC handles, messages) are used only while they are valid, and all are released;
//! * memory for incoming messages stays within its budget;
//! * a host that forges packets cannot have requests executed in the name of others, and no host
//!   sends an address it does not know more than three times the bytes that came from there.
//!
//! Left out: performance; the order of grants; the internal state of a transport, about which the
//! swarm asks the endpoint itself. This checker is for Homa; [`MessageChecker`] works for any
//! transport.

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
pub use record::{CallEnding, CallRecord};

/// The guarantees of a profile in the circumstances of a run.
#[derive(Clone, Debug)]
pub struct Promises {
    /// A request may run again even if its call is not marked idempotent.
    pub may_repeat: bool,
    /// The shortest silence after which a peer may be reported unreachable; `None` means never.
    pub unreachable_after: Option<Duration>,
    /// Hosts that stalled, each with the start and end of the stall. A stall does not count as
    /// silence of a peer, except for its first [`STALL_NOTICED`].
    pub pauses: Vec<(HostId, SimTime, SimTime)>,
    /// When clients got another address. The client may hear no more about a call in progress then.
    pub moves: Vec<(HostId, SimTime)>,
    /// How many addresses, numbered after those of the hosts, no honest host has. The first is that
    /// of a hostile host, the others are unused. A packet from any of them claims the source
    /// address in [`Packet::peer`].
    pub foreign_addresses: u32,
    /// A call may end in "indeterminate" if its server lost or dropped its state.
    pub indeterminate: bool,
    /// Calls with a later deadline must succeed, because by then the network has healed and there
    /// was time for everything that was asked for.
    pub healthy_from: SimTime,
    /// How long after its deadline a call may end, for example because its host paused.
    pub deadline_slack: SimDuration,
    /// Largest message, bytes.
    pub max_message: u32,
    /// Message bytes per packet, by which a sender may exceed its limit.
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
    /// Which host; `None` if it concerns the whole network.
    pub host: Option<HostId>,
    /// Which promise.
    pub rule: &'static str,
    /// The circumstances, in words.
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

/// How much of a stall may count as silence: short stalls, and the time until the next timer.
pub const STALL_NOTICED: SimDuration = SimDuration::millis(15);

impl Promises {
    /// The client's address changed while the call was in progress.
    fn moved(&self, call: &CallRecord, until: SimTime) -> bool {
        let during = call.submitted..=until;
        self.moves.iter().any(|(host, at)| *host == call.client && during.contains(at))
    }

    /// The silence that a host may have observed between two times.
    fn silence(&self, host: HostId, from: SimTime, to: SimTime) -> SimDuration {
        let pauses = self.pauses.iter().filter(|(paused, ..)| *paused == host);
        let still = pauses.map(|&(_, start, end)| {
            let overlap = end.min(to).0.saturating_sub(start.max(from).0);
            overlap.saturating_sub(STALL_NOTICED.0)
        });
        SimDuration(to.0.saturating_sub(from.0).saturating_sub(still.sum()))
    }
}

/// Violations that are kept, because one bug breaks many promises.
const MAX_VIOLATIONS: usize = 20;

/// See the module's description. Give it to [`crate::engine::Simulation`] as its probe.
pub struct Checker {
    promises: Promises,
    hosts: Vec<HostRecord>,
    /// By the cookie of the request; the applications never reuse a cookie.
    calls: BTreeMap<u64, CallRecord>,
    /// Which call an id of this client on the wire belongs to.
    by_id: BTreeMap<(HostId, RpcId), u64>,
    /// Bytes exchanged between hosts and addresses, to check amplification.
    exchanged: Exchanged,
    violations: Vec<Violation>,
    quiet_from: SimTime,
    packets: u64,
}

impl Checker {
    /// A checker of `hosts` hosts.
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

    /// From this time on, no host may send anything.
    pub fn expect_quiet(&mut self, from: SimTime) {
        self.quiet_from = from;
    }

    /// The promises broken so far.
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// Adds a violation that was found inside a host.
    pub fn report(&mut self, at: SimTime, host: HostId, rule: &'static str, detail: String) {
        self.violation(at, Some(host), rule, detail);
    }

    /// The calls, by cookie.
    pub fn calls(&self) -> impl Iterator<Item = (u64, &CallRecord)> {
        self.calls.iter().map(|(&cookie, call)| (cookie, call))
    }

    /// Packets transmitted.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// Whether every call has ended.
    pub fn all_ended(&self) -> bool {
        self.calls.values().all(|call| call.ending != CallEnding::Open)
    }

    /// Checks the end of a run, when the network has healed and everything had time to drain.
    pub fn finish(&mut self, now: SimTime) {
        let open: Vec<u64> = self
            .calls()
            .filter(|(_, call)| call.ending == CallEnding::Open)
            .map(|(c, _)| c)
            .collect();
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

    /// The host lost its whole state.
    fn forget(&mut self, host: HostId) {
        *self.host(host) = HostRecord { down: true, ..HostRecord::default() };
        for call in self.calls.values_mut() {
            if call.client == host && call.ending == CallEnding::Open {
                call.ending = CallEnding::ClientCrashed;
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
