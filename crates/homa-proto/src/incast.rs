//! Incast (Homa §3.6): a client knows how many responses it waits for. If there are too many, new
//! requests carry a flag that limits the unscheduled bytes of their responses to a few hundred, and
//! to fewer as more responses are outstanding.
//!
//! The paper counts responses. Their bytes count here, too, because each may bring RTTbytes
//! unscheduled and all of them meet in one switch buffer.

use crate::config::IncastConfig;

/// The limit to put into a new request; `None`: no flag. `outstanding` counts this request and all
/// others in progress. `pending_unscheduled` are the unscheduled bytes of responses that have not
/// begun; `own` are those that this one would add.
pub(crate) fn response_limit(
    config: Option<&IncastConfig>,
    outstanding: usize,
    pending_unscheduled: u64,
    own: u32,
) -> Option<u16> {
    let config = config?;
    let crowded = pending_unscheduled + u64::from(own) > u64::from(config.burst);
    if outstanding <= config.threshold as usize && !crowded {
        return None;
    }
    // Homa §3.6: many RPCs at once limit the unscheduled bytes of their responses.
    let share = config.budget as usize / outstanding.max(1);
    // At least a byte, because the client learns about the response from it.
    Some(share.clamp(1, usize::from(config.max_unscheduled)) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: IncastConfig =
        IncastConfig { threshold: 32, max_unscheduled: 400, budget: 64_000, burst: 100_000 };

    /// Unscheduled bytes of `n` responses if none of them has begun.
    fn unscheduled(n: usize, own: u32) -> u64 {
        (1..=n).fold(0, |sum, outstanding| {
            let limit = response_limit(Some(&CONFIG), outstanding, sum, own);
            sum + u64::from(limit.map_or(own, |limit| own.min(limit.into())))
        })
    }

    #[test]
    fn thousands_of_responses_stay_within_a_switch_buffer() {
        assert_eq!(response_limit(Some(&CONFIG), 10, 90_000, 10_000), None);
        assert_eq!(response_limit(Some(&CONFIG), 11, 100_000, 10_000), Some(400));
        assert_eq!(response_limit(Some(&CONFIG), 33, 0, 100), Some(400));
        assert_eq!(response_limit(None, 5000, 1 << 40, 10_000), None);
        let [fifteen, two_hundred, thousand] = [15, 200, 1_000].map(|n| unscheduled(n, 10_000));
        assert!(fifteen <= 131_072 && two_hundred <= 190_000, "{fifteen} {two_hundred}");
        assert!(thousand <= 300_000, "{thousand}");
    }
}
