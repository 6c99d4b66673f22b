//! Incast (Homa §3.6): a client counts its outstanding RPCs; above a threshold new requests carry a
//! flag that limits the unscheduled bytes of their responses to a few hundred, and to less as more
//! are outstanding.

use crate::config::IncastConfig;

/// The limit to put into a new request when `outstanding` RPCs are in progress; `None`: no flag.
pub(crate) fn response_limit(config: Option<&IncastConfig>, outstanding: usize) -> Option<u16> {
    let config = config.filter(|c| outstanding > c.threshold as usize)?;
    let share = config.budget as usize / outstanding.max(1);
    Some(share.clamp(1, usize::from(config.max_unscheduled)) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thousandfold_incast_stays_within_a_few_hundred_thousand_bytes() {
        let config = IncastConfig { threshold: 32, max_unscheduled: 400, budget: 64_000 };
        assert_eq!(response_limit(Some(&config), 32), None);
        assert_eq!(response_limit(Some(&config), 33), Some(400));
        let total: u32 =
            (1..=1000).filter_map(|n| response_limit(Some(&config), n)).map(u32::from).sum();
        assert!(total <= 500_000, "{total}");
        assert_eq!(response_limit(None, 5000), None);
    }
}
