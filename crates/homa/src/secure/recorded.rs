//! Opens recorded datagrams with the secrets of a key log (docs/encryption.md, "Key schedule").
//!
//! Written from the specification on aws-lc-rs alone, so that it also checks that sessions, which
//! take their keys from rustls, follow the specification. Left out: finding the session of a
//! datagram (`driver/sealed/recorded.rs`).

use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey};
use aws_lc_rs::aead::{Nonce, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, HKDF_SHA384, KeyType, Prk};
use zeroize::Zeroizing;

/// Keys of one direction of a recorded session, or of one direction of its handshake.
pub(crate) struct RecordedKeys {
    cipher: Cipher,
    /// Derives the keys of the phase after `next`.
    secret: Zeroizing<Vec<u8>>,
    current: PhaseKey,
    next: PhaseKey,
    previous: Option<PhaseKey>,
    phase: bool,
}

/// A cipher suite of TLS 1.3.
#[derive(Clone, Copy)]
pub(super) struct Cipher {
    aead: &'static Algorithm,
    hkdf: aws_lc_rs::hkdf::Algorithm,
}

/// The keys of one phase.
struct PhaseKey {
    key: LessSafeKey,
    iv: [u8; 12],
}

impl RecordedKeys {
    /// Keys from a secret of the key log and a cipher suite of TLS 1.3 (0x1301 to 0x1303). `None`
    /// if the suite is another one, or the secret has another length than its hash.
    pub(crate) fn new(cipher_suite: u16, secret: &[u8]) -> Option<Self> {
        let cipher = Cipher::new(cipher_suite)?;
        if secret.len() != KeyType::len(&cipher.hkdf) {
            return None;
        }
        let after = cipher.updated(secret)?;
        let (current, next) = (cipher.keys(secret)?, cipher.keys(&after)?);
        let secret = cipher.updated(&after)?;
        Some(Self { cipher, secret, current, next, previous: None, phase: false })
    }

    /// Opens a datagram in place; returns the length of its plaintext, the beginning of `payload`.
    /// `aad` is the header with the extensions. `None` if other keys sealed it; then the contents
    /// of `payload` are undefined. Datagrams have to be given roughly in the order of their
    /// numbers, so that changes of keys can be followed.
    pub(crate) fn open(
        &mut self,
        number: u64,
        phase: bool,
        aad: &[u8],
        payload: &mut [u8],
    ) -> Option<usize> {
        if phase == self.phase {
            return self.current.open(number, aad, payload);
        }
        let mut copy = payload.to_vec();
        if let Some(length) = self.previous.as_ref().and_then(|k| k.open(number, aad, &mut copy)) {
            payload.copy_from_slice(&copy);
            return Some(length);
        }
        let length = self.next.open(number, aad, payload)?;
        let after = self.cipher.keys(&self.secret)?;
        self.secret = self.cipher.updated(&self.secret)?;
        let current = std::mem::replace(&mut self.next, after);
        self.previous = Some(std::mem::replace(&mut self.current, current));
        self.phase = phase;
        Some(length)
    }

    /// Opens a sealed fragment of a handshake, with the keys of
    /// `CLIENT_HANDSHAKE_TRAFFIC_SECRET` or `SERVER_HANDSHAKE_TRAFFIC_SECRET`. Returns its TLS
    /// bytes. `offset` is that of its header.
    #[cfg(test)]
    pub(super) fn open_fragment(&self, offset: u32, fragment: &[u8]) -> Option<Vec<u8>> {
        let (number, sealed) = fragment.split_first_chunk()?;
        let mut bytes = sealed.to_vec();
        let number = u32::from_be_bytes(*number).into();
        let length = self.current.open(number, &offset.to_be_bytes(), &mut bytes)?;
        bytes.truncate(length);
        Some(bytes)
    }
}

impl Cipher {
    /// The cipher suite with a code point of TLS 1.3, if it exists and QUIC allows it.
    pub(super) fn new(code: u16) -> Option<Self> {
        let (aead, hkdf) = match code {
            0x1301 => (&AES_128_GCM, HKDF_SHA256),
            0x1302 => (&AES_256_GCM, HKDF_SHA384),
            0x1303 => (&CHACHA20_POLY1305, HKDF_SHA256),
            _ => return None,
        };
        Some(Self { aead, hkdf })
    }

    /// The keys of a secret (RFC 9001 §5.1).
    fn keys(self, secret: &[u8]) -> Option<PhaseKey> {
        let key = self.expand(secret, "quic key", self.aead.key_len())?;
        let iv = self.expand(secret, "quic iv", 12)?;
        let key = LessSafeKey::new(UnboundKey::new(self.aead, &key).ok()?);
        Some(PhaseKey { key, iv: iv[..].try_into().ok()? })
    }

    /// The secret of the next phase (RFC 9001 §6.1).
    pub(super) fn updated(self, secret: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        self.expand(secret, "quic ku", secret.len())
    }

    /// HKDF-Expand-Label with an empty context (RFC 8446 §7.1).
    pub(super) fn expand(
        self,
        secret: &[u8],
        label: &str,
        length: usize,
    ) -> Option<Zeroizing<Vec<u8>>> {
        let size = u16::try_from(length).ok()?.to_be_bytes();
        let label_length = [u8::try_from(label.len() + 6).ok()?];
        let info = [&size[..], &label_length, b"tls13 ", label.as_bytes(), &[0]];
        let mut out = Zeroizing::new(vec![0; length]);
        let key = Prk::new_less_safe(self.hkdf, secret);
        key.expand(&info, Length(length)).ok()?.fill(&mut out).ok()?;
        Some(out)
    }
}

/// The length of an output of HKDF.
struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

impl PhaseKey {
    /// The nonce is the number, exclusive-or with the IV (RFC 9001 §5.3).
    fn open(&self, number: u64, aad: &[u8], payload: &mut [u8]) -> Option<usize> {
        let mut nonce = self.iv;
        for (byte, of_number) in nonce[4..].iter_mut().zip(number.to_be_bytes()) {
            *byte ^= of_number;
        }
        let nonce = Nonce::assume_unique_for_key(nonce);
        Some(self.key.open_in_place(nonce, Aad::from(aad), payload).ok()?.len())
    }
}
