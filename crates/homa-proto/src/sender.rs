//! Basic sender behaviour (Homa §3.2): unscheduled bytes at once, scheduled bytes as granted, SRPT
//! over all messages that may send, control packets before all data (in `endpoint.rs`).
//!
//! Invariants: packet boundaries are a function of the message alone, so a retransmission repeats
//! the original packets (Linux §2.3); the queue holds at most one valid entry per message. A share
//! of the transmitted packets can go to the oldest message (Linux `pacer_fifo_fraction`).

use crate::config::{Config, GrantedLevel, Profile, UnscheduledLevel, UnscheduledLimit};
use crate::endpoint::Endpoint;
use crate::granted_levels::GrantedLevels;
use crate::packet::{AckEntry, Body, Data, Packet, Span};
use crate::peer::Peer;
use crate::rpc::{Rpc, State, outgoing_message};
use crate::srpt::{Entry, SrptQueue};
use crate::table::{Ref, Table};
use crate::units::Time;
use alloc::boxed::Box;
use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;

/// Messages of at most this many bytes, about a packet, never wait for the oldest's share.
const FIFO_LENGTH: u32 = 1_400;
/// Ranges kept for retransmission per message, enough for every other packet of the kernel module's
/// longest; more are merged into one.
const MAX_RESEND_RANGES: usize = 512;
/// Entries of ended messages that the queues may hold beside as many valid ones.
const MAX_STALE: usize = 1_024;
/// Most bytes of a message that go unscheduled, whatever RTTbytes is: what the kernel module's
/// author found best at 25 and 100 Gbit/s. More would let a few senders fill a switch port's buffer
/// unasked.
pub(crate) const MAX_UNSCHEDULED: u32 = 60_000;

/// Message bytes per packet to one peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PacketSizes {
    unscheduled: u32,
    scheduled: u32,
}

impl PacketSizes {
    pub(crate) fn new(config: &Config, peer: &Peer) -> Self {
        let unscheduled = peer.info.max_payload;
        Self { unscheduled, scheduled: unscheduled.saturating_add(config.scheduled_extra) }
    }
}

/// [`Outgoing::queued`] of a message that is not in the SRPT queue: no message has this much left.
const NOT_QUEUED: u32 = u32::MAX;

/// Ranges to send again, ascending.
type Ranges = Vec<Again>;

/// A range to send again, on packet boundaries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Again {
    start: u32,
    end: u32,
    /// Where the range ends that the receiver asked for.
    asked: u32,
}

/// What a message sends next.
struct Taken {
    start: u32,
    end: u32,
    /// Sent again: where the range ends that the receiver asked for.
    again: Option<u32>,
}

/// An outgoing message.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Outgoing {
    pub(crate) length: u32,
    /// Bytes before this go without a grant.
    pub(crate) unscheduled: u32,
    /// All bytes before this may be sent.
    pub(crate) granted: u32,
    /// All bytes before this were sent at least once.
    pub(crate) sent: u32,
    /// Key of the valid entry in the SRPT queue, or [`NOT_QUEUED`].
    queued: u32,
    in_fifo: bool,
    /// Level of retransmitted bytes, from the last RESEND.
    pub(crate) resend_priority: u8,
    /// Order of submission.
    pub(crate) age: u64,
    /// Levels of granted bytes.
    levels: GrantedLevels,
    /// Absent while nothing was lost, as nearly always.
    resend: Option<Box<Ranges>>,
}

impl Default for Outgoing {
    fn default() -> Self {
        Self::new(0, 0, 0)
    }
}

impl Outgoing {
    /// A message of `length` bytes, the `age`th.
    pub(crate) fn new(length: u32, unscheduled: u32, age: u64) -> Self {
        Self {
            length,
            unscheduled,
            granted: unscheduled,
            sent: 0,
            queued: NOT_QUEUED,
            in_fifo: false,
            resend_priority: 0,
            age,
            levels: GrantedLevels::default(),
            resend: None,
        }
    }

    /// True once a message was submitted.
    pub(crate) const fn exists(&self) -> bool {
        self.length > 0
    }

    pub(crate) const fn fully_sent(&self) -> bool {
        self.sent >= self.length && self.resend.is_none()
    }

