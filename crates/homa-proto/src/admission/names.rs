//! Several endpoints at one address, each of which hears some of the peers: who of them a client
//! named itself to last.
//!
//! A client whose address changes may come to another of them, which knows nothing of what the one
//! before executed. So each proof of address is looked up here, and where the client was known to
//! another endpoint, all that it has in progress counts as executed (Homa §3.8: at most once).
//!
//! Left out: handing over what was executed, so that calls in progress, and the first after such a
//! change, end as [`crate::RpcError::Indeterminate`].

use core::fmt::Debug;

/// See the module's documentation.
pub trait Names: Debug + Send {
    /// The client that goes by `token` and `epoch` names itself here; true if it was known to
    /// another endpoint until now.
    fn comes_from_another(&mut self, token: u64, epoch: u32) -> bool;

    /// A client that was known here and named itself to another endpoint, each once: what it sends
    /// to this one from now on is a stranger's.
    fn left(&mut self) -> Option<(u64, u32)>;

    /// This endpoint has forgotten a client.
    fn forgotten(&mut self, token: u64, epoch: u32);
}
