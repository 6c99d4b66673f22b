//! Messages that their application writes while they are sent (beyond the paper). Their length is
//! declared, so SRPT and grants are those of any message; bytes that are not written cannot leave.
//! A receiver that misses granted bytes asks for them and is answered BUSY. If the pause is longer
//! than some 10 ms, the receiver suspends the message until its bytes come, and counts the unused
//! grant against the sender's host, whose other scheduled messages then wait longer for grants.

use super::message::PacketSizes;
use crate::endpoint::Endpoint;
use crate::event::{RpcHandle, SubmitError};
use crate::packet::MessageId;
use crate::rpc::outgoing_message;
use crate::units::Time;

impl Endpoint {
    /// The message that an RPC in progress sends.
    pub fn sends(&self, rpc: RpcHandle) -> Option<MessageId> {
        self.rpcs.get(rpc).filter(|rpc| rpc.out.exists()).map(|_| outgoing_message(rpc))
    }

    /// Application in: of the message that an RPC sends, only the first `bytes` bytes exist so far.
    /// Call it right after the submission, with 0, and then with more, up to the submitted length.
    ///
    /// # Errors
    /// [`SubmitError::UnknownRpc`] if the RPC has ended.
    pub fn written(&mut self, now: Time, rpc: RpcHandle, bytes: u32) -> Result<(), SubmitError> {
        self.begin(now);
        let sending = self.rpcs.get_mut(rpc).filter(|rpc| rpc.out.exists());
        let sending = sending.ok_or(SubmitError::UnknownRpc)?;
        let peer = self.peers.get(sending.peer.0 as usize).and_then(Option::as_ref);
        let peer = peer.ok_or(SubmitError::UnknownPeer)?;
        let out = &mut sending.out;
        out.set_written(PacketSizes::again(&self.config, peer), bytes);
        // The submission has queued it.
        if !out.has_bytes_to_send() {
            self.send_queue.forget(out);
        }
        self.send_queue.wake(rpc, out);
        Ok(())
    }
}
