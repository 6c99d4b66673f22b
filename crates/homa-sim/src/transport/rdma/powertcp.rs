//! PowerTCP and θ-PowerTCP (NSDI 2022, Algorithms 1 and 2) as the simulator of their authors has
//! them (`inet-tub/ns3-datacenter`, revision 6ddb4a4, `rdma-hw.cc`, `UpdateRatePower`): the rate
//! follows the power of the bottleneck, which is arrival rate times (queue + bandwidth-delay
//! product).
//!
//! PowerTCP reads the power of every switch on the path from telemetry. θ-PowerTCP needs none: the
//! round-trip time stands for the queue, and its slope for the arrival rate. The power relative to
//! that of a full link without a queue is smoothed over a round trip. A share, γ, of the new rate
//! is the old rate divided by it, and an increment. The rate that this starts from changes once per
//! round trip, as in HPCC. Invariant: the rate stays in its range. Left out: networks that change
//! their links (§5).

use homa_proto::Time;

use super::control::{RateControl, RateRange, RateSignal, part, scaled, smoothed};
use super::telemetry::{ArrivalStack, IntRecord, SentAt};

/// Parameters of PowerTCP.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PowerConfig {
    /// The power that it aims at, as a share of that of a full link without a queue.
    pub target: f64,
    /// The share of the new rate that follows from the power, γ.
    pub gain: f64,
    /// The increment, bit/s.
    pub additive: u64,
    /// Round trip of the longest path without queueing, ns. θ-PowerTCP takes the shortest that it
    /// saw, if that is less.
    pub base_rtt: u64,
}

/// What both variants know of a queue pair.
#[derive(Clone, Debug)]
struct PoweredRate {
    range: RateRange,
    rate: u64,
    /// The rate that acknowledgements of this round trip start from.
    reference: u64,
    /// Smoothed power, relative to that of a full link without a queue.
    power: f64,
    /// The next byte at the last change of `reference`.
    since: u32,
}

impl PoweredRate {
    fn new(range: RateRange) -> Self {
        Self { range, rate: range.most, reference: range.most, power: 1.0, since: 0 }
    }

    /// The power was `power` over the last `ns`.
    fn update<S>(
        &mut self,
        config: &PowerConfig,
        (power, ns): (f64, u64),
        base_rtt: u64,
        signal: &RateSignal<S>,
    ) {
        self.power = smoothed(self.power, power, (ns, base_rtt));
        self.rate = self.range.clamp(next_rate(config, self.reference, self.power));
        if signal.is_past(self.since) {
            self.reference = self.rate;
            self.since = signal.next.max(self.since);
        }
    }
}

/// The rate that follows from the power.
fn next_rate(config: &PowerConfig, reference: u64, power: f64) -> u64 {
    let fair = scaled(reference, config.target / power).saturating_add(config.additive);
    scaled(fair, config.gain).saturating_add(scaled(reference, 1.0 - config.gain))
}

/// The relative power of a port between two of its records, and the nanoseconds between them.
/// Arrivals count as half the link's rate at least.
fn port_power((now, before): (&IntRecord, &IntRecord), unit: u32, rtt: u64) -> Option<(f64, u64)> {
    let ns = u64::from(now.ns_since(before));
    let (rate, rtt) = (now.rate() as f64, rtt as f64 * 1e-9);
    if ns == 0 || rate == 0.0 {
        return None;
    }
    let arrivals = now.bytes_since(before, unit) as f64 * 8e9 / ns as f64;
    let waiting = now.queue_bytes(unit) as f64 * 8.0;
    Some((arrivals.max(rate / 2.0) * (waiting + rate * rtt) / (rate * rate * rtt), ns))
}

/// The relative power that round trips tell: the last one, and how much longer it was than the one
/// before, which came back `ns` earlier.
fn rtt_power((rtt, before): (u64, u64), ns: u64, base_rtt: u64) -> f64 {
    let slope = if ns == 0 { 0.0 } else { (rtt as f64 - before as f64) / ns as f64 };
    (slope + 1.0).max(0.5) * rtt as f64 / base_rtt.max(1) as f64
}

/// A queue pair of PowerTCP.
#[derive(Clone, Debug)]
pub struct PowerTcp {
    state: PoweredRate,
    before: ArrivalStack,
}

