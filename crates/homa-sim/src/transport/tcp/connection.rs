//! One end of a connection: a stream in each direction, opening and closing.
//!
//! ```text
//!            SYN sent                    SYN-ACK                     own FIN acknowledged,
//! (client)  ──────────▶ Opening ──────────────────▶ Open ──────────────────────────────────▶ over
//! (server)  ─ SYN, or the first segment without handshake ─▶ Open    peer's stream complete
//! ```
//!
//! RFC 9293 with fewer states: an end that forgot a connection answers its late segments with RST.
//! This replaces TIME-WAIT, because names are never reused.

use homa_proto::Time;

use crate::topology::HostId;
use crate::transport::PacketMeta;
use crate::transport::stream::{ConnectionName, MessageTags, OutboundStream, StreamEffect};

use super::config::TcpConfig;
use super::priorities::Priorities;
use super::receiver::{Receiver, Reply};
use super::segment::{Flags, Sacks, Segment};
use super::sender::{NextSegment, Sender};

/// The state of opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OpeningState {
    /// The SYN should be sent, or was sent and is repeated at `due`.
    Opening { due: Time, sent: bool },
    /// Streams can carry data.
    Open,
}

/// See the module's description.
#[derive(Debug)]
pub struct Connection {
    /// The other end.
    pub peer: HostId,
    /// The connection's name, the same at both ends.
    pub name: ConnectionName,
    /// This end opened it.
    pub is_client: bool,
    /// Its slot in the server's table, as far as this end knows.
    pub server_slot: u32,
    /// The stream to the other end.
    pub out: OutboundStream,
    /// Loss recovery and congestion control of that stream.
    pub sender: Sender,
    /// The stream from the other end.
    pub receiver: Receiver,
    /// Priority class of its messages.
    pub class: u8,
    /// The level that the application chose for it.
    pub level: Option<u8>,
    /// How often its RTO expired.
    pub timeouts: u32,
    /// Requests, in either direction, without a response.
    pub open_requests: u32,
    /// It is listed as ready to send.
    pub listed: bool,
    /// Its earliest entry in the timers.
    pub armed: Time,
    state: OpeningState,
    /// The stream ends after the bytes written so far.
    closing: bool,
    /// A segment of the other end has arrived.
    received_any: bool,
    /// Timeouts since the last one arrived.
    silent_timeouts: u32,
}

/// The two ends of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Ends {
    /// The other end.
    pub peer: HostId,
    /// The connection's name, the same at both ends.
    pub name: ConnectionName,
    /// This end opened it.
    pub is_client: bool,
    /// Its slot in the server's table, if that is known.
    pub server_slot: u32,
}

impl Connection {
    /// A connection before its first segment.
    pub fn new(ends: Ends, class: u8, config: &TcpConfig) -> Self {
        let Ends { peer, name, is_client, server_slot } = ends;
        let state = match config.handshake && is_client {
            true => OpeningState::Opening { due: Time::MAX, sent: false },
            false => OpeningState::Open,
        };
        Self {
            peer,
            name,
            is_client,
            server_slot,
            out: OutboundStream::default(),
            sender: Sender::new(config),
            receiver: Receiver::default(),
            class,
            level: None,
            timeouts: 0,
            open_requests: 0,
            listed: false,
            armed: Time::MAX,
            state,
            closing: false,
            received_any: false,
            silent_timeouts: 0,
        }
    }

    /// The application will write nothing more.
    pub fn close(&mut self) {
        self.closing = true;
    }

    /// Whether no message waits to be acknowledged or answered.
    pub fn is_idle(&self) -> bool {
        self.out.is_empty() && self.open_requests == 0
    }

    /// Whether both streams are complete, and the other end has acknowledged this.
    pub fn is_over(&self) -> bool {
        self.closing && self.sender.una > self.out.end() && self.receiver.is_finished()
    }

