//! Claims about the arrival process: its load, its independence, its determinism.

use super::*;
use crate::framing::Framing;
use crate::sizes::Workload;

const SECOND: u64 = 1_000_000_000;

fn offer(fraction: f64) -> Offer {
    Offer {
        hosts: 5,
        load: Load { fraction, basis: Basis::Wire, link_bps: 100_000_000, framing: Framing::Udp },
        duration_ns: 20 * SECOND,
        seed: 1,
    }
}

fn w3() -> SizeDistribution {
    Workload::W3.sizes().unwrap().truncated(1_000_000)
}

#[test]
fn the_schedule_offers_the_load_it_was_asked_for() {
    let sizes = w3();
    let cost = |power| sizes.mean_of(|b| (Framing::Udp.wire_bytes(b) as f64).powi(power));
    for (basis, fraction) in [(Basis::Wire, 0.8), (Basis::Wire, 0.3), (Basis::Payload, 0.5)] {
        let mut offer = offer(fraction);
        offer.load.basis = basis;
        let plan = schedule(&offer, &sizes).unwrap();
        let offered = offered_load(&plan, &offer.load, offer.duration_ns);
        assert_eq!(offered.len(), 5);
        // Compound Poisson sum of n sizes: relative standard error sqrt(E[s^2] / (n E[s]^2)); each
        // uplink carries about n = twice a host's RPCs, and all five together five times that, in
        // pairs of equal size.
        let n = 2.0 * plan[0].len() as f64;
        let one = (cost(2) / n).sqrt() / cost(1);
        for load in &offered {
            assert!((load / fraction - 1.0).abs() < 5.0 * one, "{offered:?}, se {one}");
        }
        let mean = offered.iter().sum::<f64>() / 5.0;
        let all = one * (2.0f64 / 5.0).sqrt();
        assert!((mean / fraction - 1.0).abs() < 5.0 * all, "{mean}, se {all}");
    }
}

#[test]
fn gaps_are_exponential_and_peers_uniform() {
    let offer = offer(0.8);
    let sizes = w3();
    let arrivals: Vec<Arrival> =
        HostArrivals::new(&offer, &sizes, 2).unwrap().take(50_000).collect();
    let mean = 1e9 / offer.load.rpcs_per_second(&sizes);
    let gaps: Vec<f64> =
        arrivals.windows(2).map(|pair| (pair[1].at_ns - pair[0].at_ns) as f64).collect();
    let beyond = gaps.iter().filter(|&&gap| gap > 2.0 * mean).count() as f64;
    // e^-2 of the gaps are longer than twice the mean; five standard deviations.
    assert!((beyond / 50_000.0 - 0.13534).abs() < 0.0077, "{beyond}");
    let mut peers = [0; 5];
    for arrival in &arrivals {
        assert_eq!(arrival.src, 2);
        peers[usize::from(arrival.dst)] += 1;
    }
    assert_eq!(peers[2], 0, "nobody calls itself");
    for peer in [0, 1, 3, 4] {
        assert!((12_016..=12_984).contains(&peers[peer]), "{peers:?}");
    }
}

#[test]
fn the_same_offer_gives_the_same_arrivals_by_seed() {
    let plan = schedule(&offer(0.8), &w3()).unwrap();
    assert_eq!(plan, schedule(&offer(0.8), &w3()).unwrap());
    let other = Offer { seed: 2, ..offer(0.8) };
    assert_ne!(plan, schedule(&other, &w3()).unwrap());
    assert_ne!(plan[0][0].at_ns, plan[1][0].at_ns, "hosts are independent");
    for arrivals in &plan {
        assert!(arrivals.is_sorted_by_key(|a| a.at_ns));
        assert!(arrivals.iter().all(|a| a.at_ns < 20 * SECOND));
    }
}

#[test]
fn load_moves_arrivals_and_changes_neither_sizes_nor_peers() {
    let sizes = w3();
    let at = |load| HostArrivals::new(&offer(load), &sizes, 1).unwrap().take(1000);
    for (slow, fast) in at(0.4).zip(at(0.8)) {
        assert_eq!((slow.bytes, slow.dst), (fast.bytes, fast.dst));
        assert!(slow.at_ns.abs_diff(2 * fast.at_ns) <= 2);
    }
}

#[test]
fn the_first_arrivals_never_change() {
    let plan = schedule(&offer(0.8), &w3()).unwrap();
    let first: Vec<(u64, u16, u32)> =
        plan[0].iter().take(3).map(|a| (a.at_ns, a.dst, a.bytes)).collect();
    assert_eq!(first, [(1_172_355, 3, 128), (1_399_962, 1, 3), (2_273_325, 2, 96)]);
}

#[test]
fn impossible_offers_are_typed_errors() {
    let sizes = w3();
    let refused = |offer: Offer| schedule(&offer, &sizes).unwrap_err();
    for hosts in [0, 1] {
        let alone = Offer { hosts, ..offer(0.8) };
        assert_eq!(refused(alone), OfferError::Hosts(hosts));
    }
    assert_eq!(refused(offer(0.0)), OfferError::Load(0.0));
    assert!(matches!(refused(offer(f64::NAN)), OfferError::Load(_)));
    let mut dead = offer(0.8);
    dead.load.link_bps = 0;
    assert_eq!(refused(dead), OfferError::Link);
}

#[test]
fn more_arrivals_than_memory_holds_are_refused_at_once() {
    let day = Offer { duration_ns: 86_400 * SECOND, ..offer(0.8) };
    let refused = schedule(&day, &w3()).unwrap_err();
    assert!(matches!(refused, OfferError::TooMany(expected) if expected > 1e8), "{refused:?}");
    assert!(refused.to_string().contains("duration"), "{refused}");
}
