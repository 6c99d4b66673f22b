//! Payload trimming (NDP, SIGCOMM 2017, §3.1): a packet that does not fit loses its payload, and
//! its header overtakes data.
//!
//! A port has two queues, one of data and one of headers and control packets. If data does not fit,
//! it is trimmed to its header, or with a chance of one half the packet at the queue's tail is
//! trimmed and replaced by it. Without that chance, synchronised senders would lose the same
//! packets again and again. The rest differs:
//!
//! NDP: eight full packets of data and as many bytes of headers fit, without the frame in service.
//! Ten headers are served per data packet, because with strict priority an incast of headers would
//! leave no capacity to data (congestion collapse). A header without room returns to its sender
//! (§3.2.4), unless it already returns; a control packet is lost.
//!
//! Ultra Ethernet (UET 1.0, as in `uet-htsim`, `compositequeue.cpp`): a BDP of data and twice as
//! many bytes of headers fit, with the frame in service. 100,000 headers are served per packet of
//! data. A header without room is lost. Data that leaves is marked by a ramp ([`EcnRamp`]) over the
//! data that stays behind. A packet that is trimmed at the port to its receiver says so, for which
//! the standard has a code point.
//!
//! Limits of the port (`Buffers`) apply as well. Left out: the standard's weights and caps for the
//! class of trimmed packets.

use homa_workload::rng::Rng;

use crate::fabric::{Frame, Marks};
use crate::time::SimTime;
use crate::topology::HostId;
use crate::transport::Label;

use super::{Admission, EcnRamp, PortQueue, WaitingFrames};

/// Constants of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrimmingConfig {
    /// Wire bytes of the queue of data (NDP §3.1: eight full packets).
    pub queue: u32,
    /// Wire bytes of the queue of headers.
    pub headers: u32,
    /// Wire bytes of a packet without its payload.
    pub header: u16,
    /// Frames of the header queue served per data packet.
    pub headers_per_data: u32,
    /// The frame in service counts in its queue.
    pub counts_service: bool,
    /// A header without room returns to its sender.
    pub returns: bool,
    /// When data that leaves is marked; `None`: never.
    pub marks: Option<EcnRamp>,
    /// Packets that are trimmed at this port are told apart as those of a last hop.
    pub last_hop: bool,
}

impl TrimmingConfig {
    /// For packets of 1500 bytes in Ethernet frames.
    pub const PAPER: Self = Self::ndp(8 * 1_538, 84);

    /// NDP's rules with queues of `queue` wire bytes each, and headers of `header` wire bytes.
    pub const fn ndp(queue: u32, header: u16) -> Self {
        Self {
            queue,
            headers: queue,
            header,
            headers_per_data: 10,
            counts_service: false,
            returns: true,
            marks: None,
            last_hop: false,
        }
    }

    /// Ultra Ethernet's rules with a data queue of `queue` wire bytes, and headers of `header` wire
    /// bytes.
    pub const fn uet(queue: u32, header: u16) -> Self {
        Self {
            headers: queue.saturating_mul(2),
            headers_per_data: 100_000,
            counts_service: true,
            returns: false,
            ..Self::ndp(queue, header)
        }
    }
}

/// A port's queues of data and headers.
#[derive(Debug)]
pub struct Trimming {
    config: TrimmingConfig,
    rng: Rng,
    marks_rng: Rng,
    /// Wire bytes by list.
    bytes: [u32; 2],
    /// Wire bytes of the frame in service by its list, if it counts.
    serving: [u32; 2],
    /// Headers served in a row while data waited.
    run: u32,
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;

impl Trimming {
    /// The queues of port number `port`.
    pub fn new(config: TrimmingConfig, seed: u64, port: u32) -> Self {
        let own = seed ^ u64::from(port) << 32;
        Self {
            config,
            rng: Rng::stream(own, "trimming"),
            marks_rng: Rng::stream(own, "trimming marks"),
            bytes: [0; 2],
            serving: [0; 2],
            run: 0,
        }
    }

    fn fits(&self, list: u8, frame: Frame) -> bool {
        self.leaves_room(list, self.bytes[usize::from(list)], frame)
    }

