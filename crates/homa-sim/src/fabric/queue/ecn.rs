//! Strict priorities with Explicit Congestion Notification, marked as by DCTCP's switches (RFC 8257
//! §3.1; Alizadeh et al., SIGCOMM 2010, §3.1).
//!
//! An arriving frame with ECT gets CE if more than K bytes wait at that instant, without averages
//! or probabilities. Only wire bytes that wait count, not the arriving frame or the one in service.
//! A real switch whose counter includes the latter therefore marks one frame earlier. Frames
//! without ECT are treated as under strict priority.

use crate::fabric::Marks;
use crate::topology::HostId;
use crate::transport::Label;

use super::strict::LevelBytes;
use super::{Admission, Order, PortQueue, WaitingFrames};

/// Which bytes are compared with the threshold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EcnScope {
    /// Bytes of the frame's own priority level.
    #[default]
    Queue,
    /// Bytes of all levels of the port (PIAS, NSDI 2015, §5.1), so that shorter messages do not
    /// escape the marks of the port that they share.
    Port,
}

/// Strict priorities with a marking threshold.
#[derive(Clone, Copy, Debug)]
pub struct EcnThreshold {
    threshold: u32,
    scope: EcnScope,
    level_bytes: LevelBytes,
}

impl EcnThreshold {
    /// Marks above `threshold` wire bytes (K); `u32::MAX` never marks.
    pub fn new(threshold: u32, scope: EcnScope) -> Self {
        Self { threshold, scope, level_bytes: LevelBytes::default() }
    }
}

impl PortQueue for EcnThreshold {
    type Tag = ();

    const ORDER: Order = Order::Strict;

    #[inline]
    fn tag(_: &Label, _: HostId) {}

    #[inline]
    fn admit(&mut self, waiting: &mut WaitingFrames<'_, ()>, slot: u32, room: u64) -> Admission {
        let frame = waiting.frame(slot);
        let found = match self.scope {
            EcnScope::Queue => self.level_bytes.at_level_of(&frame),
            EcnScope::Port => waiting.bytes(),
        };
        let admission = self.level_bytes.admit(waiting, slot, room);
        let marks = frame.marks().has(Marks::ECT) && found > self.threshold;
        if marks && admission == Admission::Queued {
            waiting.mark_ce(slot);
        }
        admission
    }

    #[inline]
    fn next(&mut self, waiting: &mut WaitingFrames<'_, ()>) -> u32 {
        self.level_bytes.next(waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::queue::tests::Bare;

    fn label(bytes: u32, priority: u8, ect: bool) -> Label {
        Label { priority, ect, ..Label::new(HostId(0), bytes) }
    }

    /// Which of the arriving frames are marked if all of them wait.
    fn marked(scope: EcnScope, arrivals: &[(u32, u8, bool)]) -> Vec<bool> {
        let mut port = Bare::new(EcnThreshold::new(3_000, scope));
        for &(bytes, priority, ect) in arrivals {
            let (_, admission) = port.arrives(label(bytes, priority, ect), u64::MAX);
            assert_eq!(admission, Admission::Queued);
        }
        port.frames.iter().map(|frame| frame.marks().has(Marks::CE)).collect()
    }

    #[test]
    fn a_frame_is_marked_if_more_than_the_threshold_waits() {
        let data = (1_500, 0, true);
        assert_eq!(marked(EcnScope::Queue, &[data; 4]), [false, false, false, true]);
        // Exactly K bytes are not more than K.
        let short = [(3_000, 0, true), data, data];
        assert_eq!(marked(EcnScope::Queue, &short), [false, false, true]);
    }

    #[test]
    fn only_ect_frames_are_marked_but_all_bytes_count() {
        let (asked, not) = ((1_500, 0, true), (1_500, 0, false));
        let frames = [not, not, not, asked, not];
        assert_eq!(marked(EcnScope::Queue, &frames), [false, false, false, true, false]);
    }

    #[test]
    fn a_level_is_marked_by_its_own_bytes_or_by_those_of_the_port() {
        let frames = [(1_500, 0, true), (1_500, 0, true), (1_500, 0, true), (100, 7, true)];
        assert_eq!(marked(EcnScope::Queue, &frames), [false; 4]);
        assert_eq!(marked(EcnScope::Port, &frames), [false, false, false, true]);
    }

    #[test]
    fn frames_that_left_no_longer_count() {
        let mut port = Bare::new(EcnThreshold::new(3_000, EcnScope::Queue));
        for _ in 0..3 {
            port.arrives(label(1_500, 2, true), u64::MAX);
        }
        assert_eq!((port.next(), port.next()), (Some(0), Some(1)));
        let (late, _) = port.arrives(label(1_500, 2, true), u64::MAX);
        assert!(!port.frames[late as usize].marks().has(Marks::CE));
        // A dropped frame never counted.
        assert_eq!(port.arrives(label(1_500, 2, true), 1_499).1, Admission::Dropped);
        assert_eq!((port.next(), port.next(), port.next()), (Some(2), Some(late), None));
        assert_eq!(port.queue.level_bytes, LevelBytes::default());
    }
}
