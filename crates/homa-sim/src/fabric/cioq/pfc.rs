//! Priority flow control (IEEE 802.1Qbb) as DeTail §4.3.1 uses it: each priority is paused and
//! released by the drain bytes of an ingress queue.
//!
//! After the decision to pause, more data still arrives, because the control frame has to wait for
//! the frame on the wire back, be sent, travel and take effect; then the frame just begun is
//! completed, and all data on the cable arrives. [`PfcLink::reaction`] has these parts. For
//! example, they sum to 36.456 us or 4,557 bytes on Gigabit Ethernet (DeTail §4.3.1, after Cisco's
//! white paper on PFC).
//!
//! All parts but one are bytes at the link's rate or time on the cable. The exception is the
//! sender's processing time from the arrival of a control frame to its effect, for which IEEE 802.3
//! allows more bit times on faster links ([`ResponseTime`]). Every priority may send the reaction's
//! bytes, one priority after the other from the lowest, so a threshold is safe if all of them fit
//! together ([`safe_pause`]). A frame counts in a queue from its first bit on, like the cells of a
//! switch's memory.

use homa_proto::Rate;

use crate::time::{LinkRate, SimDuration};

/// Bytes of a control frame on the wire: the shortest Ethernet frame.
pub const CONTROL_BYTES: u16 = 64;
/// Bits of a pause quantum, the unit of pause times in IEEE 802.3.
const QUANTUM: u32 = 512;
/// Pause quanta that a sender may take to react to a control frame, by the rate of its link in
/// Mbit/s (IEEE 802.3 Annex 31B.3.7). At 10 Gbit/s they are those of twisted pairs, which are
/// slowest.
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

/// Bit times that IEEE 802.3 allows from the arrival of a control frame to its effect. Between two
/// listed rates, the faster one applies. `None` above 400 Gbit/s.
pub fn standard_response_bits(rate: Rate) -> Option<u32> {
    let listed = STANDARD_QUANTA.iter().find(|(mbps, _)| rate.0 <= mbps * 1_000_000);
    listed.map(|(_, quanta)| quanta * QUANTUM)
}

/// Time that a sender takes from the arrival of a control frame to its effect. It belongs to the
/// sender and does not change if a degraded link sends more slowly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResponseTime {
    /// Up to 1 Gbit/s one quantum, as in DeTail (§4.3.1); on faster links as long as the standard
    /// allows at that rate ([`standard_response_bits`]), and above 400 Gbit/s the bits of that
    /// rate.
    #[default]
    ByRate,
    /// One quantum at any rate.
    Quantum,
    /// A fixed time.
    After(SimDuration),
}

impl ResponseTime {
    /// The response time of a sender whose link was built for `rate`.
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
    /// Rate of the data.
    pub rate: Rate,
    /// Rate of the link in the other direction.
    pub back: Rate,
    /// Wire bytes of the longest frame.
    pub frame: u32,
    /// Delay of a control frame from its last bit leaving to its arrival: cable and transceivers.
    pub control_delay: SimDuration,
    /// The same delay for data.
    pub data_delay: SimDuration,
    /// Time from the arrival of a control frame to its effect.
    pub response: SimDuration,
}

/// The parts of the time from the decision to pause to the last bit of data that still arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reaction {
    /// The control frame waits for the frame on the wire.
    pub wire_busy: SimDuration,
    /// The control frame is serialised.
    pub control: SimDuration,
    /// The control frame travels.
    pub control_delay: SimDuration,
    /// The control frame takes effect.
    pub response: SimDuration,
    /// The frame just begun is completed.
    pub last_frame: SimDuration,
    /// That frame travels.
    pub data_delay: SimDuration,
}

impl Reaction {
    /// The sum of all parts.
    pub fn total(&self) -> SimDuration {
        let Self { wire_busy, control, control_delay, response, last_frame, data_delay } = *self;
        wire_busy + control + control_delay + response + last_frame + data_delay
    }
}

impl PfcLink {
    /// A cable with equal directions and a sender that responds by its rate.
    pub fn symmetric(rate: Rate, frame: u32, delay: SimDuration) -> Self {
        let (control_delay, data_delay) = (delay, delay);
        let response = ResponseTime::ByRate.of(rate);
        Self { rate, back: rate, frame, control_delay, data_delay, response }
    }

    /// The parts of the reaction time.
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

    /// Bytes that may arrive during the reaction time.
    pub fn reaction_bytes(&self) -> u64 {
        let bits = u128::from(self.reaction().total().0) * u128::from(self.rate.0);
        bits.div_ceil(8_000_000_000_000) as u64
    }
}

/// Drain bytes above which a queue pauses its sender, and below which it releases it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PfcThresholds {
    /// Pause above this.
    pub pause: u32,
    /// Release below this.
    pub unpause: u32,
}

/// The greatest pause threshold at which a queue of `buffer` bytes never overflows, for any traffic
/// in `priorities` levels: DeTail §4.3.1's `(buffer - priorities x reaction) / priorities`. `None`
/// if the buffer cannot hold the bytes that arrive during the reaction.
pub fn safe_pause(link: &PfcLink, buffer: u64, priorities: u8) -> Option<u32> {
    let priorities = u64::from(priorities.max(1));
    let room = buffer.checked_sub(priorities * link.reaction_bytes())?;
    Some(u32::try_from(room / priorities).unwrap_or(u32::MAX))
}

/// The thresholds of DeTail's rule (§4.3.1). A queue should release its sender early enough that a
/// full link does not run dry, and pause it halfway between that and the safe threshold. Both are
/// lower if the buffer leaves no room between. `None` if no threshold is safe.
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
        // Two frames of 1,538 bytes, a control frame of 64, and the bytes of the response time.
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