    /// True while bytes may be sent that were not, or must be again.
    pub(crate) const fn has_bytes_to_send(&self) -> bool {
        self.may_send_more() || self.resend.is_some()
    }

    /// True while bytes may be sent for the first time.
    pub(crate) const fn may_send_more(&self) -> bool {
        self.sent < self.granted && self.sent < self.length
    }

    const fn is_queued(&self) -> bool {
        self.queued != NOT_QUEUED
    }

    /// Bytes left: what SRPT orders by.
    fn remaining(&self) -> u32 {
        let again: u32 =
            self.resend.iter().flat_map(|ranges| ranges.iter()).map(|r| r.end - r.start).sum();
        self.length - self.sent + again
    }

    /// Granted bytes up to `offset`, at `level`.
    pub(crate) fn grant(&mut self, offset: u32, level: u8, rule: GrantedLevel) {
        let offset = offset.min(self.length);
        match rule {
            GrantedLevel::AllUnsent => self.levels = GrantedLevels::all(level),
            GrantedLevel::OwnBytes if offset > self.granted => {
                self.levels.push(self.sent, offset, level);
            }
            GrantedLevel::OwnBytes => {}
        }
        self.granted = self.granted.max(offset);
    }

    /// Start of the part of the message that holds `offset`, its end, and its bytes per packet. A
    /// packet boundary is forced at the unscheduled limit.
    fn part_at(&self, sizes: PacketSizes, offset: u32) -> (u32, u32, u32) {
        if offset < self.unscheduled {
            (0, self.unscheduled.min(self.length), sizes.unscheduled)
        } else {
            (self.unscheduled, self.length, sizes.scheduled)
        }
    }

    /// The original packet that holds `offset`.
    fn packet_at(&self, sizes: PacketSizes, offset: u32) -> (u32, u32) {
        let (base, limit, payload) = self.part_at(sizes, offset);
        let start = base + (offset - base) / payload * payload;
        (start, start.saturating_add(payload).min(limit))
    }

    /// Schedules a range of what was sent for sending again, on packet boundaries; false when
    /// nothing of it was sent yet.
    pub(crate) fn resend(&mut self, sizes: PacketSizes, range: (u32, u32), priority: u8) -> bool {
        let (start, end) = (range.0, range.1.min(self.sent));
        if start >= end {
            return false;
        }
        let first = self.packet_at(sizes, start).0;
        let last = self.packet_at(sizes, end - 1).1.min(self.sent);
        self.resend_priority = priority;
        let ranges = self.resend.get_or_insert_default();
        ranges.push(Again { start: first, end: last, asked: end });
        ranges.sort_unstable();
        ranges.dedup_by(|next, kept| {
            let touches = next.start <= kept.end;
            if touches {
                kept.end = kept.end.max(next.end);
                kept.asked = kept.asked.max(next.asked);
            }
            touches
        });
        if ranges.len() > MAX_RESEND_RANGES {
            let last = ranges[ranges.len() - 1];
            let hull = Again { start: ranges[0].start, ..last };
            ranges.clear();
            ranges.push(hull);
        }
        true
    }

    /// Forgets that anything was sent: the server says it never saw the request.
    pub(crate) fn restart(&mut self) {
        self.resend = None;
        self.sent = 0;
        self.granted = self.unscheduled;
    }

    /// Takes the next packet.
    fn take(&mut self, sizes: PacketSizes) -> Taken {
        if let Some(taken) = self.take_again(sizes) {
            return taken;
        }
        // What was sent ends where a packet does.
        let start = self.sent;
        let (_, limit, payload) = self.part_at(sizes, start);
        self.sent = start.saturating_add(payload).min(limit);
        Taken { start, end: self.sent, again: None }
    }

    fn take_again(&mut self, sizes: PacketSizes) -> Option<Taken> {
        let Again { start, end: limit, asked } = *self.resend.as_ref()?.first()?;
        let end = self.packet_at(sizes, start).1.min(limit);
        let ranges = self.resend.as_mut()?;
        if end < limit {
            ranges[0].start = end;
        } else {
            ranges.remove(0);
            if ranges.is_empty() {
                self.resend = None;
            }
        }
        Some(Taken { start, end, again: Some(asked) })
    }
}

