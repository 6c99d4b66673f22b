//! One message that is arriving: its bytes, in any order, and the memory that they take.

use std::collections::BTreeMap;

use homa_proto::RpcHandle;

use crate::engine::core::context::RequestContext;

/// Smallest allocation for a message that is longer than one packet.
const FIRST_ALLOCATION: usize = 4096;
/// How much faster than the arrived bytes the memory may grow.
pub(super) const GROWTH: usize = 4;
/// The announced length of a message is trusted once this many bytes have arrived.
pub(super) const CERTAIN: usize = 64 * 1024;
/// The first allocation for a piece of a request that is read while it arrives.
const PIECE: usize = 64 * 1024;

/// Whether the application was told of a request before it was whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EarlyRequest {
    /// It was not.
    No,
    /// It was.
    Announced,
    /// And it has begun to execute it.
    Begun,
}

/// A message that is arriving.
#[derive(Debug)]
pub(super) struct IncomingMessage {
    /// The first bytes after the lent ones; gaps are zero.
    pub(super) bytes: Vec<u8>,
    /// Length of the prefix that a reader has borrowed.
    pub(super) lent: usize,
    /// Length of the whole message.
    pub(super) total: usize,
    /// It has no bytes, and the one that arrived is padding.
    pub(super) empty: bool,
    /// By offset, pieces that are too far ahead of `bytes`.
    pub(super) ahead: BTreeMap<usize, Vec<u8>>,
    /// Bytes that arrived.
    pub(super) arrived: usize,
    /// Bytes of address space reserved for the whole message.
    pub(super) reserved: usize,
    /// The RPC of the message, and the length of its readable prefix.
    pub(super) readable: Option<(RpcHandle, u32)>,
    /// The application was told of it before it was whole.
    pub(super) early: EarlyRequest,
    /// Received with the datagram if the message is a request.
    pub(super) context: RequestContext,
}

impl IncomingMessage {
    /// A message that arrives, in the given memory.
    pub(super) fn into(bytes: Vec<u8>, total: usize) -> Self {
        let (ahead, readable, context) = (BTreeMap::new(), None, RequestContext::NONE);
        Self {
            bytes,
            lent: 0,
            total,
            empty: false,
            ahead,
            arrived: 0,
            reserved: 0,
            readable,
            early: EarlyRequest::No,
            context,
        }
    }

    /// The offset up to which its memory may grow now.
    pub(super) fn reach(&self) -> usize {
        FIRST_ALLOCATION.max(GROWTH.saturating_mul(self.arrived))
    }

    /// Makes room for `end` bytes of `total`, and for all of them if `addresses` are enough.
    /// Returns the address space that it took.
    pub(super) fn make_room(&mut self, end: usize, total: usize, addresses: u64) -> usize {
        // Nearly always.
        if end <= self.bytes.capacity() {
            return 0;
        }
        let len = self.bytes.len();
        if self.early != EarlyRequest::No {
            // A reader takes it in pieces, so there is never much of it here.
            let most = total.min(PIECE.max(2 * end));
            self.bytes.reserve_exact(most.max(end) - len);
            return 0;
        }
        // Its sender has shown that it means the length, and address space costs nothing until
        // used.
        if self.arrived >= CERTAIN
            && self.reserved == 0
            && total as u64 <= addresses
            && self.bytes.try_reserve_exact(total - len).is_ok()
        {
            self.reserved = total;
            return total;
        }
        // Memory that is left behind when everything is reserved has to be copied.
        let soon = self.arrived < CERTAIN && end <= 2 * CERTAIN;
        let most = if soon { total.min(2 * CERTAIN) } else { total };
        self.bytes.reserve_exact(self.reach().min(most).max(end) - len);
        0
    }

    /// Copies bytes that are within reach. Returns the part of `addresses` that it took.
    #[inline]
    pub(super) fn write(&mut self, offset: usize, payload: &[u8], addresses: u64) -> u64 {
        let Some(offset) = offset.checked_sub(self.lent) else {
            debug_assert!(false, "the lent bytes had arrived");
            return 0;
        };
        // The reservation covers the lent bytes, too.
        let addresses = if self.lent == 0 { addresses } else { 0 };
        let taken = self.make_room(offset + payload.len(), self.total - self.lent, addresses);
        self.copy(offset, payload);
        taken as u64
    }

    /// Copies bytes into memory that is large enough.
    #[inline]
    pub(super) fn copy(&mut self, offset: usize, payload: &[u8]) {
        let bytes = &mut self.bytes;
        // Bytes that overtook others: the gap is filled with zeros until they come.
        if offset > bytes.len() {
            bytes.resize(offset, 0);
        }
        let known = payload.len().min(bytes.len() - offset);
        // Only the part beyond the end is appended, so that bytes in order are never zeroed.
        bytes[offset..offset + known].copy_from_slice(&payload[..known]);
        bytes.extend_from_slice(&payload[known..]);
    }

    /// The first separate piece, if it is within reach now.
    pub(super) fn next_in_reach(&mut self) -> Option<(usize, Vec<u8>)> {
        let reach = self.reach();
        let first = self.ahead.first_entry()?;
        (first.key() + first.get().len() <= reach).then(|| first.remove_entry())
    }
}
