//! Packets that the host sends.

use super::books::{Books, OutBook, Owed};
use super::{Judge, MAX_MESSAGE, MessageKey, UNSCHEDULED, VERSION};
use crate::replay::packet::{CapturedData, CapturedPacket, PacketKind};

/// The kernel module's at boot.
const CUTOFFS: [i32; 8] = [i32::MAX, 0, 0, 0, 1_000_000, 15_000, 2_800, 200];

impl Judge {
    /// The host sends a packet to `peer`.
    pub fn sent(&mut self, now: u64, peer: usize, pkt: &CapturedPacket) {
        self.tick(now);
        self.log.push(format!("{now} out {pkt:?}"));
        let key = (peer, pkt.rpc());
        let control = !matches!(pkt.kind, PacketKind::Data(_));
        self.check(!control || pkt.level == 7, || format!("control at level {}", pkt.level));
        match &pkt.kind {
            PacketKind::Data(data) => self.sent_data(key, pkt, data),
            PacketKind::Grant { offset, level } => self.sent_grant(key, *offset, *level),
            PacketKind::Resend { offset, length, level } => {
                self.sent_resend(key, (*offset, *length), *level);
            }
            PacketKind::Unknown => self.answered(key, Owed::Unknown),
            PacketKind::Busy => self.answered(key, Owed::Busy),
            PacketKind::Cutoffs { version, .. } => self.sent_cutoffs(key, pkt, *version),
            PacketKind::Freeze => self.fault("a FREEZE".into()),
            PacketKind::NeedAck => self.sent_need_ack(key, pkt),
            PacketKind::Ack(entries) => {
                self.check(!pkt.by_server(), || "an ACK by a server".into());
                self.sent_ack(key, pkt.dport, true);
                entries.iter().for_each(|&(id, port)| self.sent_ack((peer, id), port, false));
                if let Some(books) = self.rpcs.get_mut(&key) {
                    while books.settle(Owed::Ack) {}
                }
            }
        }
    }

    /// BUSY and RPC_UNKNOWN only ever answer a RESEND.
    fn answered(&mut self, key: MessageKey, what: Owed) {
        let settled = self.rpcs.get_mut(&key).is_some_and(|books| books.settle(what));
        self.check(settled, || format!("{what:?} that nobody asked for"));
        if self.rpcs.get(&key).is_some_and(|books| books.ghost && books.owed.is_empty()) {
            self.rpcs.remove(&key);
        }
    }

    /// The server may forget an RPC that an ACK names.
    fn sent_ack(&mut self, key: MessageKey, port: u16, in_header: bool) {
        self.check(key.1 != 0 && key.1 & 1 == 0, || format!("an ack of id {}", key.1));
        let Some(books) = self.rpcs.get(&key) else { return };
        if books.ghost {
            return;
        }
        let (complete, home) = (books.client && books.is_complete(), books.ports.1);
        self.check(complete, || format!("an ack of the incomplete {key:?}"));
        self.check(home == port, || {
            format!("an ack of {key:?} (header: {in_header}) to port {port}")
        });
    }

    fn sent_need_ack(&mut self, key: MessageKey, pkt: &CapturedPacket) {
        let (now, strict) = (self.now, self.strict());
        self.check(pkt.by_server(), || "NEED_ACK by a client".into());
        let Some(books) = self.rpcs.get_mut(&key) else {
            // It belongs to a kernel host whose response the tap did not see.
            return self.check(!strict, || "NEED_ACK for nothing".into());
        };
        let finished = books.finished;
        let last = books.need_acks.last().copied();
        books.need_acks.push(now);
        // Ticks are whole, so two of them can be closer than a millisecond if the first is late.
        let apart = last.is_none_or(|at| now >= at + 500);
        let after = if strict { 2_000 } else { 900 };
        self.check(finished.is_some_and(|at| now >= at + after), || {
            format!("NEED_ACK, but the response was finished at {finished:?}")
        });
        self.check(apart, || format!("NEED_ACK again after {last:?}"));
    }

    fn sent_cutoffs(&mut self, key: MessageKey, pkt: &CapturedPacket, version: u16) {
        let (now, strict) = (self.now, self.strict());
        let peer = self.peer(key.0);
        let owed = std::mem::take(&mut peer.cutoffs_owed);
        let last = peer.cutoffs_sent.replace(now);
        self.check(version == VERSION, || format!("version {version} of cutoffs"));
        self.check(owed.iter().any(|(id, _)| *id == pkt.id), || {
            format!("CUTOFFS of id {}, expected {owed:?}", pkt.id)
        });
        self.check(!strict || last.is_none_or(|at| now >= at + 1_000), || "CUTOFFS again".into());
    }

