//! Incast (Homa §3.6): a client knows how many responses it waits for. If there are too many, new
//! requests carry a flag that limits the unscheduled bytes of their responses to a few hundred, and
//! to fewer as more responses are outstanding.
//!
//! The paper counts responses. Their bytes count here, too, because each may bring RTTbytes
//! unscheduled and all of them meet in one switch buffer.

use crate::config::IncastConfig;

/// Homa §3.6: with more RPCs outstanding than a threshold, a request carries a flag: the limit of
/// the unscheduled bytes of its response.
///
/// Example: with the threshold 32, the 33rd request limits its response to 400 bytes.
pub(crate) fn incast_flag(
    config: Option<&IncastConfig>,
    outstanding: usize,
    unscheduled: u64,
) -> Option<u16> {
    let config = config?;
    let many = outstanding > config.threshold as usize;
    // Beyond the paper: the `unscheduled` bytes of all responses, this one included, would fill a
    // switch buffer.
    let long = unscheduled > config.burst.into();
    (many || long).then(|| limit(config, outstanding))
}

/// How many bytes of each response may come unscheduled: fewer as more are outstanding.
fn limit(config: &IncastConfig, outstanding: usize) -> u16 {
    let share = config.budget as usize / outstanding.max(1);
    // At least a byte, because the client learns about the response from it.
    share.clamp(1, usize::from(config.max_unscheduled)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: IncastConfig =
        IncastConfig { threshold: 32, max_unscheduled: 400, budget: 64_000, burst: 100_000 };

    /// Unscheduled bytes of `n` responses if none of them has begun.
    fn unscheduled(n: usize, own: u32) -> u64 {
        (1..=n).fold(0, |sum, outstanding| {
            let limit = incast_flag(Some(&CONFIG), outstanding, sum + u64::from(own));
            sum + u64::from(limit.map_or(own, |limit| own.min(limit.into())))
        })
    }

    #[test]
    fn requests_beyond_the_threshold_carry_the_flag() {
        for (outstanding, unscheduled, want) in [
            (32, 100, None),
            (33, 100, Some(400)),
            // The budget is shared by all: 64,000 bytes over 1,000 responses.
            (1_000, 100, Some(64)),
            // Few responses, but they would exceed the burst.
            (10, 100_000, None),
            (11, 110_000, Some(400)),
        ] {
            assert_eq!(incast_flag(Some(&CONFIG), outstanding, unscheduled), want);
        }
        assert_eq!(incast_flag(None, 5_000, 1 << 40), None, "a profile without the rule");
    }

    #[test]
    fn thousands_of_responses_stay_within_a_switch_buffer() {
        let [fifteen, two_hundred, thousand] = [15, 200, 1_000].map(|n| unscheduled(n, 10_000));
        assert!(fifteen <= 131_072 && two_hundred <= 190_000, "{fifteen} {two_hundred}");
        assert!(thousand <= 300_000, "{thousand}");
    }
}
