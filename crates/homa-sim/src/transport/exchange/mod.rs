//! The parts that every message transport needs besides its protocol: names, RPCs, deadlines, and
//! events for applications.
//!
//! Papers about transports speak of flows. Here a flow is a message, and a request and its response
//! are two messages that belong to one RPC. A transport keeps private state for each message (`S`
//! for one it sends, `R` for one it receives) in an [`Exchange`]. The exchange finds the message
//! that a packet names ([`Head`]), and the transport reports progress: [`Exchange::place`] if bytes
//! arrived, [`Exchange::finish`] if the whole message is acknowledged. The exchange then produces
//! the events `Started`, `Delivered`, `Release`, `Failed` and `Cancelled`, each once, as
//! `homa_proto::Event` describes them.
//!
//! If a sender gives up a message (because it was cancelled, or the deadline of its call passed),
//! it sends a [`Courtesy`] packet and repeats it until the receiver answers, so that the receiver
//! keeps no state. This is not in any paper, because none lets a message be cancelled.
//!
//! Invariants: once the event queue is empty, freed names may be reused; a request is delivered
//! once, however often its packets come, for as long as both hosts live; no per-packet operation
//! iterates. Left out: authentication, limits on memory, ports (every host accepts every request).
//! A message to a host that lost its state half way is not restarted; its call ends at the
//! deadline.

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

use pair::{MessageStatus, PeerMessages};
use rpcs::RpcEntry;
pub use slab::{Ref, Slab};

/// Identifies a message in every packet about it, in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The RPC id as the message's sender writes it: odd for a response.
    pub id: RpcId,
    /// Destination of this packet.
    pub to: HostId,
    /// The message's number among those from its sender to its receiver, from 0.
    pub serial: u32,
    /// The port at the message's sender; 0 for a one-way message.
    pub from_port: u16,
    /// The port at the message's receiver.
    pub to_port: u16,
    /// The life of the message's sender, incremented at each restart.
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

    /// The same message in a packet to `host`, for replies of a receiver.
    pub fn to(self, host: HostId) -> Self {
        Self { to: host, ..self }
    }
}

/// A message that is being sent.
#[derive(Clone, Debug)]
pub struct OutboundMessage<S> {
    /// The head that its packets carry.
    pub head: Head,
    /// Bytes.
    pub length: u32,
    /// When it was submitted.
    pub since: Time,
    rpc: Ref,
    /// State of the transport.
    pub state: S,
}

/// A message that is being received.
#[derive(Clone, Debug)]
pub struct InboundMessage<R> {
    /// The head that packets back to its sender carry.
    pub head: Head,
    /// Bytes.
    pub length: u32,
    rpc: RpcHandle,
    cookie: u64,
    announced: bool,
    /// State of the transport.
    pub state: R,
}

/// A packet about a message that its sender gave up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Courtesy {
    /// The sender will not send it again, so the receiver should drop its state.
    Abandon,
    /// The receiver has dropped its state.
    Abandoned,
}

/// The message that an arriving packet belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageLookup {
    /// A message in progress.
    Open(Ref),
    /// A message that is complete, or that the application no longer wants. The reply should be
    /// that all bytes are here.
    Done,
    /// A message of a former life of its sender: ignore the packet.
    Stale,
}

/// An [`Courtesy::Abandon`] that has not been answered.
#[derive(Clone, Copy, Debug)]
struct Farewell {
    head: Head,
    due: Time,
    said: u32,
}

/// Time between repetitions of a farewell, and how often it is sent.
const AGAIN: Duration = Duration::millis(1);
const FAREWELLS: u32 = 20;
/// A peer that stays silent for this long is given up.
pub const SILENCE: Duration = Duration::secs(5);

/// See the module's description.
#[derive(Clone, Debug)]
pub struct Exchange<S, R> {
    epoch: u16,
    outgoing: Slab<OutboundMessage<S>>,
    incoming: Slab<InboundMessage<R>>,
    rpcs: Slab<RpcEntry>,
    /// RPCs of clients, and one-way messages, by the number in their id.
    by_number: Numbered<Ref>,
    peers: BTreeMap<u32, u32>,
    pairs: Vec<PeerMessages>,
    /// Deadlines of clients' RPCs.
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

    /// A message that this host is sending.
    #[inline]
    pub fn outgoing(&mut self, message: Ref) -> Option<&mut OutboundMessage<S>> {
        self.outgoing.get_mut(message)
    }

    /// A message that this host is receiving.
    #[inline]
    pub fn incoming(&mut self, message: Ref) -> Option<&mut InboundMessage<R>> {
        self.incoming.get_mut(message)
    }

    /// Numbers of messages that this host is sending and receiving.
    pub fn in_flight(&self) -> (usize, usize) {
        (self.outgoing.iter().count(), self.incoming.iter().count())
    }

    fn pair(&mut self, host: HostId) -> &mut PeerMessages {
        let next = self.pairs.len() as u32;
        let index = *self.peers.entry(host.0).or_insert(next);
        if index == next {
            self.pairs.push(PeerMessages::default());
        }
        &mut self.pairs[index as usize]
    }

    fn known(&self, host: HostId) -> Option<&PeerMessages> {
        self.peers.get(&host.0).map(|&index| &self.pairs[index as usize])
    }

