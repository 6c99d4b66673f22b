//! Checks of submissions and events: names are valid, endings are justified, and requests run as
//! often as promised.

use std::collections::BTreeSet;

use homa_proto::{
    Delivered, Event, MessageId, MessageKind, Request, RpcError, RpcHandle, Submit, SubmitError,
    Submitted,
};

use crate::time::{SimDuration, SimTime};
use crate::topology::HostId;

use super::Checker;
use super::record::{CallEnding, CallRecord, MessageRecord, OutgoingRecord, RpcRecord, handle_key};

/// Longer than a packet is in flight if no fault delays it: on either link a few packets of 9,000
/// bytes may be ahead of it at 100 Mbit/s.
const NEWBORN: SimDuration = SimDuration::millis(5);

/// Time and host.
type At = (SimTime, HostId);

impl Checker {
    pub(super) fn on_submit(
        &mut self,
        at: At,
        what: &Submit,
        result: &Result<Submitted, SubmitError>,
    ) {
        match (what, result) {
            (_, Err(error)) => self.on_refusal(at, what, error),
            (Submit::Request(request), Ok(submitted)) => self.on_request(at, request, submitted),
            (Submit::Response { rpc, length }, Ok(submitted)) => {
                self.on_response(at, (*rpc, *length), submitted);
            }
            (Submit::Cancel { rpc } | Submit::Refuse { rpc, .. }, Ok(_)) => {
                self.on_cancel(at, *rpc)
            }
            (Submit::OneWay { .. }, Ok(_)) => {}
        }
    }

    fn on_request(&mut self, at: At, request: &Request, submitted: &Submitted) {
        // A server that is down, or came up within the time that a packet may take to reach it,
        // cannot tell later whether it ran this call.
        let server = self.hosts.get(request.peer.0 as usize);
        let server_forgot = server.is_some_and(|host| host.down || at.0 < host.up + NEWBORN);
        let call = CallRecord {
            client: at.1,
            server: HostId(request.peer.0),
            request_bytes: request.length,
            response_bytes: None,
            idempotent: request.idempotent,
            deadline: request.deadline,
            submitted: at.0,
            ended: SimTime::ZERO,
            ending: CallEnding::Open,
            executions: 0,
            executed: BTreeSet::new(),
            server_forgot,
            last_heard: at.0,
        };
        let cookie = request.cookie;
        self.exchanged.joined(at.1, HostId(request.peer.0));
        self.calls.insert(cookie, call);
        self.open_rpc(at, submitted.rpc, RpcRecord::Client { cookie });
        let message = OutgoingRecord {
            rpc: submitted.rpc,
            cookie,
            length: request.length,
            to: request.peer,
            id: None,
            allowed: 0,
            unknown: false,
        };
        self.open_outgoing(at, submitted.message, message);
        let (clients, max) = (self.host(at.1).counts().0, self.promises.max_rpcs as usize);
        self.require(clients <= max, at, "RPCs stay in their limit", || format!("{clients}"));
    }

    fn on_response(&mut self, at: At, (rpc, length): (RpcHandle, u32), submitted: &Submitted) {
        let (peer, id) = match self.host(at.1).rpcs.get_mut(&handle_key(rpc)) {
            Some(RpcRecord::Server { peer, id, executing: true, answered }) if !*answered => {
                *answered = true;
                (*peer, *id)
            }
            other => {
                let detail = format!("{rpc:?} is {other:?}");
                return self.violation(at.0, Some(at.1), "only open requests are answered", detail);
            }
        };
        let cookie = self.call_of(peer, id).unwrap_or(u64::MAX);
        if let Some(call) = self.calls.get_mut(&cookie) {
            call.response_bytes = Some(length);
        }
        let id = Some(id.server());
        let message =
            OutgoingRecord { rpc, cookie, length, to: peer, id, allowed: 0, unknown: false };
        self.open_outgoing(at, submitted.message, message);
    }

