//! Priority flow control (IEEE 802.1Qbb) as DeTail §4.3.1 uses it: on and off, per priority, by the
//! drain bytes of an ingress queue; and how full a queue may be before it must say so.
//!
//! After the decision to pause, more still arrives: the control frame waits for the frame that is
//! on the wire back, is sent, travels, and takes effect; the frame that its receiver has just begun
//! is completed, and everything on the cable arrives. [`PfcLink::reaction`] has the pieces; for
//! Gigabit Ethernet they sum to 36.456 us, 4,557 bytes (DeTail §4.3.1, after Cisco's white paper on
//! PFC). All but one are bytes at the link's rate and time on the cable. The remaining one, until a
//! control frame that is there takes effect, is the sender's processing time, for which IEEE 802.3
//! allows more bit times the faster the link ([`ResponseTime`]). Every priority may send that much,
//! each in its turn, the lowest first: a threshold is safe when all of them together fit
//! ([`safe_pause`]). A frame counts in a queue from its first bit on, as the cells of a switch's
//! memory do.

use homa_proto::Rate;

use crate::time::{LinkRate, SimDuration};

/// Bytes of a control frame on the wire: the shortest Ethernet frame.
pub const CONTROL_BYTES: u16 = 64;
/// Bits of a pause quantum, in which IEEE 802.3 counts times.
const QUANTUM: u32 = 512;
/// Pause quanta that a sender may take to heed a control frame, by the rate of its link in Mbit/s
/// (IEEE 802.3 Annex 31B.3.7); at 10 Gbit/s those of twisted pairs, which are slowest.
const STANDARD_QUANTA: [(u64, u32); 9] = [
    (100, 1),
    (1_000, 2),
    (10_000, 74),
    (25_000, 80),
    (40_000, 118),
    (50_000, 147),
    (100_000, 394),
    (200_000, 453),
    (400_000, 905),
];

/// Bit times that IEEE 802.3 allows a sender until a control frame that is there takes effect;
/// between two listed rates those of the faster one. `None`: faster than 400 Gbit/s.
pub fn standard_response_bits(rate: Rate) -> Option<u32> {
    let listed = STANDARD_QUANTA.iter().find(|(mbps, _)| rate.0 <= mbps * 1_000_000);
    listed.map(|(_, quanta)| quanta * QUANTUM)
}

/// How long a sender takes until a control frame that is there takes effect. It is a time of the
/// sender, which does not change with the rate at which a degraded link still sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResponseTime {
    /// As DeTail has it up to 1 Gbit/s, a quantum (§4.3.1); on faster links what the standard
    /// allows at that rate ([`standard_response_bits`]), above 400 Gbit/s the bits of that rate.
    #[default]
    ByRate,
    /// A quantum, however fast the link.
    Quantum,
    /// This long.
    After(SimDuration),
}

impl ResponseTime {
    /// That of a sender whose link was built for `rate`.
    pub fn of(self, rate: Rate) -> SimDuration {
        let bits = match self {
            Self::After(time) => return time,
            Self::Quantum => QUANTUM,
            Self::ByRate if rate <= Rate::gbps(1) => QUANTUM,
            Self::ByRate => {
                let [.., (_, fastest)] = STANDARD_QUANTA;
                standard_response_bits(rate).unwrap_or(fastest * QUANTUM)
            }
        };
        LinkRate::new(rate).serialisation(bits / 8)
    }
}

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
    /// From a control frame's being there to its effect.
    pub response: SimDuration,
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
    /// A cable that is alike in both directions, with a sender that responds by its rate.
    pub fn symmetric(rate: Rate, frame: u32, delay: SimDuration) -> Self {
        let (control_delay, data_delay) = (delay, delay);
        let response = ResponseTime::ByRate.of(rate);
        Self { rate, back: rate, frame, control_delay, data_delay, response }
    }

    /// The pieces of the reaction time.
    pub fn reaction(&self) -> Reaction {
        let (there, back) = (LinkRate::new(self.rate), LinkRate::new(self.back));
        Reaction {
            wire_busy: back.serialisation(self.frame),
            control: back.serialisation(u32::from(CONTROL_BYTES)),
            control_delay: self.control_delay,
            response: self.response,
            last_frame: there.serialisation(self.frame),
            data_delay: self.data_delay,
        }
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
    fn the_sender_responds_as_the_standard_allows_at_each_rate() {
        let response = |gbps| ResponseTime::ByRate.of(Rate::gbps(gbps));
        // Quanta of 512 bits: 1 (DeTail), 74, 80, 394, 905.
        assert_eq!(response(1), SimDuration::nanos(512));
        assert_eq!(response(10), SimDuration(3_788_800));
        assert_eq!(response(25), SimDuration(1_638_400));
        assert_eq!(response(100), SimDuration(2_017_280));
        assert_eq!(response(400), SimDuration(1_158_400));
        assert_eq!(response(800), SimDuration(579_200), "the bits of the fastest that is listed");
        assert_eq!(standard_response_bits(Rate::gbps(1)), Some(1_024));
        assert_eq!(standard_response_bits(Rate::gbps(30)), Some(60_416), "that of 40 Gbit/s");
        assert_eq!(standard_response_bits(Rate::gbps(401)), None);
        let bytes = |gbps| PfcLink::symmetric(Rate::gbps(gbps), 1_538, SimDuration::ZERO);
        let bytes = [10, 25, 100].map(|gbps| bytes(gbps).reaction_bytes());
        // Two frames of 1,538 bytes and a control frame of 64, and what comes meanwhile.
        assert_eq!(bytes, [3_140 + 4_736, 3_140 + 5_120, 3_140 + 25_216]);
    }

    #[test]
    fn fewer_priorities_leave_more_and_small_buffers_nothing() {
        let link = gigabit();
        assert_eq!(safe_pause(&link, 131_072, 2), Some(65_536 - 4_557));
        assert_eq!(safe_pause(&link, 8 * 4_557, 8), Some(0));
        assert_eq!(safe_pause(&link, 8 * 4_557 - 1, 8), None);
        let tight = detail_thresholds(&link, 8 * 6_000, 8).unwrap();
        assert!(tight.unpause < tight.pause && tight.pause == 1_443, "{tight:?}");
    }
}
