//! Messages that wait for memory before their first byte (Linux §2.3), fewest unscheduled bytes
//! first.
//!
//! A kernel server without buffers keeps the RPC and drops its bytes. It answers the client's
//! RESENDs by BUSY, so that the call lives, and asks for everything once there is room. Without
//! this, the answer would be RPC_UNKNOWN in profile `linux`, and the client gives up after 0.1 s;
//! in `sigcomm18` it would be a RESEND of the request, and retransmissions for nothing would fill
//! the links. Profile `default` drops the packet and is asked again, with backoff.

use crate::endpoint::Endpoint;
use crate::event::{DropReason, RpcHandle};
use crate::packet::{Body, Data, Packet, ResendLength};
use crate::rpc::RpcState;
use crate::units::Time;
use alloc::collections::{BTreeMap, BTreeSet};
use core::ops::Bound::{Excluded, Unbounded};

/// Most waiting messages checked when memory becomes free.
const MAX_WAITING_CHECKED: usize = 16;

/// RPCs whose incoming message waits, with the bytes that it needs to begin.
#[derive(Debug, Default)]
pub(super) struct MemoryQueue {
    order: BTreeSet<(u32, RpcHandle)>,
    needs: BTreeMap<RpcHandle, u32>,
    /// The next search starts after this one: none before it could begin.
    cursor: Option<(u32, RpcHandle)>,
}

impl MemoryQueue {
    fn contains(&self, handle: RpcHandle) -> bool {
        self.needs.contains_key(&handle)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    fn insert(&mut self, handle: RpcHandle, need: u32) {
        self.remove(handle);
        self.needs.insert(handle, need);
        self.order.insert((need, handle));
    }

    pub(super) fn remove(&mut self, handle: RpcHandle) {
        if let Some(need) = self.needs.remove(&handle) {
            self.order.remove(&(need, handle));
        }
    }
}

impl Endpoint {
    /// True if the incoming message of an RPC waits for memory to begin.
    pub(crate) fn waits_for_memory(&self, handle: RpcHandle) -> bool {
        self.grants.memory_queue.contains(handle)
    }

    /// The message of an RPC begins, whether it waited or not.
    pub(crate) fn stop_waiting(&mut self, handle: RpcHandle) {
        self.grants.memory_queue.remove(handle);
    }

    /// There is no memory for the first packet of a message, which needs `need` bytes to begin.
    pub(crate) fn wait_for_memory(
        &mut self,
        now: Time,
        packet: &Packet,
        data: &Data,
        found: Option<RpcHandle>,
        need: u32,
    ) -> Result<(), DropReason> {
        if packet.is_one_way() {
            // One-way messages have no RESENDs.
            return Ok(());
        }
        let handle = match found {
            Some(handle) => handle,
            None if packet.id.from_server() => return Err(self.unknown_or_foreign(packet)),
            None => self.create_server_rpc(now, packet, data)?,
        };
        let Some(rpc) = self.rpcs.get_mut(handle) else { return Ok(()) };
        if matches!(rpc.state, RpcState::ServerIncoming | RpcState::ClientOutgoing) {
            rpc.loss.heard(now);
            self.grants.memory_queue.insert(handle, need);
        }
        Ok(())
    }

    /// The next message to begin in `room` bytes: the one that needs least, but not of a host that
    /// has its share, since that would only wait again. If many have, the next search starts behind
    /// them.
    fn next_waiting(&mut self, room: u64) -> Option<(u32, RpcHandle)> {
        let may_begin =
            |handle| self.rpcs.get(handle).is_none_or(|rpc| !self.has_its_share(rpc.peer));
        let MemoryQueue { order, cursor, .. } = &self.grants.memory_queue;
        let after = cursor.map_or(Unbounded, Excluded);
        let fitting = order.range((after, Unbounded));
        let fitting = fitting.take_while(|(need, _)| u64::from(*need) <= room);
        let (mut checked, mut last) = (0, None);
        let mut check = |one: &&(u32, RpcHandle)| {
            (checked, last) = (checked + 1, Some(**one));
            may_begin(one.1)
        };
        let found = fitting.take(MAX_WAITING_CHECKED).find(&mut check).copied();
        if found.is_none() {
            self.grants.memory_queue.cursor = last.filter(|_| checked == MAX_WAITING_CHECKED);
        }
        found
    }

    /// Asks for messages that wait, as far as `room` bytes allow.
    pub(super) fn request_waiting(&mut self, mut room: u64) {
        while let Some((need, handle)) = self.next_waiting(room) {
            self.grants.memory_queue.remove(handle);
            room -= u64::from(need);
            let (now, level) = (self.now, self.levels.top());
            let Some(rpc) = self.rpcs.get_mut(handle) else { continue };
            rpc.loss.heard(now);
            let priority = level.saturating_sub(1);
            let body = Body::Resend { offset: 0, length: ResendLength::All, priority };
            self.control.push(rpc.control(level, body));
            self.counters.resends_sent += 1;
        }
    }
}
