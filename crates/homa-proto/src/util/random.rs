//! Numbers that an attacker must not guess: challenges, tokens and boot ids
//! (`address_validation/`), and the ids of RPCs.
//!
//! SipHash-2-4 (Aumasson and Bernstein 2012) of a counter, under a key made from a seed. Peers see
//! many of these numbers, but cannot compute the others or the seed from them.
//!
//! Left out: more entropy than the 64 bits of the seed.

/// The sequence of numbers that follows from a seed.
#[derive(Debug)]
pub(crate) struct Random {
    key: [u64; 2],
    given: u64,
}

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        Self { key: [seed, seed.rotate_left(32)], given: 0 }
    }

    pub(crate) const fn next(&mut self) -> u64 {
        self.given = self.given.wrapping_add(1);
        siphash(self.key, self.given)
    }
}

/// SipHash-2-4 of the eight bytes of a number.
const fn siphash([k0, k1]: [u64; 2], number: u64) -> u64 {
    let v = [
        k0 ^ 0x736f_6d65_7073_6575,
        k1 ^ 0x646f_7261_6e64_6f6d,
        k0 ^ 0x6c79_6765_6e65_7261,
        k1 ^ 0x7465_6462_7974_6573,
    ];
    // The last word holds the length.
    let [a, b, c, d] = absorb(absorb(v, number), 8 << 56);
    let [a, b, c, d] = round(round(round(round([a, b, c ^ 0xff, d]))));
    a ^ b ^ c ^ d
}

const fn absorb([a, b, c, d]: [u64; 4], word: u64) -> [u64; 4] {
    let [a, b, c, d] = round(round([a, b, c, d ^ word]));
    [a ^ word, b, c, d]
}

const fn round([mut a, mut b, mut c, mut d]: [u64; 4]) -> [u64; 4] {
    a = a.wrapping_add(b);
    b = b.rotate_left(13) ^ a;
    a = a.rotate_left(32);
    c = c.wrapping_add(d);
    d = d.rotate_left(16) ^ c;
    a = a.wrapping_add(d);
    d = d.rotate_left(21) ^ a;
    c = c.wrapping_add(b);
    b = b.rotate_left(17) ^ c;
    c = c.rotate_left(32);
    [a, b, c, d]
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn the_authors_test_vector() {
        let word = |first: u8| u64::from_le_bytes(core::array::from_fn(|n| first + n as u8));
        assert_eq!(siphash([word(0), word(8)], word(0)), 0x93f5_f579_9a93_2462);
    }

    #[test]
    fn seeds_next_to_each_other_give_different_sequences() {
        let mut all: Vec<u64> = Vec::new();
        for seed in 0..100 {
            let mut random = Random::new(seed);
            all.extend((0..100).map(|_| random.next()));
        }
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 10_000);
    }
}
