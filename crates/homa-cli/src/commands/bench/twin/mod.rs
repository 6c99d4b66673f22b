//! The simulator's twin of the rack: the same RPCs on the same rack, as a forecast beside a
//! measured row (`homa bench --twin`), or in place of rows that this machine cannot measure.
//!
//! The same protocol code, the same arrivals, topology, rates, buffers and faults; hosts take a
//! constant time per message, calibrated from the row's idle round trips, and are never busy. What
//! the measurement shows beyond the forecast is therefore what hosts add under load: processors
//! shared by all of them, late timers, two frames waiting in the NIC where the simulator's NIC
//! holds one. Rows of TCP are forecast by the simulator's TCP, which is another implementation of
//! the same RFCs than the kernel's (`docs/reproduction.md` says what differs).

mod scenario;

use std::time::Duration;

use homa_proto::Rate;
use homa_sim::clairvoyant::{Star, echo};
use homa_sim::experiment::{replay, validate};
use homa_sim::scenario::outcome::QueueLength;
use homa_sim::scenario::{Exchange, Scenario};
use homa_sim::traffic::open_loop;
use homa_sim::{SimDuration, SimTime};
use homa_testbed::check::SHORT_BYTES;
use homa_testbed::link::TCP_RTO_MIN;
use homa_testbed::{IdleTimes, Record};
use homa_workload::arrivals::Arrival;
use homa_workload::quantile::{Percentile, Sorted};

use super::args::Args;
use super::marking::PlannedRow;
use super::results::forecast::{Bound, Twin};
use super::setup::framing;
use crate::failure::{Failure, Hint};
use scenario::{Hosts, scenario};

/// A host's time per message if no rack calibrates it: about what idle racks show on small virtual
/// machines.
const ASSUMED_HOST_US: f64 = 18.0;

/// Refuses options that cannot be forecast, before anything is measured.
pub fn check(args: &Args) -> Result<(), Failure> {
    let rows = args.rows().into_iter();
    let hosts = Hosts { us: ASSUMED_HOST_US, rto_min: TCP_RTO_MIN };
    let scenarios: Vec<Scenario> = rows.filter_map(|row| scenario(args, row, hosts)).collect();
    if scenarios.is_empty() {
        let error = anyhow::anyhow!("--twin can forecast no row of --transport");
        return Err(Failure::new(
            error,
            "the simulator has Homa with one engine a host, and TCP under --cc cubic and reno",
        ));
    }
    scenarios.iter().try_for_each(|scenario| validate(scenario).hint(CHOOSE))
}

/// Advice if the simulator refuses the rack.
const CHOOSE: &str = "choose other --hosts, --link or --buffer, or leave out --twin";

/// Advice if the simulator refuses a rack that it stands in for.
const CHOOSE_RACK: &str = "choose other --hosts, --link or --buffer; `homa doctor` says why this \
                           machine has no rack";

/// Forecasts a row; `None` for what the simulator does not have. `idle`: the row's round trips on
/// the idle rack, if there is one; `rto_min`: TCP's least timeout there.
pub fn forecast(
    args: &Args,
    row: PlannedRow,
    arrivals: &[Vec<Arrival>],
    (idle, rto_min): (Option<&IdleTimes>, Duration),
) -> Result<Option<Twin>, Failure> {
    let ideal = Hosts { us: 0.0, rto_min };
    let Some(unloaded) = scenario(args, row, ideal) else { return Ok(None) };
    let measured = idle.filter(|idle| !idle.points().is_empty());
    let host_us = match measured {
        Some(idle) => calibrate(&unloaded, idle)?,
        None => ASSUMED_HOST_US,
    };
    let Some(rack) = scenario(args, row, Hosts { us: host_us, rto_min }) else { return Ok(None) };
    let list = merged(arrivals);
    let twin = simulate(&rack, list.clone(), CHOOSE)?;
    let short = |all: Vec<(u32, f64)>| {
        let short = all.into_iter().filter(|(bytes, _)| *bytes <= SHORT_BYTES);
        Sorted::new(short.map(|(_, us)| us).collect())
    };
    let star = Star {
        hosts: args.hosts() as u32,
        link: Rate(args.link()),
        delay: SimDuration((host_us * 1e6) as u64),
        framing: framing(row.transport),
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
        mean_queue_bytes: twin.queue.mean_bytes.round(),
        max_queue_bytes: twin.queue.max_bytes,
        trace_hash: twin.trace_hash,
    }))
}

