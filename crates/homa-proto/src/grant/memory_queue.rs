//! Messages that wait for memory before their first byte (Linux §2.3), fewest unscheduled bytes
//! first.
//!
//! A kernel server without buffers keeps the RPC and drops its bytes. It answers the client's
//! RESENDs by BUSY, so that the call lives, and asks for everything once there is room. Without
//! this, the answer would be RPC_UNKNOWN in profile `linux`, and the client gives up after 0.1 s;
//! in `sigcomm18` it would be a RESEND of the request, and retransmissions for nothing would fill
//! the links. Profile `default` drops the packet and is asked again, with backoff.

use crate::event::RpcHandle;
use alloc::collections::{BTreeMap, BTreeSet};
use core::ops::Bound::{Excluded, Unbounded};

/// Most waiting messages checked when memory becomes free, because each packet that frees some pays
/// for the search.
const MAX_WAITING_CHECKED: usize = 16;

/// A message that waits: the bytes that it needs to begin, and its RPC.
type Waiting = (u32, RpcHandle);

/// RPCs whose incoming message waits, with the bytes that it needs to begin.
#[derive(Debug, Default)]
pub(super) struct MemoryQueue {
    order: BTreeSet<Waiting>,
    needs: BTreeMap<RpcHandle, u32>,
    /// The next search starts after this one: none before it could begin.
    cursor: Option<Waiting>,
}

impl MemoryQueue {
    pub(super) fn contains(&self, handle: RpcHandle) -> bool {
        self.needs.contains_key(&handle)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    pub(super) fn insert(&mut self, handle: RpcHandle, need: u32) {
        // Its need may have changed since it was queued.
        self.remove(handle);
        self.needs.insert(handle, need);
        self.order.insert((need, handle));
    }

    pub(super) fn remove(&mut self, handle: RpcHandle) {
        if let Some(need) = self.needs.remove(&handle) {
            self.order.remove(&(need, handle));
        }
    }

    /// The next message that fits in `room` bytes and may begin; if there is none, where the next
    /// search starts.
    pub(super) fn search(
        &self,
        room: u64,
        may_begin: impl Fn(RpcHandle) -> bool,
    ) -> (Option<Waiting>, Option<Waiting>) {
        let after = self.cursor.map_or(Unbounded, Excluded);
        let fitting = self.order.range((after, Unbounded));
        // The order is by need: behind the first that does not fit, none does.
        let fitting = fitting.take_while(|(need, _)| u64::from(*need) <= room);
        let (mut checked, mut last) = (0, None);
        let mut check = |waiting: &&Waiting| {
            (checked, last) = (checked + 1, Some(**waiting));
            may_begin(waiting.1)
        };
        let found = fitting.take(MAX_WAITING_CHECKED).find(&mut check).copied();
        // Only a search that was cut short continues behind its last entry.
        (found, last.filter(|_| checked == MAX_WAITING_CHECKED))
    }

    pub(super) fn set_cursor(&mut self, cursor: Option<Waiting>) {
        self.cursor = cursor;
    }
}
