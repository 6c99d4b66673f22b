//! One end of a connection: a stream each way, and how it opens and closes.
//!
//! ```text
//!            SYN sent                    SYN-ACK                     own FIN acknowledged,
//! (client)  ──────────▶ Opening ──────────────────▶ Open ──────────────────────────────────▶ over
//! (server)  ─ SYN, or the first segment without handshake ─▶ Open    peer's stream complete
//! ```
//!
//! RFC 9293 with fewer states: who forgot a connection answers its late segments with RST, which
//! takes the place of TIME-WAIT, because names are never used twice.

use homa_proto::Time;

use crate::topology::HostId;
use crate::transport::Arrival;
use crate::transport::stream::{Name, Outgoing, Pieces, Received};

use super::config::TcpConfig;
use super::priorities::Priorities;
use super::receiver::{Receiver, Reply};
use super::segment::{Flags, Sacks, Segment};
use super::sender::{Choice, Sender};

/// Where a connection is with its opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// SYN is to be sent, or was: again at `due`.
    Opening { due: Time, sent: bool },
    /// Streams flow.
    Open,
}

/// See the module's description.
#[derive(Debug)]
pub struct Connection {
    /// The other end.
    pub peer: HostId,
    /// As both ends know it.
    pub name: Name,
    /// This end opened it.
    pub is_client: bool,
    /// Where it is in the server's table, as far as this end knows.
    pub server_slot: u32,
    /// What the application sends.
    pub out: Outgoing,
    /// How it is sent.
    pub sender: Sender,
    /// What comes.
    pub receiver: Receiver,
    /// Class of its messages.
    pub class: u8,
    /// The level that the application chose for it.
    pub level: Option<u8>,
    /// Times that its retransmission timer expired.
    pub timeouts: u32,
    /// Requests that came or went over it and are not answered.
    pub open_requests: u32,
    /// It waits for the link.
    pub listed: bool,
    /// Its earliest entry among the timers.
    pub armed: Time,
    state: State,
    /// Our stream ends behind what is written.
    closing: bool,
    /// Something came from the other end.
    heard: bool,
    /// Timeouts since it did.
    silent_timeouts: u32,
}

/// Who is at the two ends.
#[derive(Clone, Copy, Debug)]
pub struct Ends {
    /// The other end.
    pub peer: HostId,
    /// As both ends know it.
    pub name: Name,
    /// This end opened it.
    pub is_client: bool,
    /// Where it is in the server's table, if that is known.
    pub server_slot: u32,
}

impl Connection {
    /// A connection of whose segments none was sent.
    pub fn new(ends: Ends, class: u8, config: &TcpConfig) -> Self {
        let Ends { peer, name, is_client, server_slot } = ends;
        let state = match config.handshake && is_client {
            true => State::Opening { due: Time::MAX, sent: false },
            false => State::Open,
        };
        Self {
            peer,
            name,
            is_client,
            server_slot,
            out: Outgoing::default(),
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
            heard: false,
            silent_timeouts: 0,
        }
    }

    /// The application writes nothing more.
    pub fn close(&mut self) {
        self.closing = true;
    }

    /// Nothing waits to be sent or answered.
    pub fn is_idle(&self) -> bool {
        self.out.is_empty() && self.open_requests == 0
    }

    /// Both streams are complete, and the other end knows.
    pub fn is_over(&self) -> bool {
        self.closing && self.sender.una > self.out.end() && self.receiver.is_finished()
    }

    /// Sequence numbers that the next new segment takes.
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

    /// True if [`Connection::transmit`] has something.
    #[inline]
    pub fn can_send(&self, config: &TcpConfig) -> bool {
        match self.state {
            State::Opening { sent, .. } => !sent,
            State::Open => self.sender.choose(self.available(config), config).is_some(),
        }
    }

    /// The level of the segment that is sent next.
    #[inline]
    pub fn next_level(&self, config: &TcpConfig) -> u8 {
        if let Some(level) = self.level {
            return level;
        }
        if let Priorities::One(level) = config.priorities {
            return level;
        }
        let next = match self.sender.choose(self.available(config), config) {
            Some(Choice::Again(sent)) => sent.start,
            Some(Choice::New(_)) | None => self.sender.next,
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
                .with(Flags::HEARD, self.heard)
                .with(Flags::CHOSEN, self.level.is_some()),
            priority: self.level.unwrap_or(config.ack_priority),
            sacks: Sacks::default(),
            len: 0,
            seq: self.sender.next,
            ack: 0,
            pieces: Pieces::NONE,
        }
    }

