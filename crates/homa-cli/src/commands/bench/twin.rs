//! `homa bench --twin`: what the simulator says about the same RPCs on the same rack.
//!
//! The same protocol code, the same arrivals, topology, rates, buffers and faults; hosts take a
//! constant time per message, calibrated from the row's idle round trips, and are never busy. What
//! the measurement shows beyond the forecast is therefore what hosts add under load: processors
//! shared by all of them, late timers, two frames waiting in the NIC where the simulator's NIC
//! holds one. Left out: rows of TCP.

use homa_proto::Rate;
use homa_sim::clairvoyant::{Star, echo};
use homa_sim::experiment::replay;
use homa_sim::scenario::{
    Buffer, Exchange, Fabric, FramingName, Measures, Scenario, SchemeOptions, Shape, Span, Stop,
};
use homa_sim::traffic::open_loop;
use homa_sim::{SimDuration, SimTime};
use homa_testbed::check::SHORT_BYTES;
use homa_testbed::{IdleTimes, Transport};
use homa_workload::arrivals::Arrival;
use homa_workload::framing::Framing;
use homa_workload::quantile::{Percentile, Sorted};
use serde::Serialize;

use super::report::Short;
use super::screen::time;
use super::{Args, Switch};
use crate::failure::{Failure, Hint};

/// A host's time per message where no rack is there to calibrate it: about what idle racks show on
/// small virtual machines.
const ASSUMED_HOST_US: f64 = 18.0;
/// RTTbytes before anything is measured, as the runtime starts.
const FIRST_RTT_BYTES: u32 = 10_000;

/// The forecast of one row. Times are microseconds, of RPCs of at most [`SHORT_BYTES`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Twin {
    /// Whether the hosts' time comes from idle round trips; else it is assumed.
    pub calibrated: bool,
    /// What a message spends in the software of both hosts together.
    pub host_us: f64,
    /// Short RPCs that were simulated.
    pub count: usize,
    /// Median latency.
    pub p50_us: Option<f64>,
    /// 99th percentile.
    pub p99_us: Option<f64>,
    /// (Forecast - measurement) / measurement of the median; absent without a measurement.
    pub p50_error: Option<f64>,
    /// The same of the 99th percentile.
    pub p99_error: Option<f64>,
    /// The same against RPCs that met no pause of the machine, which the forecast knows nothing of.
    pub p99_undisturbed_error: Option<f64>,
    /// What clairvoyant SRPT would make of them.
    pub bound: Bound,
    /// Frames that found a full buffer.
    pub overflow: u64,
    /// Equal when the same packets moved at the same times.
    pub trace_hash: String,
}

/// The single-bottleneck bound of [`homa_sim::clairvoyant`]: every receiver's link by itself,
/// shortest remaining first, preemptive, no control packets, uplinks never busy.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bound {
    /// Median latency, us.
    pub p50_us: Option<f64>,
    /// 99th percentile, us.
    pub p99_us: Option<f64>,
}

/// Forecasts a row; `None` for transports that the simulator does not have. `idle`: the row's
/// round trips on the idle rack, if there is one.
pub fn forecast(
    args: &Args,
    transport: Transport,
    arrivals: &[Vec<Arrival>],
    idle: Option<&IdleTimes>,
) -> Result<Option<Twin>, Failure> {
    let Some(levels) = levels(transport) else { return Ok(None) };
    let measured = idle.filter(|idle| !idle.points().is_empty());
    let host_us = match measured {
        Some(idle) => calibrate(args, levels, idle)?,
        None => ASSUMED_HOST_US,
    };
    let list = merged(arrivals);
    let rack = scenario(args, levels, host_us);
    let twin = simulate(&rack, list.clone())?;
    let short = |all: Vec<(u32, f64)>| {
        let short = all.into_iter().filter(|(bytes, _)| *bytes <= SHORT_BYTES);
        Sorted::new(short.map(|(_, us)| us).collect())
    };
    let star = Star {
        hosts: args.hosts as u32,
        link: Rate(args.link()),
        delay: SimDuration((host_us * 1e6) as u64),
        framing: Framing::Udp,
    };
    let bound = echo(&star, &list);
    let bound = short(list.iter().zip(bound).map(|(a, time)| (a.bytes, micros(time))).collect());
    let latencies = short(twin.latencies);
    Ok(Some(Twin {
        calibrated: measured.is_some(),
        host_us,
        count: latencies.len(),
        p50_us: latencies.percentile(Percentile::P50),
        p99_us: latencies.percentile(Percentile::P99),
        p50_error: None,
        p99_error: None,
        p99_undisturbed_error: None,
        bound: Bound {
            p50_us: bound.percentile(Percentile::P50),
            p99_us: bound.percentile(Percentile::P99),
        },
        overflow: twin.overflow,
        trace_hash: twin.trace_hash,
    }))
}