    fn on_cancel(&mut self, at: At, handle: RpcHandle) {
        match self.host(at.1).rpcs.remove(&handle_key(handle)) {
            Some(RpcRecord::Client { cookie }) => self.end_call(at, cookie, CallEnding::Cancelled),
            Some(RpcRecord::Server { peer, id, .. }) => self.server_forgets(peer, id),
            None => {
                let detail = format!("{handle:?}");
                self.violation(at.0, Some(at.1), "only open RPCs are cancelled", detail);
            }
        }
    }

    fn on_refusal(&mut self, at: At, what: &Submit, error: &SubmitError) {
        let (max_message, max_rpcs) = (self.promises.max_message, self.promises.max_rpcs as usize);
        let hosts = self.hosts.len();
        let record = self.host(at.1);
        // A hostile client may announce a small maximum message size.
        let is_foreign = |rpc: &RpcHandle| match record.rpcs.get(&handle_key(*rpc)) {
            Some(RpcRecord::Server { peer, .. }) => peer.0 as usize >= hosts,
            _ => false,
        };
        let justified = match (error, what) {
            (SubmitError::EmptyMessage, Submit::Request(request)) => request.length == 0,
            (SubmitError::EmptyMessage, Submit::Response { length, .. }) => *length == 0,
            (SubmitError::MessageTooLong { .. }, Submit::Request(request)) => {
                request.length > max_message
            }
            (SubmitError::MessageTooLong { .. }, Submit::Response { rpc, length }) => {
                *length > max_message || is_foreign(rpc)
            }
            (SubmitError::TooManyRpcs { .. }, Submit::Request(_)) => record.counts().0 >= max_rpcs,
            (SubmitError::UnknownRpc, Submit::Response { rpc, .. }) => !matches!(
                record.rpcs.get(&handle_key(*rpc)),
                Some(RpcRecord::Server { answered: false, .. })
            ),
            (SubmitError::UnknownRpc, Submit::Cancel { rpc }) => {
                !record.rpcs.contains_key(&handle_key(*rpc))
            }
            _ => false,
        };
        self.require(justified, at, "refusals are justified", || format!("{error:?} for {what:?}"));
    }

    fn open_rpc(&mut self, at: At, handle: RpcHandle, rpc: RpcRecord) {
        let record = self.host(at.1);
        let fresh = record.used.insert(handle_key(handle));
        record.rpcs.insert(handle_key(handle), rpc);
        self.require(fresh, at, "RPC handles are never used twice", || format!("{handle:?}"));
    }

    fn open_outgoing(&mut self, at: At, id: Option<MessageId>, message: OutgoingRecord) {
        let Some(id) = id else {
            let detail = format!("{message:?}");
            return self.violation(at.0, Some(at.1), "messages are named", detail);
        };
        let old = self.host(at.1).messages.insert(id, MessageRecord::Outgoing(message));
        self.require(old.is_none(), at, "message names are reused only when free", || {
            format!("{id:?} still names {old:?}")
        });
    }

    pub(super) fn on_event(&mut self, at: At, event: &Event) {
        match event {
            Event::Started { rpc, message, total } => self.on_started(at, *rpc, *message, *total),
            Event::Readable { message, offset, .. } => {
                let here = match self.host(at.1).messages.get(message) {
                    Some(MessageRecord::Incoming(message)) => message.here.contains(0, *offset),
                    _ => false,
                };
                self.require(here, at, "readable bytes are here", || format!("{event:?}"));
            }
            Event::Delivered(delivered) => self.on_delivered(at, delivered),
            Event::Failed { rpc, cookie, error } => self.on_failed(at, *rpc, (*cookie, *error)),
            Event::Cancelled { rpc } => match self.host(at.1).rpcs.remove(&handle_key(*rpc)) {
                Some(RpcRecord::Server { peer, id, .. }) => self.server_forgets(peer, id),
                other => {
                    let detail = format!("{rpc:?} is {other:?}");
                    self.violation(at.0, Some(at.1), "only server RPCs are cancelled", detail);
                }
            },
            Event::Release { message } => self.on_release(at, *message),
        }
    }

