//! The replay window (RFC 4303 §3.4.3): which of the last 4,096 packet numbers were opened.
//!
//! Invariant: a number is accepted at most once. Numbers below the window count as seen.

use super::UnsealError;

/// Numbers that the window covers.
pub(super) const WINDOW: u64 = 4096;

const WORDS: usize = (WINDOW / 64) as usize;

/// Numbers at and above this are refused (RFC 9000 §12.3), so that arithmetic cannot overflow.
pub(super) const NUMBERS: u64 = 1 << 62;

/// Numbers that were opened.
pub(super) struct NumberWindow {
    /// A ring of bits: the number modulo the window's size.
    seen: [u64; WORDS],
    /// One more than the largest number.
    end: u64,
}

impl NumberWindow {
    pub(super) const fn new() -> Self {
        Self { seen: [0; WORDS], end: 0 }
    }

    /// An error if the number was opened before, or may have been.
    pub(super) fn check(&self, number: u64) -> Result<(), UnsealError> {
        if number >= NUMBERS {
            return Err(UnsealError::Forged);
        }
        if number >= self.end {
            return Ok(());
        }
        if self.end - number > WINDOW {
            return Err(UnsealError::TooOld);
        }
        let (word, bit) = place(number);
        if self.seen[word] & bit == 0 { Ok(()) } else { Err(UnsealError::Replayed) }
    }

    /// Marks a number that was checked and authenticated.
    pub(super) fn insert(&mut self, number: u64) {
        if number >= self.end {
            if number - self.end >= WINDOW {
                self.seen = [0; WORDS];
            } else {
                for between in self.end..number {
                    let (word, bit) = place(between);
                    self.seen[word] &= !bit;
                }
            }
            self.end = number + 1;
        }
        let (word, bit) = place(number);
        self.seen[word] |= bit;
    }
}

fn place(number: u64) -> (usize, u64) {
    let index = number % WINDOW;
    ((index / 64) as usize, 1 << (index % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_is_accepted_once_in_any_order() {
        let mut window = NumberWindow::new();
        for number in [5, 0, 4, 100, 7, 4_100, 4_095, 9_000] {
            assert_eq!(window.check(number), Ok(()), "{number}");
            window.insert(number);
            assert_eq!(window.check(number), Err(UnsealError::Replayed), "{number}");
        }
        assert_eq!(window.check(9_000 - WINDOW), Err(UnsealError::TooOld));
        assert_eq!(window.check(9_001 - WINDOW), Ok(()), "the oldest that is covered");
        assert_eq!(window.check(u64::MAX), Err(UnsealError::Forged));
    }

    #[test]
    fn numbers_after_a_jump_are_not_taken_for_seen() {
        let mut window = NumberWindow::new();
        for number in 0..WINDOW {
            window.insert(number);
        }
        window.insert(WINDOW + 10);
        for number in WINDOW..WINDOW + 10 {
            assert_eq!(window.check(number), Ok(()), "{number}");
        }
        assert_eq!(window.check(WINDOW - 1), Err(UnsealError::Replayed));
        assert_eq!(window.check(10), Err(UnsealError::TooOld));
    }

    #[test]
    fn the_window_agrees_with_a_set_of_all_numbers() {
        arbtest::arbtest(|input| {
            let (mut window, mut seen) = (NumberWindow::new(), std::collections::BTreeSet::new());
            for _ in 0..200 {
                let number = input.int_in_range(0..=20_000_u64)?;
                let end = seen.last().map_or(0, |last: &u64| last + 1);
                let expected = match () {
                    () if number + WINDOW < end => Err(UnsealError::TooOld),
                    () if seen.contains(&number) => Err(UnsealError::Replayed),
                    () => Ok(()),
                };
                assert_eq!(window.check(number), expected, "{number} of {end}");
                if expected.is_ok() {
                    window.insert(number);
                    seen.insert(number);
                }
            }
            Ok(())
        });
    }
}
