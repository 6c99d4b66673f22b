//! The time of a collective operation beside the least that links allow, and as NCCL's tests state
//! it.

use homa_proto::Rate;

use crate::scenario::CollectiveTraffic;
use crate::scenario::outcome::CollectiveTime;
use crate::time::SimDuration;

/// The time of a collective of `ranks` ranks on links of this rate; `took` is absent if it is not
/// complete.
pub fn collective(
    traffic: &CollectiveTraffic,
    ranks: u32,
    (took, link): (Option<SimDuration>, Rate),
) -> CollectiveTime {
    let CollectiveTraffic { operation, bytes, .. } = *traffic;
    let bits = operation.link_share(ranks) * bytes as f64 * 8.0;
    let bound_us = bits / link.0 as f64 * 1e6;
    let us = took.map(|took| took.0 as f64 / 1e6);
    CollectiveTime {
        operation,
        ranks,
        bytes,
        us,
        bound_us,
        over_bound: us.map(|us| us / bound_us),
        bus_gbps: us.map(|us| bits / us / 1e3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Operation, RankPlacement};

    #[test]
    fn the_bus_bandwidth_at_the_bound_is_the_rate_of_the_link() {
        let (ranks, placement, window) = (None, RankPlacement::InOrder, None);
        let traffic = |operation| {
            let bytes = 64_000_000;
            CollectiveTraffic { operation, bytes, ranks, placement, window }
        };
        let link = Rate::gbps(100);
        // 8 ranks: 2 * 7/8 * 64 MB at 12.5 GB/s.
        let bound = SimDuration::micros(8_960);
        let at = collective(&traffic(Operation::RingAllReduce), 8, (Some(bound), link));
        assert_eq!((at.bound_us, at.over_bound), (8_960.0, Some(1.0)));
        assert!((at.bus_gbps.unwrap() - 100.0).abs() < 1e-9, "{at:?}");
        let half = collective(&traffic(Operation::AllToAll), 8, (Some(bound), link));
        assert_eq!((half.bound_us, half.over_bound), (4_480.0, Some(2.0)));
        let open = collective(&traffic(Operation::RingAllGather), 8, (None, link));
        assert_eq!((open.us, open.over_bound, open.bus_gbps), (None, None, None));
    }
}
