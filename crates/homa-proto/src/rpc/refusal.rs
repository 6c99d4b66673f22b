//! A server's application refuses a request and says why (UDP only; profile `default`): its client
//! fails at once with that reason, and the library does not call again.
//!
//! Invariant: a refused request counts as executed, so that a late copy of it is not executed, and
//! every RESEND of it gets the same answer, as long as its peer's last refusals are remembered.
//!
//! Left out: a port without a server, which is `loss/unknown`.

use super::state::{EndedRpc, Rpc, RpcState};
use crate::completion::replay_window::RefusalRecord;
use crate::endpoint::Endpoint;
use crate::event::{RpcError, RpcHandle, SubmitError, Submitted};
use crate::packet::{Body, RefusalReason};
use crate::units::{Duration, Time};

impl RefusalReason {
    /// The answer to a request that was refused. The time that is remembered tells clients that do
    /// not know reasons whether it was executed.
    pub(crate) const fn answer(self) -> Body {
        let remembered = if self.is_before_execution() { Duration::MAX } else { Duration::ZERO };
        Body::RpcUnknown { remembered: Some(remembered), no_server: false, reason: Some(self) }
    }

    /// What the refused call failed with.
    const fn error(self) -> RpcError {
        match self {
            Self::Overloaded => RpcError::Overloaded,
            Self::Abandoned => RpcError::Abandoned,
            Self::ResponseTooLong { length, max } => RpcError::ResponseTooLong { length, max },
            Self::DeadlinePassed => RpcError::DeadlineExceeded,
        }
    }
}

impl Endpoint {
    /// Application in, at the server: refuses a request.
    pub(crate) fn refuse_request(
        &mut self,
        handle: RpcHandle,
        reason: RefusalReason,
    ) -> Result<Submitted, SubmitError> {
        let serves =
            |state: RpcState| matches!(state, RpcState::ServerIncoming | RpcState::ServerInService);
        // A response that its application does not finish.
        let unfinished = |rpc: &Rpc| !rpc.state.is_client() && rpc.out.is_being_written();
        if !self.rpcs.get(handle).is_some_and(|rpc| serves(rpc.state) || unfinished(rpc)) {
            return Err(SubmitError::UnknownRpc);
        }
        let ended = self.forget(handle).ok_or(SubmitError::UnknownRpc)?;
        self.counters.cancels += 1;
        self.tell_given_up(&ended, Some(reason));
        Ok(Submitted { rpc: handle, message: None })
    }

    /// Application in, at the server: refuses a request that was not begun, because its server
    /// ends. To its client, no server listens at the port. In other profiles it is a
    /// [`Submit::Cancel`](crate::Submit::Cancel).
    pub fn turn_away(&mut self, now: Time, handle: RpcHandle) -> Result<Submitted, SubmitError> {
        self.begin(now);
        let begun = self.rpcs.get(handle).is_some_and(|rpc| rpc.is_begun_early());
        let tells = self.config.policy().completion.tells_given_up && self.suppresses_duplicates();
        if begun || !tells {
            return self.cancel(handle);
        }
        let ended = self.forget(handle).ok_or(SubmitError::UnknownRpc)?;
        self.counters.cancels += 1;
        if !ended.executes_unvalidated {
            self.remember_executed(now, ended.peer, ended.id);
        }
        if let Some(peer) = self.peer_mut(ended.peer) {
            peer.cold.executed.refuse(ended.id, RefusalRecord::NoServer);
        }
        if self.may_answer() {
            self.counters.unknowns_sent += 1;
            let remembered = Some(Duration::MAX);
            let body = Body::RpcUnknown { remembered, no_server: true, reason: None };
            self.queue_control_to(ended.peer, ended.ports, ended.id.server(), body);
        }
        Ok(Submitted { rpc: handle, message: None })
    }

    /// The application gave a request up: its client is told, so that it need not wait for its
    /// timer. The request counts as executed, because the application saw it. Not if the profile's
    /// clients would send it again; if the packet is lost, the client's RESEND asks for it.
    pub(super) fn tell_given_up(&mut self, ended: &EndedRpc, reason: Option<RefusalReason>) {
        if !self.config.policy().completion.tells_given_up {
            return;
        }
        if !ended.executes_unvalidated {
            self.remember_executed(self.now, ended.peer, ended.id);
        }
        if let Some(reason) = reason
            && let Some(peer) = self.peer_mut(ended.peer)
        {
            peer.cold.executed.refuse(ended.id, RefusalRecord::Reason(reason));
        }
        // The client's RESEND will get the same answer.
        if !self.may_answer() {
            return;
        }
        self.counters.unknowns_sent += 1;
        let unsaid =
            Body::RpcUnknown { remembered: Some(Duration::ZERO), no_server: false, reason: None };
        let body = reason.map_or(unsaid, RefusalReason::answer);
        self.queue_control_to(ended.peer, ended.ports, ended.id.server(), body);
    }

    /// At the client: the server refused an RPC. True if the RPC failed with the reason.
    pub(crate) fn fail_refused(&mut self, handle: RpcHandle, reason: RefusalReason) -> bool {
        let outgoing =
            self.rpcs.get(handle).is_some_and(|rpc| rpc.state == RpcState::ClientOutgoing);
        // If the response has begun, another execution was answered, so the server may not say that
        // there was none.
        if !outgoing && reason.is_before_execution() {
            return false;
        }
        self.fail(handle, reason.error());
        true
    }
}