/// The messages that may send, shortest first.
#[derive(Debug, Default)]
pub(crate) struct Sender {
    srpt: SrptQueue,
    fifo: BinaryHeap<Reverse<(u64, Ref)>>,
    /// Messages with a valid entry.
    count: usize,
    /// Messages that ended with an entry since stale entries were last removed.
    stale: usize,
    next_age: u64,
    /// Share of packets for the oldest message, in thousandths.
    fifo_share: u32,
    fifo_credit: u32,
}

impl Sender {
    pub(crate) fn new(fifo_permille: u16) -> Self {
        Self { fifo_share: u32::from(fifo_permille), ..Self::default() }
    }

    /// The age of the next message: order of submission.
    pub(crate) fn age(&mut self) -> u64 {
        self.next_age += 1;
        self.next_age
    }

    /// True when some message may send.
    pub(crate) const fn has_packet(&self) -> bool {
        self.count > 0
    }

    /// Queues a message that may have become able to send.
    pub(crate) fn wake(&mut self, who: Ref, out: &mut Outgoing) {
        if !out.has_bytes_to_send() || out.is_queued() {
            return;
        }
        let remaining = out.remaining();
        out.queued = remaining;
        self.count += 1;
        self.srpt.push(Entry { remaining, age: out.age, who });
        if self.fifo_share > 0 && out.length > FIFO_LENGTH && !out.in_fifo {
            out.in_fifo = true;
            self.fifo.push(Reverse((out.age, who)));
        }
    }

    /// The message of `out` ends.
    pub(crate) fn forget(&mut self, out: &mut Outgoing) {
        if core::mem::replace(&mut out.queued, NOT_QUEUED) != NOT_QUEUED {
            self.count -= 1;
            self.stale += 1;
        }
    }

    /// Removes the entries of messages that ended, when these are many: few are ever reached.
    pub(crate) fn sweep(&mut self, rpcs: &Table<Rpc>) {
        if self.stale < MAX_STALE + self.count {
            return;
        }
        self.stale = 0;
        let out = |who| rpcs.get(who).map(|rpc| &rpc.out);
        self.srpt.retain(|e| out(e.who).is_some_and(|out| out.queued == e.remaining));
        self.fifo.retain(|e| out(e.0.1).is_some_and(|out| out.age == e.0.0));
    }

    #[cfg(test)]
    pub(crate) fn queues(&self) -> (&SrptQueue, usize) {
        (&self.srpt, self.fifo.len())
    }

    /// The next message to send: shortest remaining first, and the oldest for its share.
    fn pick(&mut self, rpcs: &mut Table<Rpc>) -> Option<Ref> {
        if self.fifo_credit >= 1000
            && let Some(oldest) = self.oldest(rpcs)
        {
            self.fifo_credit -= 1000;
            return Some(oldest);
        }
        self.shortest(rpcs)
    }

    /// The message that is likely to send next.
    pub(crate) fn first(&self) -> Option<Ref> {
        self.srpt.peek().map(|entry| entry.who)
    }

    /// The message with the fewest bytes left of those that may send.
    pub(crate) fn shortest(&mut self, rpcs: &Table<Rpc>) -> Option<Ref> {
        loop {
            let entry = *self.srpt.peek()?;
            let valid = rpcs.get(entry.who).is_some_and(|r| r.out.queued == entry.remaining);
            if valid {
                return Some(entry.who);
            }
            self.srpt.pop();
        }
    }

    fn oldest(&mut self, rpcs: &mut Table<Rpc>) -> Option<Ref> {
        loop {
            let &Reverse((age, who)) = self.fifo.peek()?;
            match rpcs.get_mut(who).map(|r| &mut r.out).filter(|out| out.age == age) {
                Some(out) if out.is_queued() => return Some(who),
                Some(out) => out.in_fifo = false,
                None => {}
            }
            self.fifo.pop();
        }
    }

