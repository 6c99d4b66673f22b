//! Messages that the application reads while they arrive, through a window (beyond the paper). The
//! application learns of a message with its first bytes ([`Event::Readable`]), and says when it
//! begins to execute a request, and how many bytes of a message it has taken. No more than a window
//! of bytes beyond those is granted, so a slow reader slows its sender down, as it would with TCP.
//!
//! Invariants: a request counts as executed from the time that its execution began, however it
//! ends. The application is told how it ends: [`Event::Delivered`] or [`Event::Cancelled`]. A
//! message whose reader is slow takes no place among the active messages.
//!
//! Left out: messages of one packet, which are delivered whole.

use crate::endpoint::Endpoint;
use crate::event::{Delivered, Event, MessageKind, RpcHandle, SubmitError};
use crate::rpc::{Rpc, RpcState, incoming_message};
use crate::units::Time;

impl Endpoint {
    /// Accepts requests addressed to a Homa port (not 0), and reports those of more than one packet
    /// with their first bytes ([`Event::Readable`]). At most `window` bytes beyond those that the
    /// application took ([`Self::read`]) are granted (but what the sender sends unscheduled comes
    /// anyway).
    pub fn listen_early(&mut self, port: u16, window: u32) {
        self.rpcs.listen(port);
        self.rpcs.listen_early(port, window.max(1));
    }

    /// Application in: reads the response to a call, which was just submitted, while it arrives. At
    /// most `window` bytes beyond those that it took ([`Self::read`]) are granted, but what the
    /// server sends unscheduled comes anyway.
    pub fn read_response(&mut self, rpc: RpcHandle, window: u32) {
        self.rpcs.read_response(rpc, window.max(1));
    }

    /// A message begins to arrive: does the application read it meanwhile?
    pub(crate) fn read_early(&mut self, handle: RpcHandle) {
        if !self.rpcs.reads_early() {
            return;
        }
        let window = self.rpcs.get(handle).map_or(0, |rpc| self.rpcs.window_of(rpc));
        if let Some(inc) = self.rpcs.get_mut(handle).and_then(|rpc| rpc.inc.as_mut()) {
            inc.set_window(window);
        }
    }

    /// A request that is arriving at a port of [`Self::listen_early`], as it will be delivered.
    pub fn arriving(&self, rpc: RpcHandle) -> Option<Delivered> {
        let arriving = self.rpcs.get(rpc).filter(|rpc| rpc.state == RpcState::ServerIncoming)?;
        let inc = arriving.inc.as_ref().filter(|inc| inc.is_read_early())?;
        let (local_port, remote_port) = arriving.ports();
        Some(Delivered {
            rpc,
            message: incoming_message(rpc),
            kind: MessageKind::Request,
            peer: arriving.peer,
            remote_port,
            local_port,
            id: arriving.id,
            length: inc.bytes.length(),
            cookie: 0,
        })
    }

    /// Application in: begins to execute a request that is arriving. From now on it counts as
    /// executed.
    ///
    /// # Errors
    /// [`SubmitError::UnknownRpc`] if the request ended, or was executed for its client at another
    /// address in the meantime.
    pub fn begin_arriving(&mut self, now: Time, rpc: RpcHandle) -> Result<(), SubmitError> {
        self.begin(now);
        let Delivered { peer, id, .. } = self.arriving(rpc).ok_or(SubmitError::UnknownRpc)?;
        // The client may have moved while it arrived, and sent the request from there again.
        if self.ran_elsewhere(peer, id) {
            self.counters.server_cancels += 1;
            self.end_server_rpc(rpc);
            return Err(SubmitError::UnknownRpc);
        }
        if let Some(rpc) = self.rpcs.get_mut(rpc) {
            rpc.begin_early();
        }
        self.remember_executed(now, peer, id);
        Ok(())
    }

    /// Application in: has taken the bytes before `offset` of a message that is arriving. Their
    /// memory is free, and as many more are granted.
    pub fn read(&mut self, now: Time, handle: RpcHandle, offset: u32) {
        self.begin(now);
        let is_read = |rpc: &&Rpc| rpc.is_begun_early() || rpc.response_window() > 0;
        let Some(rpc) = self.rpcs.get(handle).filter(is_read) else { return };
        let Some(inc) = rpc.inc.as_ref().filter(|inc| inc.has_reader()) else { return };
        let (more, peer) = (inc.window_step(offset, self.grants.left()), rpc.peer);
        if more > 0 {
            self.move_window(handle, more);
            self.grant(Some((handle, peer)));
        }
    }

    /// The application answers a request: it does not want the rest.
    pub(crate) fn stop_reading(&mut self, now: Time, handle: RpcHandle) {
        let Some(rpc) = self.rpcs.get_mut(handle) else { return };
        if rpc.state != RpcState::ServerIncoming {
            return;
        }
        let (inc, peer) = (rpc.inc.take(), rpc.peer);
        if let Some(inc) = inc {
            self.events.push_back(Event::Release { message: incoming_message(handle) });
            self.end_incoming(handle, (peer, false), inc);
            self.grant(None);
        }
        self.begin_service(now, handle);
    }
}
