//! Several endpoints share an address, and each hears only some of its peers: which of them a
//! client identified itself to last.
//!
//! A client whose address changes may come to another endpoint, which does not know what the first
//! one executed for it. So each proof of address is looked up here. Where the client was another's,
//! all that it has in progress counts as executed (Homa §3.8: at most once).
//!
//! Left out: handing over what was executed. So calls in progress, and the first one after the
//! change, end as [`crate::RpcError::Indeterminate`].

use core::fmt::Debug;

/// The directory that such endpoints share: see [`crate::Endpoint::share_client_directory`].
pub trait ClientDirectory: Debug + Send {
    /// The client called `token` and `epoch` identified itself to this endpoint; true if another
    /// one knew it until now.
    fn claim(&mut self, token: u64, epoch: u32) -> bool;

    /// A client of this endpoint that has since identified itself to another, each once: what
    /// arrives here from its old address is a stranger's.
    fn next_departed(&mut self) -> Option<(u64, u32)>;

    /// This endpoint has forgotten a client, to make room.
    fn forget(&mut self, token: u64, epoch: u32);
}