    /// The message of this host that a packet from its receiver is about, if it is in progress.
    pub fn answered(&mut self, now: Time, from: HostId, head: &Head) -> Option<Ref> {
        if head.epoch != self.epoch {
            return None;
        }
        let pair = self.pair(from);
        pair.last_heard = now;
        match pair.outgoing.get(head.serial) {
            MessageStatus::Open(message) => Some(message),
            _ => None,
        }
    }

    /// The message of this host that its own packet belongs to, if it is in progress; for packets
    /// that the network sent back.
    pub fn own(&self, head: &Head) -> Option<Ref> {
        match self.known(head.to)?.outgoing.get(head.serial) {
            MessageStatus::Open(message) if head.epoch == self.epoch => Some(message),
            _ => None,
        }
    }

    /// The message that a packet from its sender belongs to. For a new message, `start` creates the
    /// transport's state.
    pub fn arrived(
        &mut self,
        now: Time,
        from: HostId,
        (head, length): (&Head, u32),
        start: impl FnOnce() -> R,
    ) -> MessageLookup {
        if !self.is_present(now, from, head.epoch) {
            return MessageLookup::Stale;
        }
        match self.pair(from).incoming.get(head.serial) {
            MessageStatus::Open(message) => MessageLookup::Open(message),
            MessageStatus::Done => MessageLookup::Done,
            MessageStatus::Unseen => self.begin(from, (head, length), start),
        }
    }

    /// Records the life of a peer; false if the packet is from a former one.
    fn is_present(&mut self, now: Time, from: HostId, epoch: u16) -> bool {
        let pair = self.pair(from);
        pair.last_heard = now;
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
    ) -> MessageLookup {
        let rpc = match head.kind() {
            MessageKind::Request => self.serve(from, head),
            MessageKind::Response => self.awaited(from, head),
            // A one-way message cannot be answered, so it gets a handle that was never valid.
            MessageKind::OneWay => {
                Some((RpcHandle { index: u32::MAX, generation: head.serial }, 0))
            }
        };
        let Some((rpc, cookie)) = rpc else {
            self.pair(from).incoming.set(head.serial, MessageStatus::Done);
            return MessageLookup::Done;
        };
        let message = self.incoming.insert_with(|_| InboundMessage {
            head: head.to(from),
            length,
            rpc,
            cookie,
            announced: false,
            state: start(),
        });
        if !self.pair(from).incoming.set(head.serial, MessageStatus::Open(message)) {
            self.incoming.remove(message);
            return MessageLookup::Stale;
        }
        if head.kind() == MessageKind::Response {
            self.note_response(rpc, message);
        }
        MessageLookup::Open(message)
    }

    /// New bytes of a message arrived. If `whole`, the message is complete and ends.
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
        let InboundMessage { head, length, rpc, cookie, .. } = incoming;
        self.pair(head.to).incoming.set(head.serial, MessageStatus::Done);
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

    /// The receiver has the whole message.
    pub fn finish(&mut self, message: Ref) {
        let Some(outgoing) = self.release(message) else { return };
        self.after_release(outgoing.rpc, outgoing.head.kind());
    }

    /// Ends the sending of a message.
    fn release(&mut self, message: Ref) -> Option<OutboundMessage<S>> {
        let outgoing = self.outgoing.remove(message)?;
        let Head { to, serial, .. } = outgoing.head;
        self.pair(to).outgoing.set(serial, MessageStatus::Done);
        self.events.push_back(Event::Release { message: outgoing_id(message) });
        Some(outgoing)
    }

    /// Gives up a message whose receiver was silent for [`SILENCE`]. Returns false if it was not,
    /// or if the message is younger. Transports call this when they are about to send something
    /// again.
    pub fn give_up(&mut self, now: Time, message: Ref) -> bool {
        let Some(outgoing) = self.outgoing.get(message) else { return true };
        let heard = self.known(outgoing.head.to).map_or(Time::ZERO, |pair| pair.last_heard);
        if now.since(heard.max(outgoing.since)) < SILENCE {
            return false;
        }
        self.unreachable(message);
        true
    }

    /// Stops sending a message and tells its receiver.
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
            self.pair(to).incoming.set(serial, MessageStatus::Done);
            self.release_incoming(message, incoming.announced);
        }
    }

    /// Tells the application that an incoming message is over, if it was announced.
    fn release_incoming(&mut self, message: Ref, announced: bool) {
        if announced {
            self.events.push_back(Event::Release { message: incoming_id(message) });
        }
    }

    /// The next packet that the exchange itself sends, with its message.
    pub fn courtesy(&mut self) -> Option<(Head, Courtesy)> {
        self.courtesies.pop_front()
    }

    /// False only if [`Exchange::courtesy`] would return nothing.
    #[inline]
    pub fn has_courtesy(&self) -> bool {
        !self.courtesies.is_empty()
    }

    /// A peer sent a packet about an abandoned message.
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
                        MessageStatus::Open(message) => self.drop_incoming(message),
                        MessageStatus::Unseen => {
                            self.pair(from).incoming.set(head.serial, MessageStatus::Done);
                        }
                        MessageStatus::Done => {}
                    }
                }
                self.courtesies.push_back((head.to(from), Courtesy::Abandoned));
            }
        }
    }

    /// Fails calls whose deadline passed, and repeats unanswered farewells.
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
