//! Keys, handshakes and sealed packets (docs/encryption.md): TLS 1.3 through rustls' QUIC interface
//! with aws-lc-rs.
//!
//! A [`Handshake`] turns credentials ([`Keys`]) and the fragments of two flights into a
//! [`SecureSession`], which seals and opens datagrams. No other module of the crate uses rustls or
//! aws-lc-rs.
//!
//! Invariants: everything here is sans-IO, without clock and socket, except that [`Keys`] reads a
//! file and writes a key log. A session uses a packet number once, and takes the randomness of its
//! keys from the system, so two sessions never share a nonce under one key, also across restarts
//! and shards. A forked child has a copy of its parent's sessions and must not use them: the engine
//! refuses to work there (`driver/fork.rs`). Memory for a peer's fragments is bounded before the
//! peer is verified. A panic or a wrong key never depends on a peer's bytes.
//!
//! Left out: sockets, timers, addresses, and the layout of datagrams.

#[cfg(any(test, feature = "fuzz"))]
pub mod arbitrary;
mod cookie;
mod early_data;
mod error;
mod expiry;
mod files;
mod handshake;
mod identity;
mod key_file;
mod key_log;
mod keys;
mod recorded;
mod seal;
mod session;
mod stream;
#[cfg(test)]
mod tests;
mod tickets;
mod window;

pub(crate) use cookie::{COOKIE, Cookies};
pub(crate) use early_data::{EARLY_MAX, EARLY_OVERHEAD};
pub use error::KeysError;
pub(crate) use error::{HandshakeError, SealError, UnsealError};
pub(crate) use handshake::{Fragment, Handshake, Level, Next};
pub use identity::PeerIdentity;
pub use keys::Keys;
pub(crate) use recorded::RecordedKeys;
pub(crate) use session::SecureSession;

/// Bytes that sealing adds to a datagram: the tag of AES-GCM and ChaCha20-Poly1305.
pub(crate) const TAG: usize = 16;

/// Engines move between threads, and take these along.
const _: () = {
    const fn sent<T: Send>() {}
    sent::<Keys>();
    sent::<Handshake>();
    sent::<SecureSession>();
};

/// The protocol that both ends name in the handshake (ALPN).
const ALPN: &[u8] = b"homa/1";
