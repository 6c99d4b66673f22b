//! Payload trimming (NDP, SIGCOMM 2017, §3.1): a packet that does not fit loses its payload, and
//! its header overtakes data.
//!
//! Two queues have equal memory: eight full packets of data, and the same bytes of headers and
//! control packets. If data does not fit, it is trimmed to its header, or with a chance of one half
//! the packet at the queue's tail is trimmed and replaced by it. Without that chance, synchronised
//! senders would lose the same packets again and again. While both queues hold frames, ten headers
//! are served per data packet, because with strict priority an incast of headers would leave no
//! capacity to data (congestion collapse). If even the header queue has no room for a header, it
//! returns to its sender (§3.2.4); a control packet is dropped, and so is a header that already
//! returns.
//!
//! The frame in service counts in neither queue. Limits of the port (`Buffers`) apply as well.

use homa_workload::rng::Rng;

use crate::fabric::{Frame, Marks};
use crate::topology::HostId;
use crate::transport::Label;

use super::{Admission, PortQueue, WaitingFrames};

/// Constants of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrimmingConfig {
    /// Wire bytes of each queue (NDP §3.1: eight full packets).
    pub queue: u32,
    /// Wire bytes of a packet without its payload.
    pub header: u16,
    /// Frames of the header queue served per data packet.
    pub headers_per_data: u32,
}

impl TrimmingConfig {
    /// For packets of 1500 bytes in Ethernet frames.
    pub const PAPER: Self = Self { queue: 8 * 1_538, header: 84, headers_per_data: 10 };
}

/// A port's queues of data and headers.
#[derive(Debug)]
pub struct Trimming {
    config: TrimmingConfig,
    rng: Rng,
    /// Wire bytes by list.
    bytes: [u32; 2],
    /// Headers served in a row while data waited.
    run: u32,
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;

impl Trimming {
    /// The queues of port number `port`.
    pub fn new(config: TrimmingConfig, seed: u64, port: u32) -> Self {
        let rng = Rng::stream(seed ^ u64::from(port) << 32, "trimming");
        Self { config, rng, bytes: [0; 2], run: 0 }
    }

    fn fits(&self, list: u8, frame: Frame) -> bool {
        self.bytes[usize::from(list)] + u32::from(frame.bytes) <= self.config.queue
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
        if left + u32::from(other.bytes) > self.config.queue {
            return None;
        }
        waiting.take(DATA, tail);
        self.bytes[usize::from(DATA)] = left;
        Some(tail)
    }

    /// Trims a frame, which must be in no list, and queues its header if there is room.
    fn trim(&mut self, waiting: &mut WaitingFrames<'_, ()>, slot: u32) -> Admission {
        waiting.trim(slot, self.config.header);
        if !self.fits(HEADERS, waiting.frame(slot)) {
            return Admission::Returned(slot);
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
            let returns = frame.marks().has(Marks::TRIMMED) && !frame.marks().has(Marks::RETURNED);
            return if returns { Admission::Returned(slot) } else { Admission::Dropped };
        }
        if self.fits(DATA, frame) {
            self.append(waiting, DATA, slot);
            return Admission::Queued;
        }
        let tail = if self.rng.chance(0.5) { self.take_tail(waiting, frame) } else { None };
        let Some(tail) = tail else { return self.trim(waiting, slot) };
        let admission = self.trim(waiting, tail);
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::queue::tests::Bare;

    const CONFIG: TrimmingConfig =
        TrimmingConfig { queue: 8 * 9_000, header: 64, headers_per_data: 10 };

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
}
