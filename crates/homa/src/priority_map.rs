//! Priority levels in the IP header (Homa §4: switches queue by DSCP or 802.1p).
//!
//! A level becomes a DSCP class selector: the top three bits of the IPv4 type-of-service byte or of
//! the IPv6 traffic class. The protocol also works if the network ignores it.

/// The mapping from priority levels to class selectors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PriorityMap {
    /// Eight levels, CS0 to CS7, as the Linux kernel module sends them.
    Linux,
    /// Six levels, CS0 to CS5, because routing protocols use CS6 and CS7.
    #[default]
    Operator,
    /// One level: every packet is in the default class.
    Flat,
    /// One level: every packet is in this class selector, 0 to 7; higher numbers count as 7.
    Class(u8),
}

impl PriorityMap {
    /// Number of levels that the network should distinguish.
    pub const fn levels(self) -> u8 {
        match self {
            Self::Linux => 8,
            Self::Operator => 6,
            Self::Flat | Self::Class(_) => 1,
        }
    }

    /// The type-of-service byte of a packet at `level`. Levels above the highest share its value.
    pub const fn tos(self, level: u8) -> u8 {
        if let Self::Class(class) = self {
            return (if class < 7 { class } else { 7 }) << 5;
        }
        let highest = self.levels() - 1;
        (if level < highest { level } else { highest }) << 5
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_class_selectors_up_to_the_highest() {
        let tos = |map: PriorityMap| (0..8).map(|level| map.tos(level)).collect::<Vec<u8>>();
        let all = [0x00, 0x20, 0x40, 0x60, 0x80, 0xa0, 0xc0, 0xe0];
        assert_eq!(tos(PriorityMap::Linux), all);
        let without = [0x00, 0x20, 0x40, 0x60, 0x80, 0xa0, 0xa0, 0xa0];
        assert_eq!(tos(PriorityMap::Operator), without, "CS6 and CS7 belong to routing");
        assert_eq!(tos(PriorityMap::Flat), [0; 8]);
        assert_eq!(tos(PriorityMap::Class(3)), [0x60; 8]);
        assert_eq!(tos(PriorityMap::Class(200)), [0xe0; 8]);
    }
}
