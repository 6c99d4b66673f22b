//! The state of granting: of an incoming message and of a peer.
//!
//! Invariant: `granted` only grows. The fields are the folder's; others ask.

use crate::units::Time;

/// The grants of one incoming message.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct GrantState {
    /// All bytes before this were sent unscheduled or granted.
    pub(super) granted: u32,
    /// Bytes that count against the memory budget: bytes that arrived, and bytes that were granted.
    pub(super) reserved: u32,
    /// When about a packet of new bytes, or the last byte, arrived last.
    pub(super) progress: Time,
    pub(super) priority: u8,
    /// The scheduler tracks the message, because it needs grants.
    pub(super) scheduled: bool,
    /// Its outstanding bytes count against `max_incoming` unless it is suspended. In profile
    /// `default` they do from its first grant on, in the others if it needs grants.
    pub(super) window_counted: bool,
    /// Its sender is silent: no grants, no share of `max_incoming`, nothing expected, until it
    /// sends again.
    pub(super) suspended: bool,
    /// A GRANT waits to be transmitted.
    pub(super) grant_queued: bool,
    /// Order of arrival.
    pub(super) age: u64,
    /// Bytes agreed to and not here, as on the wire; kept for a window of wire bytes only.
    pub(super) wire_outstanding: u32,
    /// All bytes before this were allowed by packets that left.
    pub(super) grant_sent: u32,
}

impl GrantState {
    /// A message that begins, with `unscheduled` bytes that come without a grant.
    pub(super) const fn new(now: Time, unscheduled: u32, age: u64) -> Self {
        Self {
            granted: unscheduled,
            reserved: 0,
            progress: now,
            priority: 0,
            scheduled: false,
            window_counted: false,
            suspended: false,
            grant_queued: false,
            age,
            wire_outstanding: 0,
            grant_sent: unscheduled,
        }
    }

    #[inline]
    pub(crate) const fn granted(&self) -> u32 {
        self.granted
    }

    #[inline]
    pub(crate) const fn reserved(&self) -> u32 {
        self.reserved
    }

    #[inline]
    pub(crate) const fn is_suspended(&self) -> bool {
        self.suspended
    }

    #[inline]
    pub(crate) const fn is_scheduled(&self) -> bool {
        self.scheduled
    }

    /// Enough new bytes arrived that the message has not stalled. Small pieces are not enough: with
    /// them a sender could keep a grant that it does not use.
    #[inline]
    pub(crate) fn note_progress(&mut self, now: Time) {
        self.progress = now;
    }
}

/// The grant state of a peer.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct PeerGrants {
    /// The account of its host, if the environment keeps accounts.
    pub(super) account: Option<u32>,
    /// Memory for incoming messages of the peer.
    pub(super) memory: u64,
    /// Grants that the peer wasted, if there are no accounts.
    pub(super) wasted_grants: u32,
}

impl PeerGrants {
    pub(crate) const NEW: Self = Self { account: None, memory: 0, wasted_grants: 0 };

    pub(crate) const fn memory(&self) -> u64 {
        self.memory
    }

    pub(crate) const fn has_account(&self) -> bool {
        self.account.is_some()
    }
}
