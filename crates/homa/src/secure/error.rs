//! Errors of credentials, handshakes and packets. Each message says what is wrong, where, and what
//! to do.

use std::io;
use std::path::PathBuf;

/// Credentials could not be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeysError {
    /// The key file cannot be read.
    #[error(
        "cannot read the key file {}: {source}; create one with `homa key new`",
        path.display()
    )]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A key file cannot be written.
    #[error(
        "cannot write the key file {}: {source}; choose a file that does not exist yet, in a \
         folder that you may write",
        path.display()
    )]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// Users other than the owner and its group can read the key file, or others can write it.
    #[error(
        "the key file {} has mode {mode:04o}, so other users can use or replace the key: run \
         `chmod 600 {}`, and replace the key if others may have read it (`homa key new`, or a new \
         certificate)",
        path.display(), path.display()
    )]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// A line of the key file is not a key.
    #[error(
        "the key file {}, line {line}: {problem}; a line is `homa-key-v1` and 32 bytes in base64, \
         as `homa key new` writes it",
        path.display()
    )]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The mistake in the line, in words that do not repeat the key.
        problem: &'static str,
    },
    /// The key file has no key.
    #[error("the key file {} has no key: write one with `homa key new`", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// A file of certificates, or of their private key, cannot be read.
    #[error(
        "cannot read {}: {source}; name PEM files of the certificate chain, of its private key, \
         and of the authorities",
        path.display()
    )]
    ReadPem {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A file of certificates, or of their private key, cannot be used.
    #[error(
        "cannot use {}: {problem}; name PEM files of the certificate chain, of its private key, \
         and of the authorities",
        path.display()
    )]
    Pem {
        /// The file.
        path: PathBuf,
        /// The reason, in words that do not repeat the content.
        problem: String,
    },
    /// The key log cannot be opened.
    #[error(
        "cannot open the key log {}: {source}; choose a file that you may write",
        path.display()
    )]
    KeyLog {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The server name is neither a DNS name nor an IP address.
    #[error("`{name}` is no server name: use the DNS name or the IP address in the certificates")]
    ServerName {
        /// The rejected name.
        name: String,
    },
    /// The TLS library refused the configuration.
    #[error("the TLS configuration cannot be used: {reason}")]
    Tls {
        /// The library's reason.
        reason: String,
    },
}

impl KeysError {
    pub(super) fn tls(error: rustls::Error) -> Self {
        Self::Tls { reason: error.to_string() }
    }
}

/// A handshake failed, or a fragment of it was dropped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// A fragment was dropped because it is forged, repeated, or does not fit. The handshake
    /// continues.
    #[error("a fragment of the handshake was dropped: {0}")]
    Dropped(&'static str),
    /// We do not accept the peer's cluster key.
    #[error(
        "the peer has another cluster key: give both ends the same key file; during a rotation, \
         both files need both keys"
    )]
    WrongKey,
    /// The peer does not accept our cluster key.
    #[error(
        "the peer does not accept our cluster key: give both ends the same key file; during a \
         rotation, both files need both keys"
    )]
    KeyRefused,
    /// We refused the peer's certificate.
    #[error("the peer's certificate was refused: {0}; check the names, the dates and the CA")]
    CertificateRefused(String),
    /// The peer ended the handshake, for example because it refused our certificate.
    #[error(
        "the peer refused the handshake (TLS alert {alert}, {name}): check that it accepts our \
         certificate, or that both ends have the same kind of keys"
    )]
    RefusedByPeer {
        /// The code of the alert (RFC 8446 §6).
        alert: u8,
        /// Its name.
        name: String,
    },
    /// Both ends cannot agree on a configuration.
    #[error(
        "the peer's keys are of another kind: {0}; use a key file at both ends, or certificates at \
         both ends"
    )]
    Incompatible(String),
    /// The peer broke the rules of TLS 1.3, or its messages were damaged.
    #[error("the peer violated the handshake protocol: {0}; check that it is a Homa engine")]
    Protocol(String),
    /// Our configuration cannot be used.
    #[error("the handshake cannot start: {0}; allow TLS 1.3 and a cipher suite for QUIC")]
    Config(String),
}

impl HandshakeError {
    /// False if only a fragment was lost, and the handshake continues.
    pub fn is_final(&self) -> bool {
        !matches!(self, Self::Dropped(_))
    }
}

/// A datagram cannot be sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SealError {
    /// The cipher's limit was reached, and the peer has not shown that it has the next keys.
    #[error("the session's keys are used up: make a new handshake")]
    Exhausted,
    /// The packet number is not the one that was given out last, or was already used.
    #[error("a packet number is used once, right after it was given out")]
    Number,
    /// The buffer has no room for the tag, or is too long for the cipher.
    #[error("the datagram does not fit into a sealed packet")]
    Length,
}

/// A datagram cannot be opened. It has to be dropped and counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UnsealError {
    /// A datagram with this number was opened before.
    #[error("the datagram was repeated")]
    Replayed,
    /// The number is so old that the window does not cover it.
    #[error("the datagram is more than 4,096 numbers late")]
    TooOld,
    /// It was not sealed by the peer, or was changed on the way.
    #[error("the datagram is forged or damaged")]
    Forged,
    /// More forged datagrams arrived than the cipher gives its guarantee for.
    #[error("too many forged datagrams arrived under these keys: make a new handshake")]
    Exhausted,
}
