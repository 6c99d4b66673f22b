//! RPCs: the link between a response and its request, and how each RPC ends.

use homa_proto::{
    Event, MessageKind, PeerId, Request, RpcError, RpcHandle, RpcId, Submit, SubmitError,
    Submitted, Time,
};

use crate::topology::HostId;

use super::pair::MessageStatus;
use super::slab::Ref;
use super::{Exchange, Head, OutboundMessage, outgoing_id};

/// An RPC in progress, or a one-way message.
#[derive(Clone, Copy, Debug)]
pub(super) enum RpcEntry {
    /// This host called.
    Client {
        server: HostId,
        number: u32,
        cookie: u64,
        deadline: Time,
        /// While it is in flight.
        request: Option<Ref>,
        /// While it is in flight.
        response: Option<Ref>,
    },
    /// This host has to answer, or is sending its response.
    Server { client: HostId, id: RpcId, ports: (u16, u16), answered: bool },
    /// No answer is expected.
    OneWay { number: u32, cookie: u64 },
}

fn handle(rpc: Ref) -> RpcHandle {
    RpcHandle { index: rpc.index, generation: rpc.generation }
}

fn name(rpc: RpcHandle) -> Ref {
    Ref { index: rpc.index, generation: rpc.generation }
}

impl<S, R> Exchange<S, R> {
    /// Takes a submission; `start` creates the transport's state of a new message. Returns what the
    /// application gets, and the new message (`None` for a cancellation).
    pub fn submit(
        &mut self,
        now: Time,
        what: Submit,
        start: impl FnOnce(&Head, u32) -> S,
    ) -> Result<(Submitted, Option<Ref>), SubmitError> {
        let (rpc, message) = match what {
            Submit::Request(request) => self.call(now, &request, start)?,
            Submit::OneWay { peer, length, cookie } => {
                self.one_way(now, (HostId(peer.0), length, cookie), start)?
            }
            Submit::Response { rpc, length } => self.answer(now, (name(rpc), length), start)?,
            Submit::Cancel { rpc } | Submit::Refuse { rpc, .. } => {
                self.cancel(now, name(rpc))?;
                return Ok((Submitted { rpc, message: None }, None));
            }
        };
        let submitted = Submitted { rpc: handle(rpc), message: Some(outgoing_id(message)) };
        Ok((submitted, Some(message)))
    }

    fn call(
        &mut self,
        now: Time,
        request: &Request,
        start: impl FnOnce(&Head, u32) -> S,
    ) -> Result<(Ref, Ref), SubmitError> {
        let Request { peer: PeerId(server), local_port, remote_port, length, .. } = *request;
        let (cookie, deadline) = (request.cookie, request.deadline);
        check(length)?;
        let (server, number) = (HostId(server), self.by_number.next_number());
        let rpc = self.rpcs.insert_with(|_| RpcEntry::Client {
            server,
            number,
            cookie,
            deadline,
            request: None,
            response: None,
        });
        self.by_number.push(rpc);
        if deadline != Time::MAX {
            self.deadlines.insert((deadline, rpc));
        }
        let id = self.id(number);
        let message = self.send(now, (server, id, (local_port, remote_port)), (rpc, length), start);
        if let Some(RpcEntry::Client { request, .. }) = self.rpcs.get_mut(rpc) {
            *request = Some(message);
        }
        Ok((rpc, message))
    }

    fn one_way(
        &mut self,
        now: Time,
        (to, length, cookie): (HostId, u32, u64),
        start: impl FnOnce(&Head, u32) -> S,
    ) -> Result<(Ref, Ref), SubmitError> {
        check(length)?;
        let number = self.by_number.next_number();
        let rpc = self.rpcs.insert_with(|_| RpcEntry::OneWay { number, cookie });
        self.by_number.push(rpc);
        let id = self.id(number);
        Ok((rpc, self.send(now, (to, id, (0, 0)), (rpc, length), start)))
    }

