//! What every message transport needs besides its protocol: names, RPCs, deadlines, and the events
//! that applications hear.
//!
//! Papers about transports speak of flows. Here a flow is a message, and a request and its response
//! are two messages that an RPC ties together. A transport keeps its own state of each message (`S`
//! of one it sends, `R` of one it receives) in an [`Exchange`], which finds it by what a packet
//! names ([`Head`]), and tells it what became of messages: [`Exchange::place`] when bytes arrived,
//! [`Exchange::finish`] when a message is acknowledged as a whole. The rest follows: `Started`,
//! `Delivered`, `Release`, `Failed` and `Cancelled` as `homa_proto::Event` describes them, each
//! once.
//!
//! A message that its sender gives up (cancelled, or its call's deadline passed) is abandoned by a
//! [`Courtesy`] packet, which is repeated until the receiver answers, so that receivers keep
//! nothing of it. No paper has this; none lets a message be cancelled.
//!
//! Invariants: an event queue that is empty frees names for reuse; a request is delivered once,
//! however often its packets come, for as long as both hosts live; nothing is iterated per packet.
//! Left out: authentication, limits on memory, ports (every host accepts every request). Messages
//! to a host that lost its memory half way are not started over: their calls end at the deadline.

mod pair;
mod rpcs;
mod slab;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use homa_proto::{
    Delivered, Duration, Event, MessageId, MessageKind, PeerId, Placement, Receipt, RpcHandle,
    RpcId, Time,
};

use crate::topology::HostId;
use crate::transport::Numbered;

use pair::{Pair, Slot};
use rpcs::Rpc;
pub use slab::{Ref, Slab};

/// Names a message in every packet about it, whoever sends the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The RPC, as the message's sender writes it: odd for a response.
    pub id: RpcId,
    /// Where this packet goes.
    pub to: HostId,
    /// The message's number among those of its sender to its receiver, from 0.
    pub serial: u32,
    /// The port at the message's sender; 0 for a one-way message.
    pub from_port: u16,
    /// The port at the message's receiver.
    pub to_port: u16,
    /// The life of the message's sender: a host that restarts counts on.
    pub epoch: u16,
}

impl Head {
    /// The kind of the message.
    pub fn kind(&self) -> MessageKind {
        match (self.id.from_server(), self.from_port) {
            (true, _) => MessageKind::Response,
            (false, 0) => MessageKind::OneWay,
            (false, _) => MessageKind::Request,
        }
    }

    /// The same message in a packet to `host`: what a receiver answers with.
    pub fn to(self, host: HostId) -> Self {
        Self { to: host, ..self }
    }
}

/// A message that is being sent.
#[derive(Clone, Debug)]
pub struct Outgoing<S> {
    /// As its packets carry it.
    pub head: Head,
    /// Bytes.
    pub length: u32,
    /// When it was submitted.
    pub since: Time,
    rpc: Ref,
    /// The transport's own.
    pub state: S,
}

/// A message that is being received.
#[derive(Clone, Debug)]
pub struct Incoming<R> {
    /// As packets back to its sender carry it.
    pub head: Head,
    /// Bytes.
    pub length: u32,
    rpc: RpcHandle,
    cookie: u64,
    announced: bool,
    /// The transport's own.
    pub state: R,
}

/// A packet about a message that its sender gave up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Courtesy {
    /// The sender will not send it again: forget it.
    Abandon,
    /// Forgotten.
    Abandoned,
}

/// What an arriving packet of a message belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// A message under way.
    Open(Ref),
    /// A message that was whole, or that nobody wants: tell its sender that all is here.
    Done,
    /// A message of a former life of its sender: ignore the packet.
    Stale,
}

/// A farewell that has not been answered.
#[derive(Clone, Copy, Debug)]
struct Farewell {
    head: Head,
    due: Time,
    said: u32,
}

/// Between repetitions of a farewell, and how often it is said.
const AGAIN: Duration = Duration::millis(1);
const FAREWELLS: u32 = 20;
/// A peer that is not heard for so long is given up.
pub const SILENCE: Duration = Duration::secs(5);

/// See the module's description.
#[derive(Clone, Debug)]
pub struct Exchange<S, R> {
    epoch: u16,
    outgoing: Slab<Outgoing<S>>,
    incoming: Slab<Incoming<R>>,
    rpcs: Slab<Rpc>,
    /// Clients' RPCs and one-way messages, by the number in their id.
    by_number: Numbered<Ref>,
    peers: BTreeMap<u32, u32>,
    pairs: Vec<Pair>,
    /// Of clients' RPCs.
    deadlines: BTreeSet<(Time, Ref)>,
    farewells: VecDeque<Farewell>,
    courtesies: VecDeque<(Head, Courtesy)>,
    events: VecDeque<Event>,
}

