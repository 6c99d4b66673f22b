//! The default traffic class of a socket: packets of this class need no control message.
//!
//! A control message with the class costs the kernel a third of a microsecond per call, so most
//! packets should not need one. The default follows the class that the socket sends most (the
//! majority vote of Boyer and Moore 1991, with a margin).

/// Number of packets by which the most frequent class must lead before it becomes the default.
const MARGIN: u8 = 32;

/// A socket's default class, and the vote of recent packets.
#[derive(Clone, Copy, Debug, Default)]
pub struct DefaultClass {
    class: u8,
    candidate: u8,
    ahead: u8,
}

impl DefaultClass {
    /// The class of packets without a control message.
    pub const fn class(&self) -> u8 {
        self.class
    }

    /// Counts a packet of a class. True if this class should become the default.
    #[inline]
    pub const fn sees(&mut self, class: u8) -> bool {
        if class == self.candidate {
            self.ahead += if self.ahead < 2 * MARGIN { 1 } else { 0 };
        } else if self.ahead > 0 {
            self.ahead -= 1;
        } else {
            self.candidate = class;
        }
        class == self.candidate && class != self.class && self.ahead >= MARGIN
    }

    /// The default was changed, or the socket refused it. After a refusal, it is tried again when
    /// the class leads again.
    pub const fn settle(&mut self, class: u8, done: bool) {
        self.ahead = 0;
        if done {
            self.class = class;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often the default changes with these packets.
    fn changes(default_class: &mut DefaultClass, packets: impl IntoIterator<Item = u8>) -> usize {
        let mut changes = 0;
        for class in packets {
            if default_class.sees(class) {
                default_class.settle(class, true);
                changes += 1;
            }
        }
        changes
    }

    #[test]
    fn the_default_is_the_class_sent_most_and_is_stable() {
        let mut default_class = DefaultClass::default();
        assert_eq!(changes(&mut default_class, [0; 1_000]), 0);
        let most = (0..1_000).map(|n| if n % 4 == 0 { 0x20 } else { 0xa0 });
        assert_eq!((changes(&mut default_class, most), default_class.class()), (1, 0xa0));
        let even = (0..1_000).map(|n| if n % 2 == 0 { 0x20 } else { 0xa0 });
        assert_eq!((changes(&mut default_class, even), default_class.class()), (0, 0xa0));
        assert_eq!((changes(&mut default_class, [0x20; 200]), default_class.class()), (1, 0x20));
    }

    #[test]
    fn a_socket_that_refuses_is_asked_now_and_then() {
        let mut default_class = DefaultClass::default();
        let mut asked = 0;
        for _ in 0..1_000 {
            if default_class.sees(0xa0) {
                default_class.settle(0xa0, false);
                asked += 1;
            }
        }
        assert!((1..=1_000 / i32::from(MARGIN)).contains(&asked), "{asked}");
        assert_eq!(default_class.class(), 0);
    }
}
