//! The lengths of encrypted datagrams.

/// Which lengths encrypted datagrams have, so that an observer on the path learns less about the
/// lengths of messages. Padding costs bandwidth, and is inside the encryption.
///
/// A datagram may stay as it is if it lacks fewer than 32 bytes to the full size. The number of
/// datagrams and their times are not hidden.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Padding {
    /// As long as their packets.
    #[default]
    None,
    /// A multiple of this number of bytes of UDP payload, such as 256, or the full size. 0 means 1.
    Multiple(u16),
    /// The full size that the path takes.
    Full,
}

impl Padding {
    /// The length of a datagram of `len` bytes that can grow by `least` bytes or more, up to `full`
    /// bytes. It stays as it is if it cannot grow so far.
    pub(crate) fn pad(self, len: usize, least: usize, full: usize) -> usize {
        let padded = match self {
            Self::None => return len,
            Self::Multiple(of) if len.is_multiple_of(of.max(1).into()) => len,
            Self::Multiple(of) => (len + least).next_multiple_of(of.max(1).into()).min(full),
            Self::Full => full,
        };
        if padded < len + least { len } else { padded }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_grow_to_a_multiple_or_to_the_full_size() {
        let cases = [
            (Padding::None, 100, 100),
            (Padding::Multiple(0), 100, 100),
            (Padding::Multiple(256), 100, 256),
            (Padding::Multiple(256), 226, 256),
            (Padding::Multiple(256), 227, 512),
            (Padding::Multiple(256), 256, 256),
            (Padding::Multiple(256), 1_300, 1_472),
            (Padding::Multiple(256), 1_443, 1_443),
            (Padding::Multiple(u16::MAX), 1, 1_472),
            (Padding::Full, 1, 1_472),
            (Padding::Full, 1_442, 1_472),
            (Padding::Full, 1_443, 1_443),
            (Padding::Full, 1_472, 1_472),
        ];
        for (padding, len, expected) in cases {
            assert_eq!(padding.pad(len, 30, 1_472), expected, "{padding:?} {len}");
        }
    }
}