/// A row that the simulator gives in place of a measurement.
pub struct SimulatedRow {
    /// Every RPC that ended, in no order of time.
    pub records: Vec<Record>,
    /// Round trips without load.
    pub idle: IdleTimes,
}

/// Simulates a row in place of a measurement; `None` for a row that the simulator does not have.
/// `idle_sizes`: sizes whose round trip is simulated without load, bytes.
pub fn row(
    args: &Args,
    row: PlannedRow,
    arrivals: &[Vec<Arrival>],
    idle_sizes: &[u32],
) -> Result<Option<SimulatedRow>, Failure> {
    let hosts = Hosts { us: ASSUMED_HOST_US, rto_min: TCP_RTO_MIN };
    let Some(rack) = scenario(args, row, hosts) else { return Ok(None) };
    let nanos = |us: f64| (us * 1e3).round() as u64;
    let simulated = simulate(&rack, merged(arrivals), CHOOSE_RACK)?;
    let record = |&(bytes, us): &(u32, f64)| Record { bytes, due_ns: 0, latency_ns: nanos(us) };
    let alone = alone(&rack, idle_sizes, CHOOSE_RACK)?;
    let idle = alone.into_iter().map(|(bytes, us)| (bytes, nanos(us))).collect();
    Ok(Some(SimulatedRow {
        records: simulated.latencies.iter().map(record).collect(),
        idle: IdleTimes::new(idle),
    }))
}

/// The simulated RPCs of a list: bytes and microseconds of each.
struct Simulated {
    latencies: Vec<(u32, f64)>,
    overflow: u64,
    /// At ports to hosts.
    queue: QueueLength,
    trace_hash: String,
}

/// Replays RPCs; `hint` says what to do if the simulator refuses the rack.
fn simulate(
    rack: &Scenario,
    list: Vec<open_loop::ScheduledMessage>,
    hint: &str,
) -> Result<Simulated, Failure> {
    let replayed = replay(rack, list, Exchange::Echo, &mut |_| ()).hint(hint)?;
    Ok(Simulated {
        latencies: replayed.samples.iter().map(|s| (s.bytes, micros(s.latency))).collect(),
        overflow: replayed.outcome.drops.overflow,
        queue: replayed.outcome.queues.and_then(|queues| queues.tor_down).unwrap_or_default(),
        trace_hash: replayed.outcome.trace_hash,
    })
}

/// Round trips between hosts without load: bytes, ascending, and microseconds.
fn alone(rack: &Scenario, sizes: &[u32], hint: &str) -> Result<Vec<(u32, f64)>, Failure> {
    let mut at = SimTime::ZERO;
    let list = sizes.iter().map(|&bytes| {
        // Far enough apart that no RPC meets another: four times what its bits need.
        let bits = u64::from(bytes.max(10_000)) * 8;
        at += SimDuration(bits * 1_000_000 / (rack.fabric.host_link.0 / 1_000_000).max(1) * 4);
        open_loop::ScheduledMessage { at, src: 0, dst: 1, bytes }
    });
    let mut alone = simulate(rack, list.collect(), hint)?.latencies;
    alone.sort_by_key(|(bytes, _)| *bytes);
    Ok(alone)
}

/// A host's time per message: half of the difference between measured idle round trips of short
/// messages and simulated ones between hosts that take no time; the median over sizes.
fn calibrate(unloaded: &Scenario, idle: &IdleTimes) -> Result<f64, Failure> {
    let measured = idle.points().iter().filter(|(bytes, _)| *bytes <= SHORT_BYTES);
    let measured: Vec<(u32, u64)> = measured.copied().collect();
    let sizes: Vec<u32> = measured.iter().map(|(bytes, _)| *bytes).collect();
    let alone = alone(unloaded, &sizes, CHOOSE)?;
    let excess = measured.iter().filter_map(|&(bytes, ns)| {
        let (_, us) = alone.iter().find(|(size, _)| *size == bytes)?;
        Some(((ns as f64 / 1e3 - us) / 2.0).max(0.0))
    });
    let excess = Sorted::new(excess.collect()).percentile(Percentile::P50);
    Ok(excess.unwrap_or(ASSUMED_HOST_US))
}

