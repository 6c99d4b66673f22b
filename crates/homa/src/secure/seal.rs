//! Keys for fragments: each fragment is sealed under another number, and opened once.

use rustls::quic::{Keys, PacketKey};

use super::TAG;
use super::window::NumberWindow;

/// Bytes of a fragment's number, which precede its sealed bytes.
const NUMBER: usize = 4;

/// Bytes that sealing adds to a fragment.
pub(super) const OVERHEAD: usize = NUMBER + TAG;

/// The keys of the level Handshake.
pub(super) struct Seal {
    pub(super) sealer: Sealer,
    pub(super) opener: Opener,
}

impl Seal {
    /// New keys.
    pub(super) fn new(keys: Keys) -> Self {
        Self { sealer: Sealer::new(keys.local.packet), opener: Opener::new(keys.remote.packet) }
    }
}

/// The key of the direction to the peer.
pub(super) struct Sealer {
    key: Box<dyn PacketKey>,
    /// The number of the next fragment.
    number: u32,
}

impl Sealer {
    pub(super) fn new(key: Box<dyn PacketKey>) -> Self {
        Self { key, number: 0 }
    }

    /// A fragment as it travels: its number, the sealed bytes, and the tag. `None` after 2^32.
    pub(super) fn seal(&mut self, offset: u32, bytes: &[u8]) -> Option<Vec<u8>> {
        let number = self.number;
        self.number = number.checked_add(1)?;
        let mut sealed = number.to_be_bytes().to_vec();
        sealed.extend_from_slice(bytes);
        let header = offset.to_be_bytes();
        let body = &mut sealed[NUMBER..];
        let tag = self.key.encrypt_in_place(number.into(), &header, body).ok()?;
        sealed.extend_from_slice(tag.as_ref());
        Some(sealed)
    }
}

/// The key of the direction from the peer.
pub(super) struct Opener {
    key: Box<dyn PacketKey>,
    /// Numbers of the peer that were opened.
    window: NumberWindow,
}

impl Opener {
    pub(super) fn new(key: Box<dyn PacketKey>) -> Self {
        Self { key, window: NumberWindow::new() }
    }

    /// The bytes of a fragment, or why it was dropped.
    pub(super) fn open(&mut self, offset: u32, bytes: &[u8]) -> Result<Vec<u8>, &'static str> {
        let (number, sealed) = bytes.split_first_chunk().ok_or("it is too short")?;
        let number = u64::from(u32::from_be_bytes(*number));
        self.window.check(number).map_err(|_| "it was repeated")?;
        let mut sealed = sealed.to_vec();
        let header = offset.to_be_bytes();
        let opened = self.key.decrypt_in_place(number, &header, &mut sealed);
        let length = opened.map_err(|_| "it is forged or damaged")?.len();
        self.window.insert(number);
        sealed.truncate(length);
        Ok(sealed)
    }
}
