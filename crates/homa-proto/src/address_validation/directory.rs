//! A directory of clients for endpoints that share an address and each receive from some peers
//! only: it records to which of them a client identified itself last.
//!
//! A client whose address changes may reach another endpoint, which has no record of its executed
//! requests. So each client that is validated is looked up here. If it was another endpoint's, all
//! that it has in progress counts as executed (Homa §3.8: at most once).
//!
//! Left out: handing over the records. So calls in progress, and the first one after the change,
//! end as [`crate::RpcError::Indeterminate`].

use core::fmt::Debug;

/// The directory that such endpoints share: see [`crate::Endpoint::share_client_directory`].
pub trait ClientDirectory: Debug + Send {
    /// The client `token` with this epoch identified itself to this endpoint. True if another
    /// endpoint had it until now.
    fn claim(&mut self, token: u64, epoch: u32) -> bool;

    /// A client of this endpoint that has since identified itself to another one; each is returned
    /// once. Packets from its old address are not validated any more.
    fn next_departed(&mut self) -> Option<(u64, u32)>;

    /// This endpoint has forgotten a client, to make room.
    fn forget(&mut self, token: u64, epoch: u32);
}
