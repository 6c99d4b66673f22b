//! RPCs over Homa: the inline engine of the crate `homa` on a UDP socket, as an application would
//! use it.
//!
//! The engine is told the link's rate, as any host's operator can, and paces by it. A request of at
//! least eight bytes begins with the wanted length of the response; a shorter one is echoed. Left
//! out: retries. A call the engine gives up counts as failed.
//!
//! A host may have several engines at its address, as it would have on several cores; here one
//! thread drives them all.

use std::io;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::time::Duration;

use ::homa::inline::{Completion, Engine};
use ::homa::{CallError, CallOptions, Config, PriorityMap};

use super::{Done, RackRpc, RpcTransport};
use crate::Host;
use crate::link::address;
use crate::sys;

const PORT: u16 = 7_100;
/// Longer than any run, so that the run's grace time decides which RPCs are lost: 100,000 responses
/// of an incast take hours at 1 Mbit/s.
const DEADLINE: Duration = Duration::from_secs(86_400);
/// Shortest request that says how long its response is to be.
const SAYS_LENGTH: u32 = 8;

/// See the module's description.
pub(crate) struct HomaTransport {
    /// At one address: each other host is heard by one of them.
    engines: Vec<Engine>,
    handles: Vec<RawFd>,
    /// Calls refused at once, to be reported in the next turn.
    refused: Vec<(u64, CallError)>,
    served: u64,
}

impl HomaTransport {
    /// Binds a host's engines, as many as `shards` says, and listens.
    pub(crate) fn open(
        host: Host<'_>,
        priority_map: PriorityMap,
        shards: usize,
        incast_control: bool,
    ) -> io::Result<Self> {
        let mut protocol = homa_proto::Config::for_users(host.rack.link);
        if !incast_control {
            protocol.incast = None;
        }
        // The kernel's answer leaves out the frame that the rack's uplink is serialising, as it
        // would for any shaped link: so the pacer is told the rate.
        let link_rate = Some(host.rack.link);
        let config =
            Config::default().protocol(protocol).priority_map(priority_map).link_rate(link_rate);
        // No other host is in the rack's namespaces, and its rivals are not encrypted either.
        let config = config.plaintext();
        let at = SocketAddr::from((host.address(), PORT));
        let mut engines = Engine::sharded(at, shards, config).map_err(io::Error::other)?;
        engines.iter_mut().try_for_each(Engine::listen).map_err(io::Error::other)?;
        let handles = engines.iter().flat_map(Engine::handles).copied().collect();
        Ok(Self { engines, handles, refused: Vec::new(), served: 0 })
    }
}

/// Takes the completions and requests of a host's engine, and answers. Yields the number of
/// requests.
fn answer(engine: &mut Engine, done: &mut Vec<Done>) -> u64 {
    let mut served = 0;
    while let Some(completion) = engine.next() {
        match completion {
            Completion::Response { cookie, result, .. } => {
                done.push(Done { id: cookie, at_ns: sys::monotonic_ns(), error: result.err() })
            }
            Completion::Request { id, bytes, .. } => {
                served += 1;
                // A call whose response is refused fails at once.
                if engine.reply(id, response(bytes.into_vec())).is_err() {
                    engine.refuse(id);
                }
            }
            Completion::Cancelled { .. } | Completion::Readable { .. } => {}
        }
    }
    served
}

impl RpcTransport for HomaTransport {
    fn submit(&mut self, rpc: RackRpc) -> io::Result<()> {
        let to = SocketAddr::from((address(rpc.server), PORT));
        let options = CallOptions::deadline(DEADLINE);
        let engine = self.engines.iter_mut().find(|engine| engine.hears(to));
        let engine = engine.ok_or_else(|| io::Error::other("no engine hears that host"))?;
        match engine.call(to, request(rpc), rpc.id, &options) {
            Ok(_) => engine.flush(),
            Err(error) => self.refused.push((rpc.id, error)),
        }
        Ok(())
    }

    fn turn(&mut self, readable: bool, done: &mut Vec<Done>) -> io::Result<()> {
        let at_ns = sys::monotonic_ns();
        let refused = self.refused.drain(..);
        done.extend(refused.map(|(id, error)| Done { id, at_ns, error: Some(error) }));
        // What did not fit into one turn keeps the socket readable or the engine due.
        for engine in &mut self.engines {
            match readable {
                true => engine.turn(),
                false => engine.turn_without_arrivals(),
            };
            self.served += answer(engine, done);
            engine.flush();
        }
        Ok(())
    }

    fn handles(&self) -> &[RawFd] {
        &self.handles
    }

    fn wake_at_ns(&mut self) -> Option<u64> {
        if !self.refused.is_empty() {
            return Some(0);
        }
        let wait = self.engines.iter_mut().filter_map(Engine::timeout).min()?;
        Some(sys::monotonic_ns().saturating_add(wait.as_nanos() as u64))
    }

    fn served(&self) -> u64 {
        self.served
    }
}

/// A request of the wanted length, which says how long its response is to be.
pub(super) fn request(rpc: RackRpc) -> Vec<u8> {
    let mut bytes = vec![0x5a; rpc.request_bytes as usize];
    if rpc.request_bytes >= SAYS_LENGTH {
        bytes[..4].copy_from_slice(&rpc.response_bytes.to_le_bytes());
    }
    bytes
}

/// The response a request wants; reuses its memory.
pub(super) fn response(mut request: Vec<u8>) -> Vec<u8> {
    if request.len() >= SAYS_LENGTH as usize
        && let Some(length) = request.first_chunk::<4>()
    {
        let length = u32::from_le_bytes(*length);
        request.resize(length as usize, 0x5a);
    }
    request
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_response_has_the_length_the_request_asks_for() {
        let rpc = |request_bytes, response_bytes| RackRpc {
            id: 1,
            server: 0,
            request_bytes,
            response_bytes,
        };
        assert_eq!(response(request(rpc(100, 10_000))).len(), 10_000);
        assert_eq!(response(request(rpc(10_000, 100))).len(), 100);
        assert_eq!(response(request(rpc(8, 8))).len(), 8);
        // Too short to say: an echo.
        assert_eq!(response(request(rpc(7, 7))).len(), 7);
        assert_eq!(response(request(rpc(1, 1))).len(), 1);
    }
}