    /// How many sequence numbers the next new segment takes.
    #[inline]
    fn available(&self, config: &TcpConfig) -> u32 {
        let next = self.sender.next;
        let end = self.out.end();
        if next < end {
            let len = self.out.span(next, config.mss());
            len + u32::from(self.closing && next + u64::from(len) == end)
        } else {
            u32::from(self.closing && next == end)
        }
    }

    /// Whether [`Connection::transmit`] would return a segment.
    #[inline]
    pub fn can_send(&self, config: &TcpConfig) -> bool {
        match self.state {
            OpeningState::Opening { sent, .. } => !sent,
            OpeningState::Open => self.sender.choose(self.available(config), config).is_some(),
        }
    }

    /// The level of the next segment.
    #[inline]
    pub fn next_level(&self, config: &TcpConfig) -> u8 {
        if let Some(level) = self.level {
            return level;
        }
        if let Priorities::One(level) = config.priorities {
            return level;
        }
        let next = match self.sender.choose(self.available(config), config) {
            Some(NextSegment::Again(sent)) => sent.start,
            Some(NextSegment::New(_)) | None => self.sender.next,
        };
        let (length, sent) = self.out.at(next).map_or((0, 0), |(piece, at)| (piece.length, at));
        config.priorities.level(length, sent)
    }

    /// A segment without payload or acknowledgement.
    fn header(&self, flags: Flags, config: &TcpConfig) -> Segment {
        Segment {
            to: self.peer,
            name: self.name,
            server_slot: self.server_slot,
            flags: flags
                .with(Flags::SERVER, !self.is_client)
                .with(Flags::PEER_SEEN, self.received_any)
                .with(Flags::CHOSEN, self.level.is_some()),
            priority: self.level.unwrap_or(config.ack_priority),
            sacks: Sacks::default(),
            len: 0,
            seq: self.sender.next,
            ack: 0,
            pieces: MessageTags::NONE,
        }
    }

    /// A pure acknowledgement.
    fn acknowledgement(header: Segment, reply: Reply, config: &TcpConfig) -> Segment {
        let Reply { ack, sacks, flags } = reply;
        let flags = header.flags.with(flags, true).with(Flags::ACK, true);
        let flags = flags.with(Flags::ECT, config.ecn && config.ecn_on_acks);
        Segment { ack, sacks, flags, ..header }
    }

    /// The next segment.
    #[inline]
    pub fn transmit(&mut self, now: Time, config: &TcpConfig) -> Option<Segment> {
        if let OpeningState::Opening { sent: false, .. } = self.state {
            let due = now + self.sender.rto.timeout(&config.rto);
            self.state = OpeningState::Opening { due, sent: true };
            return Some(self.header(Flags::SYN, config));
        }
        self.sender.wake(now, config);
        let choice = self.sender.choose(self.available(config), config)?;
        let (seq, numbers) = match choice {
            NextSegment::Again(sent) => (sent.start, sent.len),
            NextSegment::New(numbers) => (self.sender.next, numbers),
        };
        let reduced = self.sender.sent(now, choice, config);
        let flags = Flags::default()
            .with(Flags::RESENT, matches!(choice, NextSegment::Again(_)))
            .with(Flags::CWR, reduced)
            .with(Flags::ECT, config.ecn);
        Some(self.data((seq, numbers), flags, config))
    }

    /// A segment of the stream.
    #[inline]
    fn data(&mut self, (seq, numbers): (u64, u32), flags: Flags, config: &TcpConfig) -> Segment {
        let len = (self.out.end().saturating_sub(seq)).min(u64::from(numbers)) as u32;
        let flags = flags.with(Flags::FIN, len < numbers);
        let mut segment = self.header(flags, config);
        segment.seq = seq;
        segment.len = len;
        segment.pieces = self.out.pieces(seq, len);
        if let Some(first) = segment.pieces.first() {
            let rule = config.priorities.level(first.length, segment.pieces.offset);
            segment.priority = self.level.unwrap_or(rule);
        }
        if self.received_any {
            // A data segment carries a pending acknowledgement.
            let reply = self.receiver.reply(config, false);
            segment.flags = segment.flags.with(reply.flags, true).with(Flags::ACK, true);
            (segment.ack, segment.sacks) = (reply.ack, reply.sacks);
        }
        segment
    }

