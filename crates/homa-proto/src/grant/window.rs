//! How many bytes may be on their way: of one message, and of all (Homa §3.3, §3.5).
//!
//! Where other endpoints of this host grant, too, each has an equal part of what is bounded over
//! messages. In the user profile the bound on all grants is the paper's on buffers, the degree of
//! overcommitment times RTTbytes, and it counts for a message what it and its betters have
//! outstanding: the active messages before it, and those that only wait for their last bytes. What
//! worse messages were granted before it came does not count: their senders may be busy with others
//! for as long as they like, and the shortest message would wait for the longest.

use super::IncomingTotals;
use crate::config::GrantWindow;
use crate::endpoint::Endpoint;
use crate::packet::PeerId;
use crate::rpc::IncomingMessage;

impl IncomingTotals {
    /// Of a message's granted bytes, `bytes` are no longer outstanding.
    pub(crate) fn release_window(&mut self, inc: &IncomingMessage, bytes: u64) {
        if inc.window_counted {
            self.granted -= bytes;
            self.finishing -= if inc.scheduled { 0 } else { bytes };
        }
    }

    /// A message's outstanding bytes count again.
    pub(crate) fn charge_window(&mut self, inc: &IncomingMessage) {
        if inc.window_counted {
            let bytes = u64::from(inc.outstanding());
            self.granted += bytes;
            self.finishing += if inc.scheduled { 0 } else { bytes };
        }
    }
}

impl Endpoint {
    /// Bytes of one message that may be outstanding.
    pub(super) fn window(&self, peer: PeerId) -> u32 {
        match self.config.window {
            GrantWindow::Shared { max_incoming } => {
                let most = max_incoming / self.links.sibling_shards.granting_with_us();
                most / (self.scheduler.active_len() as u32 + 1)
            }
            GrantWindow::RttBytes | GrantWindow::RttBytesShared { .. } => {
                self.peer(peer).map_or(self.config.rtt_bytes, |p| p.rtt_bytes)
            }
            GrantWindow::WireBytes(bytes) => bytes,
        }
    }

    /// The same; two packets of `payload` for a host that wasted what it was granted, since others
    /// would wait for what it does not send.
    pub(super) fn trusted_window(&self, peer: PeerId, payload: u32) -> u32 {
        let has_waste =
            self.peer(peer).is_some_and(|peer| self.incoming.accounts.has_wasted_grants(peer));
        let window = self.window(peer);
        if has_waste { window.min(2 * payload) } else { window }
    }

    /// How much of a window is free.
    pub(super) fn window_room(&self, inc: &IncomingMessage, window: u32) -> u32 {
        match self.config.window {
            GrantWindow::WireBytes(_) => window.saturating_sub(inc.wire_outstanding),
            _ => inc.bytes.received().saturating_add(window).saturating_sub(inc.granted),
        }
    }

    /// Bytes that the bound on all grants leaves to the active message at `rank`, where each may
    /// have `window` outstanding: a packet of `payload` bytes at least, or none would ever be worth
    /// a GRANT where packets are longer than RTTbytes. Messages that wait for their last bytes
    /// count, else many no longer than RTTbytes would all be granted at once.
    pub(super) fn window_left(&self, rank: usize, window: u32, payload: u32) -> u64 {
        let shared_by = u64::from(self.links.sibling_shards.granting_with_us());
        match self.config.window {
            GrantWindow::RttBytes | GrantWindow::WireBytes(_) => u64::MAX,
            GrantWindow::Shared { max_incoming } => {
                (u64::from(max_incoming) / shared_by).saturating_sub(self.incoming.granted)
            }
            GrantWindow::RttBytesShared { max_incoming } => {
                let all = (self.degree() as u64).saturating_mul(u64::from(window));
                let all = (all / u64::from(self.config.sharing)).min(max_incoming.into());
                (all / shared_by).max(payload.into()).saturating_sub(self.granted_to(rank))
            }
        }
    }

    /// Bytes granted and not received of the active messages up to `rank` and of those that need no
    /// more grants; of all messages where all are active.
    fn granted_to(&self, rank: usize) -> u64 {
        if self.scheduler.is_unlimited() {
            return self.incoming.granted;
        }
        let outstanding = |handle| {
            let inc = self.rpcs.get(handle).and_then(|rpc| rpc.inc.as_ref());
            inc.filter(|inc| inc.window_counted).map_or(0, |inc| u64::from(inc.outstanding()))
        };
        let active: u64 = self.scheduler.active().take(rank + 1).map(outstanding).sum();
        self.incoming.finishing + active
    }
}
