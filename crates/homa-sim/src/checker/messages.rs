//! A checker for any transport: it sees which messages go in and which come out, and of packets
//! only their number.
//!
//! It checks that
//! * every one-way message is delivered to its receiver, whole and once (if the transport promises
//!   to suppress copies), or is reported failed;
//! * every request runs once (under the same condition), whole, at its server; its response comes
//!   back once and whole, or the call ends once, in an error or by cancellation;
//! * errors are justified: a call may miss a deadline only if the deadline came before the network
//!   had been whole for long enough, and a peer may be unreachable only while there are faults;
//! * each message that a host sends is released to its application once;
//! * nothing is left at the end.
//!
//! Whole means as many bytes as were submitted and, if packets say where their bytes belong, each
//! byte in place before delivery. Left out: performance, order, memory, and hosts that lose their
//! state.

use std::collections::BTreeMap;

use homa_proto::{
    Delivered, Event, MessageId, MessageKind, Placement, Receipt, RpcError, RpcHandle, Submit,
    SubmitError, Submitted,
};

use crate::engine::Probe;
use crate::time::SimTime;
use crate::topology::HostId;
use crate::transport::{Label, Transport, message_number};

use super::intervals::Intervals;
use super::{MAX_VIOLATIONS, Violation};

/// What a transport promises, and what the run excuses.
#[derive(Clone, Copy, Debug)]
pub struct MessagePromises {
    /// A message may be delivered again, because the transport does not suppress copies forever.
    pub may_repeat: bool,
    /// Packets say where their bytes belong. Those of byte streams do not: one may hold several
    /// messages.
    pub names_places: bool,
    /// By this time the network has been whole for long enough that everything in flight can have
    /// arrived, so later deadlines must be met.
    pub healthy_from: SimTime,
    /// There are faults before that time.
    pub has_faults: bool,
}

/// An RPC handle as a key: index and generation.
type Handle = (u32, u32);

fn handle(rpc: RpcHandle) -> Handle {
    (rpc.index, rpc.generation)
}

/// How a message or call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Open,
    /// Delivered, or answered.
    Arrived,
    Failed,
    Cancelled,
}

/// A call, or a one-way message.
#[derive(Clone, Debug)]
struct Submission {
    from: HostId,
    to: HostId,
    bytes: u32,
    /// `MAX` for a one-way message.
    deadline: SimTime,
    runs: u32,
    /// The bytes of the response, once it is submitted.
    response: Option<u32>,
    /// The server refused the call.
    refused: bool,
    end: End,
}

/// What a host was given and has not released.
#[derive(Clone, Debug, Default)]
struct HostEntries {
    /// Messages and requests that were accepted.
    accepted: u32,
    one_way: BTreeMap<u32, u64>,
    /// Calls by the client's port.
    by_port: BTreeMap<u16, u64>,
    as_client: BTreeMap<Handle, u64>,
    as_server: BTreeMap<Handle, u64>,
    sending: BTreeMap<MessageId, u64>,
    /// By sender and message: the bytes received.
    receiving: BTreeMap<(HostId, MessageId), Intervals>,
}

/// See the module's description.
#[derive(Clone, Debug)]
pub struct MessageChecker {
    promises: MessagePromises,
    hosts: Vec<HostEntries>,
    /// By cookie, which is never reused.
    entries: BTreeMap<u64, Submission>,
    violations: Vec<Violation>,
    packets: u64,
}

impl MessageChecker {
    /// A checker of `hosts` hosts.
    pub fn new(hosts: u32, promises: MessagePromises) -> Self {
        Self {
            promises,
            hosts: vec![HostEntries::default(); hosts as usize],
            entries: BTreeMap::new(),
            violations: Vec::new(),
            packets: 0,
        }
    }

    /// The promises broken so far.
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// Messages and calls that transports accepted.
    pub fn accepted(&self) -> u64 {
        self.entries.len() as u64
    }

    /// How many of them were delivered, or answered.
    pub fn arrived(&self) -> u64 {
        self.count(End::Arrived)
    }

    /// How many of them were reported failed.
    pub fn failed(&self) -> u64 {
        self.count(End::Failed)
    }

    fn count(&self, end: End) -> u64 {
        self.entries.values().filter(|entry| entry.end == end).count() as u64
    }

    /// Packets sent.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// Adds a violation that concerns the network as a whole.
    pub fn report(&mut self, at: SimTime, rule: &'static str, detail: String) {
        self.add(at, None, rule, detail);
    }

    fn add(&mut self, at: SimTime, host: Option<HostId>, rule: &'static str, detail: String) {
        if self.violations.len() < MAX_VIOLATIONS {
            self.violations.push(Violation { at, host, rule, detail });
        }
    }

