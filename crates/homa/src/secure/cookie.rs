//! Cookies: a server recognises what it sent to an address without remembering it, as QUIC's Retry
//! does (RFC 9000 §8.1.2).

use aws_lc_rs::{constant_time, hmac, rand};
use zeroize::Zeroizing;

/// Bytes of a cookie.
pub(crate) const COOKIE: usize = 16;

/// Makes and verifies cookies. It accepts those of its last two keys.
pub(crate) struct Cookies {
    current: hmac::Key,
    previous: Option<hmac::Key>,
}

impl Cookies {
    /// With a random key; `None` if the system has no randomness.
    pub(crate) fn new() -> Option<Self> {
        Some(Self { current: key()?, previous: None })
    }

    /// Takes another key.
    pub(crate) fn rotate(&mut self) {
        self.previous = key().map(|new| std::mem::replace(&mut self.current, new));
    }

    /// The cookie for a name.
    pub(crate) fn of(&self, name: &[u8]) -> [u8; COOKIE] {
        of(&self.current, name)
    }

    /// Whether a cookie is the one for this name.
    pub(crate) fn accepts(&self, name: &[u8], cookie: &[u8]) -> bool {
        let keys = [Some(&self.current), self.previous.as_ref()];
        let fits = |key| constant_time::verify_slices_are_equal(&of(key, name), cookie).is_ok();
        keys.into_iter().flatten().any(fits)
    }
}

fn key() -> Option<hmac::Key> {
    let mut secret = Zeroizing::new([0; 32]);
    rand::fill(&mut *secret).ok()?;
    Some(hmac::Key::new(hmac::HMAC_SHA256, &*secret))
}

fn of(key: &hmac::Key, name: &[u8]) -> [u8; COOKIE] {
    let tag = hmac::sign(key, name);
    std::array::from_fn(|at| tag.as_ref()[at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_accepted_for_its_name_and_for_two_keys() {
        let mut cookies = Cookies::new().unwrap();
        let cookie = cookies.of(b"one");
        assert!(cookies.accepts(b"one", &cookie) && !cookies.accepts(b"two", &cookie));
        assert!(!cookies.accepts(b"one", &cookie[..15]) && !cookies.accepts(b"one", b""));
        cookies.rotate();
        assert!(cookies.accepts(b"one", &cookie) && cookies.of(b"one") != cookie);
        cookies.rotate();
        assert!(!cookies.accepts(b"one", &cookie), "it is too old");
        assert!(!Cookies::new().unwrap().accepts(b"one", &cookie), "another server's");
    }
}