/// All hosts' arrivals as one list by time.
fn merged(arrivals: &[Vec<Arrival>]) -> Vec<open_loop::ScheduledMessage> {
    let mut list: Vec<open_loop::ScheduledMessage> = arrivals
        .iter()
        .flatten()
        .map(|arrival| open_loop::ScheduledMessage {
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

    use super::super::args::asked;
    use super::super::setup::{offer, rack_config};
    use super::*;
    use homa_testbed::Transport;
    use homa_workload::framing::Framing;

    fn args(more: &[&str]) -> Args {
        asked(&[&["--twin", "--duration", "300ms"], more].concat())
    }

    fn twin_of(args: &Args, row: PlannedRow, idle: Option<&IdleTimes>) -> Option<Twin> {
        let (offer, sizes) = offer(args).ok()?;
        let arrivals = schedule(&offer, &sizes).unwrap();
        let measured = (idle, TCP_RTO_MIN);
        forecast(args, row, &arrivals, measured).unwrap_or_else(|_| panic!("no forecast"))
    }

    fn twin(args: &Args, transport: Transport, idle: Option<&IdleTimes>) -> Option<Twin> {
        twin_of(args, PlannedRow { transport, marks: None }, idle)
    }

    #[test]
    fn without_a_rack_the_forecast_stands_alone_and_repeats_exactly() {
        let args = args(&["--load", "0.6"]);
        let first = twin(&args, Transport::Homa, None).unwrap();
        assert_eq!(Some(&first), twin(&args, Transport::Homa, None).as_ref());
        assert!(!first.calibrated && first.p50_error.is_none());
        assert!(first.count > 500, "{first:?}");
        assert!(first.bound.p50_us <= first.p50_us && first.bound.p99_us < first.p99_us);
        assert_eq!(twin(&args, Transport::HomaSharded, None), None, "one engine a host");
        let flat = twin(&args, Transport::HomaFlat, None).unwrap();
        assert!(flat.p99_us > first.p99_us, "one level: {flat:?}");
    }

    #[test]
    fn tcp_is_forecast_as_each_row_uses_it() {
        let args = args(&["--load", "0.6", "--cc", "cubic"]);
        let p99 = |transport| twin(&args, transport, None).and_then(|twin| twin.p99_us).unwrap();
        let [classed, pool, one] =
            [Transport::TcpClassed, Transport::TcpPool, Transport::Tcp].map(p99);
        // Head-of-line blocking: the more connections, the less of it.
        assert!(classed < pool && pool < one, "{classed} {pool} {one}");
        let bbr = asked(&["--twin", "--cc", "bbr", "--transport", "tcp"]);
        assert!(twin(&bbr, Transport::Tcp, None).is_none() && check(&bbr).is_err());
        assert!(check(&args).is_ok());
        // The simulator has no link on which a frame takes more than 4.29 ms.
        assert!(check(&asked(&["--twin", "--link", "12.5Mbps"])).is_ok());
        assert!(check(&asked(&["--twin", "--link", "2Mbps"])).is_err());
    }

    #[test]
    fn marks_shorten_the_queues_of_a_forecast_as_of_a_rack() {
        let args = args(&["--transport", "tcp-ecn", "--phantom-queue", "0.9,3KB"]);
        let [without, with] = [false, true].map(|marks| {
            let row = PlannedRow { transport: Transport::TcpEcn, marks: Some(marks) };
            twin_of(&args, row, None).unwrap()
        });
        let bytes = (without.mean_queue_bytes, with.mean_queue_bytes);
        assert!(bytes.1 < bytes.0 / 2.0, "{bytes:?}");
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
