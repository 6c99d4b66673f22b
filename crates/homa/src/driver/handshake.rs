//! Reports of a driver with keys about its handshakes.

use std::net::{IpAddr, SocketAddr};

use homa_proto::{Quoted, RpcId};

use crate::error::HandshakeRefusal;

/// A packet that was not sent, because its peer and we do not accept each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// Its destination.
    pub to: SocketAddr,
    /// Its id, and whether it began a message.
    pub quoted: Quoted,
    /// Our keys, in words.
    pub keys: Box<str>,
    /// The reason.
    pub why: HandshakeRefusal,
}

/// A client that was verified by a handshake in which it got a challenge of its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChallengedClient {
    /// The client.
    pub from: SocketAddr,
    /// The local address that it called, if the socket has several.
    pub to: Option<IpAddr>,
    /// The random id of the challenge.
    pub id: RpcId,
    /// The boot id in it.
    pub boot: u64,
}
