//! Messages that wait for memory before their first byte (Linux §2.3).
//!
//! A kernel server without buffers keeps the RPC and drops its bytes: the client's RESENDs are
//! answered by BUSY, so that the call lives, and it is asked for everything once there is room.
//! Without this, the answer would be RPC_UNKNOWN in profile `linux`, and the client gives up after
//! 0.1 s; in `sigcomm18` a RESEND of the request, every time for nothing, and such retransmissions
//! would keep the links from what frees the memory. Fewest unscheduled bytes first. Profile
//! `default` drops the packet and is asked again, ever later.

use crate::endpoint::{Control, Endpoint};
use crate::event::{DropReason, RpcHandle};
use crate::packet::{Body, Data, Packet, ResendLength};
use crate::rpc::RpcState;
use crate::units::Time;
use alloc::collections::{BTreeMap, BTreeSet};
use core::ops::Bound::{Excluded, Unbounded};

/// Of those that wait, so many are looked at when memory becomes free.
const MAX_WAITING_CHECKED: usize = 16;

/// RPCs whose incoming message waits, with the bytes it needs to begin.
#[derive(Debug, Default)]
pub(crate) struct MemoryQueue {
    order: BTreeSet<(u32, RpcHandle)>,
    needs: BTreeMap<RpcHandle, u32>,
    /// Those up to this one were looked at in vain, since their hosts have their share.
    cursor: Option<(u32, RpcHandle)>,
}

impl MemoryQueue {
    pub(crate) fn contains(&self, handle: RpcHandle) -> bool {
        self.needs.contains_key(&handle)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    fn insert(&mut self, handle: RpcHandle, need: u32) {
        self.remove(handle);
        self.needs.insert(handle, need);
        self.order.insert((need, handle));
    }

    pub(crate) fn remove(&mut self, handle: RpcHandle) {
        if let Some(need) = self.needs.remove(&handle) {
            self.order.remove(&(need, handle));
        }
    }
}

impl Endpoint {
    /// There is no memory for the first packet of a message, which begins with `need` bytes.
    pub(crate) fn wait_for_memory(
        &mut self,
        now: Time,
        packet: &Packet,
        data: &Data,
        found: Option<RpcHandle>,
        need: u32,
    ) -> Result<(), DropReason> {
        if packet.is_one_way() {
            // Nobody asks for it.
            return Ok(());
        }
        let handle = match found {
            Some(handle) => handle,
            None if packet.id.from_server() => return Err(self.unknown_or_foreign(packet)),
            None => self.create_server_rpc(now, packet, data)?,
        };
        let Some(rpc) = self.rpcs.get_mut(handle) else { return Ok(()) };
        if matches!(rpc.state, RpcState::ServerIncoming | RpcState::ClientOutgoing) {
            rpc.last_heard = now;
            self.incoming.memory_queue.insert(handle, need);
        }
        Ok(())
    }

    /// See [`Endpoint::limit_memory`].
    pub(crate) fn set_memory_budget(&mut self, bytes: u64) {
        self.incoming.budget = bytes;
        self.memory_became_free();
    }

    /// Some of what is held was given back, or more may be.
    pub(crate) fn memory_became_free(&mut self) {
        self.wake_waiting();
        if self.incoming.starved {
            self.grant(None);
        }
    }

    /// The next to be asked, of those that need at most `room`: the one that needs least and whose
    /// peer has not its share, since that would only wait again. Where many have, the next time
    /// those behind them are looked at.
    fn next_waiting(&mut self, room: u64) -> Option<(u32, RpcHandle)> {
        let may = |handle| self.rpcs.get(handle).is_none_or(|rpc| !self.has_its_share(rpc.peer));
        let MemoryQueue { order, cursor, .. } = &self.incoming.memory_queue;
        let after = cursor.map_or(Unbounded, Excluded);
        let fitting = order.range((after, Unbounded));
        let fitting = fitting.take_while(|(need, _)| u64::from(*need) <= room);
        let (mut looks, mut last) = (0, None);
        let mut look = |one: &&(u32, RpcHandle)| {
            (looks, last) = (looks + 1, Some(**one));
            may(one.1)
        };
        let found = fitting.take(MAX_WAITING_CHECKED).find(&mut look).copied();
        if found.is_none() {
            self.incoming.memory_queue.cursor = last.filter(|_| looks == MAX_WAITING_CHECKED);
        }
        found
    }

    /// Memory became free: those that waited for it are asked for everything.
    pub(crate) fn wake_waiting(&mut self) {
        self.resume_withheld_hosts();
        let mut room = self.incoming.left();
        while let Some((need, handle)) = self.next_waiting(room) {
            self.incoming.memory_queue.remove(handle);
            room -= u64::from(need);
            let (now, level) = (self.now, self.levels.top());
            let Some(rpc) = self.rpcs.get_mut(handle) else { continue };
            rpc.last_heard = now;
            let priority = level.saturating_sub(1);
            let body = Body::Resend { offset: 0, length: ResendLength::All, priority };
            self.control.push_back(Control::Packet(rpc.control(level, body)));
            self.counters.resends_sent += 1;
        }
    }
}