    fn on_started(&mut self, at: At, rpc: RpcHandle, id: MessageId, total: u32) {
        let record = self.host(at.1);
        let (from, wire, sane) = match record.messages.get_mut(&id) {
            Some(MessageRecord::Incoming(message)) => {
                let sane = message.rpc.is_none() && message.total == total;
                message.rpc = Some(rpc);
                (message.from, message.id, sane)
            }
            other => {
                let detail = format!("{id:?} is {other:?}");
                return self.violation(at.0, Some(at.1), "started messages have bytes", detail);
            }
        };
        self.require(sane, at, "a message starts once", || format!("{id:?} of {rpc:?}"));
        let known = self.host(at.1).rpcs.contains_key(&handle_key(rpc));
        self.require(known == wire.from_server(), at, "requests open RPCs", || {
            format!("{rpc:?} {wire:?} known: {known}")
        });
        if !known {
            let server =
                RpcRecord::Server { peer: from, id: wire, executing: false, answered: false };
            self.open_rpc(at, rpc, server);
        }
        let (servers, max) = (self.host(at.1).counts().1, self.promises.max_rpcs as usize);
        self.require(servers <= max, at, "RPCs stay in their limit", || format!("{servers}"));
    }

    fn on_delivered(&mut self, at: At, delivered: &Delivered) {
        // A message that came in one packet is not announced by `Started`.
        if let Some(MessageRecord::Incoming(message)) =
            self.host(at.1).messages.get(&delivered.message)
            && (message.rpc, message.packets) == (None, 1)
        {
            let total = message.total;
            self.on_started(at, delivered.rpc, delivered.message, total);
        }
        let Some(message) = self.give_up_incoming(at.1, delivered.message) else {
            let detail = format!("{delivered:?}");
            return self.violation(at.0, Some(at.1), "delivered messages are incoming", detail);
        };
        let whole = message.here.contains(0, message.total) && delivered.length == message.total;
        self.require(whole, at, "a delivered message is whole", || {
            format!("{delivered:?} from {message:?}")
        });
        let named = message.rpc == Some(delivered.rpc)
            && (message.from, message.id.client()) == (delivered.peer, delivered.id)
            && message.id.from_server() == (delivered.kind == MessageKind::Response);
        self.require(named, at, "a delivered message is its RPC's", || {
            format!("{delivered:?} from {message:?}")
        });
        match delivered.kind {
            MessageKind::Request => self.on_execution(at, delivered),
            MessageKind::Response => self.on_answer(at, delivered),
            MessageKind::OneWay => {}
        }
    }

    fn on_execution(&mut self, at: At, delivered: &Delivered) {
        let fresh = match self.host(at.1).rpcs.get_mut(&handle_key(delivered.rpc)) {
            Some(RpcRecord::Server { executing, .. }) => !std::mem::replace(executing, true),
            _ => false,
        };
        self.require(fresh, at, "a request is delivered once", || format!("{delivered:?}"));
        // A hostile host that answers challenges for its real address is a client like any other.
        if self.promises.foreign_addresses > 0 && delivered.peer.0 as usize == self.hosts.len() {
            return;
        }
        let Some(cookie) = self.call_of(delivered.peer, delivered.id) else {
            let detail = format!("{delivered:?}");
            return self.violation(at.0, Some(at.1), "every request belongs to a call", detail);
        };
        let may_repeat = self.promises.may_repeat;
        let Some(call) = self.calls.get_mut(&cookie) else { return };
        call.executions += 1;
        let again = !call.executed.insert(delivered.id) || !call.idempotent && call.executions > 1;
        let call = call.clone();
        let asked = call.server == at.1 && call.request_bytes == delivered.length;
        self.require(asked, at, "the request matches its call", || {
            format!("{delivered:?} for {call:?}")
        });
        self.require(may_repeat || !again, at, "a request runs at most once", || {
            format!("call {cookie}: {call:?}")
        });
    }