impl RateControl for PowerTcp {
    type Config = PowerConfig;
    type Collected = ArrivalStack;
    const MOVES_NEXT: bool = true;

    fn new(_: &PowerConfig, range: RateRange) -> Self {
        Self { state: PoweredRate::new(range), before: ArrivalStack::default() }
    }

    fn rate(&self) -> u64 {
        self.state.rate
    }

    /// The first one is not compared with anything (*inferred*). Their simulator compares it with
    /// an empty record, whose bytes and time wrap at different times, so that the rate would depend
    /// on the time of day.
    fn acknowledged(&mut self, config: &PowerConfig, signal: &RateSignal<ArrivalStack>) {
        let stack = signal.collected.0;
        let before = std::mem::replace(&mut self.before, signal.collected).0;
        // The first, or the path changed, so that records are not those of the same ports.
        if before.records().len() != stack.records().len() {
            return;
        }
        let power = |pair: (&_, &_)| port_power(pair, stack.unit, config.base_rtt);
        if let Some(most) = stack.greatest(&before, power) {
            self.state.update(config, most, config.base_rtt, signal);
        }
    }
}

/// A queue pair of θ-PowerTCP.
#[derive(Clone, Debug)]
pub struct ThetaPowerTcp {
    state: PoweredRate,
    /// The shortest round trip, ns.
    base_rtt: u64,
    /// The last round trip, ns, and when it ended.
    before: Option<(u64, Time)>,
}

impl RateControl for ThetaPowerTcp {
    type Config = PowerConfig;
    type Collected = SentAt;
    const MOVES_NEXT: bool = true;

    fn new(config: &PowerConfig, range: RateRange) -> Self {
        Self { state: PoweredRate::new(range), base_rtt: config.base_rtt, before: None }
    }

    fn rate(&self) -> u64 {
        self.state.rate
    }

    /// What the present rate sends in the shortest round trip.
    fn window(&self, _: u32, _: u64) -> u32 {
        part(self.base_rtt, self.state.rate, 8_000_000_000)
    }

