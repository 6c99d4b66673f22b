//! Limits on outgoing messages: their memory, each host's share of it, and calls in progress.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;

use homa_proto::{PeerId, RpcHandle, Time};

use super::Core;
use super::receive::EngineState;
use crate::engine::fairness::accounts::{self, AccountId};

/// What a waiter needs before it can submit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapacityWaiter {
    /// A call.
    Call {
        /// Its server, if that is known.
        to: Option<SocketAddr>,
        /// Bytes of its request.
        bytes: u32,
    },
    /// A reply.
    Reply {
        /// The request to be answered.
        rpc: RpcHandle,
        /// Bytes of the response.
        bytes: u32,
    },
}

/// What waiters will take that were woken before others, in one look at all waiters.
#[derive(Debug, Default)]
pub struct Promised {
    calls: usize,
    bytes: u64,
    /// Calls by server.
    to: BTreeMap<SocketAddr, u32>,
    /// Whether the table of peers has a place. The search may pass all peers, so it is made once.
    place: OnceCell<bool>,
}

impl Promised {
    /// A waiter is woken.
    pub fn add(&mut self, waiter: CapacityWaiter) {
        match waiter {
            CapacityWaiter::Call { to, bytes } => {
                self.calls += 1;
                self.bytes += u64::from(bytes);
                to.into_iter().for_each(|to| *self.to.entry(to).or_default() += 1);
            }
            CapacityWaiter::Reply { bytes, .. } => self.bytes += u64::from(bytes),
        }
    }
}

/// Whether a waiter would be served now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capacity {
    /// There is enough.
    Enough,
    /// There is memory, but the waiter's client has used its share, or there are as many calls to
    /// the waiter's server as there may be, or all peers have RPCs in progress with us.
    OnlyForOthers,
    /// There is not enough.
    None,
}

/// Why there is no memory for a message.
pub enum Refusal {
    /// It is longer than the limit, so it will never fit.
    Ever {
        /// Bytes of the longest message.
        max: u32,
    },
    /// Messages that are not acknowledged yet hold the memory.
    Now {
        /// Bytes held.
        held: u64,
    },
}

impl Core {
    /// Checks the memory for an outgoing message of this length.
    pub(super) fn fits(&self, length: u32) -> Result<(), Refusal> {
        let config = &self.state.config;
        let max = config.send_memory.min(config.protocol.max_message.into());
        let held = self.state.messages.outgoing_bytes();
        match u64::from(length) {
            length if length > max => Err(Refusal::Ever { max: max as u32 }),
            // A message without bytes takes no memory, so it is never refused for want of it.
            length if length > 0 && held + length > config.send_memory => {
                Err(Refusal::Now { held })
            }
            _ => Ok(()),
        }
    }

    /// Checks the share of a client's host in the memory for replies.
    pub(super) fn has_share(&self, length: u32, account: AccountId) -> Result<(), Refusal> {
        let messages = &self.state.messages;
        let held = messages.outgoing_bytes();
        let of_host = messages.outgoing_to(account);
        let most = self.state.config.send_memory;
        match length == 0 || accounts::has_capacity(length.into(), of_host, held, most) {
            true => Ok(()),
            false => Err(Refusal::Now { held }),
        }
    }

    /// Calls that may begin to a server, as far as its own limit permits.
    pub fn calls_left_to(&self, server: SocketAddr) -> u32 {
        let Some(max) = self.state.config.max_calls_per_server else { return u32::MAX };
        let peer = self.state.peers.server_at(server);
        let calls = peer.map_or(0, |peer| self.state.endpoint.rpcs_by_side(peer).0);
        max.max(1).saturating_sub(calls)
    }

    /// Whether another peer finds a place in the table of peers.
    fn has_place(&self) -> bool {
        let EngineState { peers, endpoint, config, .. } = &self.state;
        let (known, _) = peers.count();
        // A full table has no gaps.
        let mut full = (0..known as u32).map(PeerId);
        known < config.max_peers.max(1) as usize || full.any(|peer| endpoint.rpcs_with(peer) == 0)
    }

    /// Whether a waiter would be served now if other waiters also took what is promised.
    pub fn capacity(&self, waiter: CapacityWaiter, promised: &Promised) -> Capacity {
        let held = self.state.messages.outgoing_bytes() + promised.bytes;
        let config = &self.state.config;
        let fits = |bytes: u32| held + u64::from(bytes) <= config.send_memory;
        match waiter {
            CapacityWaiter::Call { to: Some(to), .. }
                if self.calls_left_to(to) <= promised.to.get(&to).copied().unwrap_or(0)
                    || (self.state.peers.server_at(to).is_none()
                        && !promised.place.get_or_init(|| self.has_place())) =>
            {
                Capacity::OnlyForOthers
            }
            CapacityWaiter::Call { bytes, .. } => {
                let calls = self.rpcs().0 + promised.calls;
                let enough = calls < config.protocol.max_rpcs as usize && fits(bytes);
                if enough { Capacity::Enough } else { Capacity::None }
            }
            CapacityWaiter::Reply { bytes, .. } if !fits(bytes) => Capacity::None,
            CapacityWaiter::Reply { rpc, bytes } => {
                let account = self.state.account_of(rpc);
                // If the request has ended, the waiter should find that out at once.
                let has_share = account.is_none_or(|a| self.has_share(bytes, a).is_ok());
                if has_share { Capacity::Enough } else { Capacity::OnlyForOthers }
            }
        }
    }

    /// Bytes of the longest request that can be sent.
    pub fn longest(&self) -> u32 {
        let config = &self.state.config;
        config.send_memory.min(config.protocol.max_message.into()) as u32
    }
}

impl EngineState {
    /// Responses that the application has not taken count against the memory for incoming messages.
    /// In a shared engine, they count as taken once they are in the slots of their calls.
    pub fn limit_memory(&mut self, now: Time) {
        let budget = self.config.protocol.memory_budget;
        // Small changes are not passed on, because each wakes messages that wait for memory.
        if self.waiting.abs_diff(self.limited_at) > budget / 16 {
            self.limited_at = self.waiting;
            self.endpoint.limit_memory(now, budget.saturating_sub(self.waiting));
        }
    }
}
