//! The level of a packet: one for all packets, one by the size of its message (priorities by
//! application), or one by the bytes of the message sent before (PIAS).

/// Levels of the network.
pub const LEVELS: u8 = 8;

/// How packets get their level; 7 is the highest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Priorities {
    /// All packets have the same level.
    One(u8),
    /// The application knows sizes: messages up to the first cutoff (bytes) have level 7, up to the
    /// second 6, and so on. Each class has separate connections.
    Size(Vec<u32>),
    /// PIAS §4.1: the bytes of a message before the first threshold travel at level 7, those up to
    /// the second at 6, and so on. This needs no knowledge about the message. At most 7 thresholds.
    Sent(Vec<u32>),
}

impl Priorities {
    /// The level of a packet that starts after `sent` bytes of a message of `length` bytes.
    #[inline]
    pub fn level(&self, length: u32, sent: u32) -> u8 {
        match self {
            Self::One(level) => *level,
            Self::Size(cutoffs) => demoted(cutoffs.partition_point(|&cutoff| cutoff < length)),
            Self::Sent(thresholds) => demoted(thresholds.partition_point(|&bytes| bytes <= sent)),
        }
    }

    /// The class of a message; messages of different classes do not share connections.
    pub fn class(&self, length: u32) -> u8 {
        match self {
            Self::Size(_) => self.level(length, 0),
            Self::One(_) | Self::Sent(_) => 0,
        }
    }
}

fn demoted(by: usize) -> u8 {
    (LEVELS - 1).saturating_sub(by.min(usize::from(LEVELS)) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pias_demotes_by_bytes_sent() {
        let pias = Priorities::Sent(vec![1_460, 10_000]);
        let level = |sent| pias.level(u32::MAX, sent);
        assert_eq!([0, 1_459, 1_460, 9_999, 10_000].map(level), [7, 7, 6, 6, 5]);
        assert_eq!(pias.class(1), pias.class(1_000_000));
    }

    #[test]
    fn with_priorities_by_size_short_messages_go_first() {
        let qos = Priorities::Size(vec![1_000]);
        assert_eq!([1, 1_000, 1_001].map(|length| qos.level(length, 500)), [7, 7, 6]);
        assert_ne!(qos.class(1_000), qos.class(1_001));
    }
}