    fn acknowledged(&mut self, config: &PowerConfig, signal: &RateSignal<SentAt>) {
        let rtt = signal.now.since(signal.collected.0).0;
        self.base_rtt = self.base_rtt.min(rtt.max(1));
        let (last, since) = self.before.replace((rtt, signal.now)).unwrap_or((rtt, Time::ZERO));
        let ns = signal.now.since(since).0;
        let power = rtt_power((rtt, last), ns, self.base_rtt);
        self.state.update(config, (power, ns), self.base_rtt, signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::SimTime;
    use crate::transport::LeavingHop;
    use crate::transport::rdma::control::Collected;

    const GBPS: u64 = 1_000_000_000;
    const CONFIG: PowerConfig =
        PowerConfig { target: 0.95, gain: 0.9, additive: 150_000_000, base_rtt: 10_000 };
    const RANGE: RateRange = RateRange { least: GBPS / 10, most: 25 * GBPS };

    fn hop(ns: u64, sent_bytes: u64, queued_bytes: u32) -> LeavingHop {
        LeavingHop { at: SimTime(ns * 1_000), sent_bytes, queued_bytes, mbps: 25_000 }
    }

    #[test]
    fn a_ports_power_is_arrivals_times_what_is_on_the_way() {
        // 25 Gbit/s times 10 us are 31,250 bytes.
        for (ns, (arrived, queue), expected) in [
            // A full link without a queue.
            (10_240, (32_000, 0), 1.0),
            // An idle link counts as half full.
            (10_240, (0, 0), 0.5),
            // A queue of 80 % of the product, which does not grow.
            (10_240, (32_000, 25_040), 1.801_28),
            // The same, while twice as much arrives.
            (10_240, (64_000, 25_040), 3.602_56),
        ] {
            let record = |at, sent, queue| {
                let mut stack = ArrivalStack::new(Time::ZERO, 1);
                // Bytes that arrived were sent or wait.
                stack.stamp(&hop(at, sent, queue));
                stack.0.records()[0]
            };
            let (before, now) = (record(0, 0, 0), record(ns, arrived - u64::from(queue), queue));
            let (power, over) = port_power((&now, &before), 1, 10_000).unwrap();
            assert!((power - expected).abs() < 1e-6, "{power} for {expected}");
            assert_eq!(over, ns);
        }
        let same = IntRecord::new(&hop(10, 0, 0), 1);
        assert_eq!(port_power((&same, &same), 1, 10_000), None);
    }

    #[test]
    fn round_trips_tell_the_power() {
        for ((rtt, before, ns), expected) in [
            ((10_000, 10_000, 400), 1.0),
            ((20_000, 20_000, 400), 2.0),
            // It grows by a quarter of the time: a quarter more arrives than leaves.
            ((20_000, 19_900, 400), 2.5),
            ((20_000, 20_100, 400), 1.5),
            // It falls by all of the time, which counts as half.
            ((20_000, 20_400, 400), 1.0),
            ((20_000, 10_000, 0), 2.0),
        ] {
            let power = rtt_power((rtt, before), ns, 10_000);
            assert!((power - expected).abs() < 1e-12, "{rtt} {before} {ns}: {power}");
        }
    }

    #[test]
    fn a_share_of_the_rate_follows_the_power() {
        for (gain, reference, power, expected) in [
            // .9 (10 / 2 + .15) + .1 * 10.
            (0.9, 10 * GBPS, 1.9, 5_635_000_000),
            (0.9, 10 * GBPS, 0.95, 10_135_000_000),
            (0.5, 10 * GBPS, 1.9, 7_575_000_000),
            (0.9, 20 * GBPS, 0.475, 38_135_000_000),
        ] {
            let rate = next_rate(&PowerConfig { gain, ..CONFIG }, reference, power);
            assert!(rate.abs_diff(expected) < 4, "{rate} for {expected}");
        }
    }

    fn heard<S>(acknowledged: u32, next: u32, now: u64, collected: S) -> RateSignal<S> {
        RateSignal { now: Time(now), acknowledged, next, marked: false, collected }
    }

    #[test]
    fn the_reference_changes_once_per_round_trip() {
        let mut pair = PowerTcp::new(&CONFIG, RANGE);
        let answer = |pair: &mut PowerTcp, bytes: (u32, u32), at: LeavingHop| {
            let mut stack = ArrivalStack::new(Time::ZERO, 1);
            stack.stamp(&at);
            pair.acknowledged(&CONFIG, &heard(bytes.0, bytes.1, 0, stack));
            (pair.state.rate, pair.state.reference)
        };
        // The first is not compared. Then a round trip of nothing, and a full link with a queue of
        // a product.
        answer(&mut pair, (500, 29_000), hop(10_000, 0, 0));
        assert_eq!(pair.state.since, 0);
        let (rate, reference) = answer(&mut pair, (1_000, 30_000), hop(20_000, 0, 0));
        assert_eq!((rate, reference), (25 * GBPS, 25 * GBPS));
        let (first, reference) = answer(&mut pair, (2_000, 31_000), hop(30_000, 0, 31_250));
        assert!((12 * GBPS..16 * GBPS).contains(&first) && reference == 25 * GBPS, "{first}");
        let (second, reference) = answer(&mut pair, (3_000, 32_000), hop(40_000, 31_250, 31_250));
        assert!(second.abs_diff(first) < GBPS && reference == 25 * GBPS, "{second} after {first}");
        let (third, reference) = answer(&mut pair, (31_000, 60_000), hop(50_000, 62_500, 31_250));
        assert_eq!((third, pair.state.since), (reference, 60_000));
    }

    #[test]
    fn theta_keeps_the_shortest_round_trip_in_flight() {
        let config = PowerConfig { target: 1.05, ..CONFIG };
        let mut pair = ThetaPowerTcp::new(&config, RANGE);
        assert_eq!(pair.window(0, 0), 31_250);
        pair.acknowledged(&config, &heard(1_000, 30_000, 8_000, SentAt(Time(0))));
        assert_eq!((pair.rate(), pair.window(0, 0)), (25 * GBPS, 25_000));
        // Ten round trips of twice the time.
        for trip in 1..=10 {
            let (at, bytes) = (8_000 + trip * 16_000, trip as u32 * 30_000);
            let signal = heard(bytes + 1, bytes + 30_000, at, SentAt(Time(at - 16_000)));
            pair.acknowledged(&config, &signal);
        }
        assert!(pair.rate() < 2 * GBPS && pair.base_rtt == 8_000, "{pair:?}");
        assert_eq!(u64::from(pair.window(0, 0)), pair.rate() / 1_000_000);
    }
}
