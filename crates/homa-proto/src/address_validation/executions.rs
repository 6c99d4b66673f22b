//! Handing over which requests were executed, to an endpoint that takes the place of this one at
//! the same address: a process that is restarted without loss.
//!
//! The next endpoint continues the memory of this one: it has the same boot id and the same
//! clients. So a copy of an executed request is not executed again, and a client whose request was
//! not executed need not assume that it was. Addresses are validated anew, which costs each client
//! one round trip.
//!
//! Invariants: a request that was refused counts as executed. Clients that do not identify
//! themselves are remembered by their address, which is not handed over; if there are any, the next
//! endpoint begins as one that has just forgotten something.
//!
//! Left out: the reasons for which requests were refused, RPCs in progress, and measurements.

use super::clients::MAX_CLIENTS;
use crate::completion::replay_window::{ClientEpoch, MAX_ENTRIES};
use crate::endpoint::Endpoint;
use crate::rpc::split;
use crate::units::{Duration, Time};
use alloc::vec::Vec;

/// Which requests an endpoint has executed as a server: [`Endpoint::executions`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Executions {
    boot: u64,
    covers: Duration,
    /// Token, and the requests.
    clients: Vec<(u64, ClientEpoch)>,
}

impl Executions {
    /// For how long nothing had been forgotten when they were handed over.
    pub fn covers(&self) -> Duration {
        self.covers
    }

    /// Number of clients.
    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    /// Appends them as bytes: boot id (8 bytes), nanoseconds (8), number of clients (4); and for
    /// each client: token (8), epoch (4), watermark (4), number of entries (4), and for each entry:
    /// first word (4), end (4), bits (8). All are big-endian.
    pub fn encode(&self, into: &mut Vec<u8>) {
        into.extend(self.boot.to_be_bytes());
        into.extend(self.covers.0.to_be_bytes());
        into.extend((self.clients.len() as u32).to_be_bytes());
        for (token, executed) in &self.clients {
            into.extend(token.to_be_bytes());
            into.extend(executed.number().to_be_bytes());
            into.extend(executed.base().to_be_bytes());
            into.extend((executed.entries() as u32).to_be_bytes());
            for (start, end, bits) in executed.ranges() {
                into.extend(start.to_be_bytes());
                into.extend(end.to_be_bytes());
                into.extend(bits.to_be_bytes());
            }
        }
    }

    /// Reads what [`Self::encode`] wrote; `None` if it is anything else.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut left = Bytes(bytes);
        let (boot, covers) = (left.u64()?, Duration(left.u64()?));
        let count = left.u32()? as usize;
        // Bounds the memory that a wrong file can take.
        let mut entries_left = MAX_ENTRIES;
        // No endpoint has boot id 0.
        if count > MAX_CLIENTS || boot == 0 {
            return None;
        }
        let mut clients = Vec::new();
        for _ in 0..count {
            let (token, epoch, base) = (left.u64()?, left.u32()?, left.u32()?);
            let entries = left.u32()? as usize;
            entries_left = entries_left.checked_sub(entries)?;
            let mut ranges = Vec::new();
            for _ in 0..entries {
                ranges.push((left.u32()?, left.u32()?, left.u64()?));
            }
            clients.push((token, ClientEpoch::from_ranges(epoch, base, ranges.into_iter())?));
        }
        left.0.is_empty().then_some(Self { boot, covers, clients })
    }
}

/// Bytes that are not read yet.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn u32(&mut self) -> Option<u32> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_be_bytes(*first))
    }

    fn u64(&mut self) -> Option<u64> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_be_bytes(*first))
    }
}

impl Endpoint {
    /// Application out: which requests were executed here, for [`Self::take_over`] of the endpoint
    /// that takes this one's place. This one must not execute any afterwards.
    pub fn executions(&mut self, now: Time) -> Executions {
        self.begin(now);
        let anonymous = self.peers.iter().flatten().any(|peer| !peer.cold.executed.is_empty());
        let mut clients: Vec<(u64, ClientEpoch)> =
            self.validation.clients.all().map(|(token, epoch)| (token, epoch.clone())).collect();
        clients.sort_unstable_by_key(|(token, epoch)| (*token, epoch.number()));
        // Reasons are not handed over, so a refused request counts as executed.
        for peer in self.peers.iter().flatten() {
            for id in peer.cold.executed.refused() {
                let (epoch, counter) = split(id);
                let of = peer.cold.validation.client(epoch);
                let Some(client) = of.and_then(|of| self.validation.clients.get(of)) else {
                    continue;
                };
                let name = client.name();
                let find =
                    |(token, epoch): &(u64, ClientEpoch)| (*token, epoch.number()).cmp(&name);
                if let Ok(at) = clients.binary_search_by(find) {
                    clients[at].1.remember(counter, false);
                }
            }
        }
        // Records by address are not handed over, and the next endpoint has to admit that.
        let (boot, covers) = match anonymous {
            true => (self.validation.random.next() | 1, Duration::ZERO),
            false => (self.validation.clients.boot, self.memory.covers(now)),
        };
        Executions { boot, covers, clients }
    }

    /// Application in, before the first packet: during the last `before`, no other endpoint at the
    /// address has executed anything.
    pub fn vouch_for(&mut self, before: Duration) {
        self.memory.resume(before);
    }

    /// Application in, before the first packet: takes the place of an endpoint that had executed
    /// these requests, and whose memory covers `covers` by now. At most once.
    pub fn take_over(&mut self, executions: &Executions, covers: Duration) {
        self.vouch_for(covers);
        let clients = &mut self.validation.clients;
        clients.boot = executions.boot;
        for (token, epoch) in &executions.clients {
            clients.restore(*token, epoch.clone());
        }
    }
}