impl Twin {
    /// Compared with what was measured.
    pub fn beside(mut self, measured: &Short) -> Self {
        let error = |forecast: Option<f64>, measured: Option<f64>| {
            Some(forecast? / measured.filter(|&us| us > 0.0)? - 1.0)
        };
        self.p50_error = error(self.p50_us, measured.p50_us);
        self.p99_error = error(self.p99_us, measured.p99_us);
        let undisturbed = measured.undisturbed.as_ref().and_then(|calm| calm.p99_us);
        self.p99_undisturbed_error = error(self.p99_us, undisturbed);
        self
    }

    /// For people, below its row.
    pub fn lines(&self) -> [String; 2] {
        let with_error = |us: Option<f64>, error: Option<f64>| match error {
            Some(error) => format!("{} ({:+.0} %)", time(us), error * 100.0),
            None => time(us),
        };
        let undisturbed = self.p99_undisturbed_error.map_or(String::new(), |error| {
            format!(" ({:+.0} % of those that met no pause)", error * 100.0)
        });
        let from = if self.calibrated { "from the idle rows" } else { "assumed" };
        [
            format!(
                "    twin: p50 {}, p99 {}{undisturbed}, simulated; hosts take {:.1} us a message \
                 ({from})",
                with_error(self.p50_us, self.p50_error),
                with_error(self.p99_us, self.p99_error),
                self.host_us,
            ),
            format!(
                "    bound: p50 {}, p99 {} (clairvoyant preemptive SRPT on each receiver's link \
                 alone)",
                time(self.bound.p50_us),
                time(self.bound.p99_us),
            ),
        ]
    }
}

/// The levels that the runtime asks the network for.
fn levels(transport: Transport) -> Option<u8> {
    match transport {
        Transport::Homa => Some(homa::PriorityMap::default().levels()),
        Transport::HomaFlat => Some(homa::PriorityMap::Flat.levels()),
        _ => None,
    }
}

/// The rack as the simulator describes it, with hosts that take `host_us` per message.
fn scenario(args: &Args, levels: u8, host_us: f64) -> Scenario {
    let delay = Span((host_us * 1e6) as u64);
    let sending = Span(delay.0 / 2);
    // A frame meets the rack's faults once, and two links in the simulator.
    let per_link = |once: f64| ((1.0 - (1.0 - once).sqrt()) * 1e6).round() as u32;
    let link = homa_sim::scenario::Bandwidth(args.link());
    Scenario {
        scheme: "homa".to_owned(),
        options: SchemeOptions {
            framing: Some(FramingName::Udp),
            rtt_bytes: Some(FIRST_RTT_BYTES),
            levels: Some(levels),
            incast_control: Some(args.incast_control == Switch::On),
            ..SchemeOptions::default()
        },
        fabric: Fabric {
            shape: Shape::SingleSwitch { hosts: args.hosts as u32 },
            host_link: link,
            fabric_link: link,
            send_delay: sending,
            nic_delay: Span(0),
            receive_delay: Span(delay.0 - sending.0),
            switch_delay: Span(0),
            buffer: Buffer::PerPort { bytes: args.buffer },
            loss_ppm: per_link(args.loss),
            duplicate_ppm: per_link(args.duplicate),
            ..Fabric::default()
        },
        stop: Stop { messages: None, ..Stop::default() },
        seed: args.seed,
        measures: Measures { queues: false, priorities: false, ..Measures::default() },
        ..Scenario::default()
    }
}

/// What the simulator gives back of a list of RPCs: bytes and microseconds of each.
struct Simulated {
    latencies: Vec<(u32, f64)>,
    overflow: u64,
    trace_hash: String,
}

fn simulate(rack: &Scenario, list: Vec<open_loop::Arrival>) -> Result<Simulated, Failure> {
    let replayed = replay(rack, list, Exchange::Echo, &mut |_| ());
    let replayed =
        replayed.hint("choose other --hosts, --link or --buffer, or leave out --twin")?;
    Ok(Simulated {
        latencies: replayed.samples.iter().map(|s| (s.bytes, micros(s.latency))).collect(),
        overflow: replayed.outcome.drops.overflow,
        trace_hash: replayed.outcome.trace_hash,
    })
}