    fn answer(
        &mut self,
        now: Time,
        (rpc, length): (Ref, u32),
        start: impl FnOnce(&Head, u32) -> S,
    ) -> Result<(Ref, Ref), SubmitError> {
        let Some(RpcEntry::Server { client, id, ports, answered }) = self.rpcs.get_mut(rpc) else {
            return Err(SubmitError::UnknownRpc);
        };
        if *answered {
            return Err(SubmitError::UnknownRpc);
        }
        check(length)?;
        *answered = true;
        let whom = (*client, id.server(), *ports);
        Ok((rpc, self.send(now, whom, (rpc, length), start)))
    }

    /// The client's id of its message with this number.
    fn id(&self, number: u32) -> RpcId {
        RpcId(u64::from(self.epoch) << 32 | u64::from(number << 1))
    }

    fn send(
        &mut self,
        now: Time,
        (to, id, (from_port, to_port)): (HostId, RpcId, (u16, u16)),
        (rpc, length): (Ref, u32),
        start: impl FnOnce(&Head, u32) -> S,
    ) -> Ref {
        let epoch = self.epoch;
        let pair = self.pair(to);
        let serial = pair.next_serial;
        pair.next_serial += 1;
        let head = Head { id, to, serial, from_port, to_port, epoch };
        let message = self.outgoing.insert_with(|_| OutboundMessage {
            head,
            length,
            since: now,
            rpc,
            state: start(&head, length),
        });
        self.pair(to).outgoing.set(serial, MessageStatus::Open(message));
        message
    }

    /// A request arrives, and a server RPC starts.
    pub(super) fn serve(&mut self, from: HostId, head: &Head) -> Option<(RpcHandle, u64)> {
        let ports = (head.to_port, head.from_port);
        let server = RpcEntry::Server { client: from, id: head.id, ports, answered: false };
        Some((handle(self.rpcs.insert_with(|_| server)), 0))
    }

    /// A response arrives: the call that waits for it, with its cookie.
    pub(super) fn awaited(&mut self, from: HostId, head: &Head) -> Option<(RpcHandle, u64)> {
        if (head.id.0 >> 32) as u16 != self.epoch {
            return None;
        }
        let rpc = *self.by_number.get_mut(head.id.0 as u32 >> 1)?;
        match self.rpcs.get(rpc)? {
            RpcEntry::Client { server, cookie, .. } if *server == from => {
                Some((handle(rpc), *cookie))
            }
            _ => None,
        }
    }

    pub(super) fn note_response(&mut self, rpc: RpcHandle, message: Ref) {
        if let Some(RpcEntry::Client { response, .. }) = self.rpcs.get_mut(name(rpc)) {
            *response = Some(message);
        }
    }

    /// A response is complete, which implies that the request is, too.
    pub(super) fn end_call(&mut self, rpc: RpcHandle) {
        if let Some((request, _)) = self.remove_client(name(rpc))
            && let Some(request) = request
        {
            self.release(request);
        }
    }

    /// Removes a call; returns its request and its response, if they are still in progress.
    fn remove_client(&mut self, rpc: Ref) -> Option<(Option<Ref>, Option<Ref>)> {
        let Some(&RpcEntry::Client { number, deadline, request, response, .. }) =
            self.rpcs.get(rpc)
        else {
            return None;
        };
        self.rpcs.remove(rpc);
        self.by_number.take(number);
        self.deadlines.remove(&(deadline, rpc));
        Some((request, response))
    }

    /// A message of this host is over.
    pub(super) fn after_release(&mut self, rpc: Ref, kind: MessageKind) {
        match (kind, self.rpcs.get_mut(rpc)) {
            (MessageKind::Request, Some(RpcEntry::Client { request, .. })) => *request = None,
            (MessageKind::Response, Some(_)) => {
                self.rpcs.remove(rpc);
            }
            (MessageKind::OneWay, Some(&mut RpcEntry::OneWay { number, .. })) => {
                self.by_number.take(number);
                self.rpcs.remove(rpc);
            }
            _ => {}
        }
    }