    fn require(
        &mut self,
        holds: bool,
        (at, host): (SimTime, HostId),
        rule: &'static str,
        detail: impl FnOnce() -> String,
    ) {
        if !holds {
            self.add(at, Some(host), rule, detail());
        }
    }

    /// Checks the end of a run, when nothing is in flight any more.
    pub fn finish(&mut self, now: SimTime) {
        let open = self.entries.iter().filter(|(_, entry)| entry.end == End::Open);
        let open: Vec<_> = open.map(|(cookie, entry)| (*cookie, entry.clone())).collect();
        for (cookie, entry) in open {
            let detail = format!("message {cookie}: {entry:?}");
            self.add(now, Some(entry.from), "every message arrives or fails", detail);
        }
        for index in 0..self.hosts.len() {
            let left: Vec<_> = self.hosts[index].sending.iter().take(3).collect();
            let detail = format!("{left:?} (name, message) and maybe more were not released");
            if !left.is_empty() {
                let host = HostId(index as u32);
                self.add(now, Some(host), "sent messages are released", detail);
            }
        }
    }

    fn submit(&mut self, (now, host): (SimTime, HostId), what: &Submit, names: &Submitted) {
        let book = &mut self.hosts[host.0 as usize];
        let (cookie, entry) = match *what {
            Submit::OneWay { peer, length, cookie } => {
                book.accepted += 1;
                book.one_way.insert(book.accepted, cookie);
                (cookie, Some((HostId(peer.0), length, SimTime::MAX)))
            }
            Submit::Request(request) => {
                book.accepted += 1;
                book.by_port.insert(request.local_port, request.cookie);
                book.as_client.insert(handle(names.rpc), request.cookie);
                let deadline = SimTime::from_protocol(request.deadline);
                (request.cookie, Some((HostId(request.peer.0), request.length, deadline)))
            }
            Submit::Response { rpc, length } => {
                let Some(&cookie) = book.as_server.get(&handle(rpc)) else {
                    return self.unknown((now, host), what);
                };
                if let Some(entry) = self.entries.get_mut(&cookie) {
                    entry.response = Some(length);
                }
                (cookie, None)
            }
            Submit::Cancel { rpc } | Submit::Refuse { rpc, .. } => {
                return self.cancel((now, host), rpc);
            }
        };
        if let Some((to, bytes, deadline)) = entry {
            let (runs, response, refused, end) = (0, None, false, End::Open);
            let entry =
                Submission { from: host, to, bytes, deadline, runs, response, refused, end };
            self.entries.insert(cookie, entry);
        }
        let Some(message) = names.message else { return };
        let before = self.hosts[host.0 as usize].sending.insert(message, cookie);
        let detail = || format!("{message:?} of {before:?} names {cookie}, too");
        self.require(before.is_none(), (now, host), "message names in use are unique", detail);
    }

    fn unknown(&mut self, at: (SimTime, HostId), what: &Submit) {
        let detail = || format!("accepted: {what:?}");
        self.require(false, at, "only open RPCs are accepted", detail);
    }

    fn cancel(&mut self, at: (SimTime, HostId), rpc: RpcHandle) {
        let book = &self.hosts[at.1.0 as usize];
        let (own, served) = (book.as_client.get(&handle(rpc)), book.as_server.get(&handle(rpc)));
        // Handles of both kinds may look the same, so take the one that is open.
        let open = |cookie: &&u64| self.entries[*cookie].end == End::Open;
        match (own.filter(open).copied(), served.copied()) {
            (Some(cookie), _) if self.entries[&cookie].from == at.1 => {
                self.entries.entry(cookie).and_modify(|entry| entry.end = End::Cancelled);
            }
            (_, Some(cookie)) => {
                self.entries.entry(cookie).and_modify(|entry| entry.refused = true);
            }
            _ => self.unknown(at, &Submit::Cancel { rpc }),
        }
    }

    fn on_event(&mut self, at: (SimTime, HostId), event: &Event) {
        match event {
            Event::Delivered(delivered) => self.on_delivered(at, delivered),
            Event::Failed { cookie, error, .. } => self.on_failed(at, *cookie, *error),
            Event::Release { message } => {
                let book = &mut self.hosts[at.1.0 as usize];
                if book.sending.remove(message).is_none() {
                    // It is an incoming message that the application no longer wants.
                    let started = book.receiving.len();
                    book.receiving.retain(|(_, name), _| name != message);
                    let known = book.receiving.len() < started || !self.promises.names_places;
                    let detail = || format!("{message:?}");
                    self.require(known, at, "a message is released once", detail);
                }
            }
            Event::Started { .. } | Event::Readable { .. } | Event::Cancelled { .. } => {}
        }
    }

