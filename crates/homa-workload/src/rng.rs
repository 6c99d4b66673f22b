//! Random numbers in named streams: the generator PCG64 (XSL-RR 128/64 of M. O'Neill, 2014), of our
//! own so that no update of a library can change an experiment.
//!
//! A stream is a function of a seed and a name, hence what one part draws never shifts what another
//! part draws. Invariants: outputs are the same on every machine and in every release (golden tests
//! below); `uniform` never yields 0. Left out: secrets. Nothing here is fit for cryptography.

/// Multiplier of the 128-bit linear congruential step of PCG64.
const MULTIPLIER: u128 = 0x2360_ED05_1FC6_5DA4_4385_DF64_9FCC_F645;

/// One stream of random numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rng {
    state: u128,
    increment: u128,
}

impl Rng {
    /// The stream called `name` of an experiment's `seed`.
    ///
    /// FNV-1a over the seed's eight bytes (little end first) and the name's UTF-8 gives a 64-bit
    /// key; four SplitMix64 outputs of that key are the initial state (high, low) and the PCG
    /// sequence (high, low). So near seeds and near names share nothing.
    pub fn stream(seed: u64, name: &str) -> Self {
        let mut key = fnv1a(seed, name);
        let mut wide = || (u128::from(split_mix(&mut key)) << 64) | u128::from(split_mix(&mut key));
        let state = wide();
        Self::from_pcg(state, wide())
    }

    /// The reference seeding of PCG: any state, and one of 2^127 sequences.
    fn from_pcg(state: u128, sequence: u128) -> Self {
        let mut rng = Self { state: 0, increment: (sequence << 1) | 1 };
        rng.step();
        rng.state = rng.state.wrapping_add(state);
        rng.step();
        rng
    }

    fn step(&mut self) {
        self.state = self.state.wrapping_mul(MULTIPLIER).wrapping_add(self.increment);
    }

    /// 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.step();
        let folded = (self.state >> 64) as u64 ^ self.state as u64;
        folded.rotate_right((self.state >> 122) as u32)
    }

    /// Uniform in (0, 1]: a multiple of 2^-53, never 0, so that its logarithm is finite.
    pub fn uniform(&mut self) -> f64 {
        const SCALE: f64 = 1.0 / (1u64 << 53) as f64;
        ((self.next_u64() >> 11) + 1) as f64 * SCALE
    }

    /// Uniform among 0 to `n` - 1, without bias (multiply, reject the uneven rest); 0 when `n` is
    /// 0.
    pub fn uniform_below(&mut self, n: u32) -> u32 {
        if n == 0 {
            return 0;
        }
        let uneven = n.wrapping_neg() % n;
        loop {
            let product = u64::from((self.next_u64() >> 32) as u32) * u64::from(n);
            if product as u32 >= uneven {
                return (product >> 32) as u32;
            }
        }
    }

    /// True with probability `p`; always below 0 never, from 1 on always.
    pub fn chance(&mut self, p: f64) -> bool {
        self.uniform() <= p
    }

    /// Exponentially distributed with the given mean, in the mean's unit.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        // Avoids the -0.0 that ln(1) would give.
        (-libm::log(self.uniform())).max(0.0) * mean
    }
}

fn fnv1a(seed: u64, name: &str) -> u64 {
    let bytes = seed.to_le_bytes().into_iter().chain(name.bytes());
    bytes.fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3)
    })
}

fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_is_pcg64_as_published() {
        // First outputs of the reference implementation's demonstration for state 42, sequence 54.
        let mut rng = Rng::from_pcg(42, 54);
        let outputs: Vec<u64> = (0..6).map(|_| rng.next_u64()).collect();
        assert_eq!(
            outputs,
            [
                0x86b1_da1d_7206_2b68,
                0x1304_aa46_c985_3d39,
                0xa367_0e9e_0dd5_0358,
                0xf909_0e52_9a7d_ae00,
                0xc85b_9fd8_3799_6f2c,
                0x6061_21f8_e391_9196,
            ]
        );
    }

    #[test]
    fn the_seeding_hashes_are_as_published() {
        // SplitMix64 from 0, and a line of the FNV authors' list whose first eight bytes are the
        // seed.
        let mut key = 0;
        assert_eq!(split_mix(&mut key), 0xE220_A839_7B1D_CDAF);
        let seed = u64::from_le_bytes(*b"chongo w");
        assert_eq!(fnv1a(seed, "as here!\n"), 0x46810940eff5f915);
    }

    #[test]
    fn streams_give_the_same_numbers_in_every_release() {
        let mut rng = Rng::stream(1, "arrivals");
        let bits: Vec<u64> = (0..3).map(|_| rng.next_u64()).collect();
        assert_eq!(
            bits,
            [12_756_488_931_660_473_693, 8_291_867_961_950_857_620, 1_309_843_773_162_255_964,]
        );
        assert_eq!(rng.uniform_below(1000), 770);
        assert_eq!(rng.exponential(1000.0), 1526.2344144592419);
    }

    #[test]
    fn a_stream_depends_on_seed_and_name() {
        let first = |seed, name| Rng::stream(seed, name).next_u64();
        assert_eq!(first(1, "sizes"), first(1, "sizes"));
        assert_ne!(first(1, "sizes"), first(2, "sizes"));
        assert_ne!(first(1, "sizes"), first(1, "peers"));
    }

    #[test]
    fn exponential_and_uniform_have_their_moments() {
        let mut rng = Rng::stream(7, "moments");
        let n = 200_000;
        let (mut sum, mut squares, mut uniform) = (0.0, 0.0, 0.0);
        for _ in 0..n {
            let x = rng.exponential(5.0);
            assert!(x >= 0.0 && x.is_finite());
            sum += x;
            squares += x * x;
            let u = rng.uniform();
            assert!(u > 0.0 && u <= 1.0);
            uniform += u;
        }
        let n = f64::from(n);
        // Within five standard errors: mean 5 (se 5/sqrt n), second moment 50 (se 50 sqrt 5/sqrt
        // n).
        assert!((sum / n - 5.0).abs() < 5.0 * 5.0 / n.sqrt());
        assert!((squares / n - 50.0).abs() < 5.0 * 50.0 * 5f64.sqrt() / n.sqrt());
        assert!((uniform / n - 0.5).abs() < 5.0 * 0.2887 / n.sqrt());
    }

    #[test]
    fn uniform_below_has_no_bias() {
        // With n = 3 * 2^30 plain scaling of 32 bits would hit the values 0 mod 3 twice as often.
        let n = 3 << 30;
        let mut rng = Rng::stream(3, "bias");
        let mut rest = [0u32; 3];
        for _ in 0..90_000 {
            rest[(rng.uniform_below(n) % 3) as usize] += 1;
        }
        for count in rest {
            assert!((29_293..=30_707).contains(&count), "{rest:?}");
        }
        assert_eq!(rng.uniform_below(1), 0);
        assert_eq!(rng.uniform_below(0), 0);
    }

    #[test]
    fn chance_follows_its_probability() {
        let mut rng = Rng::stream(3, "chance");
        let hits = (0..100_000).filter(|_| rng.chance(0.01)).count();
        assert!((843..=1157).contains(&hits), "{hits}");
        assert!(!rng.chance(0.0) && rng.chance(1.0));
    }
}
