//! HULL's two rules of thumb (NSDI 2012): the cost to long flows of giving up bandwidth (§3.2, eq.
//! 3), and the bandwidth that must be given up so that nothing queues (§6.1, eq. 5).
//!
//! Both are arithmetic on a single link. Left out: the margin by which congestion control stays
//! below its target rate. The paper measures 8 % of the link with DCTCP ([`DCTCP_SHORTFALL`]) and
//! subtracts it from gamma before it compares.

use homa_proto::{Duration, Rate};

/// Share of the link by which DCTCP's throughput stays below the drain rate of a phantom queue
/// (HULL §3.1, §6.2).
pub const DCTCP_SHORTFALL: f64 = 0.08;

/// Factor by which a flow takes longer on average if flows may use only the share `gamma` of a link
/// while their traffic needs the share `load` (eq. 3): `(1 - load) / (gamma - load)`, the quotient
/// of two M/G/1 queues under processor sharing. It does not depend on the size. `None` if the load
/// cannot be carried (`load` is not below `gamma`), or if an argument is not a share.
pub fn slowdown(gamma: f64, load: f64) -> Option<f64> {
    let shares = (0.0..=1.0).contains(&gamma) && (0.0..1.0).contains(&load);
    (shares && load < gamma).then(|| (1.0 - load) / (gamma - load))
}

/// Share of a link by which `flows` in congestion avoidance exceed their target before they learn
/// of it, because each adds one packet of `packet` bytes per round trip. More than this must be
/// given up (eq. 5): `flows / (link x rtt)` with the product in packets. It may exceed 1, and then
/// no headroom suffices.
pub fn needed(flows: u32, link: Rate, rtt: Duration, packet: u32) -> f64 {
    f64::from(flows) / packets_in_flight(link, rtt, packet)
}

/// The bandwidth-delay product in packets.
pub fn packets_in_flight(link: Rate, rtt: Duration, packet: u32) -> f64 {
    link.0 as f64 / 8.0 * (rtt.0 as f64 * 1e-9) / f64::from(packet.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slowdowns_equal_the_printed_ones() {
        // §3.2: gamma 0.8 at loads of 20, 40, 60 %.
        let printed = [(0.2, 1.33), (0.4, 1.50), (0.6, 2.00)];
        for (load, expected) in printed {
            let ours = slowdown(0.8, load).unwrap();
            assert!((ours - expected).abs() < 0.005, "{load}: {ours}");
        }
        for (gamma, load) in [(0.8, 0.8), (0.8, 0.9), (1.2, 0.1), (f64::NAN, 0.1), (0.8, -0.1)] {
            assert_eq!(slowdown(gamma, load), None, "{gamma} {load}");
        }
    }

    #[test]
    fn faster_links_need_less_and_more_flows_more() {
        let rtt = Duration::micros(300);
        let at = |flows, gbps, packet| needed(flows, Rate::gbps(gbps), rtt, packet);
        // 25 full packets fit into a gigabit's round trip of 300 us.
        assert!((at(2, 1, 1_500) - 0.08).abs() < 1e-9);
        assert!((at(4, 1, 1_500) - 0.16).abs() < 1e-9);
        assert!((at(2, 10, 1_500) - 0.008).abs() < 1e-9);
        // Packets of a fifth of the size are equivalent to a link five times as fast (§6.1, Figure
        // 9).
        assert!((at(2, 1, 300) - at(2, 5, 1_500)).abs() < 1e-9);
        assert!(at(1_000, 1, 1_500) > 1.0);
    }
}