    /// Whether a frame fits a list in which `waiting` bytes wait.
    fn leaves_room(&self, list: u8, waiting: u32, frame: Frame) -> bool {
        let limit = if list == DATA { self.config.queue } else { self.config.headers };
        let taken = u64::from(waiting) + u64::from(self.serving[usize::from(list)]);
        taken + u64::from(frame.bytes) <= u64::from(limit)
    }

    fn append<T: Copy>(&mut self, waiting: &mut WaitingFrames<'_, T>, list: u8, slot: u32) {
        self.bytes[usize::from(list)] += u32::from(waiting.frame(slot).bytes);
        waiting.append(list, slot);
    }

    /// Takes the tail of the data queue out, if `other` fits then. A longer frame may not fit.
    fn take_tail(&mut self, waiting: &mut WaitingFrames<'_, ()>, other: Frame) -> Option<u32> {
        let tail = waiting.list(DATA).last()?;
        let bytes = waiting.frame(tail).bytes;
        let left = self.bytes[usize::from(DATA)] - u32::from(bytes);
        if !self.leaves_room(DATA, left, other) {
            return None;
        }
        waiting.take(DATA, tail);
        self.bytes[usize::from(DATA)] = left;
        Some(tail)
    }

    /// Trims a frame, which must be in no list, and queues its header if there is room. `arriving`
    /// is the frame that the port was asked about.
    fn trim(
        &mut self,
        waiting: &mut WaitingFrames<'_, ()>,
        (slot, arriving): (u32, u32),
    ) -> Admission {
        waiting.trim(slot, self.config.header);
        if self.config.last_hop {
            waiting.note_last_hop(slot);
        }
        if !self.fits(HEADERS, waiting.frame(slot)) {
            return match self.config.returns {
                true => Admission::Returned(slot),
                false if slot == arriving => Admission::Dropped,
                false => Admission::Evicted(slot),
            };
        }
        self.append(waiting, HEADERS, slot);
        Admission::Trimmed(slot)
    }
}

/// Control packets and trimmed packets.
fn is_header(frame: Frame) -> bool {
    frame.priority() > 0 || frame.marks().has(Marks::TRIMMED)
}

impl PortQueue for Trimming {
    type Tag = ();

    fn tag(_: &Label, _: HostId) {}

    fn admit(&mut self, waiting: &mut WaitingFrames<'_, ()>, slot: u32, room: u64) -> Admission {
        let frame = waiting.frame(slot);
        if u64::from(frame.bytes) > room {
            return Admission::Dropped;
        }
        if is_header(frame) {
            if self.fits(HEADERS, frame) {
                self.append(waiting, HEADERS, slot);
                return Admission::Queued;
            }
            let marks = frame.marks();
            let returns = marks.has(Marks::TRIMMED) && !marks.has(Marks::RETURNED);
            let returns = returns && self.config.returns;
            return if returns { Admission::Returned(slot) } else { Admission::Dropped };
        }
        if self.fits(DATA, frame) {
            self.append(waiting, DATA, slot);
            return Admission::Queued;
        }
        let tail = if self.rng.chance(0.5) { self.take_tail(waiting, frame) } else { None };
        let Some(tail) = tail else { return self.trim(waiting, (slot, slot)) };
        let admission = self.trim(waiting, (tail, slot));
        if matches!(admission, Admission::Trimmed(_)) {
            self.append(waiting, DATA, slot);
        }
        admission
    }

    fn next(&mut self, waiting: &mut WaitingFrames<'_, ()>) -> u32 {
        let both = !waiting.is_empty(DATA) && !waiting.is_empty(HEADERS);
        let list = match (both, waiting.is_empty(HEADERS)) {
            (true, _) if self.run >= self.config.headers_per_data => {
                self.run = 0;
                DATA
            }
            (true, _) => {
                self.run += 1;
                HEADERS
            }
            (false, empty) => {
                if empty {
                    DATA
                } else {
                    HEADERS
                }
            }
        };
        let slot = waiting.take_first(list).unwrap_or_else(|| waiting.take_highest());
        self.bytes[usize::from(list)] -= u32::from(waiting.frame(slot).bytes);
        slot
    }

