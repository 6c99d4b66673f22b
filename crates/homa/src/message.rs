//! A received message.

use std::fmt;
use std::ops::Deref;

use bytes::Bytes;

/// The bytes of a received message. It dereferences to a slice. Its memory can be taken without a
/// copy, as a vector, or as [`Bytes`] to be shared and split.
///
/// ```
/// # let message = homa::Message::from(b"4:ping and more".to_vec());
/// let bytes = message.into_bytes();
/// let (length, word) = (bytes.slice(..1), bytes.slice(2..6)); // the same memory
/// # assert_eq!((&length[..], &word[..]), (&b"4"[..], &b"ping"[..]));
/// ```
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Message(Vec<u8>);

impl Message {
    /// Returns the bytes as a vector.
    pub fn into_vec(self) -> Vec<u8> {
        self.0
    }

    /// Returns the bytes as a shareable buffer.
    pub fn into_bytes(self) -> Bytes {
        self.0.into()
    }
}

impl Deref for Message {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for Message {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl From<Vec<u8>> for Message {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

impl From<Message> for Vec<u8> {
    fn from(message: Message) -> Self {
        message.0
    }
}

impl From<Message> for Bytes {
    fn from(message: Message) -> Self {
        message.into_bytes()
    }
}

impl<const N: usize> PartialEq<[u8; N]> for Message {
    fn eq(&self, other: &[u8; N]) -> bool {
        self.0 == other
    }
}

impl PartialEq<[u8]> for Message {
    fn eq(&self, other: &[u8]) -> bool {
        self.0 == other
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 32;
        let head = &self.0[..self.0.len().min(SHOWN)];
        let more = if self.0.len() > SHOWN { "…" } else { "" };
        write!(f, "Message({} bytes: \"{}{more}\")", self.0.len(), head.escape_ascii())
    }
}
