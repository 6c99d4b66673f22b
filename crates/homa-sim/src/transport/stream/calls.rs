//! RPCs and one-way messages over streams: numbers, handles, deadlines.
//!
//! A client numbers its submissions 1, 2, 3, ...; a response carries the number of its request. A
//! client's handle has generation 0 and the number as its index. A server's handle has the
//! generation of its table entry, plus 1.

use homa_proto::{MessageId, MessageKind, RpcHandle, RpcId, Time};

use crate::transport::Numbered;

use super::MessageTag;
use super::table::{Key, KeyedTable};

/// A submission that a client waits for: the response, or the last acknowledgement of a one-way
/// message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitingCall {
    /// The application's cookie.
    pub cookie: u64,
    /// Request or one-way message.
    pub kind: MessageKind,
    /// The connection that carries it.
    pub connection: Key,
    /// When the call fails.
    pub deadline: Time,
}

/// A request that a server has to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServedCall {
    /// The connection on which it came, and on which its response goes back.
    pub connection: Key,
    /// Its description in packets.
    pub request: MessageTag,
}

/// A host's RPCs.
#[derive(Debug, Default)]
pub struct Calls {
    waiting: Numbered<WaitingCall>,
    serving: KeyedTable<ServedCall>,
    messages: u32,
}

impl Calls {
    /// A new id for a message, sent or received.
    pub fn name_message(&mut self) -> MessageId {
        self.messages = self.messages.wrapping_add(1);
        MessageId(self.messages)
    }

    /// The number of the next call.
    pub fn next_number(&self) -> u32 {
        self.waiting.next_number()
    }

    /// Adds a submission that the client waits for, under [`Calls::next_number`].
    pub fn wait(&mut self, waiting: WaitingCall) -> RpcHandle {
        Self::client_handle(self.waiting.push(waiting))
    }

    /// The handle of this client's RPC with a number.
    pub const fn client_handle(number: u32) -> RpcHandle {
        RpcHandle { index: number, generation: 0 }
    }

    /// The submission with a number.
    pub fn waiting(&mut self, number: u32) -> Option<WaitingCall> {
        self.waiting.get_mut(number).copied()
    }

    /// Ends the wait for a submission.
    pub fn end(&mut self, number: u32) -> Option<WaitingCall> {
        self.waiting.take(number)
    }

    /// The numbers of all submissions on a connection.
    pub fn over(&self, connection: Key) -> Vec<u32> {
        let all = self.waiting.numbered();
        let over = all.filter(|(_, waiting)| waiting.connection == connection);
        over.map(|(number, _)| number).collect()
    }

    /// An RPC's id as the client assigned it: its `life` in the high half, the number in the low
    /// half.
    pub fn id(life: u32, number: u32) -> RpcId {
        RpcId(u64::from(life + 1) << 32 | u64::from(number) << 1)
    }

    /// A server starts to execute a request.
    pub fn serve(&mut self, call: ServedCall) -> RpcHandle {
        let key = self.serving.insert(call);
        RpcHandle { index: key.slot, generation: key.generation + 1 }
    }

    /// A server is done with a request.
    pub fn served(&mut self, rpc: RpcHandle) -> Option<ServedCall> {
        let generation = rpc.generation.checked_sub(1)?;
        self.serving.remove(Key { slot: rpc.index, generation })
    }

    /// The handles of requests that came on a connection.
    pub fn served_over(&self, connection: Key) -> Vec<RpcHandle> {
        let over = self.serving.iter().filter(|(_, call)| call.connection == connection);
        let handle = |key: Key| RpcHandle { index: key.slot, generation: key.generation + 1 };
        over.map(|(key, _)| handle(key)).collect()
    }

    /// Calls in progress, as client and as server.
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
        let waiting = WaitingCall { cookie: 9, kind, connection, deadline: Time::MAX };
        assert_eq!(calls.next_number(), 1);
        let client = calls.wait(waiting);
        let request = MessageTag { number: 8, length: 100, port: 3, kind };
        let server = calls.serve(ServedCall { connection, request });
        assert_ne!(client, server);
        assert_eq!(calls.served(client), None, "a client's handle is not a server's");
        assert_eq!(calls.served_over(connection), [server]);
        assert_eq!(calls.served(server).map(|call| call.request), Some(request));
        assert_eq!(calls.served(server), None);
        assert_eq!(calls.over(connection), [1]);
        assert_eq!(calls.end(1), Some(waiting));
        assert_eq!(calls.len(), (0, 0));
        assert_eq!(Calls::id(2, 5).0 as u32 >> 1, 5);
    }
}
