//! A judge of one host's side of a conversation: does it follow the rules that kernel hosts follow
//! (Linux §2.2-2.5)? It reads packets as bytes, in and out, and keeps a record.
//!
//! There are two standards. `Ours` demands what we promise: timely answers, exact fields. `Kernel`
//! only forbids, so that captured kernel hosts, seen through a tap, can be judged by it; this shows
//! that the rules are the kernel's.
//!
//! * `mod.rs`: packets in, and the answers that they oblige the host to
//! * `sent.rs`: packets out
//! * `receiving.rs`: RESEND, GRANT and missing bytes

mod books;
mod receiving;
mod sent;

pub use books::InBook;

use crate::replay::packet::{CapturedData, CapturedPacket, PacketKind};
use books::{Books, Demand, Owed, PeerBooks};
use std::collections::BTreeMap;

pub const UNSCHEDULED: u32 = 40_000;
const MAX_MESSAGE: u32 = 1_000_000;
/// `Ours` begins no message with bytes further on than the unscheduled ones and the packet in which
/// a grant ends, as long as the kernel sends it. A sender of such bytes was granted them earlier.
const AHEAD: u32 = UNSCHEDULED + 100_000;
const VERSION: u16 = 1;
/// Microseconds within which `Ours` answers.
const PROMPT: u64 = 1_000;
/// Microseconds within which it retransmits, because that may need the link's time.
const REPEAT: u64 = 50_000;
/// Silence before which nothing may be asked, microseconds: the kernel counts ticks, the first of
/// them is cut short, and the tap adds its jitter.
const TIMEOUT: u64 = 3_900;
/// Silence after which `Ours` must have asked.
const LATEST: u64 = 6_500;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standard {
    Ours,
    Kernel,
}

/// An RPC: the other host, and the id in its client's form.
pub type MessageKey = (usize, u64);

pub struct Judge {
    standard: Standard,
    payload: u32,
    now: u64,
    pub rpcs: BTreeMap<MessageKey, Books>,
    peers: BTreeMap<usize, PeerBooks>,
    /// Ports at which nothing listens here.
    pub closed: Vec<u16>,
    arrivals: u64,
    /// The conversation so far, for the report.
    log: Vec<String>,
    pub faults: Vec<String>,
}

impl Judge {
    pub fn new(standard: Standard, payload: u32) -> Self {
        Self {
            standard,
            payload,
            now: 0,
            rpcs: BTreeMap::new(),
            peers: BTreeMap::new(),
            closed: Vec::new(),
            arrivals: 0,
            log: Vec::new(),
            faults: Vec::new(),
        }
    }

    fn fault(&mut self, what: String) {
        let recent = self.log.len().saturating_sub(12);
        let context = self.log[recent..].join("\n    ");
        self.faults.push(format!("{} us: {what}, after\n    {context}", self.now));
    }

