//! TCP, its variants and DCTCP as a host transport: messages over byte streams over connections.
//!
//! | module | rules |
//! |---|---|
//! | [`config`] | every parameter |
//! | [`segment`] | the packets |
//! | [`connection`] | opening, closing, one stream in each direction (RFC 9293) |
//! | [`sender`] | acknowledgements, losses, the next segment (RFC 5681, 6582, 3042, 3168) |
//! | [`scoreboard`] | bytes in flight (RFC 6675) |
//! | [`rack`] | losses by time, tail loss probes (RFC 8985) |
//! | [`rto`] | the retransmission timeout (RFC 6298) |
//! | [`congestion`], [`reno`], [`cubic`], [`dctcp`] | the window (RFC 5681, 9438, 8257) |
//! | [`receiver`] | delayed and selective acknowledgements, echoes (RFC 2018, 3168, 8257) |
//! | [`priorities`] | levels by application, or by bytes sent (PIAS §4.1) |
//!
//! Acknowledgements leave before data. Connections whose next segments have the same level take
//! turns, and higher levels go first, as if the NIC had the switches' queues (PIAS's ns-2 scripts
//! have them at hosts, too). Nagle's algorithm is off. An incoming message has the number of its
//! RPC as its id, which is unique for its peer and kind.
//!
//! Invariants: a connection that can send is listed, and one with a timer has an entry at or before
//! its time; `wake` restores both after every input. Left out: urgent data, window scaling and
//! window probes (applications take all bytes immediately), path MTU discovery, segmentation in the
//! NIC.

pub mod config;
pub mod congestion;
pub mod connection;
pub mod cubic;
pub mod dctcp;
pub mod priorities;
pub mod rack;
pub mod receiver;
pub mod reno;
pub mod rto;
pub mod scoreboard;
pub mod segment;
pub mod sender;

mod submit;

use std::collections::VecDeque;
use std::sync::Arc;

use homa_proto::{
    Delivered, DropReason, Event, MessageId, MessageKind, PeerId, Placement, Receipt, RpcError,
    Submit, SubmitError, Submitted, Time,
};
use homa_workload::rng::Rng;

use crate::topology::HostId;

use super::stream::{
    Calls, ConnectionName, ConnectionNames, Key, KeyedTable, MessageTag, Pools, ReadyQueue, Served,
    ServedCall, StreamEffect, Timers,
};
use super::{DataContent, Label, PacketContent, PacketMeta, Timeouts, Transport};

use config::TcpConfig;
use connection::{Connection, Ends, reset};
use segment::{Flags, Segment};

/// An unknown slot.
const NOWHERE: u32 = u32::MAX;

/// The owner of a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    Connection(Key),
    /// The deadline of a call, by its number.
    Call(u32),
}

/// A host; see the module's description.
#[derive(Debug)]
pub struct Tcp {
    config: Arc<TcpConfig>,
    /// Incremented at each restart.
    life: u32,
    connections: KeyedTable<Connection>,
    names: ConnectionNames,
    pools: Pools,
    calls: Calls,
    ready: ReadyQueue,
    timers: Timers<Timer>,
    /// Acknowledgements and resets that wait for the link.
    control: VecDeque<Segment>,
    events: VecDeque<Event>,
    /// Segments whose bytes had all arrived before, or that belong to no connection.
    refused: u64,
    timeouts: Timeouts,
    /// Levels that may not leave (priority flow control), as bits.
    paused: u8,
}

impl Tcp {
    /// A host in its `life`-th life; its random choices depend on the seed and the host.
    pub fn new(config: Arc<TcpConfig>, host: HostId, (life, seed): (u32, u64)) -> Self {
        Self {
            config,
            life,
            connections: KeyedTable::default(),
            names: ConnectionNames::default(),
            pools: Pools::new(Rng::stream(seed, &format!("connections of h{} #{life}", host.0))),
            calls: Calls::default(),
            ready: ReadyQueue::default(),
            timers: Timers::default(),
            control: VecDeque::new(),
            events: VecDeque::new(),
            refused: 0,
            timeouts: Timeouts::default(),
            paused: 0,
        }
    }

