//! Room for one more call, or for the bytes of a reply, and who waits for it.
//!
//! Invariant: unlocked, whoever would find room has been woken, unless those woken before it may
//! take all of it; these look again, and what they leave is offered on. Replies of a client that
//! has its share wait behind nobody and hold up nobody.

use std::collections::VecDeque;
use std::task::Waker;

use homa_proto::RpcHandle;

use super::accounts::AccountId;
use super::waiters::WakeTarget;
use super::{Core, accounts};

/// What somebody waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapacityWaiter {
    /// To call with a request of so many bytes.
    Call {
        /// Bytes.
        bytes: u32,
    },
    /// To answer a request.
    Reply {
        /// The request.
        rpc: RpcHandle,
        /// Bytes of the response.
        bytes: u32,
    },
}

impl CapacityWaiter {
    /// Calls and bytes.
    fn takes(self) -> (usize, u64) {
        match self {
            Self::Call { bytes } => (1, bytes.into()),
            Self::Reply { bytes, .. } => (0, bytes.into()),
        }
    }
}

/// What there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capacity {
    /// Enough.
    Enough,
    /// Not for this one, whose client has its share.
    OnlyForOthers,
    /// Not enough.
    None,
}

/// Why there is no memory for a message, and until when.
pub enum Refusal {
    /// It will never fit.
    Ever {
        /// Bytes of the longest.
        max: u32,
    },
    /// Until others are acknowledged.
    Now {
        /// Bytes held.
        held: u64,
    },
}

#[derive(Debug)]
struct Registered {
    ticket: u64,
    waiter: CapacityWaiter,
    waker: Waker,
}

/// Those who wait, oldest first.
#[derive(Debug, Default)]
pub struct CapacityQueue {
    all: VecDeque<Registered>,
    next_ticket: u64,
}

impl CapacityQueue {
    /// How many.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Notes who waits; returns a ticket for [`Self::leave`].
    pub fn wait(&mut self, waiter: CapacityWaiter, waker: Waker) -> u64 {
        self.next_ticket += 1;
        self.all.push_back(Registered { ticket: self.next_ticket, waiter, waker });
        self.next_ticket
    }

    /// A waiter came back, or gives up.
    pub fn leave(&mut self, ticket: u64) -> Option<Waker> {
        let at = self.all.binary_search_by_key(&ticket, |waiter| waiter.ticket).ok()?;
        self.all.remove(at).map(|waiter| waiter.waker)
    }

    /// Takes out those who would find room now.
    pub fn served(&mut self, core: &Core, wakes: &mut Vec<WakeTarget>) {
        let (mut at, mut promised) = (0, (0, 0));
        while let Some(waiter) = self.all.get(at) {
            match core.capacity(waiter.waiter, promised) {
                Capacity::None => return,
                Capacity::OnlyForOthers => at += 1,
                Capacity::Enough => {
                    let (calls, bytes) = waiter.waiter.takes();
                    promised = (promised.0 + calls, promised.1 + bytes);
                    wakes.extend(self.all.remove(at).map(|waiter| WakeTarget::Task(waiter.waker)));
                }
            }
        }
    }

    /// Takes out who would answer this request: nobody waits for it any more.
    pub fn cancelled(&mut self, of: RpcHandle, wakes: &mut Vec<WakeTarget>) {
        let is = |waiter| matches!(waiter, CapacityWaiter::Reply { rpc, .. } if rpc == of);
        if let Some(at) = self.all.iter().position(|waiter| is(waiter.waiter)) {
            wakes.extend(self.all.remove(at).map(|waiter| WakeTarget::Task(waiter.waker)));
        }
    }

    /// Takes out everybody.
    pub fn all(&mut self, wakes: &mut Vec<WakeTarget>) {
        wakes.extend(self.all.drain(..).map(|waiter| WakeTarget::Task(waiter.waker)));
    }
}

impl Core {
    /// Is there memory for an outgoing message of this length?
    pub(super) fn fits(&self, length: u32) -> Result<(), Refusal> {
        let config = &self.state.config;
        let max = config.send_memory.min(config.protocol.max_message.into());
        let held = self.state.messages.outgoing_bytes();
        match u64::from(length) {
            length if length > max => Err(Refusal::Ever { max: max as u32 }),
            length if length > 0 && held + length > config.send_memory => {
                Err(Refusal::Now { held })
            }
            _ => Ok(()),
        }
    }

    /// Is there memory for a reply to a client's host beside those to others?
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

    /// What waits for room would find it, beside what others were promised: calls, and bytes.
    pub fn capacity(&self, waiter: CapacityWaiter, promised: (usize, u64)) -> Capacity {
        let held = self.state.messages.outgoing_bytes() + promised.1;
        let config = &self.state.config;
        let fits = |bytes: u32| held + u64::from(bytes) <= config.send_memory;
        match waiter {
            CapacityWaiter::Call { bytes } => {
                let calls = self.rpcs().0 + promised.0;
                let enough = calls < config.protocol.max_rpcs as usize && fits(bytes);
                if enough { Capacity::Enough } else { Capacity::None }
            }
            CapacityWaiter::Reply { bytes, .. } if !fits(bytes) => Capacity::None,
            CapacityWaiter::Reply { rpc, bytes } => {
                let account = self.state.account_of(rpc);
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
