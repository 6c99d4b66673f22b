//! The bytes of messages in progress: ours until acknowledged, theirs while they arrive.
//!
//! Memory for an incoming message grows with what arrived, never on its announced length: a peer
//! has to send a quarter of what it makes us allocate. In-order bytes are copied once and never
//! zeroed.

use homa_proto::{MessageId, Place, RpcHandle, Span};

use crate::driver::Gather;
use crate::payload::Payload;

/// Smallest allocation for a message longer than one packet.
const FIRST_ALLOCATION: usize = 4096;
/// How much faster than the bytes the memory may grow.
const GROWTH: usize = 4;
/// Buffers of released messages kept for the next ones, and the largest kept: one RPC's memory
/// serves the next RPC.
const SPARE: usize = 256;
const SPARE_CAPACITY: usize = 2048;

#[derive(Debug, Default)]
enum Slot {
    #[default]
    Free,
    Outgoing(Payload),
    Incoming(Vec<u8>),
    /// As above, with the RPC it belongs to and the length of what can be read.
    Readable(Vec<u8>, RpcHandle, u32),
}

/// Bytes by message.
#[derive(Debug, Default)]
pub struct Messages {
    slots: Vec<Slot>,
    spare: Vec<Vec<u8>>,
    outgoing_bytes: u64,
}

impl Messages {
    fn slot(&mut self, id: MessageId) -> &mut Slot {
        let index = id.0 as usize;
        if index >= self.slots.len() {
            self.slots.resize_with(index + 1, Slot::default);
        }
        &mut self.slots[index]
    }

    /// Keeps the bytes of an outgoing message.
    pub fn insert(&mut self, id: MessageId, bytes: Payload) {
        self.outgoing_bytes += bytes.len() as u64;
        *self.slot(id) = Slot::Outgoing(bytes);
    }

    /// Bytes of outgoing messages held.
    pub fn outgoing_bytes(&self) -> u64 {
        self.outgoing_bytes
    }

    /// The bytes of a span of an outgoing message, when they are all there.
    pub fn get(&self, span: Span) -> Option<&[u8]> {
        match self.slots.get(span.message.0 as usize) {
            Some(Slot::Outgoing(bytes)) => {
                let start = span.offset as usize;
                bytes.as_ref().get(start..start + span.len as usize)
            }
            _ => None,
        }
    }

    /// Copies received bytes to where they belong.
    pub fn place(&mut self, place: Place, payload: &[u8]) {
        if !matches!(self.slot(place.message), Slot::Incoming(_) | Slot::Readable(..)) {
            let bytes = self.spare.pop().unwrap_or_default();
            *self.slot(place.message) = Slot::Incoming(bytes);
        }
        let (Slot::Incoming(bytes) | Slot::Readable(bytes, ..)) = self.slot(place.message) else {
            return;
        };
        let (offset, total) = (place.offset as usize, place.total as usize);
        let payload = &payload[..payload.len().min(place.len as usize)];
        let end = offset + payload.len();
        if end > bytes.capacity() {
            let target = (GROWTH * end).max(FIRST_ALLOCATION).min(total).max(end);
            bytes.reserve_exact(target - bytes.len());
        }
        if offset > bytes.len() {
            bytes.resize(offset, 0);
        }
        let known = payload.len().min(bytes.len() - offset);
        bytes[offset..offset + known].copy_from_slice(&payload[..known]);
        bytes.extend_from_slice(&payload[known..]);
    }

    /// The bytes before `offset` of an incoming message can be read.
    pub fn readable(&mut self, id: MessageId, rpc: RpcHandle, offset: u32) {
        let slot = self.slot(id);
        if let Slot::Incoming(bytes) | Slot::Readable(bytes, ..) = slot {
            *slot = Slot::Readable(std::mem::take(bytes), rpc, offset);
        }
    }

    /// What can be read of an incoming message; `None` once it was handed over or given up.
    pub fn prefix(&self, id: MessageId, rpc: RpcHandle) -> Option<&[u8]> {
        match self.slots.get(id.0 as usize) {
            Some(Slot::Readable(bytes, of, readable)) if *of == rpc => {
                bytes.get(..*readable as usize)
            }
            _ => None,
        }
    }

    /// Hands over a message that arrived whole.
    pub fn take(&mut self, id: MessageId) -> Vec<u8> {
        match std::mem::take(self.slot(id)) {
            Slot::Incoming(bytes) | Slot::Readable(bytes, ..) => bytes,
            other => {
                *self.slot(id) = other;
                Vec::new()
            }
        }
    }

    /// Forgets a message.
    pub fn release(&mut self, id: MessageId) {
        let Slot::Outgoing(bytes) = std::mem::take(self.slot(id)) else { return };
        self.outgoing_bytes -= bytes.len() as u64;
        if let Some(mut memory) = bytes.into_memory()
            && memory.capacity() <= SPARE_CAPACITY
            && self.spare.len() < SPARE
        {
            memory.clear();
            self.spare.push(memory);
        }
    }
}

impl Gather for Messages {
    fn bytes(&self, span: Span) -> &[u8] {
        self.get(span).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(offset: u32, len: u32, total: u32) -> Place {
        Place { message: MessageId(3), total, offset, len }
    }

    #[test]
    fn pieces_in_any_order_become_the_message() {
        let message: Vec<u8> = (0..100_000u32).map(|i| (i * 7) as u8).collect();
        for stride in [1usize, 7, 33, 69] {
            let mut messages = Messages::default();
            // 100 pieces; every stride is coprime to 100.
            for step in 0..100 {
                let offset = step * stride % 100 * 1000;
                let piece = &message[offset..offset + 1000];
                messages.place(place(offset as u32, 1000, 100_000), piece);
            }
            assert!(messages.take(MessageId(3)) == message, "stride {stride}");
        }
    }

    #[test]
    fn an_announced_length_alone_allocates_nothing() {
        let mut messages = Messages::default();
        messages.place(place(0, 1400, 16 << 20), &[1; 1400]);
        let Slot::Incoming(bytes) = &messages.slots[3] else { panic!("not incoming") };
        assert!(bytes.capacity() <= GROWTH * 1400, "{} bytes", bytes.capacity());
    }

    #[test]
    fn outgoing_memory_is_counted_until_released() {
        let mut messages = Messages::default();
        messages.insert(MessageId(0), vec![5; 1000].into());
        let span = Span { message: MessageId(0), offset: 999, len: 1 };
        assert_eq!(messages.get(span), Some(&[5][..]));
        assert_eq!(messages.get(Span { len: 2, ..span }), None);
        messages.release(MessageId(0));
        messages.release(MessageId(0));
        assert_eq!(messages.outgoing_bytes(), 0);
    }

    #[test]
    fn released_memory_serves_the_next_message_and_shows_nothing_of_the_old() {
        let mut messages = Messages::default();
        let secret = vec![7; 500];
        let memory = secret.as_ptr();
        messages.insert(MessageId(0), secret.into());
        messages.release(MessageId(0));
        messages.place(place(100, 100, 200), &[2; 100]);
        messages.place(place(0, 100, 200), &[1; 100]);
        let bytes = messages.take(MessageId(3));
        assert_eq!(bytes.as_ptr(), memory);
        assert_eq!(bytes, [[1; 100], [2; 100]].concat());
    }
}