impl<S, R> Exchange<S, R> {
    /// The tables of a host in its `life`-th life.
    pub fn new(life: u32) -> Self {
        Self {
            epoch: life as u16,
            outgoing: Slab::default(),
            incoming: Slab::default(),
            rpcs: Slab::default(),
            by_number: Numbered::default(),
            peers: BTreeMap::new(),
            pairs: Vec::new(),
            deadlines: BTreeSet::new(),
            farewells: VecDeque::new(),
            courtesies: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// The next event for the application.
    #[inline]
    pub fn event(&mut self) -> Option<Event> {
        let event = self.events.pop_front();
        if event.is_none() {
            self.outgoing.reclaim();
            self.incoming.reclaim();
            self.rpcs.reclaim();
        }
        event
    }

    /// A message under way from here.
    #[inline]
    pub fn outgoing(&mut self, message: Ref) -> Option<&mut Outgoing<S>> {
        self.outgoing.get_mut(message)
    }

    /// A message under way to here.
    #[inline]
    pub fn incoming(&mut self, message: Ref) -> Option<&mut Incoming<R>> {
        self.incoming.get_mut(message)
    }

    /// Messages under way from here and to here.
    pub fn under_way(&self) -> (usize, usize) {
        (self.outgoing.iter().count(), self.incoming.iter().count())
    }

    fn pair(&mut self, host: HostId) -> &mut Pair {
        let next = self.pairs.len() as u32;
        let index = *self.peers.entry(host.0).or_insert(next);
        if index == next {
            self.pairs.push(Pair::default());
        }
        &mut self.pairs[index as usize]
    }

    fn known(&self, host: HostId) -> Option<&Pair> {
        self.peers.get(&host.0).map(|&index| &self.pairs[index as usize])
    }

    /// The message of ours that a packet from its receiver is about, if it is under way.
    pub fn answered(&mut self, now: Time, from: HostId, head: &Head) -> Option<Ref> {
        if head.epoch != self.epoch {
            return None;
        }
        let pair = self.pair(from);
        pair.heard = now;
        match pair.outgoing.get(head.serial) {
            Slot::Open(message) => Some(message),
            _ => None,
        }
    }

    /// The message of ours that a packet of ours belongs to, if it is under way: a packet that the
    /// network sent back.
    pub fn own(&self, head: &Head) -> Option<Ref> {
        match self.known(head.to)?.outgoing.get(head.serial) {
            Slot::Open(message) if head.epoch == self.epoch => Some(message),
            _ => None,
        }
    }

    /// The message that a packet from its sender belongs to; `start` makes the transport's state of
    /// a new one.
    pub fn arrived(
        &mut self,
        now: Time,
        from: HostId,
        (head, length): (&Head, u32),
        start: impl FnOnce() -> R,
    ) -> Found {
        if !self.is_present(now, from, head.epoch) {
            return Found::Stale;
        }
        match self.pair(from).incoming.get(head.serial) {
            Slot::Open(message) => Found::Open(message),
            Slot::Done => Found::Done,
            Slot::Unseen => self.begin(from, (head, length), start),
        }
    }

    /// Notes the life of a peer; false when the packet is of a former one.
    fn is_present(&mut self, now: Time, from: HostId, epoch: u16) -> bool {
        let pair = self.pair(from);
        pair.heard = now;
        let before = pair.epoch.replace(epoch);
        match before {
            None => true,
            Some(before) if before == epoch => true,
            Some(before) if (epoch.wrapping_sub(before) as i16) < 0 => {
                pair.epoch = Some(before);
                false
            }
            Some(_) => {
                pair.incoming = pair::Serials::default();
                self.forget_former_life(from);
                true
            }
        }
    }

    fn begin(
        &mut self,
        from: HostId,
        (head, length): (&Head, u32),
        start: impl FnOnce() -> R,
    ) -> Found {
        let rpc = match head.kind() {
            MessageKind::Request => self.serve(from, head),
            MessageKind::Response => self.awaited(from, head),
            // Nobody can answer it: a handle that was never valid.
            MessageKind::OneWay => {
                Some((RpcHandle { index: u32::MAX, generation: head.serial }, 0))
            }
        };
        let Some((rpc, cookie)) = rpc else {
            self.pair(from).incoming.set(head.serial, Slot::Done);
            return Found::Done;
        };
        let message = self.incoming.insert_with(|_| Incoming {
            head: head.to(from),
            length,
            rpc,
            cookie,
            announced: false,
            state: start(),
        });
        if !self.pair(from).incoming.set(head.serial, Slot::Open(message)) {
            self.incoming.remove(message);
            return Found::Stale;
        }
        if head.kind() == MessageKind::Response {
            self.note_response(rpc, message);
        }
        Found::Open(message)
    }

    /// Bytes of a message arrived for the first time; with `whole`, the last ones that were
    /// missing. The message is over then.
    pub fn place(&mut self, message: Ref, (offset, len): (u32, u32), whole: bool) -> Receipt {
        let id = incoming_id(message);
        let Some(incoming) = self.incoming.get_mut(message) else { return Receipt::Consumed };
        let total = incoming.length;
        if whole {
            self.deliver(message);
        } else if !incoming.announced {
            incoming.announced = true;
            self.events.push_back(Event::Started { rpc: incoming.rpc, message: id, total });
        }
        Receipt::Place(Placement { message: id, total, offset, len })
    }

    fn deliver(&mut self, message: Ref) {
        let Some(incoming) = self.incoming.remove(message) else { return };
        let Incoming { head, length, rpc, cookie, .. } = incoming;
        self.pair(head.to).incoming.set(head.serial, Slot::Done);
        let kind = head.kind();
        if kind == MessageKind::Response {
            self.end_call(rpc);
        }
        self.events.push_back(Event::Delivered(Delivered {
            rpc,
            message: incoming_id(message),
            kind,
            peer: PeerId(head.to.0),
            remote_port: head.from_port,
            local_port: head.to_port,
            id: head.id.client(),
            length,
            cookie,
        }));
    }

    /// The receiver has all of a message.
    pub fn finish(&mut self, message: Ref) {
        let Some(outgoing) = self.release(message) else { return };
        self.after_release(outgoing.rpc, outgoing.head.kind());
    }

    /// A message is no longer under way from here.
    fn release(&mut self, message: Ref) -> Option<Outgoing<S>> {
        let outgoing = self.outgoing.remove(message)?;
        let Head { to, serial, .. } = outgoing.head;
        self.pair(to).outgoing.set(serial, Slot::Done);
        self.events.push_back(Event::Release { message: outgoing_id(message) });
        Some(outgoing)
    }

    /// Gives up a message whose receiver was not heard for [`SILENCE`]; false when it was, or when
    /// the message is younger. For timers of transports, when they would send something again.
    pub fn give_up(&mut self, now: Time, message: Ref) -> bool {
        let Some(outgoing) = self.outgoing.get(message) else { return true };
        let heard = self.known(outgoing.head.to).map_or(Time::ZERO, |pair| pair.heard);
        if now.since(heard.max(outgoing.since)) < SILENCE {
            return false;
        }
        self.unreachable(message);
        true
    }

    /// Stops sending a message, and says so to its receiver.
    fn abandon(&mut self, now: Time, message: Ref) {
        if let Some(outgoing) = self.release(message) {
            self.courtesies.push_back((outgoing.head, Courtesy::Abandon));
            self.farewells.push_back(Farewell { head: outgoing.head, due: now + AGAIN, said: 1 });
        }
    }

    /// Stops receiving a message.
    fn refuse(&mut self, message: Ref) {
        if let Some(incoming) = self.incoming.remove(message) {
            let Head { to, serial, .. } = incoming.head;
            self.pair(to).incoming.set(serial, Slot::Done);
            self.take_back(message, incoming.announced);
        }
    }

    /// The application hears that an incoming message is over, if it ever heard of it.
    fn take_back(&mut self, message: Ref, announced: bool) {
        if announced {
            self.events.push_back(Event::Release { message: incoming_id(message) });
        }
    }

    /// The next packet that the exchange itself wants sent, with its message.
    pub fn courtesy(&mut self) -> Option<(Head, Courtesy)> {
        self.courtesies.pop_front()
    }

    /// False only when [`Exchange::courtesy`] would yield nothing.
    #[inline]
    pub fn has_courtesy(&self) -> bool {
        !self.courtesies.is_empty()
    }

    /// A peer says something about an abandoned message.
    pub fn on_courtesy(&mut self, now: Time, from: HostId, head: &Head, what: Courtesy) {
        match what {
            Courtesy::Abandoned => {
                let this = |other: &Farewell| {
                    let Head { to, serial, epoch, .. } = other.head;
                    (to, serial, epoch) == (from, head.serial, head.epoch)
                };
                self.farewells.retain(|farewell| !this(farewell));
            }
            Courtesy::Abandon => {
                if self.is_present(now, from, head.epoch) {
                    match self.pair(from).incoming.get(head.serial) {
                        Slot::Open(message) => self.drop_incoming(message),
                        Slot::Unseen => {
                            self.pair(from).incoming.set(head.serial, Slot::Done);
                        }
                        Slot::Done => {}
                    }
                }
                self.courtesies.push_back((head.to(from), Courtesy::Abandoned));
            }
        }
    }

    /// Calls whose deadline passed fail; farewells without an answer are repeated.
    pub fn expire(&mut self, now: Time) {
        while let Some(&Farewell { head, said, .. }) =
            self.farewells.front().filter(|farewell| farewell.due <= now)
        {
            self.farewells.pop_front();
            if said < FAREWELLS {
                self.courtesies.push_back((head, Courtesy::Abandon));
                self.farewells.push_back(Farewell { head, due: now + AGAIN, said: said + 1 });
            }
        }
        while let Some(&(at, rpc)) = self.deadlines.first().filter(|(at, _)| *at <= now) {
            self.deadlines.remove(&(at, rpc));
            self.deadline_passed(now, rpc);
        }
    }

    /// When to call [`Exchange::expire`] next.
    pub fn deadline(&self) -> Option<Time> {
        let deadline = self.deadlines.first().map(|(at, _)| *at);
        let farewell = self.farewells.front().map(|farewell| farewell.due);
        deadline.into_iter().chain(farewell).min()
    }
}

fn outgoing_id(message: Ref) -> MessageId {
    MessageId(message.index << 1)
}

fn incoming_id(message: Ref) -> MessageId {
    MessageId(message.index << 1 | 1)
}
