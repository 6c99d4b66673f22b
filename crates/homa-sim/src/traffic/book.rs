//! Messages in flight, found by their sender and the number that the sender's transport assigned.
//!
//! Invariants: every message ends once; `bytes` and `len` are sums over the messages in flight.

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
}

impl Book {
    /// An empty book for `hosts` senders.
    pub fn new(hosts: u32) -> Self {
        Self { senders: (0..hosts).map(|_| Numbered::default()).collect(), len: 0, bytes: 0 }
    }

    /// The number of the next message of `src`.
    pub fn next_number(&self, src: u32) -> u32 {
        self.senders[src as usize].next_number()
    }

    /// Enters the next message of `src`; returns its number.
    pub fn begin(&mut self, src: u32, message: OpenMessage) -> u32 {
        self.len += 1;
        self.bytes += u64::from(message.bytes);
        self.senders[src as usize].push(message)
    }

    /// Removes a message; `None` if it is not in flight.
    pub fn end(&mut self, src: u32, number: u32) -> Option<OpenMessage> {
        let ended = self.senders.get_mut(src as usize)?.take(number)?;
        self.len -= 1;
        self.bytes -= u64::from(ended.bytes);
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
        all.filter(|message| message.measured && message.class == class).count() as u64
    }

    /// Number of measured messages in flight.
    pub fn measured(&self) -> u64 {
        let all = self.senders.iter().flat_map(Numbered::iter);
        all.filter(|message| message.measured).count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
