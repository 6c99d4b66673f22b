//! The keys of the level Handshake: each fragment is sealed under another number, and opened once.

use rustls::quic::{Keys, PacketKey};

use super::TAG;
use super::window::NumberWindow;

/// Bytes of a fragment's number, which precede its sealed bytes.
const NUMBER: usize = 4;

/// Bytes that sealing adds to a fragment.
pub(super) const OVERHEAD: usize = NUMBER + TAG;

/// The keys of both directions.
pub(super) struct Seal {
    local: Box<dyn PacketKey>,
    remote: Box<dyn PacketKey>,
    /// The number of the next fragment.
    number: u32,
    /// Numbers of the peer that were opened.
    window: NumberWindow,
}

impl Seal {
    /// New keys.
    pub(super) fn new(keys: Keys) -> Self {
        let (local, remote) = (keys.local.packet, keys.remote.packet);
        Self { local, remote, number: 0, window: NumberWindow::new() }
    }

    /// A fragment as it travels: its number, the sealed bytes, and the tag. `None` after 2^32.
    pub(super) fn seal(&mut self, offset: u32, bytes: &[u8]) -> Option<Vec<u8>> {
        let number = self.number;
        self.number = number.checked_add(1)?;
        let mut sealed = number.to_be_bytes().to_vec();
        sealed.extend_from_slice(bytes);
        let header = offset.to_be_bytes();
        let body = &mut sealed[NUMBER..];
        let tag = self.local.encrypt_in_place(number.into(), &header, body).ok()?;
        sealed.extend_from_slice(tag.as_ref());
        Some(sealed)
    }

    /// The bytes of a fragment, or why it was dropped.
    pub(super) fn open(&mut self, offset: u32, bytes: &[u8]) -> Result<Vec<u8>, &'static str> {
        let (number, sealed) = bytes.split_first_chunk().ok_or("it is too short")?;
        let number = u64::from(u32::from_be_bytes(*number));
        self.window.check(number).map_err(|_| "it was repeated")?;
        let mut sealed = sealed.to_vec();
        let header = offset.to_be_bytes();
        let opened = self.remote.decrypt_in_place(number, &header, &mut sealed);
        let length = opened.map_err(|_| "it is forged or damaged")?.len();
        self.window.insert(number);
        sealed.truncate(length);
        Ok(sealed)
    }
}
