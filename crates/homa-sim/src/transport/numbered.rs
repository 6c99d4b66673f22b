//! Data per message of one sender, found by the message's number.
//!
//! A sender numbers its messages 1, 2, 3, ... in the order of submission, and they end roughly in
//! that order. A queue therefore suffices, whose head is dropped when it has ended. It needs no
//! hashing, but as long as the oldest message lives, each younger one takes an entry.

use std::collections::VecDeque;

/// A queue of entries by message number.
#[derive(Clone, Debug)]
pub struct Numbered<T> {
    /// Number of the first entry in the queue.
    first: u32,
    entries: VecDeque<Option<T>>,
}

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Self { first: 1, entries: VecDeque::new() }
    }
}

impl<T> Numbered<T> {
    /// Enters the next message; returns its number.
    pub fn push(&mut self, value: T) -> u32 {
        let number = self.next_number();
        self.entries.push_back(Some(value));
        number
    }

    /// Leaves the next number out; returns it.
    pub(crate) fn skip(&mut self) -> u32 {
        let number = self.next_number();
        match self.entries.is_empty() {
            true => self.first += 1,
            false => self.entries.push_back(None),
        }
        number
    }

    /// Enters the message `number`, which is not below the next one; numbers in between are left
    /// out.
    pub(crate) fn place(&mut self, number: u32, value: T) {
        if self.entries.is_empty() {
            self.first = number;
        }
        while self.next_number() < number {
            self.entries.push_back(None);
        }
        self.entries.push_back(Some(value));
    }

    /// The number of the next message.
    pub fn next_number(&self) -> u32 {
        self.first + self.entries.len() as u32
    }

    /// The entry of a message.
    pub fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        let index = number.checked_sub(self.first)? as usize;
        self.entries.get_mut(index)?.as_mut()
    }

    /// Removes the entry of a message.
    pub fn take(&mut self, number: u32) -> Option<T> {
        let index = number.checked_sub(self.first)? as usize;
        let value = self.entries.get_mut(index)?.take();
        while self.entries.front().is_some_and(Option::is_none) {
            self.entries.pop_front();
            self.first += 1;
        }
        value
    }

    /// All entries with their numbers, oldest first.
    pub fn numbered(&self) -> impl Iterator<Item = (u32, &T)> {
        (self.first..).zip(&self.entries).filter_map(|(n, entry)| Some((n, entry.as_ref()?)))
    }

    /// All entries, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_may_be_left_out() {
        let mut sender = Numbered::default();
        assert_eq!(
            [sender.skip(), sender.push('b'), sender.skip(), sender.push('d')],
            [1, 2, 3, 4]
        );
        assert_eq!(sender.get_mut(1), None);
        assert_eq!(sender.take(3), None);
        assert_eq!(sender.get_mut(2), Some(&mut 'b'));
        assert_eq!((sender.take(2), sender.skip(), sender.next_number()), (Some('b'), 5, 6));
        assert_eq!(sender.numbered().collect::<Vec<_>>(), [(4, &'d')]);
        // The same messages where only some of them are known.
        let mut receiver = Numbered::default();
        receiver.place(3, 'c');
        receiver.place(7, 'g');
        assert_eq!(
            (receiver.take(3), receiver.take(5), receiver.take(7)),
            (Some('c'), None, Some('g'))
        );
        receiver.place(8, 'h');
        assert_eq!(receiver.numbered().collect::<Vec<_>>(), [(8, &'h')]);
    }
}
