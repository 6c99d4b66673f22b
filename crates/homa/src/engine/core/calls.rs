//! What the application does with RPCs: call, answer, cancel, and read messages that arrive.

use std::net::SocketAddr;

use homa_proto::{RefusalReason, Request, RpcHandle, RpcId, Submit, Time};

use super::limits::Refusal;
use super::{Core, Partial, QueuedRequest, RequestContext, canonical, is_one_server};
use crate::call_options::CallOptions;
use crate::engine::{clock, probes};
use crate::error::{CallError, OpenError, ReplyError};
use crate::message::Message;
use crate::metrics::{Direction, RpcOutcome};
use crate::payload::Payload;

impl Core {
    /// Accepts requests at a local port.
    ///
    /// # Errors
    /// As [`Self::may_serve`].
    pub fn listen(&mut self, port: u16) -> Result<(), OpenError> {
        // Every address with this port must be allowed, because the protocol listens by port.
        let mut at = self.driver.local().iter().filter(|at| at.port() == port);
        at.try_for_each(|&at| self.may_serve(at))?;
        self.served = true;
        self.state.endpoint.listen(port);
        Ok(())
    }

    /// Refuses new requests at a local port.
    pub fn unlisten(&mut self, port: u16) {
        self.state.endpoint.unlisten(port);
    }

    /// Starts a call from the driver's socket number `socket`. The response carries `cookie`.
    pub fn call(
        &mut self,
        socket: usize,
        to: SocketAddr,
        request: Payload,
        options: &CallOptions,
        cookie: u64,
    ) -> Result<RpcHandle, CallError> {
        // A child of `fork` shares the sockets with its parent, whose ids and numbers it would
        // repeat.
        if !self.is_here() {
            return Err(CallError::Forked);
        }
        if let Some(end) = self.ended {
            return Err(end.error());
        }
        let now = self.tick();
        let mut request = Some(request);
        let result = self.try_call(now, socket, to, &mut request, options, cookie);
        if result.is_err() {
            self.state.counters.calls_refused += 1;
        }
        request.into_iter().for_each(|request| self.state.messages.discard(request));
        result
    }

    /// As [`Self::call`]; leaves the request in place if it is refused.
    fn try_call(
        &mut self,
        now: Time,
        socket: usize,
        to: SocketAddr,
        request: &mut Option<Payload>,
        options: &CallOptions,
        cookie: u64,
    ) -> Result<RpcHandle, CallError> {
        let local = self.driver.local()[socket];
        let to = canonical(to);
        self.may_call(socket, local, to)?;
        let bytes = request.as_ref().map_or(0, Payload::len);
        let length = self.length_on_wire(bytes);
        self.fits(length).map_err(|refusal| match refusal {
            Refusal::Ever { max } => CallError::MessageTooLong { length: bytes, max },
            Refusal::Now { held } => CallError::SendMemoryFull { held },
        })?;
        let state = &mut self.state;
        let max_peers = state.config.max_peers;
        let peer = state.server(now, to);
        let peer = peer.ok_or(CallError::TooManyPeers { max: max_peers })?;
        let until = now + clock::proto(options.deadline);
        let mut context = RequestContext::new(until, options.trace.map(Box::new));
        let may_run_twice = options.idempotent || options.may_run_twice;
        context.idempotent = may_run_twice && self.marks_idempotent;
        let submit = Submit::Request(Request {
            peer,
            local_port: local.port(),
            remote_port: to.port(),
            length,
            deadline: until,
            idempotent: options.idempotent,
            head: self.packer.head(&context),
            cookie,
        });
        let submitted = state
            .endpoint
            .submit(now, submit)
            .map_err(|error| CallError::refused(error, bytes, max_peers))?;
        if let Some(message) = submitted.message
            && let Some(request) = request.take()
        {
            // The protocol queued all of it; it may send only what exists.
            if request.is_to_be_written() {
                let _ = state.endpoint.written(now, submitted.rpc, 0);
            }
            state.messages.insert(message, request, state.peers.account(peer), context);
        }
        state.submitted(now, peer, length);
        probes::call_submitted(peer.0, length);
        let (rpc, endpoint) = (submitted.rpc, &state.endpoint);
        state.latencies.begin(now, rpc, peer, Direction::Client, length, || endpoint.id_of(rpc));
        state.drain_events();
        Ok(submitted.rpc)
    }