    fn on_answer(&mut self, at: At, delivered: &Delivered) {
        let cookie = match self.host(at.1).rpcs.remove(&handle_key(delivered.rpc)) {
            Some(RpcRecord::Client { cookie }) => cookie,
            other => {
                let detail = format!("{delivered:?} for {other:?}");
                return self.violation(at.0, Some(at.1), "responses belong to open calls", detail);
            }
        };
        let Some(call) = self.calls.get(&cookie).cloned() else { return };
        let right = cookie == delivered.cookie
            && call.executions > 0
            && call.response_bytes == Some(delivered.length)
            && call.server == HostId(delivered.peer.0);
        self.require(right, at, "the response matches its answer", || {
            format!("{delivered:?} for call {cookie}: {call:?}")
        });
        self.end_call(at, cookie, CallEnding::Answered);
    }

    fn on_failed(&mut self, at: At, rpc: RpcHandle, (cookie, error): (u64, RpcError)) {
        let named = match self.host(at.1).rpcs.remove(&handle_key(rpc)) {
            Some(RpcRecord::Client { cookie: own }) => own == cookie,
            _ => false,
        };
        self.require(named, at, "only open calls fail", || format!("{rpc:?} cookie {cookie}"));
        self.end_call(at, cookie, CallEnding::Failed(error));
        let Some(call) = self.calls.get(&cookie).cloned() else { return };
        let max_message = self.promises.max_message;
        let justified = match error {
            RpcError::DeadlineExceeded => {
                let excused = SimTime::from_protocol(call.deadline) < self.promises.healthy_from
                    || call.server_forgot
                    || self.hosts[call.server.0 as usize].down;
                excused && at.0.protocol() >= call.deadline
            }
            RpcError::PeerUnreachable => {
                let silence = self.promises.silence(call.client, call.last_heard, at.0);
                let enough = |least| silence >= SimDuration::from_protocol(least);
                self.promises.unreachable_after.is_some_and(enough)
            }
            RpcError::Indeterminate => {
                let lost = call.server_forgot || self.promises.moved(&call, at.0);
                self.promises.indeterminate && !call.idempotent && lost
            }
            RpcError::RequestTooLong { max } => call.request_bytes > max.max(max_message),
            RpcError::ResponseTooLong { length, .. } => length > max_message,
            _ => false,
        };
        self.require(justified, at, "failures are justified", || {
            format!("{error:?} of call {cookie}: {call:?}")
        });
    }

    fn on_release(&mut self, at: At, id: MessageId) {
        let record = self.host(at.1);
        match record.messages.get(&id) {
            Some(MessageRecord::Outgoing(message)) => {
                let rpc = message.rpc;
                record.messages.remove(&id);
                // A server's RPC ends when its response is released.
                if let Some(RpcRecord::Server { peer, id, answered: true, .. }) =
                    record.rpcs.get(&handle_key(rpc))
                {
                    let (peer, id) = (*peer, *id);
                    record.rpcs.remove(&handle_key(rpc));
                    self.server_forgets(peer, id);
                }
            }
            Some(MessageRecord::Incoming(message)) => {
                let rpc = message.rpc;
                // If a request never became complete, the server's application never saw its RPC.
                if let Some(handle) = rpc.map(handle_key)
                    && matches!(
                        record.rpcs.get(&handle),
                        Some(RpcRecord::Server { executing: false, .. })
                    )
                {
                    record.rpcs.remove(&handle);
                }
                self.give_up_incoming(at.1, id);
            }
            None => {
                let detail = format!("{id:?}");
                self.violation(at.0, Some(at.1), "a message is released once", detail);
            }
        }
    }

    /// The server dropped its state of an RPC, whether it was right to do so or not.
    fn server_forgets(&mut self, peer: homa_proto::PeerId, id: homa_proto::RpcId) {
        let cookie = self.call_of(peer, id);
        if let Some(call) = cookie.and_then(|cookie| self.calls.get_mut(&cookie)) {
            call.server_forgot = true;
        }
    }
}
