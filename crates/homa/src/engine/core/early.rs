//! Messages that the application reads while they arrive. It is told of a request with its first
//! bytes, and begins to execute it. It takes the bytes of requests and responses as they come.
//!
//! Invariant: the application is told of each request once, as [`EngineEvent::Request`], and of its
//! end once, as [`EngineEvent::Whole`] or [`EngineEvent::Cancelled`].

use homa_proto::{Delivered, MessageId, MessageKind, RpcHandle};

use super::messages::EarlyRequest;
use super::receive::EngineState;
use super::{Core, EngineEvent, Partial, QueuedRequest};
use crate::message::Message;

impl Core {
    /// Reads the long requests at a local port, which accepts requests already, while they arrive:
    /// at most `window` bytes of each that the application has not taken are granted.
    pub fn listen_early(&mut self, port: u16, window: u32) {
        self.state.reads_early = true;
        self.state.endpoint.listen_early(port, window);
    }

    /// The application begins to execute a request that is arriving. Returns its length; `None` if
    /// the request has ended, or was executed elsewhere.
    pub fn begin_early(&mut self, rpc: RpcHandle) -> Option<usize> {
        let now = self.tick();
        let Delivered { message, length, .. } = self.state.endpoint.arriving(rpc)?;
        let begun = self.state.endpoint.begin_arriving(now, rpc);
        if begun.is_ok() {
            // From now on its bytes are taken in pieces, so no memory is reserved for all of it.
            self.state.messages.set_early(message, EarlyRequest::Begun);
        }
        self.state.drain_events();
        begun.ok().map(|()| length as usize)
    }

    /// Takes the bytes of a begun request that have arrived since the last time; `None` if there
    /// are none.
    pub fn take_arrived(&mut self, rpc: RpcHandle) -> Option<Message> {
        let message = self.state.endpoint.arriving(rpc)?.message;
        self.take_piece(message, rpc).map(|(bytes, _)| bytes)
    }

    /// Reads the response to a call, which has just started, while it arrives: at most `window`
    /// bytes that the application has not taken are granted.
    pub fn read_response(&mut self, rpc: RpcHandle, window: u32) {
        self.state.endpoint.read_response(rpc, window);
    }

    /// Takes the bytes of a response that have arrived since the last time; `None` if there are
    /// none. Also returns the offset of their end.
    pub fn take_response(&mut self, partial: &Partial) -> Option<(Message, usize)> {
        self.take_piece(partial.message, partial.rpc)
    }

    fn take_piece(&mut self, message: MessageId, rpc: RpcHandle) -> Option<(Message, usize)> {
        let (bytes, end) = self.state.messages.take_readable(message, rpc)?;
        let now = self.tick();
        self.state.endpoint.read(now, rpc, end);
        self.state.drain_events();
        Some((bytes.into(), end as usize))
    }

    /// The length of a response that is arriving.
    pub fn length_of(&self, partial: &Partial) -> usize {
        self.state.messages.total(partial.message)
    }
}

impl EngineState {
    /// Tells the application of a request whose first bytes are readable; false if it was told.
    pub(super) fn announce_request(&mut self, partial: &Partial) -> bool {
        // The application was told of it before, or it is a response.
        if partial.kind != MessageKind::Request
            || self.messages.early(partial.message) != EarlyRequest::No
        {
            return false;
        }
        let Some(delivered) = self.endpoint.arriving(partial.rpc) else { return false };
        self.messages.set_early(partial.message, EarlyRequest::Announced);
        let context = self.attributed(self.messages.context(partial.message));
        let account = self.peers.account(delivered.peer);
        let none = QueuedRequest { bytes: Message::default(), early: true, account };
        self.queue_request(&delivered, none, context);
        true
    }

    /// True if the application was told of a message before it was whole.
    #[inline]
    pub(super) fn is_announced(&self, delivered: &Delivered) -> bool {
        self.reads_early && self.messages.early(delivered.message) != EarlyRequest::No
    }

    /// A request that the application was told of is whole.
    pub(super) fn complete(&mut self, delivered: &Delivered) {
        let early = self.messages.early(delivered.message) == EarlyRequest::Begun;
        let (bytes, ..) = self.messages.take(delivered.message);
        let account = self.peers.account(delivered.peer);
        let bytes = QueuedRequest { bytes: bytes.into(), early, account };
        self.ready.push_back(EngineEvent::Whole { rpc: delivered.rpc, bytes });
    }
}
