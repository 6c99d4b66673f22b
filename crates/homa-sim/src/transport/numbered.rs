//! What is kept per message of one sender, found by its number.
//!
//! A sender numbers its messages 1, 2, 3, ... in the order of submission, and they end in about
//! that order: a queue whose head is dropped as soon as it has ended. No hashing, and as long as
//! the oldest message lives, one slot for each younger one.

use std::collections::VecDeque;

/// See the module's description.
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
    /// Enters the next message; yields its number.
    pub fn push(&mut self, value: T) -> u32 {
        let number = self.next_number();
        self.entries.push_back(Some(value));
        number
    }

    /// The number that the next message will have.
    pub fn next_number(&self) -> u32 {
        self.first + self.entries.len() as u32
    }

    /// What is kept for a message.
    pub fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        let index = number.checked_sub(self.first)? as usize;
        self.entries.get_mut(index)?.as_mut()
    }

    /// Removes what is kept for a message.
    pub fn take(&mut self, number: u32) -> Option<T> {
        let index = number.checked_sub(self.first)? as usize;
        let value = self.entries.get_mut(index)?.take();
        while self.entries.front().is_some_and(Option::is_none) {
            self.entries.pop_front();
            self.first += 1;
        }
        value
    }

    /// Everything kept with its number, oldest first.
    pub fn numbered(&self) -> impl Iterator<Item = (u32, &T)> {
        (self.first..).zip(&self.entries).filter_map(|(n, entry)| Some((n, entry.as_ref()?)))
    }

    /// Everything kept, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().flatten()
    }
}