    fn cancel(&mut self, now: Time, rpc: Ref) -> Result<(), SubmitError> {
        match self.rpcs.get(rpc) {
            Some(RpcEntry::Client { .. }) => self.drop_call(now, rpc),
            Some(RpcEntry::Server { answered: false, .. }) => {
                self.rpcs.remove(rpc);
            }
            _ => return Err(SubmitError::UnknownRpc),
        }
        Ok(())
    }

    /// Ends a call without its response.
    fn drop_call(&mut self, now: Time, rpc: Ref) {
        let Some((request, response)) = self.remove_client(rpc) else { return };
        request.into_iter().for_each(|request| self.abandon(now, request));
        response.into_iter().for_each(|response| self.refuse(response));
    }

    pub(super) fn deadline_passed(&mut self, now: Time, rpc: Ref) {
        if let Some(&RpcEntry::Client { cookie, .. }) = self.rpcs.get(rpc) {
            let error = RpcError::DeadlineExceeded;
            self.events.push_back(Event::Failed { rpc: handle(rpc), cookie, error });
            self.drop_call(now, rpc);
        }
    }

    /// The receiver of a message is silent.
    pub(super) fn unreachable(&mut self, message: Ref) {
        let Some(outgoing) = self.outgoing.get(message) else { return };
        let (rpc, kind) = (outgoing.rpc, outgoing.head.kind());
        if let Some(&(RpcEntry::Client { cookie, .. } | RpcEntry::OneWay { cookie, .. })) =
            self.rpcs.get(rpc)
        {
            let error = RpcError::PeerUnreachable;
            self.events.push_back(Event::Failed { rpc: handle(rpc), cookie, error });
        }
        self.release(message);
        self.after_release(rpc, kind);
        if let Some((_, Some(response))) = self.remove_client(rpc) {
            self.refuse(response);
        }
    }

    /// The sender of a message gave it up.
    pub(super) fn drop_incoming(&mut self, message: Ref) {
        let Some(incoming) = self.incoming.get(message) else { return };
        let (rpc, kind) = (name(incoming.rpc), incoming.head.kind());
        self.refuse(message);
        match (kind, self.rpcs.get_mut(rpc)) {
            // The request was not delivered, so the application does not have its RPC.
            (MessageKind::Request, Some(RpcEntry::Server { .. })) => {
                self.rpcs.remove(rpc);
            }
            (MessageKind::Response, Some(RpcEntry::Client { response, .. })) => *response = None,
            _ => {}
        }
    }

    /// A peer restarted: drops all that its former life sent, and cancels all that it asked for.
    pub(super) fn forget_former_life(&mut self, from: HostId) {
        let incoming: Vec<Ref> = self
            .incoming
            .iter()
            .filter(|(_, incoming)| incoming.head.to == from)
            .map(|(message, _)| message)
            .collect();
        for message in incoming {
            let gone = self.incoming.remove(message);
            let rpc = gone.as_ref().map(|incoming| name(incoming.rpc));
            self.release_incoming(message, gone.is_some_and(|incoming| incoming.announced));
            if let Some(RpcEntry::Server { .. }) = rpc.and_then(|rpc| self.rpcs.get(rpc)) {
                let _ = rpc.and_then(|rpc| self.rpcs.remove(rpc));
            }
        }
        let waits = |rpc: &RpcEntry| match rpc {
            RpcEntry::Server { client, answered, .. } => *client == from && !answered,
            RpcEntry::Client { .. } | RpcEntry::OneWay { .. } => false,
        };
        let served: Vec<Ref> =
            self.rpcs.iter().filter(|(_, rpc)| waits(rpc)).map(|(rpc, _)| rpc).collect();
        for rpc in served {
            self.rpcs.remove(rpc);
            self.events.push_back(Event::Cancelled { rpc: handle(rpc) });
        }
    }
}

fn check(length: u32) -> Result<(), SubmitError> {
    match length {
        0 => Err(SubmitError::EmptyMessage),
        _ if length > MAX_LENGTH => Err(SubmitError::MessageTooLong { max: MAX_LENGTH }),
        _ => Ok(()),
    }
}

/// Small enough that sums of two lengths do not overflow.
const MAX_LENGTH: u32 = (1 << 31) - 1;