    fn sent_data(&mut self, key: MessageKey, pkt: &CapturedPacket, data: &CapturedData) {
        let now = self.now;
        if !self.rpcs.contains_key(&key) && !pkt.by_server() {
            self.rpcs.insert(key, Books::new(true, (pkt.sport, pkt.dport), now));
        }
        let strict = self.strict();
        let Some(books) = self.rpcs.get_mut(&key) else {
            return self.check(!strict, || "a response to nothing".into());
        };
        if !books.client && !books.is_complete() {
            return self.fault("a response to an incomplete request".into());
        }
        let out = books.out.get_or_insert_with(|| OutBook::new(data.length));
        let before = out.clone();
        if !data.again {
            out.sent = out.sent.max(data.end);
        }
        let done = out.sent >= out.granted;
        let whole = out.sent == out.length;
        if !data.again && done && books.inc.is_none() {
            books.heard = now;
        }
        if !data.again && whole && !books.client {
            books.finished = Some(now);
        }
        let met = self.peer(key.0);
        if !strict && met.cutoffs.is_none() && data.version != 0 {
            // These hosts met before the capture.
            met.cutoffs = Some((CUTOFFS, data.version));
        }
        self.check_data(pkt, data, &before);
        let known = self.peer(key.0).cutoffs.map_or(0, |c| c.1);
        self.check(data.version == known, || format!("version {}, told {known}", data.version));
        if let Some((id, port)) = data.ack {
            self.sent_ack((key.0, id), port, false);
        }
        let unscheduled = self.peer(key.0).unscheduled_level(data.length);
        if data.again {
            return self.sent_again(key, pkt, data);
        }
        let level = if data.start < UNSCHEDULED { unscheduled } else { before.level };
        // The tap sees a GRANT before the host does.
        let granted = data.start >= UNSCHEDULED && before.levels >> pkt.level & 1 == 1;
        let fits = pkt.level == level || (!strict && granted);
        self.check(fits, || format!("level {}, not {level}", pkt.level));
        let incoming = data.length.min(UNSCHEDULED);
        self.check(data.incoming == incoming, || format!("incoming {}", data.incoming));
        self.check(data.start == before.sent, || format!("sent up to {} before", before.sent));
        self.check(data.start < before.granted, || format!("granted {}", before.granted));
    }

    /// The checks that all packets of a message have in common.
    fn check_data(&mut self, pkt: &CapturedPacket, data: &CapturedData, out: &OutBook) {
        let boundaries = out.packet(self.payload, data.start);
        self.check((data.start, data.end) == boundaries, || format!("not {boundaries:?}"));
        self.check(data.length == out.length, || format!("length {}", data.length));
        self.check((1..=MAX_MESSAGE).contains(&data.length), || "a forbidden length".into());
        self.check(pkt.id > 1, || "id 0".into());
    }

    /// A retransmission: only on demand, at its level, and only of bytes that had been sent.
    fn sent_again(&mut self, key: MessageKey, pkt: &CapturedPacket, data: &CapturedData) {
        let books = self.rpcs.get_mut(&key).expect("looked up before");
        let out = books.out.as_mut().expect("has sent");
        let demanded = out.demands.iter().any(|d| d.packets.contains(&data.start));
        // Overlapping demands may be served once, at the later one's level and with either end.
        let fits = out.demands.iter().any(|d| d.level == pkt.level);
        let ends = out.demands.iter().any(|d| d.end == data.incoming);
        for demand in &mut out.demands {
            demand.packets.retain(|&start| start != data.start);
        }
        if out.demands.iter().all(|d| d.packets.is_empty()) {
            while books.settle(Owed::Again) {}
        }
        if demanded && let Some(out) = &mut books.out {
            out.demands.retain(|d| !d.packets.is_empty() || d.end > data.end);
        }
        self.check(demanded, || "a retransmission that nobody asked for".into());
        self.check(fits, || format!("a retransmission at level {}", pkt.level));
        self.check(ends, || format!("a retransmission with incoming {}", data.incoming));
    }
}