    /// A segment of this connection arrives; acknowledgements are added to `replies`.
    #[inline]
    pub fn receive(
        &mut self,
        (now, segment, arrival): (Time, &Segment, &PacketMeta),
        config: &TcpConfig,
        replies: &mut impl Extend<Segment>,
    ) -> Option<StreamEffect> {
        self.received_any = true;
        self.silent_timeouts = 0;
        if self.is_client {
            self.server_slot = segment.server_slot;
        } else if segment.flags.has(Flags::CHOSEN) {
            self.level = Some(segment.priority);
        }
        if segment.flags.has(Flags::SYN) {
            self.on_syn(now, config, replies);
        } else if self.is_opening() {
            // The server's data overtook its SYN-ACK.
            self.state = OpeningState::Open;
        }
        if segment.flags.has(Flags::ACK) && !segment.flags.has(Flags::SYN) {
            self.sender.on_ack(now, segment, config);
        }
        if !segment.occupies() {
            return None;
        }
        let header = self.header(Flags::default(), config);
        Some(self.receiver.receive((now, segment, arrival), config, |reply| {
            replies.extend([Self::acknowledgement(header, reply, config)]);
        }))
    }

    fn is_opening(&self) -> bool {
        matches!(self.state, OpeningState::Opening { .. })
    }

    /// A server answers every SYN, however often it comes. At the client, SYN-ACK opens the
    /// connection.
    fn on_syn(&mut self, now: Time, config: &TcpConfig, replies: &mut impl Extend<Segment>) {
        if !self.is_client {
            let flags = Flags::SYN.with(Flags::ACK, true);
            replies.extend([self.header(flags, config)]);
        } else if let OpeningState::Opening { due, .. } = self.state {
            if self.sender.rto.timeouts() == 0 {
                // RFC 6298 §2.2: the first round trip. It started one RTO before `due`.
                let started = due.since(Time::ZERO) - self.sender.rto.timeout(&config.rto);
                self.sender.rto.sample(now.since(Time(started.0)));
            }
            self.state = OpeningState::Open;
        }
    }

    /// The earliest of all timers; [`Time::MAX`] if none runs.
    #[inline]
    pub fn due(&self) -> Time {
        match self.state {
            OpeningState::Opening { due, .. } => due,
            OpeningState::Open => self.sender.due().min(self.receiver.due()),
        }
    }

    /// Handles timers that are due. False if the other end is given up.
    pub fn expire(
        &mut self,
        now: Time,
        config: &TcpConfig,
        replies: &mut impl Extend<Segment>,
    ) -> bool {
        if let OpeningState::Opening { due, sent: true } = self.state {
            if due <= now {
                self.sender.rto.backoff();
                self.silent_timeouts += 1;
                self.timeouts += 1;
                self.state = OpeningState::Opening { due: Time::MAX, sent: false };
            }
            return self.silent_timeouts <= config.max_timeouts;
        }
        if self.receiver.due() <= now {
            let reply = self.receiver.reply(config, false);
            let header = self.header(Flags::default(), config);
            replies.extend([Self::acknowledgement(header, reply, config)]);
        }
        if self.sender.expire(now, config) {
            self.silent_timeouts += 1;
            self.timeouts += 1;
        }
        self.silent_timeouts <= config.max_timeouts
    }
}

/// An RST that tells the sender of a segment that the connection does not exist.
pub fn reset(segment: &Segment, from: HostId, priority: u8) -> Segment {
    let from_server = !segment.flags.has(Flags::SERVER);
    Segment {
        to: from,
        flags: Flags::RST.with(Flags::SERVER, from_server),
        priority,
        sacks: Sacks::default(),
        len: 0,
        seq: 0,
        ack: 0,
        pieces: MessageTags::NONE,
        ..*segment
    }
}
