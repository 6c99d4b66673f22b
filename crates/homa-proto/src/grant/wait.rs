//! Messages wait for memory, and are asked for when there is some: see `memory_queue`.

use crate::endpoint::Endpoint;
use crate::event::{DropReason, RpcHandle};
use crate::packet::{Body, Data, Packet, ResendLength};
use crate::rpc::RpcState;
use crate::units::Time;

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
    /// `idempotent`: see [`Endpoint::receive_idempotent`].
    pub(crate) fn wait_for_memory(
        &mut self,
        now: Time,
        packet: &Packet,
        data: &Data,
        found: Option<RpcHandle>,
        need: u32,
        idempotent: bool,
    ) -> Result<(), DropReason> {
        if packet.is_one_way() {
            // One-way messages have no RESENDs.
            return Ok(());
        }
        let handle = match found {
            Some(handle) => handle,
            None if packet.id.from_server() => return Err(self.unknown_or_foreign(packet)),
            None => self.create_server_rpc(now, packet, data, idempotent)?,
        };
        let Some(rpc) = self.rpcs.get_mut(handle) else { return Ok(()) };
        if matches!(rpc.state, RpcState::ServerIncoming | RpcState::ClientOutgoing) {
            // The sender is alive: what is missing is our memory.
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
            // An RPC that ended leaves the queue when it is found.
            |handle| self.rpcs.get(handle).is_none_or(|rpc| !self.has_its_share(rpc.peer));
        let (found, cursor) = self.grants.memory_queue.search(room, may_begin);
        if found.is_none() {
            self.grants.memory_queue.set_cursor(cursor);
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
            // Nothing of it was kept, so not even its length is known.
            let body = Body::Resend { offset: 0, length: ResendLength::All, priority };
            self.control.push(rpc.control(level, body));
            self.counters.resends_sent += 1;
        }
    }
}
