//! Priority flow control (IEEE 802.1Qbb) as DeTail §4.3.1 uses it: on and off, per priority, by the
//! drain bytes of an ingress queue; and how full a queue may be before it must say so.
//!
//! After the decision to pause, more still arrives: the control frame waits for the frame that is
//! on the wire back, is sent, travels, and takes effect; the frame that its receiver has just begun
//! is completed, and everything on the cable arrives. [`PfcLink::reaction`] has the pieces; for
//! Gigabit Ethernet they sum to 36.456 us, 4,557 bytes (DeTail §4.3.1, after Cisco's white paper on
//! PFC). Every priority may send that much, each in its turn, the lowest first: a threshold is safe
//! when all of them together fit ([`safe_pause`]). A frame counts in a queue from its first
//! bit on, as the cells of a switch's memory do.

use homa_proto::Rate;

use crate::time::{LinkRate, SimDuration};

/// Bytes of a control frame on the wire: the shortest Ethernet frame.
pub const CONTROL_BYTES: u16 = 64;
/// Bits that pass until a control frame that is there takes effect: one quantum (IEEE 802.3 Annex
/// 31B).
pub const RESPONSE_BITS: u32 = 512;

/// A cable between a sender and the ingress queue that pauses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PfcLink {
    /// Rate at which data comes.
    pub rate: Rate,
    /// Rate of the way back.
    pub back: Rate,
    /// Wire bytes of the longest frame.
    pub frame: u32,
    /// From the last bit of a control frame leaving to its being there: cable and transceivers.
    pub control_delay: SimDuration,
    /// The same of data.
    pub data_delay: SimDuration,
    /// Bit times from a control frame's being there to its effect.
    pub response_bits: u32,
}

/// What passes between the decision to pause and the last bit of data that still comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reaction {
    /// The control frame waits for the frame on the wire.
    pub wire_busy: SimDuration,
    /// It is sent.
    pub control: SimDuration,
    /// It travels.
    pub control_delay: SimDuration,
    /// It takes effect.
    pub response: SimDuration,
    /// The frame just begun is completed.
    pub last_frame: SimDuration,
    /// It travels.
    pub data_delay: SimDuration,
}

impl Reaction {
    /// All of it.
    pub fn total(&self) -> SimDuration {
        let Self { wire_busy, control, control_delay, response, last_frame, data_delay } = *self;
        wire_busy + control + control_delay + response + last_frame + data_delay
    }
}

impl PfcLink {
    /// A cable that is alike in both directions.
    pub fn symmetric(rate: Rate, frame: u32, delay: SimDuration) -> Self {
        let (control_delay, data_delay) = (delay, delay);
        let response_bits = RESPONSE_BITS;
        Self { rate, back: rate, frame, control_delay, data_delay, response_bits }
    }

    /// The pieces of the reaction time.
    pub fn reaction(&self) -> Reaction {
        let (there, back) = (LinkRate::new(self.rate), LinkRate::new(self.back));
        Reaction {
            wire_busy: back.serialisation(self.frame),
            control: back.serialisation(u32::from(CONTROL_BYTES)),
            control_delay: self.control_delay,
            response: self.response(),
            last_frame: there.serialisation(self.frame),
            data_delay: self.data_delay,
        }
    }

    /// From a control frame's being there to its effect.
    pub fn response(&self) -> SimDuration {
        LinkRate::new(self.rate).serialisation(self.response_bits / 8)
    }

    /// Bytes that may come during the reaction time.
    pub fn reaction_bytes(&self) -> u64 {
        let bits = u128::from(self.reaction().total().0) * u128::from(self.rate.0);
        bits.div_ceil(8_000_000_000_000) as u64
    }
}

/// Drain bytes above which a queue pauses its sender, and below which it lets it go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PfcThresholds {
    /// Pause above.
    pub pause: u32,
    /// Unpause below.
    pub unpause: u32,
}

/// The greatest pause threshold at which a queue of `buffer` bytes never overflows, whatever comes
/// over the link in `priorities` levels: DeTail §4.3.1's `(buffer - priorities x reaction) /
/// priorities`. `None`: the buffer does not even hold what comes during the reaction.
pub fn safe_pause(link: &PfcLink, buffer: u64, priorities: u8) -> Option<u32> {
    let priorities = u64::from(priorities.max(1));
    let room = buffer.checked_sub(priorities * link.reaction_bytes())?;
    Some(u32::try_from(room / priorities).unwrap_or(u32::MAX))
}

/// The thresholds by DeTail's rule (§4.3.1): unpause where a full link does not run dry before the
/// sender is back, pause halfway between that and what is safe; both lower where the buffer leaves
/// no room between. `None`: no threshold is safe.
pub fn detail_thresholds(link: &PfcLink, buffer: u64, priorities: u8) -> Option<PfcThresholds> {
    let most = safe_pause(link, buffer, priorities)?;
    let least = u32::try_from(link.reaction_bytes()).unwrap_or(u32::MAX);
    Some(if least < most {
        PfcThresholds { pause: least + (most - least) / 2, unpause: least.max(1) }
    } else {
        PfcThresholds { pause: most, unpause: (most / 2).max(1) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// DeTail's Gigabit link: 1,530-byte frames, 0.476 us of copper, 5 us of transceivers.
    fn gigabit() -> PfcLink {
        PfcLink::symmetric(Rate::gbps(1), 1_530, SimDuration::nanos(5_476))
    }

    #[test]
    fn the_papers_numbers() {
        let link = gigabit();
        assert_eq!(link.reaction().total(), SimDuration::nanos(36_456));
        assert_eq!(link.reaction().wire_busy, SimDuration::nanos(12_240));
        assert_eq!(link.reaction_bytes(), 4_557);
        assert_eq!(safe_pause(&link, 131_072, 8), Some(11_827));
        let chosen = PfcThresholds { pause: 8_192, unpause: 4_557 };
        assert_eq!(detail_thresholds(&link, 131_072, 8), Some(chosen));
    }

    #[test]
    fn fewer_priorities_leave_more_and_a_small_buffer_nothing() {
        let link = gigabit();
        assert_eq!(safe_pause(&link, 131_072, 2), Some(65_536 - 4_557));
        assert_eq!(safe_pause(&link, 8 * 4_557, 8), Some(0));
        assert_eq!(safe_pause(&link, 8 * 4_557 - 1, 8), None);
        let tight = detail_thresholds(&link, 8 * 6_000, 8).unwrap();
        assert!(tight.unpause < tight.pause && tight.pause == 1_443, "{tight:?}");
    }
}
