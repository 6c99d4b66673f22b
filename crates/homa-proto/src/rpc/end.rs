//! How an RPC ends: cancelled, failed, acknowledged or given up.

use super::state::{EndedRpc, RpcState, incoming_message, outgoing_message};
use crate::config::Completion;
use crate::endpoint::Endpoint;
use crate::event::{Event, RpcError, RpcHandle, SubmitError, Submitted};
use crate::packet::Acks;

impl Endpoint {
    /// Removes an RPC and releases its messages; the caller says what the application is told.
    pub(crate) fn forget(&mut self, handle: RpcHandle) -> Option<EndedRpc> {
        let rpc = self.rpcs.get_mut(handle)?;
        let ended = rpc.ended();
        self.send_queue.forget(&mut rpc.out);
        let (pending, unvalidated) = (rpc.pending_unscheduled(), rpc.is_unvalidated());
        let (sends, inc) = (rpc.out.exists(), rpc.inc.take());
        self.grants.end_rpc(handle, pending);
        if unvalidated {
            self.validation.release(inc.as_ref().map_or(0, |inc| inc.grant.reserved()));
        }
        self.rpcs.remove(handle, &ended);
        self.send_queue.sweep(&self.rpcs);
        if let Some(peer) = self.peer_mut(ended.peer) {
            peer.end_rpc(ended.state.is_client());
        }
        // A request that was never validated did not count for its host.
        if !ended.state.is_client() && !unvalidated {
            self.charge_request(ended.peer, false);
        }
        if sends {
            self.events.push_back(Event::Release { message: outgoing_message(handle) });
        }
        if let Some(inc) = inc {
            self.events.push_back(Event::Release { message: incoming_message(handle) });
            self.end_incoming(handle, (ended.peer, unvalidated), inc);
            // Homa §3.5: another message takes its place among the active ones.
            self.grant(None);
        }
        Some(ended)
    }

    /// Cancels an RPC for the application; the peer is told if the profile allows.
    pub(crate) fn cancel(&mut self, handle: RpcHandle) -> Result<Submitted, SubmitError> {
        let ended = self.forget(handle).ok_or(SubmitError::UnknownRpc)?;
        self.counters.cancels += 1;
        match ended.state {
            RpcState::ClientOutgoing | RpcState::ClientIncoming => self.tell_cancelled(&ended),
            RpcState::ServerIncoming | RpcState::ServerInService | RpcState::ServerOutgoing => {
                self.tell_given_up(&ended, None);
            }
            // The response may yet arrive whole.
            RpcState::ServerSent | RpcState::OneWayOutgoing | RpcState::OneWayIncoming => {}
        }
        Ok(Submitted { rpc: handle, message: None })
    }

    /// Ends an RPC of ours with an error.
    pub(crate) fn fail(&mut self, handle: RpcHandle, error: RpcError) {
        let Some(ended) = self.forget(handle) else { return };
        // One-way messages have no events at their sender.
        if ended.state == RpcState::OneWayOutgoing {
            return;
        }
        self.counters.failures += 1;
        self.events.push_back(Event::Failed { rpc: handle, cookie: ended.cookie, error });
        self.tell_cancelled(&ended);
    }

    /// Tells a server that a call was cancelled or failed: an ACK that names the RPC. The kernel
    /// module frees the RPC in any state (Linux §2.5); its own clients send no such ACK and leave
    /// the RPC to its timers. The paper's profile has no ACKs.
    fn tell_cancelled(&mut self, ended: &EndedRpc) {
        if self.config.completion != Completion::AtLeastOnce {
            self.queue_ack(ended.peer, ended.ports, ended.id, Acks::default());
        }
    }

    /// The response of an RPC arrived whole.
    pub(crate) fn complete_client(&mut self, handle: RpcHandle) {
        self.counters.responses_delivered += 1;
        if let Some(ended) = self.forget(handle) {
            self.acknowledge(&ended);
        }
    }

    /// A server's RPC is over. The application is told if it has the request and has not answered.
    pub(crate) fn end_server_rpc(&mut self, handle: RpcHandle) {
        let with_application = self.rpcs.get(handle).is_some_and(|rpc| rpc.is_with_application());
        if self.forget(handle).is_some() && with_application {
            self.events.push_back(Event::Cancelled { rpc: handle });
        }
    }
}
