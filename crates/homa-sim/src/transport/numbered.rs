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