    fn on_delivered(&mut self, at: (SimTime, HostId), delivered: &Delivered) {
        let from = HostId(delivered.peer.0);
        let cookie = match delivered.kind {
            MessageKind::OneWay => {
                let number = message_number(delivered.id.client());
                self.hosts[from.0 as usize].one_way.get(&number).copied()
            }
            MessageKind::Request => {
                self.hosts[from.0 as usize].by_port.get(&delivered.remote_port).copied()
            }
            MessageKind::Response => Some(delivered.cookie),
        };
        let Some(entry) = cookie.and_then(|cookie| self.entries.get(&cookie)).cloned() else {
            let detail = || format!("{delivered:?}");
            return self.require(false, at, "only submitted messages are delivered", detail);
        };
        let cookie = cookie.unwrap_or_default();
        let (ends, bytes) = match delivered.kind {
            MessageKind::Response => ((entry.to, entry.from), entry.response),
            _ => ((entry.from, entry.to), Some(entry.bytes)),
        };
        let detail = || format!("message {cookie}, {entry:?}: {delivered:?}");
        self.require((from, at.1) == ends, at, "messages go where they were sent", detail);
        let whole = Some(delivered.length) == bytes;
        self.require(whole, at, "a delivered message is whole", detail);
        self.check_places(at, (from, delivered.message), delivered.length);
        match delivered.kind {
            MessageKind::Request => {
                let once = entry.runs == 0 || self.promises.may_repeat;
                self.require(once, at, "a request runs once", detail);
                self.hosts[at.1.0 as usize].as_server.insert(handle(delivered.rpc), cookie);
                self.entries.entry(cookie).and_modify(|entry| entry.runs += 1);
            }
            MessageKind::OneWay => {
                let once = entry.runs == 0 || self.promises.may_repeat;
                self.require(once, at, "a message is delivered once", detail);
                self.entries.entry(cookie).and_modify(|entry| {
                    (entry.runs, entry.end) = (1, End::Arrived);
                });
            }
            MessageKind::Response => {
                self.require(entry.end == End::Open, at, "a call ends once", detail);
                self.entries.entry(cookie).and_modify(|entry| entry.end = End::Arrived);
            }
        }
    }

    /// Checks that every byte of a delivered message was put in its place.
    fn check_places(&mut self, at: (SimTime, HostId), name: (HostId, MessageId), bytes: u32) {
        let there = self.hosts[at.1.0 as usize].receiving.remove(&name).unwrap_or_default();
        let whole = there.contains(0, bytes) || !self.promises.names_places;
        let detail = || format!("{name:?} of {bytes} B has {there:?}");
        self.require(whole, at, "a delivered message is whole", detail);
    }

    fn on_failed(&mut self, at: (SimTime, HostId), cookie: u64, error: RpcError) {
        let Some(entry) = self.entries.get(&cookie).cloned() else {
            let detail = || format!("message {cookie}: {error:?}");
            return self.require(false, at, "only submitted messages fail", detail);
        };
        let detail = || format!("message {cookie}, {entry:?}: {error:?}");
        let one_way = entry.deadline == SimTime::MAX;
        // If the acknowledgement is lost, the sender cannot know that its message was delivered.
        let open = entry.end == End::Open || one_way && entry.end == End::Arrived;
        self.require(open && entry.from == at.1, at, "a call ends once", detail);
        let MessagePromises { healthy_from, has_faults, .. } = self.promises;
        let justified = match error {
            RpcError::DeadlineExceeded => {
                at.0 >= entry.deadline && (entry.deadline < healthy_from || entry.refused)
            }
            _ => entry.refused || has_faults && at.0 < healthy_from,
        };
        self.require(justified, at, "failures are justified", detail);
        if entry.end == End::Open {
            self.entries.entry(cookie).and_modify(|entry| entry.end = End::Failed);
        }
    }
}

impl<T: Transport> Probe<T> for MessageChecker {
    fn submitted(
        &mut self,
        now: SimTime,
        host: HostId,
        what: &Submit,
        result: &Result<Submitted, SubmitError>,
    ) {
        if let Ok(names) = result {
            self.submit((now, host), what, names);
        }
    }

    fn event(&mut self, now: SimTime, host: HostId, event: &Event) {
        self.on_event((now, host), event);
    }

    fn transmitted(&mut self, _: SimTime, _: HostId, _: u32, _: &T::Packet, _: &Label) {
        self.packets += 1;
    }

    fn received(
        &mut self,
        _: SimTime,
        host: HostId,
        from: HostId,
        _: u32,
        _: &T::Packet,
        receipt: &Receipt,
    ) {
        if let Receipt::Place(Placement { message, offset, len, .. }) = *receipt {
            let book = &mut self.hosts[host.0 as usize];
            book.receiving.entry((from, message)).or_default().add(offset, offset + len);
        }
    }
}
