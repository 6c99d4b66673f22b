//! The bytes of messages in progress: outgoing ones until they are acknowledged, incoming ones
//! while they arrive.
//!
//! Memory for an incoming message grows with the bytes that arrived, never by its announced length.
//! A peer has to send a quarter of the bytes that it makes us write (`GROWTH`), no matter which
//! part of the message its packets belong to. Bytes that arrive too far ahead are stored
//! separately, and are copied once more when enough bytes have arrived. Bytes in order are copied
//! once and never zeroed.
//!
//! Address space costs nothing until it is written to. It is reserved for the whole message once
//! `CERTAIN` bytes have arrived, because growing would copy hundreds of kilobytes in one turn.
//! The reservations are limited by the protocol's memory for incoming messages. If that is not
//! enough, or the system refuses (`vm.overcommit_memory` 2), memory grows as before.

mod incoming;

use std::mem;

use bytes::Bytes;
use homa_proto::wire::datagram::RequestExtensions;
use homa_proto::{Body, MessageId, Packet, Placement, RpcHandle, Span, Time};

use super::context::RequestContext;
use crate::driver::Gather;
use crate::engine::fairness::accounts::AccountId;
use crate::payload::Payload;
pub use incoming::EarlyRequest;
use incoming::IncomingMessage;

/// What the packet of a message without bytes carries.
const PADDING: Bytes = Bytes::from_static(&[0]);
/// Buffers of released messages that are kept for reuse, and the largest size of one.
const SPARE: usize = 256;
const SPARE_CAPACITY: usize = 2048;

#[derive(Debug, Default)]
enum MessageSlot {
    #[default]
    Free,
    Outgoing(OutgoingMessage),
    Incoming(IncomingMessage),
}

#[derive(Debug)]
struct OutgoingMessage {
    bytes: Payload,
    to: AccountId,
    /// It has no bytes, and `bytes` is padding.
    empty: bool,
    /// Sent with the datagram if the message is a request.
    context: RequestContext,
}

/// Bytes by message.
#[derive(Debug)]
pub struct Messages {
    slots: Vec<MessageSlot>,
    spare: Vec<Vec<u8>>,
    outgoing_bytes: u64,
    /// `outgoing_bytes` by account.
    outgoing_to: Vec<u64>,
    /// Address space that may still be reserved for incoming messages, bytes.
    addresses: u64,
    /// Released payloads that others may own: see [`Self::payloads_to_drop`].
    payloads_to_drop: Vec<Payload>,
    defers_drops: bool,
}