/// A host's time per message: half of what measured idle round trips of short messages take longer
/// than simulated ones between hosts that take no time; the median over sizes.
fn calibrate(args: &Args, levels: u8, idle: &IdleTimes) -> Result<f64, Failure> {
    let measured = idle.points().iter().filter(|(bytes, _)| *bytes <= SHORT_BYTES);
    let measured: Vec<(u32, u64)> = measured.copied().collect();
    // Far enough apart to be alone: at the slowest link a frame takes 12 ms.
    let apart = SimDuration::micros(100_000);
    let mut at = SimTime::ZERO;
    let list = measured.iter().map(|&(bytes, _)| {
        at += apart;
        open_loop::Arrival { at, src: 0, dst: 1, bytes }
    });
    let alone = simulate(&scenario(args, levels, 0.0), list.collect())?.latencies;
    let excess = measured.iter().filter_map(|&(bytes, ns)| {
        let (_, us) = alone.iter().find(|(size, _)| *size == bytes)?;
        Some(((ns as f64 / 1e3 - us) / 2.0).max(0.0))
    });
    let excess = Sorted::new(excess.collect()).percentile(Percentile::P50);
    Ok(excess.unwrap_or(ASSUMED_HOST_US))
}

/// All hosts' arrivals as one list by time.
fn merged(arrivals: &[Vec<Arrival>]) -> Vec<open_loop::Arrival> {
    let mut list: Vec<open_loop::Arrival> = arrivals
        .iter()
        .flatten()
        .map(|arrival| open_loop::Arrival {
            at: SimTime(arrival.at_ns * 1_000),
            src: u32::from(arrival.src),
            dst: u32::from(arrival.dst),
            bytes: arrival.bytes,
        })
        .collect();
    list.sort_by_key(|arrival| arrival.at);
    list
}

fn micros(time: SimDuration) -> f64 {
    time.0 as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use homa_workload::arrivals::schedule;

    use super::super::asked;
    use super::super::rack::{offer, rack_config};
    use super::*;

    fn args(more: &[&str]) -> Args {
        asked(&[&["--twin", "--duration", "300ms"], more].concat())
    }

    fn twin(args: &Args, transport: Transport, idle: Option<&IdleTimes>) -> Option<Twin> {
        let (offer, sizes) = offer(args).ok()?;
        let arrivals = schedule(&offer, &sizes).unwrap();
        forecast(args, transport, &arrivals, idle).unwrap_or_else(|_| panic!("no forecast"))
    }

    #[test]
    fn without_a_rack_the_forecast_stands_alone_and_repeats_exactly() {
        let args = args(&["--load", "0.6"]);
        let first = twin(&args, Transport::Homa, None).unwrap();
        assert_eq!(Some(&first), twin(&args, Transport::Homa, None).as_ref());
        assert!(!first.calibrated && first.p50_error.is_none());
        assert!(first.count > 500, "{first:?}");
        assert!(first.bound.p50_us <= first.p50_us && first.bound.p99_us < first.p99_us);
        assert!(twin(&args, Transport::Tcp, None).is_none());
        let flat = twin(&args, Transport::HomaFlat, None).unwrap();
        assert!(flat.p99_us > first.p99_us, "one level: {flat:?}");
    }

    #[test]
    fn hosts_take_what_idle_round_trips_show() {
        let args = args(&["--load", "0.01"]);
        let slow = |us: f64| {
            let wire = |bytes| rack_config(&args).wire_round_trip_ns(Framing::Udp, bytes);
            let points = [100, 1_000, 1_400].map(|b| (b, wire(b) + (us * 1e3) as u64));
            IdleTimes::new(points.to_vec())
        };
        let [ten, sixty] = [20.0, 120.0].map(|us| twin(&args, Transport::Homa, Some(&slow(us))));
        let (ten, sixty) = (ten.unwrap(), sixty.unwrap());
        assert!(ten.calibrated && sixty.calibrated);
        let hosts = (ten.host_us, sixty.host_us);
        assert!((hosts.0 - 10.0).abs() < 0.1 && (hosts.1 - 60.0).abs() < 0.1, "{hosts:?}");
        let difference = sixty.p50_us.unwrap() - ten.p50_us.unwrap();
        assert!((difference - 100.0).abs() < 2.0, "{difference}");
    }
}
