//! Submissions: the choice of the connection that carries a message, and its place in the stream.

use homa_proto::{MessageKind, PeerId, Request, RpcError, RpcHandle, SubmitError, Submitted, Time};

use crate::topology::HostId;
use crate::transport::stream::{
    Calls, ConnectionName, ConnectionPolicy, Key, MessageTag, WaitingCall,
};

use super::connection::{Connection, Ends};
use super::{NOWHERE, Tcp, Timer};

impl Tcp {
    /// The port at which servers listen. There is one server per host, and segments carry no port.
    pub const SERVER_PORT: u16 = crate::traffic::SERVER_PORT;

    pub(super) fn request(
        &mut self,
        now: Time,
        request: &Request,
        level: Option<u8>,
    ) -> Result<Submitted, SubmitError> {
        let &Request { peer, local_port, length, deadline, cookie, .. } = request;
        let kind = MessageKind::Request;
        let message = (kind, length, local_port, level);
        let submitted = self.start(peer, message, (cookie, deadline))?;
        if deadline != Time::MAX {
            let timer = Timer::Call(submitted.rpc.index);
            self.timers.arm(deadline.max(now), timer, &mut Time::MAX.clone());
        }
        Ok(submitted)
    }

    pub(super) fn one_way(
        &mut self,
        peer: PeerId,
        (length, level): (u32, Option<u8>),
        cookie: u64,
    ) -> Result<Submitted, SubmitError> {
        self.start(peer, (MessageKind::OneWay, length, 0, level), (cookie, Time::MAX))
    }

    fn start(
        &mut self,
        peer: PeerId,
        (kind, length, port, level): (MessageKind, u32, u16, Option<u8>),
        (cookie, deadline): (u64, Time),
    ) -> Result<Submitted, SubmitError> {
        if length == 0 {
            return Err(SubmitError::EmptyMessage);
        }
        let key = self.connection_for(HostId(peer.0), length, level);
        let number = self.calls.next_number();
        let piece = MessageTag { number, length, port, kind };
        let message = self.calls.name_message();
        let rpc = self.calls.wait(WaitingCall { cookie, kind, connection: key, deadline });
        if let Some(connection) = self.connections.get_mut(key) {
            connection.out.push(piece, message);
            connection.open_requests += u32::from(kind == MessageKind::Request);
            connection.level = level;
            if self.config.connections == ConnectionPolicy::PerMessage {
                connection.close();
            }
        }
        self.wake(key);
        Ok(Submitted { rpc, message: Some(message) })
    }

    /// The connection that takes a message, from the pool or a new one.
    fn connection_for(&mut self, peer: HostId, length: u32, level: Option<u8>) -> Key {
        let class = level.unwrap_or_else(|| self.config.priorities.class(length));
        let ConnectionPolicy::Pool { size, pick } = self.config.connections else {
            return self.connect(peer, class);
        };
        let connections = &self.connections;
        let is_idle = |key| connections.get(key).is_some_and(Connection::is_idle);
        let (index, found) = self.pools.choose((peer.0, class), (size, pick), is_idle);
        if let Some(key) = found {
            return key;
        }
        let key = self.connect(peer, class);
        self.pools.set((peer.0, class), index, key);
        key
    }

    fn connect(&mut self, peer: HostId, class: u8) -> Key {
        let key = self.connections.next_key();
        let name = ConnectionName { life: self.life, key };
        let ends = Ends { peer, name, is_client: true, server_slot: NOWHERE };
        self.connections.insert(Connection::new(ends, class, &self.config))
    }

    pub(super) fn respond(
        &mut self,
        rpc: RpcHandle,
        (length, level): (u32, Option<u8>),
    ) -> Result<Submitted, SubmitError> {
        if length == 0 {
            return Err(SubmitError::EmptyMessage);
        }
        let call = self.calls.served(rpc).ok_or(SubmitError::UnknownRpc)?;
        let message = self.calls.name_message();
        let kind = MessageKind::Response;
        let piece = MessageTag { length, kind, ..call.request };
        if let Some(connection) = self.connections.get_mut(call.connection) {
            connection.out.push(piece, message);
            connection.open_requests = connection.open_requests.saturating_sub(1);
            connection.level = level.or(connection.level);
        }
        self.finish(call.connection);
        self.wake(call.connection);
        Ok(Submitted { rpc, message: Some(message) })
    }

    /// A client stops waiting; the response still arrives and is ignored. A server never answers.
    pub(super) fn cancel(&mut self, rpc: RpcHandle) -> Result<Submitted, SubmitError> {
        let submitted = Submitted { rpc, message: None };
        if let Some(call) = self.calls.served(rpc) {
            if let Some(connection) = self.connections.get_mut(call.connection) {
                connection.open_requests = connection.open_requests.saturating_sub(1);
            }
            self.finish(call.connection);
            self.wake(call.connection);
            return Ok(submitted);
        }
        let own = rpc == Calls::client_handle(rpc.index);
        let waiting = self.calls.waiting(rpc.index).filter(|_| own);
        match waiting {
            Some(waiting) if waiting.kind == MessageKind::Request => {
                self.calls.end(rpc.index);
                Ok(submitted)
            }
            _ => Err(SubmitError::UnknownRpc),
        }
    }

    pub(super) fn on_deadline(&mut self, now: Time, number: u32) {
        if self.calls.waiting(number).is_some_and(|waiting| waiting.deadline <= now) {
            self.fail(number, RpcError::DeadlineExceeded);
        }
    }
}
