//! Messages under way, found by their sender and the number the sender's transport gave them.
//!
//! A sender numbers its messages 1, 2, 3, ... in the order of submission, and they end in about
//! that order: a queue per sender, whose head is dropped as soon as it has ended. Invariants: every
//! message ends once; `bytes` and `len` are sums over those that have not.

use std::collections::VecDeque;

use crate::time::SimTime;

/// A message under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// When it was submitted.
    pub submitted: SimTime,
    /// Receiving host.
    pub dst: u32,
    /// Its bytes.
    pub bytes: u32,
    /// Counts towards the results.
    pub measured: bool,
    ended: bool,
}

impl Message {
    /// A message that starts now.
    pub fn new(submitted: SimTime, dst: u32, bytes: u32, measured: bool) -> Self {
        Self { submitted, dst, bytes, measured, ended: false }
    }
}

/// See the module's description.
#[derive(Debug, Default)]
pub struct Book {
    senders: Vec<Sender>,
    len: u64,
    bytes: u64,
}

#[derive(Debug, Default)]
struct Sender {
    /// Number of the first message in the queue.
    first: u32,
    messages: VecDeque<Message>,
}

impl Book {
    /// Nothing under way at any of `hosts` senders.
    pub fn new(hosts: u32) -> Self {
        let senders = (0..hosts).map(|_| Sender { first: 1, messages: VecDeque::new() }).collect();
        Self { senders, len: 0, bytes: 0 }
    }

    /// Enters the next message of `src`; yields its number.
    pub fn begin(&mut self, src: u32, message: Message) -> u32 {
        self.len += 1;
        self.bytes += u64::from(message.bytes);
        let sender = &mut self.senders[src as usize];
        sender.messages.push_back(message);
        sender.first + (sender.messages.len() as u32 - 1)
    }

    /// A message under way.
    pub fn get(&self, src: u32, number: u32) -> Option<&Message> {
        let sender = self.senders.get(src as usize)?;
        let index = number.checked_sub(sender.first)? as usize;
        sender.messages.get(index).filter(|message| !message.ended)
    }

    /// Strikes out a message; `None` when it is not under way.
    pub fn end(&mut self, src: u32, number: u32) -> Option<Message> {
        let sender = self.senders.get_mut(src as usize)?;
        let index = number.checked_sub(sender.first)? as usize;
        let message = sender.messages.get_mut(index).filter(|message| !message.ended)?;
        message.ended = true;
        let ended = *message;
        while sender.messages.front().is_some_and(|message| message.ended) {
            sender.messages.pop_front();
            sender.first += 1;
        }
        self.len -= 1;
        self.bytes -= u64::from(ended.bytes);
        Some(ended)
    }

    /// Messages under way.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// True without messages under way.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Their bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many of them are measured.
    pub fn measured(&self) -> u64 {
        let all = self.senders.iter().flat_map(|sender| &sender.messages);
        all.filter(|message| message.measured && !message.ended).count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_end_in_any_order_and_once() {
        let mut book = Book::new(2);
        let at = |n: u64| Message::new(SimTime(n), 1, 10 * n as u32, n != 2);
        let numbers: Vec<u32> = (1..=3).map(|n| book.begin(0, at(n))).collect();
        assert_eq!(numbers, [1, 2, 3]);
        assert_eq!((book.len(), book.bytes(), book.measured()), (3, 60, 2));
        assert_eq!(book.end(0, 2).map(|m| m.bytes), Some(20));
        assert_eq!(book.end(0, 2), None);
        assert_eq!(book.get(0, 3).map(|m| m.submitted), Some(SimTime(3)));
        assert_eq!(book.end(0, 1).map(|m| m.bytes), Some(10));
        assert_eq!(book.begin(0, at(4)), 4, "numbers go on after the head was dropped");
        assert_eq!(book.end(1, 1), None);
        assert_eq!(book.end(0, 9), None);
        book.end(0, 3);
        book.end(0, 4);
        assert!(book.is_empty() && book.bytes() == 0 && book.measured() == 0);
    }
}