    /// Whether a server can be called from a socket, and is not called too often already.
    fn may_call(&self, socket: usize, local: SocketAddr, to: SocketAddr) -> Result<(), CallError> {
        // An IPv4 socket cannot send to IPv6, which the system would report only later.
        if !self.driver.reaches(socket, to.ip()) {
            return Err(CallError::AddressFamily { to, local });
        }
        if !is_one_server(to) {
            return Err(CallError::Destination { to });
        }
        self.reach.call(to)?;
        // The answer would reach another engine of the group, which knows no such call.
        if !self.driver.hears(socket, to) {
            return Err(CallError::OtherShard { to });
        }
        match self.state.config.max_calls_per_server {
            Some(max) if self.calls_left_to(to) == 0 => {
                Err(CallError::TooManyCallsTo { server: to, max: max.max(1) })
            }
            _ => Ok(()),
        }
    }

    /// Bytes of a message as the protocol sees it. One without bytes has one of padding, unless the
    /// profile cannot say so: then the protocol refuses it.
    fn length_on_wire(&self, bytes: usize) -> u32 {
        let padding = self.state.config.protocol.carries_empty_messages();
        u32::try_from(bytes.max(usize::from(padding))).unwrap_or(u32::MAX)
    }

    /// Answers a request. After any error but [`ReplyError::Gone`], the request still waits for an
    /// answer, and the response is returned.
    pub fn reply(
        &mut self,
        rpc: RpcHandle,
        response: Payload,
    ) -> Result<(), (ReplyError, Payload)> {
        if !self.is_here() {
            return Err((ReplyError::Forked, response));
        }
        let now = self.tick();
        let length = self.length_on_wire(response.len());
        // Checked before memory, because it is no use to wait for memory if the client is gone.
        let Some(peer) = self.state.endpoint.peer_of(rpc) else {
            return Err((ReplyError::Gone, response));
        };
        let account = self.state.peers.account(peer);
        match self.fits(length).and_then(|()| self.has_share(length, account)) {
            Ok(()) => {}
            Err(Refusal::Ever { max }) => {
                let length = response.len();
                // If the application gives up now, its client learns why (`abandon`).
                self.state.too_long.insert(rpc, (length, max));
                return Err((ReplyError::MessageTooLong { length, max }, response));
            }
            Err(Refusal::Now { held }) => {
                return Err((ReplyError::SendMemoryFull { held }, response));
            }
        }
        let submitted = match self.state.endpoint.submit(now, Submit::Response { rpc, length }) {
            Ok(submitted) => submitted,
            Err(error) => {
                let error = ReplyError::refused(error, response.len());
                if let ReplyError::MessageTooLong { length, max } = error {
                    self.state.too_long.insert(rpc, (length, max));
                }
                return Err((error, response));
            }
        };
        // Nearly always empty, and then no hash is needed.
        if !self.state.too_long.is_empty() {
            self.state.too_long.remove(&rpc);
        }
        let is_whole = !response.is_to_be_written() || response.is_empty();
        match submitted.message {
            Some(message) => {
                if response.is_to_be_written() {
                    let _ = self.state.endpoint.written(now, rpc, 0);
                }
                self.state.messages.insert(message, response, account, RequestContext::NONE);
            }
            None => self.state.messages.discard(response),
        }
        self.state.submitted(now, peer, length);
        // A response that is written while it is sent ends with its last byte (`written`).
        if is_whole {
            self.state.ended(rpc, RpcOutcome::Ok, length);
        }
        self.state.drain_events();
        Ok(())
    }

    /// Appends to the request of a call, or to the response to a request, that is written while it
    /// is sent; false if the RPC has ended.
    pub fn write(&mut self, rpc: RpcHandle, more: &[u8]) -> bool {
        let Some(message) = self.state.endpoint.sends(rpc).filter(|_| self.is_here()) else {
            return false;
        };
        let now = self.tick();
        let written = self.state.messages.write(message, more);
        self.state.endpoint.written(now, rpc, written as u32).is_ok()
    }

    /// The last of a response's `length` bytes was written.
    pub fn written(&mut self, rpc: RpcHandle, length: usize) {
        let length = self.length_on_wire(length);
        self.state.ended(rpc, RpcOutcome::Ok, length);
    }

    /// Cancels a call. False if it had ended.
    pub fn cancel(&mut self, rpc: RpcHandle) -> bool {
        self.give_up(Submit::Cancel { rpc }, rpc)
    }

