//! Messages in flight, found by their sender and the number that the sender's transport assigned.
//!
//! Invariants: every message ends once; `bytes` and `len` are sums over the messages in flight. If
//! the network is in partitions, a one-way message is in the book of its receiver, but counts when
//! its sender begins it. So the sums of one partition are meaningless, and may be below 0 (modulo
//! 2^64), but those of all partitions together are exact at every time.

use crate::time::SimTime;

use crate::transport::Numbered;

/// A message in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenMessage {
    /// When it was submitted.
    pub submitted: SimTime,
    /// Receiving host.
    pub dst: u32,
    /// Its bytes.
    pub bytes: u32,
    /// It counts in the results.
    pub measured: bool,
    /// Its class, as numbered by its source.
    pub class: u8,
    /// The priority level that its application requested.
    pub level: Option<u8>,
    /// Bytes of the response, if the source sets them.
    pub response: Option<u32>,
    /// The source's token.
    pub token: u32,
}

impl OpenMessage {
    /// A message of class 0 that starts now.
    pub fn new(submitted: SimTime, dst: u32, bytes: u32, measured: bool) -> Self {
        let (class, level, response, token) = (0, None, None, 0);
        Self { submitted, dst, bytes, measured, class, level, response, token }
    }
}

/// The messages in flight, by sender.
#[derive(Debug, Default)]
pub struct Book {
    senders: Vec<Numbered<OpenMessage>>,
    len: u64,
    bytes: u64,
    /// By class: measured messages in the books of partitions.
    elsewhere: Vec<u64>,
}

impl Book {
    /// An empty book for `hosts` senders.
    pub fn new(hosts: u32) -> Self {
        let senders = (0..hosts).map(|_| Numbered::default()).collect();
        Self { senders, len: 0, bytes: 0, elsewhere: Vec::new() }
    }

    /// The number of the next message of `src`.
    pub fn next_number(&self, src: u32) -> u32 {
        self.senders[src as usize].next_number()
    }

    /// Enters the next message of `src`; returns its number.
    pub fn begin(&mut self, src: u32, message: OpenMessage) -> u32 {
        self.count(message.bytes);
        self.senders[src as usize].push(message)
    }

    fn count(&mut self, bytes: u32) {
        self.len = self.len.wrapping_add(1);
        self.bytes = self.bytes.wrapping_add(u64::from(bytes));
    }

    /// Counts the next message of `src`, whose receiver is in another partition; returns its
    /// number.
    pub(crate) fn begin_elsewhere(&mut self, src: u32, bytes: u32) -> u32 {
        self.count(bytes);
        self.senders[src as usize].skip()
    }

    /// Enters a message that its sender, in another partition, has counted.
    pub(crate) fn enter(&mut self, src: u32, number: u32, message: OpenMessage) {
        self.senders[src as usize].place(number, message);
    }

    /// Takes over the sums of the books of all partitions.
    pub(crate) fn sum<'a>(&mut self, books: impl Iterator<Item = &'a Self>) {
        (self.len, self.bytes, self.elsewhere) = (0, 0, Vec::new());
        for book in books {
            self.len = self.len.wrapping_add(book.len);
            self.bytes = self.bytes.wrapping_add(book.bytes);
            let all = book.senders.iter().flat_map(Numbered::iter);
            for message in all.filter(|message| message.measured) {
                let class = usize::from(message.class);
                if self.elsewhere.len() <= class {
                    self.elsewhere.resize(class + 1, 0);
                }
                self.elsewhere[class] += 1;
            }
        }
    }

    /// Removes a message; `None` if it is not in flight.
    pub fn end(&mut self, src: u32, number: u32) -> Option<OpenMessage> {
        let ended = self.senders.get_mut(src as usize)?.take(number)?;
        self.len = self.len.wrapping_sub(1);
        self.bytes = self.bytes.wrapping_sub(u64::from(ended.bytes));
        Some(ended)
    }

    /// A message in flight.
    pub fn get(&mut self, src: u32, number: u32) -> Option<OpenMessage> {
        let sender = self.senders.get_mut(src as usize)?;
        sender.get_mut(number).copied()
    }

    /// True if a message is in flight and measured.
    pub fn is_measured(&mut self, src: u32, number: u32) -> bool {
        self.get(src, number).is_some_and(|message| message.measured)
    }

    /// Number of messages in flight.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// True if no message is in flight.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of the messages in flight.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Number of measured messages of a class in flight.
    pub fn measured_of(&self, class: u8) -> u64 {
        let all = self.senders.iter().flat_map(Numbered::iter);
        let here = all.filter(|message| message.measured && message.class == class).count();
        here as u64 + self.elsewhere.get(usize::from(class)).copied().unwrap_or(0)
    }

    /// Number of measured messages in flight.
    pub fn measured(&self) -> u64 {
        let all = self.senders.iter().flat_map(Numbered::iter);
        let here = all.filter(|message| message.measured).count();
        here as u64 + self.elsewhere.iter().sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_books_of_partitions_have_the_sums_of_one() {
        let (mut sender, mut receiver, mut whole) = (Book::new(2), Book::new(2), Book::new(2));
        let message = OpenMessage { class: 1, ..OpenMessage::new(SimTime(5), 1, 70, true) };
        let number = sender.begin_elsewhere(0, 70);
        sender.begin(0, OpenMessage::new(SimTime(6), 0, 8, true));
        // The note has not arrived, but the message counts.
        whole.sum([&sender, &receiver].into_iter());
        assert_eq!((whole.len(), whole.bytes(), whole.measured()), (2, 78, 1));
        receiver.enter(0, number, message);
        whole.sum([&sender, &receiver].into_iter());
        assert_eq!((whole.len(), whole.measured(), whole.measured_of(1)), (2, 2, 1));
        assert_eq!(receiver.end(0, number), Some(message));
        whole.sum([&sender, &receiver].into_iter());
        assert_eq!((whole.len(), whole.bytes(), whole.measured_of(1)), (1, 8, 0));
    }

    #[test]
    fn messages_end_in_any_order_and_once() {
        let mut book = Book::new(2);
        let at = |n: u64| OpenMessage::new(SimTime(n), 1, 10 * n as u32, n != 2);
        let numbers: Vec<u32> = (1..=3).map(|n| book.begin(0, at(n))).collect();
        assert_eq!(numbers, [1, 2, 3]);
        assert_eq!((book.len(), book.bytes(), book.measured()), (3, 60, 2));
        assert!(book.is_measured(0, 1) && !book.is_measured(0, 2) && !book.is_measured(0, 9));
        assert_eq!(book.end(0, 2).map(|m| m.bytes), Some(20));
        assert_eq!(book.end(0, 2), None);
        assert_eq!(book.end(0, 1).map(|m| m.bytes), Some(10));
        assert_eq!(book.begin(0, at(4)), 4, "numbers continue after the head was dropped");
        assert_eq!(book.end(1, 1), None);
        assert_eq!(book.end(0, 9), None);
        assert_eq!(book.end(0, 3).map(|m| m.submitted), Some(SimTime(3)));
        book.end(0, 4);
        assert!(book.is_empty() && book.bytes() == 0 && book.measured() == 0);
    }
}