    #[inline]
    fn departs(&mut self, frame: &mut Frame, _: SimTime) {
        let list = if is_header(*frame) { HEADERS } else { DATA };
        if self.config.counts_service {
            self.serving = [0; 2];
            self.serving[usize::from(list)] = u32::from(frame.bytes);
        }
        if let Some(ramp) = self.config.marks
            && list == DATA
            && frame.marks().has(Marks::ECT)
            && ramp.marks(self.bytes[usize::from(DATA)], &mut self.marks_rng)
        {
            frame.set(Marks::CE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::queue::tests::Bare;

    const CONFIG: TrimmingConfig = TrimmingConfig::ndp(8 * 9_000, 64);
    /// Ultra Ethernet at 100 Gbit/s with a BDP of 43 packets.
    const UET: TrimmingConfig = TrimmingConfig::uet(43 * 4_150, 64);

    fn port() -> Bare<Trimming> {
        Bare::new(Trimming::new(CONFIG, 1, 7))
    }

    fn data() -> Label {
        Label::new(HostId(0), 9_000)
    }

    fn control() -> Label {
        Label { priority: 7, ..Label::new(HostId(0), 64) }
    }

    #[test]
    fn beyond_eight_packets_the_newest_or_the_tail_is_trimmed() {
        let (mut newest, mut tails) = (0, 0);
        for seed in 0..2_000 {
            let mut port = Bare::new(Trimming::new(CONFIG, seed, 7));
            for _ in 0..8 {
                assert_eq!(port.arrives(data(), u64::MAX).1, Admission::Queued);
            }
            match port.arrives(data(), u64::MAX).1 {
                Admission::Trimmed(8) => newest += 1,
                Admission::Trimmed(7) => tails += 1,
                other => panic!("{other:?}"),
            }
            let bytes: Vec<u16> = port.frames.iter().map(|frame| frame.bytes).collect();
            assert_eq!(bytes.iter().filter(|&&bytes| bytes == 64).count(), 1);
            assert_eq!(port.queue.bytes, [72_000, 64]);
        }
        assert!((900..1_100).contains(&newest) && newest + tails == 2_000, "{newest} of 2000");
    }

    #[test]
    fn headers_beyond_1125_return_to_their_senders() {
        let mut port = port();
        for _ in 0..8 + 1_125 {
            port.arrives(data(), u64::MAX);
        }
        assert_eq!(port.queue.bytes, [72_000, 72_000]);
        assert!(matches!(port.arrives(data(), u64::MAX).1, Admission::Returned(_)));
        assert_eq!(port.arrives(control(), u64::MAX).1, Admission::Dropped);
        // A returning header that finds no room is lost.
        let (slot, _) = port.arrives(control(), 0);
        port.frames[slot as usize].set(Marks::TRIMMED.with(Marks::RETURNED, true));
        let Bare { queue, port, levels, frames, tags } = &mut port;
        let mut waiting = WaitingFrames { port, levels, frames, tags };
        assert_eq!(queue.admit(&mut waiting, slot, u64::MAX), Admission::Dropped);
    }

    #[test]
    fn ten_headers_are_served_per_data_packet() {
        let mut port = port();
        let mut kinds = Vec::new();
        for _ in 0..3 {
            port.arrives(data(), u64::MAX);
        }
        for _ in 0..25 {
            port.arrives(control(), u64::MAX);
        }
        while let Some(slot) = port.next() {
            kinds.push(if slot < 3 { 'd' } else { 'h' });
        }
        let order: String = kinds.into_iter().collect();
        assert_eq!(order, "hhhhhhhhhhdhhhhhhhhhhdhhhhhd");
        assert_eq!(port.queue.bytes, [0, 0]);
    }

    #[test]
    fn a_trimmed_packet_is_a_header_at_the_next_switch_too() {
        let mut port = port();
        port.arrives(data(), u64::MAX);
        let trimmed = Label::new(HostId(0), 64);
        let slot = port.frames.len() as u32;
        port.frames.push(Frame::new(&trimmed));
        port.frames[slot as usize].set(Marks::TRIMMED);
        port.tags.push(());
        let Bare { queue, port: bare, levels, frames, tags } = &mut port;
        let mut waiting = WaitingFrames { port: bare, levels, frames, tags };
        assert_eq!(queue.admit(&mut waiting, slot, u64::MAX), Admission::Queued);
        assert_eq!((port.next(), port.next()), (Some(slot), Some(0)));
    }

    /// A port of Ultra Ethernet that is sending a packet.
    fn uet_port(config: TrimmingConfig, seed: u64) -> Bare<Trimming> {
        let mut port = Bare::new(Trimming::new(config, seed, 7));
        port.queue.departs(&mut Frame::new(&uet_data()), SimTime(0));
        port
    }

    fn uet_data() -> Label {
        Label { ect: true, ..Label::new(HostId(0), 4_150) }
    }

    #[test]
    fn the_packet_in_service_takes_room_of_ultra_ethernets_queue() {
        let mut port = uet_port(UET, 1);
        for _ in 0..42 {
            assert_eq!(port.arrives(uet_data(), u64::MAX).1, Admission::Queued);
        }
        assert!(matches!(port.arrives(uet_data(), u64::MAX).1, Admission::Trimmed(_)));
        assert!(port.frames.iter().all(|frame| !frame.marks().has(Marks::LAST_HOP)));
        // A control packet in service leaves its room to data.
        port.queue.departs(&mut Frame::new(&control()), SimTime(0));
        assert_eq!(port.arrives(uet_data(), u64::MAX).1, Admission::Queued);
    }

    #[test]
    fn headers_without_room_are_lost_and_data_takes_the_place() {
        let (mut dropped, mut evicted) = (0, 0);
        for seed in 0..200 {
            let config = TrimmingConfig { headers: 64, last_hop: true, ..UET };
            let mut port = uet_port(config, seed);
            for _ in 0..43 {
                port.arrives(uet_data(), u64::MAX);
            }
            let trimmed = port.frames.iter().find(|frame| frame.marks().has(Marks::TRIMMED));
            assert!(trimmed.unwrap().marks().has(Marks::LAST_HOP));
            let (slot, first) = port.arrives(uet_data(), u64::MAX);
            match first {
                Admission::Dropped => dropped += 1,
                Admission::Evicted(tail) => {
                    evicted += 1;
                    assert_ne!(tail, slot);
                    let Bare { queue, port, levels, frames, tags } = &mut port;
                    let mut waiting = WaitingFrames { port, levels, frames, tags };
                    assert_eq!(queue.admit(&mut waiting, slot, u64::MAX), Admission::Queued);
                }
                other => panic!("{other:?}"),
            }
        }
        assert!((70..130).contains(&dropped) && dropped + evicted == 200, "{dropped}");
    }

    #[test]
    fn all_waiting_headers_go_before_data() {
        let mut port = uet_port(UET, 1);
        port.arrives(uet_data(), u64::MAX);
        for _ in 0..30 {
            port.arrives(control(), u64::MAX);
        }
        let order: Vec<u32> = std::iter::from_fn(|| port.next()).collect();
        assert_eq!(order, (1..31).chain([0]).collect::<Vec<_>>());
    }

    #[test]
    fn data_is_marked_by_the_bytes_that_it_leaves_behind() {
        let ramp = EcnRamp::to_one(2 * 4_150, 4 * 4_150);
        let mut port = uet_port(TrimmingConfig { marks: Some(ramp), ..UET }, 1);
        for _ in 0..8 {
            port.arrives(uet_data(), u64::MAX);
        }
        let mut marked = Vec::new();
        while let Some(slot) = port.next() {
            let frame = &mut port.frames[slot as usize];
            port.queue.departs(frame, SimTime(0));
            marked.push(frame.marks().has(Marks::CE));
        }
        // Seven to five packets stay behind: all marked; two or fewer: none.
        assert_eq!((&marked[..3], &marked[5..]), (&[true; 3][..], &[false; 3][..]));
        let mut plain = Frame::new(&Label::new(HostId(0), 4_150));
        port.queue.bytes[0] = 8 * 4_150;
        port.queue.departs(&mut plain, SimTime(0));
        assert!(!plain.marks().has(Marks::CE), "without ECT");
    }
}