    /// Drops a request without an answer; its client is told why. False if it had ended.
    pub fn abandon(&mut self, rpc: RpcHandle) -> bool {
        let reason = match self.state.too_long.remove(&rpc) {
            Some((length, max)) => {
                let length = u32::try_from(length).unwrap_or(u32::MAX);
                RefusalReason::ResponseTooLong { length, max }
            }
            None => RefusalReason::Abandoned,
        };
        self.give_up(Submit::Refuse { rpc, reason }, rpc)
    }

    /// A request will be answered after about this time; its client is told if it asks.
    pub fn announce_delay(&mut self, rpc: RpcHandle, delay: std::time::Duration) {
        let now = self.tick();
        self.state.endpoint.announce_delay(now, rpc, clock::proto(delay));
    }

    fn give_up(&mut self, how: Submit, rpc: RpcHandle) -> bool {
        let now = self.tick();
        let overloaded = matches!(how, Submit::Refuse { reason: RefusalReason::Overloaded, .. });
        let result = self.state.endpoint.submit(now, how);
        if result.is_ok() {
            let outcome = match overloaded {
                true => RpcOutcome::Overloaded,
                false => self.state.latencies.given_up(rpc),
            };
            self.state.ended(rpc, outcome, 0);
        }
        self.state.drain_events();
        result.is_ok()
    }

    /// Refuses a request that the application did not take, because it could not be answered in
    /// time.
    pub fn shed(&mut self, rpc: RpcHandle, request: QueuedRequest) {
        // Its memory counted for its host until now.
        self.accept_request(request);
        self.state.counters.requests_shed += 1;
        self.give_up(Submit::Refuse { rpc, reason: RefusalReason::Overloaded }, rpc);
    }

    /// Refuses a request that the application did not take, because its server ends.
    pub fn turn_away(&mut self, rpc: RpcHandle, request: QueuedRequest) {
        self.accept_request(request);
        let now = self.tick();
        if self.state.endpoint.turn_away(now, rpc).is_ok() {
            self.state.ended(rpc, RpcOutcome::Dropped, 0);
        }
        self.state.drain_events();
    }

    /// The application took a request.
    #[inline]
    pub fn note_taken(&mut self, rpc: RpcHandle) {
        // The clock is read only for the few RPCs that are followed.
        let (clock, now) = (&self.clock, self.now);
        self.state.latencies.stages.taken(rpc, || clock.now().max(now));
    }

    /// The present time.
    pub fn time(&self) -> Time {
        self.clock.now().max(self.now)
    }

    /// True if the deadline of a request has passed.
    pub fn is_late(&self, context: &RequestContext) -> bool {
        context.until != Time::MAX && context.until <= self.clock.now()
    }

    /// Drops a request that was delivered but not accepted before its deadline.
    pub fn expire(&mut self, rpc: RpcHandle, request: QueuedRequest) {
        self.tick();
        self.accept_request(request);
        self.state.expire(rpc);
        self.state.drain_events();
    }

    /// The readable prefix of a message that is arriving; `None` after it was delivered or given
    /// up.
    pub fn read(&self, partial: &Partial) -> Option<&[u8]> {
        self.state.messages.prefix(partial.message, partial.rpc)
    }

    /// Lends the readable prefix of a message that is arriving.
    pub fn lend(&mut self, partial: &Partial) -> Option<Vec<u8>> {
        self.state.messages.lend(partial.message, partial.rpc)
    }

    /// Takes a lent prefix back. Returns it if the message has been delivered or given up since.
    pub fn give_back(&mut self, partial: &Partial, lent: Vec<u8>) -> Option<Vec<u8>> {
        self.state.messages.give_back(partial.message, partial.rpc, lent)
    }

    /// The application accepted a response of this many bytes.
    pub fn accepted(&mut self, bytes: usize) {
        self.state.waiting -= bytes as u64;
        self.state.limit_memory(self.now);
    }

    /// The application accepts a request.
    pub fn accept_request(&mut self, request: QueuedRequest) -> Message {
        self.state.accept(request)
    }

    /// Sends the acknowledgements of completed calls at once.
    pub fn flush_acks(&mut self) {
        self.state.endpoint.flush_acks();
    }

    /// Requests in progress at a local port.
    pub fn requests_at(&self, port: u16) -> usize {
        self.state.endpoint.requests_at(port)
    }

    /// The id of an RPC in progress, as its client writes it.
    pub fn id_of(&self, rpc: RpcHandle) -> Option<RpcId> {
        self.state.endpoint.id_of(rpc)
    }

    /// RPCs in progress as client and as server.
    pub fn rpcs(&self) -> (usize, usize) {
        self.state.endpoint.rpcs()
    }
}