    /// A pure acknowledgement.
    fn acknowledgement(header: Segment, reply: Reply, config: &TcpConfig) -> Segment {
        let Reply { ack, sacks, flags } = reply;
        let flags = header.flags.with(flags, true).with(Flags::ACK, true);
        let flags = flags.with(Flags::ECT, config.ecn && config.ecn_on_acks);
        Segment { ack, sacks, flags, ..header }
    }

    /// The next segment, chosen now.
    #[inline]
    pub fn transmit(&mut self, now: Time, config: &TcpConfig) -> Option<Segment> {
        if let State::Opening { sent: false, .. } = self.state {
            let due = now + self.sender.rto.timeout(&config.rto);
            self.state = State::Opening { due, sent: true };
            return Some(self.header(Flags::SYN, config));
        }
        self.sender.wake(now, config);
        let choice = self.sender.choose(self.available(config), config)?;
        let (seq, numbers) = match choice {
            Choice::Again(sent) => (sent.start, sent.len),
            Choice::New(numbers) => (self.sender.next, numbers),
        };
        let reduced = self.sender.sent(now, choice, config);
        let flags = Flags::default()
            .with(Flags::RESENT, matches!(choice, Choice::Again(_)))
            .with(Flags::CWR, reduced)
            .with(Flags::ECT, config.ecn);
        Some(self.data((seq, numbers), flags, config))
    }

    /// A segment of our stream.
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
        if self.heard {
            // What is to be acknowledged rides along.
            let reply = self.receiver.reply(config, false);
            segment.flags = segment.flags.with(reply.flags, true).with(Flags::ACK, true);
            (segment.ack, segment.sacks) = (reply.ack, reply.sacks);
        }
        segment
    }

    /// A segment of this connection arrives; acknowledgements go to `replies`.
    #[inline]
    pub fn receive(
        &mut self,
        (now, segment, arrival): (Time, &Segment, &Arrival),
        config: &TcpConfig,
        replies: &mut impl Extend<Segment>,
    ) -> Option<Received> {
        self.heard = true;
        self.silent_timeouts = 0;
        if self.is_client {
            self.server_slot = segment.server_slot;
        } else if segment.flags.has(Flags::CHOSEN) {
            self.level = Some(segment.priority);
        }
        if segment.flags.has(Flags::SYN) {
            self.on_syn(now, config, replies);
        } else if self.is_opening() {
            // The server's SYN-ACK was overtaken.
            self.state = State::Open;
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
        matches!(self.state, State::Opening { .. })
    }

    /// SYN at the server: answered, however often it comes. SYN-ACK at the client: it is open.
    fn on_syn(&mut self, now: Time, config: &TcpConfig, replies: &mut impl Extend<Segment>) {
        if !self.is_client {
            let flags = Flags::SYN.with(Flags::ACK, true);
            replies.extend([self.header(flags, config)]);
        } else if let State::Opening { due, .. } = self.state {
            if self.sender.rto.timeouts() == 0 {
                // RFC 6298 §2.2: the first round trip. It began a timeout before `due`.
                let began = due.since(Time::ZERO) - self.sender.rto.timeout(&config.rto);
                self.sender.rto.sample(now.since(Time(began.0)));
            }
            self.state = State::Open;
        }
    }

    /// The first of all timers; [`Time::MAX`]: none runs.
    #[inline]
    pub fn due(&self) -> Time {
        match self.state {
            State::Opening { due, .. } => due,
            State::Open => self.sender.due().min(self.receiver.due()),
        }
    }

    /// Acts on timers that are due. False when the other end is given up.
    pub fn expire(
        &mut self,
        now: Time,
        config: &TcpConfig,
        replies: &mut impl Extend<Segment>,
    ) -> bool {
        if let State::Opening { due, sent: true } = self.state {
            if due <= now {
                self.sender.rto.back_off();
                self.silent_timeouts += 1;
                self.timeouts += 1;
                self.state = State::Opening { due: Time::MAX, sent: false };
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

/// Tells the sender of a segment that there is no such connection.
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
        pieces: Pieces::NONE,
        ..*segment
    }
}
