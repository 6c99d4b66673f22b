//! How many bytes may be outstanding: of one message, and of all (Homa §3.3, §3.5).
//!
//! If other endpoints of this host grant, too, each has an equal part of the bound over all
//! messages. In profile `default` the bound is the paper's estimate of buffer space, the degree of
//! overcommitment times RTTbytes, and it counts the outstanding bytes of this message and of all
//! messages with higher priority: the active messages before it, and those that only wait for their
//! last bytes. Grants of messages with lower priority do not count: their senders may be busy with
//! others for a long time, and the shortest message would wait for the longest.

use super::decide::bytes_to_grant;
use super::overcommitment::degree;
use super::totals::Grants;
use crate::config::GrantWindow;
use crate::endpoint::Endpoint;
use crate::event::RpcHandle;
use crate::packet::PeerId;
use crate::receive::message::IncomingMessage;

impl Grants {
    /// The grant of a message was extended; `before`: its outstanding bytes until then.
    pub(super) fn charge_grant(&mut self, inc: &mut IncomingMessage, before: u32) {
        let more = u64::from(inc.outstanding() - before);
        self.expected += more;
        // With its first grant, its unscheduled bytes count, too.
        let counted = core::mem::replace(&mut inc.grant.window_counted, true);
        self.granted += if counted { more } else { u64::from(inc.outstanding()) };
    }

    /// Of a message's granted bytes, `bytes` are no longer outstanding.
    pub(super) fn release_window(&mut self, inc: &IncomingMessage, bytes: u64) {
        if inc.grant.window_counted {
            self.granted -= bytes;
            self.finishing -= if inc.grant.scheduled { 0 } else { bytes };
        }
    }

    /// A message's outstanding bytes count again.
    pub(super) fn charge_window(&mut self, inc: &IncomingMessage) {
        if inc.grant.window_counted {
            let bytes = u64::from(inc.outstanding());
            self.granted += bytes;
            self.finishing += if inc.grant.scheduled { 0 } else { bytes };
        }
    }
}

impl Endpoint {
    /// The degree of overcommitment now.
    pub(super) fn degree(&self) -> usize {
        degree(self.config.overcommitment, self.levels.scheduled_levels())
    }

    /// Bytes of one message that may be outstanding.
    pub(super) fn window(&self, peer: PeerId) -> u32 {
        match self.config.window {
            // Linux §2.4: the more messages are active, the less each may have outstanding.
            GrantWindow::Shared { max_incoming } => {
                let most = max_incoming / self.links.sibling_shards.granting_with_us();
                most / (self.grants.scheduler.active_len() as u32 + 1)
            }
            GrantWindow::RttBytes | GrantWindow::RttBytesShared { .. } => {
                self.peer(peer).map_or(self.config.rtt_bytes, |peer| peer.rtt_bytes())
            }
            GrantWindow::WireBytes(bytes) => bytes,
        }
    }

    /// The same, but two packets for a host that wasted grants: others would wait for what it does
    /// not send.
    pub(super) fn trusted_window(&self, peer: PeerId, packet: u32) -> u32 {
        let has_waste =
            self.peer(peer).is_some_and(|peer| self.grants.hosts.has_wasted_grants(peer));
        let window = self.window(peer);
        // Two packets are what one GRANT of profile `default` allows at least.
        if has_waste { window.min(2 * packet) } else { window }
    }

    /// Bytes by which the window of the only active message is longer, because its link would be
    /// idle while its GRANT waits for a second packet. If several are active, the others fill the
    /// gap.
    pub(super) fn held_back(&self, packet: u32) -> u32 {
        match self.grants.scheduler.active_len() {
            1 => self.config.granting.held_back() * packet,
            _ => 0,
        }
    }

    /// How much of a window is free.
    pub(super) fn window_free(&self, inc: &IncomingMessage, window: u32) -> u32 {
        match self.config.window {
            // The authors' simulator counts outstanding bytes with their headers.
            GrantWindow::WireBytes(_) => window.saturating_sub(inc.grant.wire_outstanding),
            // Homa §3.3.
            _ => bytes_to_grant(inc.bytes.received(), inc.grant.granted, window),
        }
    }

    /// Bytes that the bound over all messages leaves to the active message at `rank`, if each may
    /// have `window` bytes outstanding. At least a packet: otherwise no grant would be worth its
    /// GRANT if packets are longer than RTTbytes. Messages that wait for their last bytes count,
    /// because else many messages no longer than RTTbytes would be granted at once.
    pub(super) fn window_left(&self, rank: usize, window: u32, packet: u32) -> u64 {
        let shared_by = u64::from(self.links.sibling_shards.granting_with_us());
        match self.config.window {
            // Homa §3.3 bounds each message and §3.5 their number; there is no bound over all.
            GrantWindow::RttBytes | GrantWindow::WireBytes(_) => u64::MAX,
            GrantWindow::Shared { max_incoming } => {
                (u64::from(max_incoming) / shared_by).saturating_sub(self.grants.granted)
            }
            // Homa §3.5: the degree times RTTbytes is the most that a switch port has to buffer.
            GrantWindow::RttBytesShared { max_incoming } => {
                let all = (self.degree() as u64).saturating_mul(u64::from(window));
                let all = (all / u64::from(self.config.sharing)).min(max_incoming.into());
                (all / shared_by).max(packet.into()).saturating_sub(self.granted_to(rank))
            }
        }
    }

    /// Outstanding granted bytes of the active messages up to `rank` and of those that need no more
    /// grants; of all messages if all are active.
    fn granted_to(&self, rank: usize) -> u64 {
        // There are no ranks: every message is active, so all of them count.
        if self.grants.scheduler.is_unlimited() {
            return self.grants.granted;
        }
        let outstanding = |handle: RpcHandle| {
            let inc = self.rpcs.get(handle).and_then(|rpc| rpc.inc.as_ref());
            let counted = inc.filter(|inc| inc.grant.window_counted);
            counted.map_or(0, |inc| u64::from(inc.outstanding()))
        };
        let active: u64 = self.grants.scheduler.active().take(rank + 1).map(outstanding).sum();
        self.grants.finishing + active
    }
}
