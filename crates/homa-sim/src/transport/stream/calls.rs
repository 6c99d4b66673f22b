//! RPCs and one-way messages over streams: numbers, handles, deadlines.
//!
//! A client numbers what it submits 1, 2, 3, ...; a response names its request's number. Handles:
//! a client's has generation 0 and the number as its index; a server's has the generation of its
//! entry, plus 1.

use homa_proto::{MessageId, MessageKind, RpcHandle, RpcId, Time};

use crate::transport::Numbered;

use super::Piece;
use super::table::{Key, Table};

/// What a client waits for: a response, or a one-way message's last acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The application's.
    pub cookie: u64,
    /// Request or one-way message.
    pub kind: MessageKind,
    /// The connection that carries it.
    pub connection: Key,
    /// When the call fails.
    pub deadline: Time,
}

/// A request to be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Where it came from, and where its response goes.
    pub connection: Key,
    /// As its client names it.
    pub request: Piece,
}

/// A host's RPCs.
#[derive(Debug, Default)]
pub struct Calls {
    waiting: Numbered<Waiting>,
    serving: Table<Call>,
    messages: u32,
}

impl Calls {
    /// A name for a message that comes or goes.
    pub fn name_message(&mut self) -> MessageId {
        self.messages = self.messages.wrapping_add(1);
        MessageId(self.messages)
    }

    /// The number of the next call.
    pub fn next_number(&self) -> u32 {
        self.waiting.next_number()
    }

    /// A client starts to wait; under [`Calls::next_number`].
    pub fn wait(&mut self, waiting: Waiting) -> RpcHandle {
        Self::client_handle(self.waiting.push(waiting))
    }

    /// The handle of an own RPC.
    pub const fn client_handle(number: u32) -> RpcHandle {
        RpcHandle { index: number, generation: 0 }
    }

    /// What is waited for under a number.
    pub fn waiting(&mut self, number: u32) -> Option<Waiting> {
        self.waiting.get_mut(number).copied()
    }

    /// The wait is over.
    pub fn end(&mut self, number: u32) -> Option<Waiting> {
        self.waiting.take(number)
    }

    /// Everything waited for over a connection, by number.
    pub fn over(&self, connection: Key) -> Vec<u32> {
        let all = self.waiting.numbered();
        let over = all.filter(|(_, waiting)| waiting.connection == connection);
        over.map(|(number, _)| number).collect()
    }

    /// The RPC's id as its client gave it: of its `life`, with the number in the low half.
    pub fn id(life: u32, number: u32) -> RpcId {
        RpcId(u64::from(life + 1) << 32 | u64::from(number) << 1)
    }

    /// A server starts on a request.
    pub fn serve(&mut self, call: Call) -> RpcHandle {
        let key = self.serving.insert(call);
        RpcHandle { index: key.slot, generation: key.generation + 1 }
    }

    /// A server is done with a request.
    pub fn served(&mut self, rpc: RpcHandle) -> Option<Call> {
        let generation = rpc.generation.checked_sub(1)?;
        self.serving.remove(Key { slot: rpc.index, generation })
    }

    /// The handles of requests that came over a connection.
    pub fn served_over(&self, connection: Key) -> Vec<RpcHandle> {
        let over = self.serving.iter().filter(|(_, call)| call.connection == connection);
        let handle = |key: Key| RpcHandle { index: key.slot, generation: key.generation + 1 };
        over.map(|(key, _)| handle(key)).collect()
    }

    /// Calls in progress as client and as server.
    pub fn len(&self) -> (usize, usize) {
        (self.waiting.iter().count(), self.serving.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_of_clients_and_servers_differ_and_end_once() {
        let mut calls = Calls::default();
        let connection = Key { slot: 4, generation: 1 };
        let kind = MessageKind::Request;
        let waiting = Waiting { cookie: 9, kind, connection, deadline: Time::MAX };
        assert_eq!(calls.next_number(), 1);
        let client = calls.wait(waiting);
        let request = Piece { number: 8, length: 100, port: 3, kind };
        let server = calls.serve(Call { connection, request });
        assert_ne!(client, server);
        assert_eq!(calls.served(client), None, "a client's handle is no server's");
        assert_eq!(calls.served_over(connection), [server]);
        assert_eq!(calls.served(server).map(|call| call.request), Some(request));
        assert_eq!(calls.served(server), None);
        assert_eq!(calls.over(connection), [1]);
        assert_eq!(calls.end(1), Some(waiting));
        assert_eq!(calls.len(), (0, 0));
        assert_eq!(Calls::id(2, 5).0 as u32 >> 1, 5);
    }
}