    /// Connections with an end at this host.
    pub fn connections(&self) -> impl Iterator<Item = &Connection> {
        self.connections.iter().map(|(_, connection)| connection)
    }

    /// RPCs and one-way messages in progress, as client and as server.
    pub fn calls(&self) -> (usize, usize) {
        self.calls.len()
    }

    /// The connection of a segment. If there is none, the error tells whether to answer with RST.
    ///
    /// If the last segments of a connection overtake an acknowledgement, it finds the connection
    /// over. In TIME-WAIT it would be dropped without an answer (RFC 9293 §3.10.7.4), and so it is
    /// here.
    #[inline]
    fn find(&mut self, from: HostId, segment: &Segment) -> Result<Key, bool> {
        let unknown = Err(!segment.flags.has(Flags::RST));
        let over = Err(!segment.flags.has(Flags::RST) && segment.occupies());
        if segment.flags.has(Flags::SERVER) {
            let key = segment.name.key;
            let own = self.connections.get(key).filter(|it| it.is_client && it.peer == from);
            return match own {
                Some(_) if segment.name.life == self.life => Ok(key),
                None if segment.name.life == self.life => over,
                _ => unknown,
            };
        }
        if let Some(key) = self.connections.key_at(segment.server_slot)
            && let Some(it) = self.connections.get(key)
            && (it.peer, it.name, it.is_client) == (from, segment.name, false)
        {
            return Ok(key);
        }
        match self.names.find(from.0, segment.name) {
            Served::Open(key) => Ok(key),
            Served::Over if segment.flags.has(Flags::SYN) => Err(false),
            Served::Over => over,
            Served::New(old) => {
                // Without a handshake, a peer that received segments from this host must mean a
                // connection that this host lost at a restart.
                let opens = match self.config.handshake {
                    true => segment.flags.has(Flags::SYN),
                    false => !segment.flags.has(Flags::PEER_SEEN) && !segment.flags.has(Flags::RST),
                };
                if !opens {
                    return unknown;
                }
                if let Some(old) = old {
                    self.abandon(old, RpcError::Indeterminate);
                }
                Ok(self.accept(from, segment.name))
            }
        }
    }

    /// A client opens a connection, which this host accepts.
    fn accept(&mut self, from: HostId, name: ConnectionName) -> Key {
        let server_slot = self.connections.next_key().slot;
        let ends = Ends { peer: from, name, is_client: false, server_slot };
        let key = self.connections.insert(Connection::new(ends, 0, &self.config));
        self.names.open(from.0, name, key);
        key
    }

    /// Delivers messages that are complete.
    #[inline]
    fn deliver(&mut self, key: Key) {
        while let Some(connection) = self.connections.get_mut(key)
            && let Some(piece) = connection.receiver.incoming.complete()
        {
            let (peer, life) = (connection.peer, connection.name.life);
            let served = match piece.kind {
                MessageKind::Response => {
                    connection.open_requests = connection.open_requests.saturating_sub(1);
                    let Some(waiting) = self.calls.end(piece.number) else { continue };
                    Some((waiting.cookie, Calls::client_handle(piece.number)))
                }
                MessageKind::Request => {
                    connection.open_requests += 1;
                    let call = ServedCall { connection: key, request: piece };
                    Some((0, self.calls.serve(call)))
                }
                MessageKind::OneWay => None,
            };
            let (cookie, rpc) = served.unwrap_or((0, Calls::client_handle(piece.number)));
            let response = piece.kind == MessageKind::Response;
            let server_port = Self::SERVER_PORT;
            let (local_port, remote_port) =
                if response { (piece.port, server_port) } else { (server_port, piece.port) };
            self.events.push_back(Event::Delivered(Delivered {
                rpc,
                message: MessageId(piece.number),
                kind: piece.kind,
                peer: PeerId(peer.0),
                remote_port,
                local_port,
                id: Calls::id(life, piece.number),
                length: piece.length,
                cookie,
            }));
        }
    }

