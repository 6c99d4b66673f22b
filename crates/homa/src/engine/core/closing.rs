//! Local addresses of servers that are gone. They are closed once no RPC uses them. And the last
//! act of an engine: it answers what lies in its sockets.

use std::net::SocketAddr;

use homa_proto::RpcHandle;

use super::{Core, EngineEvent};
use crate::error::OpenError;

/// Most batches that an engine reads before it closes.
const LAST_BATCHES: usize = 4096;

/// An address to be closed.
#[derive(Debug)]
pub struct Closing {
    /// The driver's socket.
    socket: usize,
    /// An RPC that uses the address, if one was found.
    needed_by: Option<RpcHandle>,
}

impl Core {
    /// Answers the requests that lie in the sockets of a server that ends: they are not executed.
    /// Those that come later are answered by the system, with ICMP.
    pub(super) fn answer_the_last(&mut self) {
        // A client's engine has no requests in its sockets.
        if !self.served {
            return;
        }
        let ports: Vec<u16> = self.driver.local().iter().map(SocketAddr::port).collect();
        ports.into_iter().for_each(|port| self.unlisten(port));
        self.driver.refuse_arrivals();
        // A bound, so that packets that keep coming cannot delay the end for ever.
        for _ in 0..LAST_BATCHES {
            // Two causes end it: nothing is left of the last batch, and the sockets are empty.
            if !self.arrivals.are_left() && !self.receive_batch() {
                break;
            }
            self.receive();
            while let Some(event) = self.next() {
                if let EngineEvent::Request { rpc, bytes, .. } = event {
                    self.turn_away(rpc, bytes);
                }
            }
            self.transmit();
        }
        self.transmit();
    }

    /// Processes what was received, and sends the answers; false if nothing is left of it.
    pub fn settle(&mut self) -> bool {
        if self.arrivals.are_left() {
            self.receive();
            self.transmit();
        }
        self.arrivals.are_left()
    }

    /// Asks clients of new requests to come back: see [`homa_proto::Endpoint::postpone_requests`].
    pub fn postpone_requests(&mut self) {
        self.state.endpoint.postpone_requests();
    }

    /// Opens another local address, or reuses one that is waiting to be closed.
    pub fn bind(&mut self, at: SocketAddr) -> Result<SocketAddr, OpenError> {
        self.may_serve(at)?;
        let wanted = SocketAddr::new(at.ip().to_canonical(), at.port());
        let local = self.driver.local();
        // It still waits for its last RPC, so the socket is open.
        if let Some(found) = self.closing.iter().position(|c| local[c.socket] == wanted) {
            return Ok(local[self.closing.swap_remove(found).socket]);
        }
        let bound = self.driver.bind(at).map_err(|source| OpenError::bind(at, source))?;
        self.packer.set_ports(self.driver.local().iter().map(SocketAddr::port).collect());
        Ok(bound)
    }

    /// Closes a local address, except the first, once no RPC uses it: see [`Self::finish_closing`].
    pub fn close(&mut self, at: SocketAddr) {
        let socket = self.driver.local().iter().position(|local| *local == at);
        let closing = |socket| Closing { socket, needed_by: None };
        // The first socket is the engine's own: calls leave from it.
        self.closing.extend(socket.filter(|&socket| socket > 0).map(closing));
    }

    /// True while an address waits to be closed.
    pub fn is_closing(&self) -> bool {
        !self.closing.is_empty()
    }

    /// Closes the addresses that may be closed now; true if there were any. No thread may be
    /// polling.
    pub fn finish_closing(&mut self) -> bool {
        // Arrivals that were not read yet, and packets in the backlog, still refer to the sockets
        // by number.
        let waits = self.arrivals.are_left() || !self.backlog.is_empty();
        if self.closing.is_empty() || waits || self.ended.is_some() {
            return false;
        }
        let (driver, endpoint) = (&mut self.driver, &self.state.endpoint);
        let before = self.closing.len();
        self.closing.retain_mut(|closing| {
            let port = driver.local()[closing.socket].port();
            closing.needed_by = endpoint.rpc_at(port, closing.needed_by);
            if closing.needed_by.is_none() {
                driver.unbind(closing.socket);
            }
            closing.needed_by.is_some()
        });
        self.closing.len() < before
    }
}
