//! The tokens that a sender holds, and which one it spends next (authors' simulator:
//! `PimTokenComparator`, `CustomPriorityQueue`).
//!
//! The oldest token is spent first, unless a later one has a better level and belongs to a message
//! with fewer packets missing. Messages that need no match have tokens of the best level.

use std::collections::VecDeque;

use homa_proto::Time;

use crate::transport::exchange::Ref;

/// Permission to send packets `next..end` of a message, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tokens {
    /// The message.
    pub message: Ref,
    /// The next packet.
    pub next: u32,
    /// The end of the packets.
    pub end: u32,
    /// The number of the next token within the message.
    pub number: u32,
    /// The level of the channel; lower is better.
    pub level: u8,
    /// They are valid up to this time.
    pub until: Time,
}

/// The level of messages that need no match.
pub(super) const UNMATCHED: u8 = 1;
/// The level of the best matched channel; others follow.
pub(super) const MATCHED: u8 = 2;
/// The level of channels that are used before their data phase.
pub(super) const PROMPT: u8 = 7;

/// Levels that are told apart.
const LEVELS: usize = 16;

/// See the module's description.
#[derive(Clone, Debug, Default)]
pub(super) struct TokenQueue {
    waiting: VecDeque<Tokens>,
    /// Entries of each level, because most of the time no later entry is better.
    levels: [u32; LEVELS],
}

impl TokenQueue {
    pub fn push(&mut self, tokens: Tokens) {
        let level = tokens.level.min(LEVELS as u8 - 1);
        self.levels[usize::from(level)] += 1;
        self.waiting.push_back(Tokens { level, ..tokens });
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Takes the next token; `left` gives the packets that are missing of a message.
    pub fn pop(&mut self, mut left: impl FnMut(Ref) -> u32) -> Option<Tokens> {
        let first = self.waiting.front()?;
        let mut best = 0;
        if self.levels[..usize::from(first.level)].iter().any(|&count| count > 0) {
            let (mut level, mut least) = (first.level, left(first.message));
            for (at, tokens) in self.waiting.iter().enumerate().skip(1) {
                if tokens.level < level {
                    let left = left(tokens.message);
                    if left < least {
                        (best, level, least) = (at, tokens.level, left);
                    }
                }
            }
        }
        self.spend(best)
    }

    fn spend(&mut self, at: usize) -> Option<Tokens> {
        let tokens = self.waiting.get_mut(at)?;
        let spent = *tokens;
        tokens.next += 1;
        tokens.number += 1;
        if tokens.next >= tokens.end {
            self.waiting.remove(at);
            self.levels[usize::from(spent.level)] -= 1;
        }
        Some(spent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(message: u32, level: u8, packets: u32) -> Tokens {
        let message = Ref { index: message, generation: 0 };
        Tokens { message, next: 0, end: packets, number: 0, level, until: Time::MAX }
    }

    /// The messages whose tokens are spent, in order; `left` has their packets missing.
    fn order(list: &[(u32, u8, u32)], left: &[u32]) -> Vec<u32> {
        let mut queue = TokenQueue::default();
        for &(message, level, packets) in list {
            queue.push(tokens(message, level, packets));
        }
        let pop = || queue.pop(|message| left[message.index as usize]);
        let order = std::iter::from_fn(pop).map(|spent| spent.message.index).collect();
        assert!(queue.is_empty() && queue.levels == [0; LEVELS]);
        order
    }

    #[test]
    fn the_oldest_token_is_spent_unless_a_better_one_is_shorter() {
        for (list, left, expected) in [
            // Messages that need no match go in order, whatever their length.
            (vec![(0, UNMATCHED, 2), (1, UNMATCHED, 1)], [9, 1, 0], vec![0, 0, 1]),
            // A shorter one at a better level overtakes.
            (vec![(0, MATCHED, 1), (1, UNMATCHED, 2)], [9, 2, 0], vec![1, 1, 0]),
            // A longer one does not, nor does a shorter one at a worse level.
            (vec![(0, MATCHED, 1), (1, UNMATCHED, 1)], [2, 9, 0], vec![0, 1]),
            (vec![(0, MATCHED, 1), (1, 3, 1)], [9, 2, 0], vec![0, 1]),
            // Each is compared with the best so far.
            (vec![(0, 9, 1), (1, PROMPT, 1), (2, MATCHED, 1)], [9, 5, 3], vec![2, 1, 0]),
            (vec![(0, PROMPT, 1), (1, MATCHED, 1), (2, 3, 1)], [9, 5, 3], vec![1, 2, 0]),
        ] {
            assert_eq!(order(&list, &left), expected, "{list:?}");
        }
    }
}