    /// Releases messages that are wholly acknowledged; a one-way message then ends.
    #[inline]
    fn release(&mut self, key: Key) {
        while let Some(connection) = self.connections.get_mut(key)
            && let Some(message) = connection.out.release(connection.sender.una)
        {
            if message.piece.kind == MessageKind::OneWay {
                self.calls.end(message.piece.number);
            }
            self.events.push_back(Event::Release { message: message.id });
        }
    }

    /// Closes this side if the other end has closed and has its answers; drops a connection that is
    /// over.
    fn finish(&mut self, key: Key) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        if connection.receiver.is_finished() && connection.open_requests == 0 {
            connection.close();
        }
        if connection.is_over() {
            self.abandon(key, RpcError::Indeterminate);
        }
    }

    /// Removes a connection; calls that depend on it fail.
    fn abandon(&mut self, key: Key, error: RpcError) {
        let Some(mut connection) = self.connections.remove(key) else { return };
        let was_idle = connection.is_idle();
        self.events.extend(connection.out.drain().map(|it| Event::Release { message: it.id }));
        if !connection.is_client {
            self.names.close(connection.peer.0, connection.name);
            if connection.open_requests > 0 {
                for rpc in self.calls.served_over(key) {
                    self.calls.served(rpc);
                    self.events.push_back(Event::Cancelled { rpc });
                }
            }
            return;
        }
        self.pools.forget((connection.peer.0, connection.class), key);
        if !was_idle {
            for number in self.calls.over(key) {
                self.fail(number, error);
            }
        }
    }

    /// Fails a call at its client.
    fn fail(&mut self, number: u32, error: RpcError) {
        if let Some(waiting) = self.calls.end(number) {
            let rpc = Calls::client_handle(number);
            self.events.push_back(Event::Failed { rpc, cookie: waiting.cookie, error });
        }
    }

    /// Lists a connection if it can send, and arms its timer.
    #[inline]
    fn wake(&mut self, key: Key) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        if !connection.listed && connection.can_send(&self.config) {
            connection.listed = true;
            self.ready.push(connection.next_level(&self.config), key);
        }
        let due = connection.due();
        self.timers.arm(due, Timer::Connection(key), &mut connection.armed);
    }

    fn on_connection_timer(&mut self, now: Time, key: Key, at: Time) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        // The entry was replaced by an earlier one.
        if connection.armed != at {
            return;
        }
        connection.armed = Time::MAX;
        if connection.due() <= now {
            let before = connection.timeouts;
            let lives = connection.expire(now, &self.config, &mut self.control);
            self.timeouts.expired += u64::from(connection.timeouts - before);
            let first = before == 0 && connection.timeouts > 0;
            self.timeouts.flows += u64::from(first);
            self.timeouts.raised += u64::from(first && connection.level > Some(0));
            if !lives {
                return self.abandon(key, RpcError::PeerUnreachable);
            }
        }
        self.wake(key);
    }

    /// The first acknowledgement or reset on a level that is not paused.
    #[inline]
    fn next_control(&mut self) -> Option<Segment> {
        if self.paused == 0 {
            return self.control.pop_front();
        }
        let may_leave = |segment: &Segment| self.paused >> (segment.priority & 7) & 1 == 0;
        let at = self.control.iter().position(may_leave)?;
        self.control.remove(at)
    }

    /// The place of received bytes, if at least one of them is new.
    #[inline]
    fn receipt(received: Option<StreamEffect>, segment: &Segment) -> Receipt {
        match (received, segment.pieces.first()) {
            (Some(StreamEffect::Duplicate), _) => Receipt::Dropped(DropReason::Duplicate),
            (Some(_), Some(MessageTag { number, length, .. })) => {
                let offset = segment.pieces.offset;
                let len = segment.len.min(length.saturating_sub(offset));
                Receipt::Place(Placement { message: MessageId(number), total: length, offset, len })
            }
            _ => Receipt::Consumed,
        }
    }
}

impl Transport for Tcp {
    type Packet = Segment;