    /// Accounts for a packet just taken from `out`.
    fn settle(&mut self, who: Ref, out: &mut Outgoing) {
        if out.length > FIFO_LENGTH {
            self.fifo_credit = (self.fifo_credit + self.fifo_share).min(2000);
        }
        let next = out.has_bytes_to_send().then(|| out.remaining());
        let on_top = self.srpt.peek().is_some_and(|top| top.who == who);
        match (on_top, next) {
            (true, Some(remaining)) => self.srpt.lower_first(remaining),
            (true, None) => self.srpt.pop(),
            (false, Some(remaining)) => {
                self.srpt.push(Entry { remaining, age: out.age, who });
            }
            (false, None) => {}
        }
        if next.is_none() {
            self.count -= 1;
        }
        out.queued = next.unwrap_or(NOT_QUEUED);
    }
}

/// How many bytes of a message to `peer` go unscheduled (Homa §3.2). The user profile fills
/// packets.
pub(crate) fn unscheduled_limit(config: &Config, peer: &Peer) -> u32 {
    let limit = match config.unscheduled {
        UnscheduledLimit::RttBytes => peer.rtt_bytes.min(MAX_UNSCHEDULED),
        UnscheduledLimit::Fixed(bytes) => bytes,
    };
    let limit = limit.min(peer.unscheduled_cap);
    match config.profile {
        Profile::Default => (limit / peer.info.max_payload).max(1) * peer.info.max_payload,
        _ => limit.max(1),
    }
}

/// Most bytes of a message that any sender of this profile sends unscheduled, but for what is left
/// of a packet.
pub(crate) fn most_unscheduled(config: &Config) -> u32 {
    match config.unscheduled {
        UnscheduledLimit::RttBytes => MAX_UNSCHEDULED,
        UnscheduledLimit::Fixed(bytes) => bytes.max(MAX_UNSCHEDULED),
    }
}

impl Endpoint {
    /// A new outgoing message of `length` bytes for the peer of an RPC.
    pub(crate) fn outgoing(&mut self, length: u32, unscheduled: u32) -> Outgoing {
        Outgoing::new(length, unscheduled.min(length), self.sender.age())
    }

    /// The next DATA packet.
    pub(crate) fn next_data(&mut self, now: Time) -> Option<Packet> {
        let who = self.sender.pick(&mut self.rpcs)?;
        let rpc = self.rpcs.get_mut(who)?;
        let peer = self.peers.get_mut(rpc.peer.0 as usize).and_then(Option::as_mut)?;
        let Taken { start, end, again } = rpc.out.take(PacketSizes::new(&self.config, peer));
        let retransmit = again.is_some();
        self.sender.settle(who, &mut rpc.out);
        let kernel = self.config.profile == Profile::Linux;
        let begins_to_wait = !retransmit && !rpc.out.may_send_more();
        if kernel && rpc.state == State::ClientOutgoing && begins_to_wait {
            rpc.heard = now;
        }
        let out = &rpc.out;
        let priority = if retransmit {
            out.resend_priority
        } else if start < out.unscheduled {
            let by = match self.config.unscheduled_level {
                UnscheduledLevel::MessageLength => out.length,
                UnscheduledLevel::BytesLeft => out.length - start,
            };
            self.levels.unscheduled_priority(self.levels.cutoffs_of(peer), by)
        } else {
            out.levels.at(start).min(self.levels.top())
        };
        if retransmit {
            self.counters.data_resent += 1;
        } else {
            self.counters.data_sent += 1;
            self.counters.data_bytes_sent += u64::from(end - start);
        }
        if self.config.measure_rtt_bytes
            && start == 0
            && out.unscheduled < out.length
            && !retransmit
        {
            peer.more.rtt.begin(now, out);
        }
        let ack: Option<AckEntry> = peer.pop_ack(kernel);
        let one_way = rpc.state == State::OneWayOutgoing;
        let incast = if rpc.state.is_client() && !one_way { rpc.response_limit } else { None };
        let packet = Packet {
            peer: rpc.peer,
            priority,
            local_port: rpc.local_port,
            remote_port: rpc.remote_port,
            id: rpc.wire_id(),
            body: Body::Data(Data {
                span: Span { message: outgoing_message(who), offset: start, len: end - start },
                message_length: out.length,
                incoming: match again {
                    None => out.unscheduled,
                    Some(asked) if kernel => asked,
                    Some(_) => out.unscheduled.max(end),
                },
                ack,
                cutoff_version: peer.cutoff_version,
                retransmit,
                incast,
            }),
        };
        if rpc.out.fully_sent() {
            self.message_sent(now, who);
        }
        Some(packet)
    }
}