impl Messages {
    /// An empty table. At most `addresses` bytes of address space are reserved at a time.
    pub fn new(addresses: u64) -> Self {
        let (outgoing_bytes, outgoing_to) = (0, Vec::new());
        let (slots, spare, payloads_to_drop) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            slots,
            spare,
            outgoing_bytes,
            outgoing_to,
            addresses,
            payloads_to_drop,
            defers_drops: false,
        }
    }

    fn slot(&mut self, id: MessageId) -> &mut MessageSlot {
        let index = id.0 as usize;
        // The protocol's numbers are small and dense, so they are indexes.
        if index >= self.slots.len() {
            self.slots.resize_with(index + 1, MessageSlot::default);
        }
        &mut self.slots[index]
    }

    /// Stores the bytes of an outgoing message to a host. If there are none, one byte of padding is
    /// stored, and [`Self::sends_empty`] is true for its packet.
    pub fn insert(
        &mut self,
        id: MessageId,
        bytes: Payload,
        to: AccountId,
        context: RequestContext,
    ) {
        match bytes.is_empty() {
            true => self.store(id, PADDING.into(), (to, true), context),
            false => self.store(id, bytes, (to, false), context),
        }
    }

    #[inline(always)]
    fn store(
        &mut self,
        id: MessageId,
        bytes: Payload,
        (to, empty): (AccountId, bool),
        context: RequestContext,
    ) {
        self.outgoing_bytes += bytes.len() as u64;
        if self.outgoing_to.len() <= to as usize {
            self.outgoing_to.resize(to as usize + 1, 0);
        }
        self.outgoing_to[to as usize] += bytes.len() as u64;
        *self.slot(id) = MessageSlot::Outgoing(OutgoingMessage { bytes, to, empty, context });
    }

    /// Appends to an outgoing message that is written while it is sent; returns how many bytes of
    /// it exist.
    pub fn write(&mut self, id: MessageId, more: &[u8]) -> usize {
        match self.slot(id) {
            MessageSlot::Outgoing(outgoing) => outgoing.bytes.write(more),
            _ => 0,
        }
    }

    /// True for the packet of an outgoing message without bytes.
    #[inline]
    pub fn sends_empty(&self, packet: &Packet) -> bool {
        let Body::Data(data) = &packet.body else { return false };
        // Only one byte can be padding, and most messages have more.
        data.message_length == 1
            && matches!(
                self.slots.get(data.span.message.0 as usize),
                Some(MessageSlot::Outgoing(OutgoingMessage { empty: true, .. }))
            )
    }

    /// The byte of an incoming message that was just placed is padding: it has no bytes.
    pub fn note_empty(&mut self, id: MessageId) {
        if let MessageSlot::Incoming(incoming) = self.slot(id) {
            incoming.empty = true;
        }
    }

    /// The extensions for the first bytes of an outgoing request that leaves at `now`.
    pub fn request_extensions(&self, id: MessageId, now: Time) -> RequestExtensions {
        match self.slots.get(id.0 as usize) {
            Some(MessageSlot::Outgoing(outgoing)) => outgoing.context.to_extensions(now),
            _ => RequestExtensions::NONE,
        }
    }

    /// Stores the context of a request whose first bytes have been placed.
    #[inline]
    pub fn note(&mut self, id: MessageId, context: RequestContext) {
        if let MessageSlot::Incoming(incoming) = self.slot(id) {
            incoming.context = context;
        }
    }

    /// Bytes of outgoing messages to a host.
    pub fn outgoing_to(&self, account: AccountId) -> u64 {
        self.outgoing_to.get(account as usize).copied().unwrap_or(0)
    }

    /// Bytes of all outgoing messages.
    pub fn outgoing_bytes(&self) -> u64 {
        self.outgoing_bytes
    }

    /// The bytes of a span of an outgoing message, if they are complete and contiguous.
    #[inline]
    pub fn get(&self, span: Span) -> Option<&[u8]> {
        match self.slots.get(span.message.0 as usize) {
            Some(MessageSlot::Outgoing(outgoing)) => {
                outgoing.bytes.get(span.offset as usize, span.len as usize)
            }
            _ => None,
        }
    }

    /// The bytes of a span of an outgoing message, in contiguous slices.
    pub fn slices(&self, span: Span) -> impl Iterator<Item = &[u8]> {
        let slot = self.slots.get(span.message.0 as usize);
        slot.into_iter()
            .flat_map(move |slot| match slot {
                MessageSlot::Outgoing(outgoing) => {
                    Some(outgoing.bytes.slices(span.offset as usize, span.len as usize))
                }
                _ => None,
            })
            .flatten()
    }

    /// Copies a span of an outgoing message to `place`, which has its length; false if the span is
    /// not complete.
    #[cold]
    pub fn copy(&self, span: Span, mut place: &mut [u8]) -> bool {
        if place.len() != span.len as usize {
            return false;
        }
        for slice in self.slices(span) {
            let (here, rest) = place.split_at_mut(slice.len());
            here.copy_from_slice(slice);
            place = rest;
        }
        place.is_empty()
    }

    /// Copies received bytes, which had not arrived before, to their position.
    pub fn place(&mut self, place: Placement, payload: &[u8]) {
        // The first bytes of a message begin its memory, in a buffer of one that has ended.
        if !matches!(self.slot(place.message), MessageSlot::Incoming(_)) {
            let bytes = self.spare.pop().unwrap_or_default();
            *self.slot(place.message) =
                MessageSlot::Incoming(IncomingMessage::into(bytes, place.total as usize));
        }
        let Some(MessageSlot::Incoming(incoming)) = self.slots.get_mut(place.message.0 as usize)
        else {
            return;
        };
        let offset = place.offset as usize;
        let payload = &payload[..payload.len().min(place.len as usize)];
        let end = offset + payload.len();
        incoming.arrived += payload.len();
        // A few bytes far ahead must not make us allocate and zero all memory before them.
        if end > incoming.reach() {
            incoming.ahead.insert(offset, payload.to_vec());
        } else {
            self.addresses -= incoming.write(offset, payload, self.addresses);
        }
        while let Some((offset, piece)) = incoming.next_in_reach() {
            self.addresses -= incoming.write(offset, &piece, self.addresses);
        }
    }

    /// The bytes before `offset` of an incoming message are readable.
    pub fn readable(&mut self, id: MessageId, rpc: RpcHandle, offset: u32) {
        if let MessageSlot::Incoming(incoming) = self.slot(id) {
            incoming.readable = Some((rpc, offset));
        }
    }

    /// The readable prefix of an incoming message; `None` after it was delivered or given up.
    pub fn prefix(&self, id: MessageId, rpc: RpcHandle) -> Option<&[u8]> {
        match self.slots.get(id.0 as usize) {
            // If a prefix is lent, the bytes here begin behind it.
            Some(MessageSlot::Incoming(IncomingMessage {
                bytes,
                lent: 0,
                readable: Some((of, readable)),
                ..
            })) if *of == rpc => bytes.get(..*readable as usize),
            _ => None,
        }
    }

    /// The length of the whole of an incoming message; 0 after it was delivered or given up.
    pub fn total(&self, id: MessageId) -> usize {
        match self.slots.get(id.0 as usize) {
            Some(MessageSlot::Incoming(incoming)) => incoming.total,
            _ => 0,
        }
    }

    /// Lends the readable prefix of an incoming message, which continues to arrive. `None` after it
    /// was delivered, given up, or lent.
    pub fn lend(&mut self, id: MessageId, rpc: RpcHandle) -> Option<Vec<u8>> {
        let MessageSlot::Incoming(incoming) = self.slot(id) else { return None };
        let (_, readable) = incoming.readable.filter(|(of, _)| *of == rpc)?;
        let readable = readable as usize;
        // One loan at a time: the rest of the bytes is stored behind the lent ones.
        if incoming.lent > 0 || readable > incoming.bytes.len() {
            return None;
        }
        let rest = incoming.bytes.split_off(readable);
        incoming.lent = readable;
        Some(mem::replace(&mut incoming.bytes, rest))
    }

    /// Notes whether the application was told of a request that is arriving.
    pub fn set_early(&mut self, id: MessageId, early: EarlyRequest) {
        if let MessageSlot::Incoming(incoming) = self.slot(id) {
            incoming.early = early;
        }
    }

    /// Whether the application was told of a message before it was whole.
    pub fn early(&self, id: MessageId) -> EarlyRequest {
        match self.slots.get(id.0 as usize) {
            Some(MessageSlot::Incoming(incoming)) => incoming.early,
            _ => EarlyRequest::No,
        }
    }

    /// The context of a request whose first bytes have arrived.
    pub fn context(&self, id: MessageId) -> RequestContext {
        match self.slots.get(id.0 as usize) {
            Some(MessageSlot::Incoming(incoming)) => incoming.context.clone(),
            _ => RequestContext::NONE,
        }
    }

    /// Takes the readable bytes of a message that is arriving, after those that were taken before;
    /// and the offset of their end.
    pub fn take_readable(&mut self, id: MessageId, rpc: RpcHandle) -> Option<(Vec<u8>, u32)> {
        let MessageSlot::Incoming(incoming) = self.slot(id) else { return None };
        let (_, end) = incoming.readable.filter(|(of, _)| *of == rpc)?;
        let more = (end as usize).checked_sub(incoming.lent).filter(|&more| more > 0)?;
        // All of it, unless packets overtook others.
        let rest = incoming.bytes.split_off(more.min(incoming.bytes.len()));
        incoming.lent = end as usize;
        Some((mem::replace(&mut incoming.bytes, rest), end))
    }

    /// Takes a lent prefix back. Returns it if the message was delivered or given up in the
    /// meantime.
    pub fn give_back(&mut self, id: MessageId, rpc: RpcHandle, lent: Vec<u8>) -> Option<Vec<u8>> {
        match self.slots.get_mut(id.0 as usize) {
            Some(MessageSlot::Incoming(incoming))
                // The slot may belong to another message by now.
                if incoming.lent == lent.len()
                    && incoming.readable.is_some_and(|(of, _)| of == rpc) =>
            {
                let (offset, rest) = (lent.len(), mem::replace(&mut incoming.bytes, lent));
                incoming.lent = 0;
                self.addresses -= incoming.write(offset, &rest, self.addresses);
                None
            }
            _ => Some(lent),
        }
    }

    /// Delivers a complete message: its bytes after the lent prefix, the length of that prefix, and
    /// the context.
    #[inline]
    pub fn take(&mut self, id: MessageId) -> (Vec<u8>, usize, RequestContext) {
        match mem::take(self.slot(id)) {
            MessageSlot::Incoming(incoming) => {
                self.addresses += incoming.reserved as u64;
                // The one byte that arrived was padding.
                if incoming.empty {
                    return (Vec::new(), 0, incoming.context);
                }
                (incoming.bytes, incoming.lent, incoming.context)
            }
            other => {
                *self.slot(id) = other;
                (Vec::new(), 0, RequestContext::NONE)
            }
        }
    }

    /// Forgets a message.
    #[inline]
    pub fn release(&mut self, id: MessageId) {
        let OutgoingMessage { bytes, to, .. } = match mem::take(self.slot(id)) {
            MessageSlot::Outgoing(outgoing) => outgoing,
            MessageSlot::Incoming(incoming) => return self.addresses += incoming.reserved as u64,
            MessageSlot::Free => return,
        };
        self.outgoing_bytes -= bytes.len() as u64;
        self.outgoing_to[to as usize] -= bytes.len() as u64;
        self.discard(bytes);
    }

    /// Collects released payloads that others may own in [`Self::payloads_to_drop`].
    pub fn defer_drops(&mut self) {
        self.defers_drops = true;
    }

    /// Releases a payload. Memory that only we own is kept for the next message.
    #[inline]
    pub fn discard(&mut self, payload: Payload) {
        match payload.into_memory() {
            // Large buffers are freed, because a burst should not keep its memory.
            Ok(mut memory) if memory.capacity() <= SPARE_CAPACITY && self.spare.len() < SPARE => {
                memory.clear();
                self.spare.push(memory);
            }
            Ok(_) => {}
            // An owner's destructor may call back, which would wait for the lock that we hold.
            Err(payload) if self.defers_drops => self.payloads_to_drop.push(payload),
            Err(_) => {}
        }
    }

    /// Released payloads, to be dropped without the lock: the destructor of an owner may call back.
    pub fn payloads_to_drop(&mut self) -> &mut Vec<Payload> {
        &mut self.payloads_to_drop
    }

    /// True if [`Self::payloads_to_drop`] is not empty.
    pub fn has_payloads_to_drop(&self) -> bool {
        !self.payloads_to_drop.is_empty()
    }
}

impl Gather for Messages {
    fn bytes(&self, span: Span) -> &[u8] {
        self.get(span).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