    fn submit(&mut self, now: Time, what: Submit) -> Result<Submitted, SubmitError> {
        self.submit_at(now, what, None)
    }

    fn submit_at(
        &mut self,
        now: Time,
        what: Submit,
        level: Option<u8>,
    ) -> Result<Submitted, SubmitError> {
        match what {
            Submit::Request(request) => self.request(now, &request, level),
            Submit::OneWay { peer, length, cookie } => self.one_way(peer, (length, level), cookie),
            Submit::Response { rpc, length } => self.respond(rpc, (length, level)),
            Submit::Cancel { rpc } | Submit::Refuse { rpc, .. } => self.cancel(rpc),
        }
    }

    #[inline]
    fn event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    #[inline]
    fn receive(&mut self, now: Time, segment: &Segment, arrival: PacketMeta) -> Receipt {
        let key = match self.find(arrival.from, segment) {
            Ok(key) => key,
            Err(answer) => {
                self.refused += u64::from(segment.occupies());
                if answer {
                    let reset = reset(segment, arrival.from, self.config.ack_priority);
                    self.control.push_back(reset);
                }
                return Receipt::Dropped(DropReason::UnknownRpc);
            }
        };
        if segment.flags.has(Flags::RST) {
            self.abandon(key, RpcError::Indeterminate);
            return Receipt::Consumed;
        }
        let Some(connection) = self.connections.get_mut(key) else { return Receipt::Consumed };
        let came = (now, segment, &arrival);
        let received = connection.receive(came, &self.config, &mut self.control);
        self.release(key);
        self.deliver(key);
        self.finish(key);
        self.wake(key);
        self.refused += u64::from(received == Some(StreamEffect::Duplicate));
        Self::receipt(received, segment)
    }

    #[inline]
    fn transmit(&mut self, now: Time) -> Option<Segment> {
        if let Some(segment) = self.next_control() {
            return Some(segment);
        }
        while let Some(key) = self.ready.pop(!self.paused) {
            let Some(connection) = self.connections.get_mut(key) else { continue };
            connection.listed = false;
            let segment = connection.transmit(now, &self.config);
            self.wake(key);
            if segment.is_some() {
                return segment;
            }
        }
        None
    }

    #[inline]
    fn label(&self, segment: &Segment) -> Label {
        Label {
            priority: segment.priority,
            flow: segment.flow(),
            ect: segment.flags.has(Flags::ECT),
            ..Label::new(segment.to, segment.wire_bytes(self.config.timestamps))
        }
    }

    /// If a segment has bytes of several messages, this reports the first. The segment does not
    /// tell what the window permits.
    fn content(segment: &Segment) -> PacketContent {
        let Some(first) = segment.pieces.first() else { return PacketContent::Other };
        let (offset, total) = (segment.pieces.offset, first.length);
        PacketContent::Data(DataContent {
            message: first.number,
            offset,
            len: segment.len.min(total - offset),
            total,
            permitted: total,
            resent: segment.flags.has(Flags::RESENT),
        })
    }

    #[inline]
    fn echoes_congestion(segment: &Segment) -> bool {
        segment.flags.has(Flags::ECE)
    }

    fn mark_congestion(segment: &mut Segment) {
        segment.flags = segment.flags.with(Flags::CE, true);
    }

    fn refused(&self) -> u64 {
        self.refused
    }

    fn timeouts(&self) -> Timeouts {
        self.timeouts
    }

    fn pause(&mut self, _: Time, levels: u8) {
        self.paused = levels;
    }

    fn expire(&mut self, now: Time) {
        while let Some((at, timer)) = self.timers.fire(now) {
            match timer {
                Timer::Connection(key) => self.on_connection_timer(now, key, at),
                Timer::Call(number) => self.on_deadline(now, number),
            }
        }
    }

    #[inline]
    fn deadline(&self) -> Option<Time> {
        self.timers.deadline()
    }

    #[inline]
    fn has_packet(&self) -> bool {
        !self.control.is_empty() || !self.ready.is_empty()
    }
}

#[cfg(test)]
mod tests;