    fn check(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.fault(what());
        }
    }

    fn strict(&self) -> bool {
        self.standard == Standard::Ours
    }

    fn peer(&mut self, peer: usize) -> &mut PeerBooks {
        self.peers.entry(peer).or_default()
    }

    /// Time passes: checks what should have happened.
    pub fn tick(&mut self, now: u64) {
        self.now = self.now.max(now);
        if !self.strict() {
            return;
        }
        let now = self.now;
        self.rpcs.retain(|_, books| !books.is_over(now));
        let mut late = Vec::new();
        for (key, books) in &mut self.rpcs {
            if books.inc.as_ref().is_some_and(|inc| inc.missing().is_empty()) {
                books.heard = now;
            }
            let late_by = |owed: &Owed| if *owed == Owed::Again { REPEAT } else { PROMPT };
            let overdue = books.owed.iter().position(|(owed, since)| since + late_by(owed) < now);
            if let Some(at) = overdue {
                late.push(format!("{key:?}: no answer: {:?}", books.owed.remove(at)));
            }
            if let Some(since) = books.should_ask(now).filter(|since| since + LATEST < now) {
                late.push(format!("{key:?}: no RESEND {} us after {since}", now - since));
                books.asked = Some(now);
            }
            if let Some(since) = books.should_need_ack().filter(|since| since + 4_100 < now) {
                late.push(format!("{key:?}: no NEED_ACK {} us after {since}", now - since));
                books.need_acks.push(now);
            }
        }
        for (host, peer) in &mut self.peers {
            if peer.cutoffs_owed.first().is_some_and(|(_, since)| since + PROMPT < now) {
                late.push(format!("host {host}: no CUTOFFS: {:?}", peer.cutoffs_owed));
                peer.cutoffs_owed.clear();
            }
        }
        late.into_iter().for_each(|what| self.fault(what));
    }

    /// The application here was told that its call failed.
    pub fn failed(&mut self, now: u64, key: MessageKey) {
        self.tick(now);
        if let Some(books) = self.rpcs.remove(&key) {
            let silence = now - books.heard;
            self.check(silence >= 99_000, || format!("{key:?} fails after {silence} us"));
        }
    }

    /// The application here cancelled a call: its server may be told to forget it.
    pub fn cancelled(&mut self, key: MessageKey) {
        self.rpcs.remove(&key);
    }

    /// ICMP: RPCs with a port, or a host, are over.
    pub fn unreachable(&mut self, peer: usize, port: Option<u16>) {
        self.rpcs.retain(|key, books| {
            let theirs = if books.client { books.ports.1 } else { books.ports.0 };
            key.0 != peer || port.is_some_and(|port| port != theirs)
        });
    }

    pub fn fed(&mut self, now: u64, peer: usize, pkt: &CapturedPacket) {
        self.tick(now);
        self.log.push(format!("{now} in  {pkt:?}"));
        let key = (peer, pkt.rpc());
        // A client forgets an RPC that it completed.
        let known = self.rpcs.get(&key).is_some_and(|b| !(b.client && b.is_complete()));
        match &pkt.kind {
            PacketKind::Data(data) => self.fed_data(key, pkt, data),
            PacketKind::Ack(entries) => {
                self.acked(key);
                entries.iter().for_each(|&(id, _)| self.acked((peer, id & !1)));
            }
            PacketKind::Cutoffs { cutoffs, version } => {
                self.peer(peer).cutoffs = Some((*cutoffs, *version));
            }
            PacketKind::NeedAck if pkt.by_server() => self.fed_need_ack(key),
            PacketKind::Resend { offset, length, level } if known => {
                self.fed_resend(key, (*offset, *length), *level);
            }
            PacketKind::Resend { .. } => self.owe_unknown(key),
            _ if !known => {}
            PacketKind::Grant { offset, level } => {
                let books = self.rpcs.get_mut(&key).expect("known");
                books.heard = now;
                let outgoing = !(books.client && books.inc.is_some());
                if let Some(out) = books.out.as_mut().filter(|_| outgoing) {
                    out.granted = out.granted.max((*offset).min(out.length));
                    out.level = *level;
                    out.levels |= 1 << level;
                }
            }
            PacketKind::Busy => self.rpcs.get_mut(&key).expect("known").heard = now,
            PacketKind::Unknown if pkt.by_server() => self.fed_unknown(key),
            PacketKind::Unknown => drop(self.rpcs.remove(&key)),
            PacketKind::NeedAck | PacketKind::Freeze => {}
        }
    }

    fn fed_data(&mut self, key: MessageKey, pkt: &CapturedPacket, data: &CapturedData) {
        if let Some((id, _)) = data.ack {
            self.acked((key.0, id & !1));
        }
        let now = self.now;
        let known = self.rpcs.contains_key(&key);
        let beyond = data.end > data.length || data.length > MAX_MESSAGE;
        if beyond || (!known && (pkt.by_server() || self.closed.contains(&pkt.dport))) {
            return;
        }
        let begun = self.rpcs.get(&key).is_some_and(|books| books.inc.is_some());
        if self.strict() && !begun && data.end > AHEAD {
            return;
        }
        self.arrivals += 1;
        let age = self.arrivals;
        let books =
            self.rpcs.entry(key).or_insert_with(|| Books::new(false, (pkt.sport, pkt.dport), now));
        if books.ghost && pkt.by_server() {
            return;
        }
        books.ghost = false;
        let receives = books.client || books.out.is_none();
        if !receives || books.is_complete() {
            return;
        }
        books.heard = now;
        let inc = books.inc.get_or_insert_with(|| InBook::new(data.length, data.incoming, age));
        if !inc.insert(data.start, data.end) {
            return;
        }
        if inc.is_complete() && books.client {
            books.owed.clear();
        }
        let peer = self.peer(key.0);
        let recent = peer.cutoffs_sent.is_some_and(|at| now < at + 1_000);
        if data.version != VERSION && !recent {
            peer.cutoffs_owed.push((pkt.id ^ 1, now));
        }
    }

    /// An acknowledgement ends a server's RPC in any state.
    fn acked(&mut self, key: MessageKey) {
        if self.rpcs.get(&key).is_some_and(|books| !books.client) {
            self.rpcs.remove(&key);
        }
    }

    fn fed_need_ack(&mut self, key: MessageKey) {
        let now = self.now;
        match self.rpcs.get_mut(&key) {
            Some(books) if books.client && !books.is_complete() => {
                books.called = Some(now);
                books.owed.push((Owed::Missing, now));
            }
            _ => {
                let books = self.rpcs.entry(key).or_insert_with(|| Books::ghost(now));
                books.owed.push((Owed::Ack, now));
            }
        }
    }

    fn owe_unknown(&mut self, key: MessageKey) {
        let now = self.now;
        self.rpcs.entry(key).or_insert_with(|| Books::ghost(now)).owed.push((Owed::Unknown, now));
    }

    fn fed_resend(&mut self, key: MessageKey, (start, length): (u32, i32), level: u8) {
        let (now, payload) = (self.now, self.payload);
        let books = self.rpcs.get_mut(&key).expect("known");
        if books.ghost {
            return books.owed.push((Owed::Unknown, now));
        }
        let Some(out) = &mut books.out else {
            return books.owed.push((Owed::Busy, now));
        };
        let sent = out.sent;
        let asked = if length == -1 { sent } else { start.saturating_add_signed(length) };
        let end = asked.min(sent);
        out.granted = out.granted.max(asked.min(out.length));
        if start >= sent {
            return books.owed.push((Owed::Busy, now));
        }
        let packets = out.packets(payload, start, end);
        if !packets.is_empty() {
            books.owed.push((Owed::Again, now));
            out.demands.push(Demand { packets, end, level });
        }
    }

    /// RPC_UNKNOWN at a client: everything that was sent is retransmitted, if nothing of the
    /// response arrived.
    fn fed_unknown(&mut self, key: MessageKey) {
        let (now, payload) = (self.now, self.payload);
        let books = self.rpcs.get_mut(&key).expect("known");
        let (client, nothing) = (books.client, books.inc.is_none());
        let Some(out) = books.out.as_mut().filter(|_| client && nothing) else { return };
        let (length, end) = (out.length, out.sent);
        let packets = out.packets(payload, 0, end);
        if packets.is_empty() {
            return;
        }
        let level = self.peers.entry(key.0).or_default().unscheduled_level(length);
        let books = self.rpcs.get_mut(&key).expect("known");
        books.owed.push((Owed::Again, now));
        if let Some(out) = &mut books.out {
            out.demands.push(Demand { packets, end, level });
        }
    }
}
