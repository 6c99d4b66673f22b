//! Which receiver's credit a sender spends next: a share of its link goes to the receiver of the
//! shortest message, and the rest is divided equally (authors' simulator: `select_msg_to_send`).
//!
//! The simulator adds both shares to a counter of each receiver and scans all counters for the
//! largest. Taking turns gives the same shares without a scan.

/// Whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// The receiver with the shortest message.
    Shortest,
    /// The next receiver, round-robin.
    Next,
}

/// Takes turns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turns {
    /// Thousandths of the turns that go to the shortest message.
    share: u32,
    saved: u32,
}

impl Turns {
    /// The unit of `share`.
    pub const WHOLE: u32 = 1_000;

    /// The shortest message gets `share` thousandths of the turns.
    pub const fn new(share: u32) -> Self {
        Self { share, saved: 0 }
    }

    /// The next turn.
    pub fn next(&mut self) -> Turn {
        self.saved += self.share;
        if self.saved < Self::WHOLE {
            return Turn::Next;
        }
        self.saved -= Self::WHOLE;
        Turn::Shortest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_exact_and_spread_evenly() {
        for (share, first) in
            [(0, "nnnnnn"), (250, "nnnsnn"), (500, "nsnsns"), (750, "nsssns"), (1_000, "ssssss")]
        {
            let mut turns = Turns::new(share);
            let drawn: Vec<Turn> = (0..Turns::WHOLE).map(|_| turns.next()).collect();
            let shown = drawn.iter().take(6).map(|turn| match turn {
                Turn::Shortest => 's',
                Turn::Next => 'n',
            });
            assert_eq!(shown.collect::<String>(), first, "{share}");
            let shortest = drawn.iter().filter(|turn| **turn == Turn::Shortest).count();
            assert_eq!(shortest, share as usize);
        }
    }
}
