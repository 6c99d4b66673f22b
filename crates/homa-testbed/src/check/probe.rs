//! Probes on an otherwise idle rack: known frames, whose arrival is compared with the computed
//! time.

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use homa_workload::quantile::{Percentile, Sorted};

use crate::link::address;
use crate::switch::wire_bytes;
use crate::sys;
use crate::{Host, Rack, RackConfig, TestbedError};

use super::{Verdict, lateness_bound_us};

const PORT: u16 = 7_777;
/// Ethernet, IPv4 and UDP headers in front of a datagram.
const HEADERS: usize = 14 + 20 + 8;
/// Longest datagram that fits a frame.
const FULL_DATAGRAM: usize = 1_472;
/// Datagram of a priority probe.
const SMALL_DATAGRAM: usize = 100;
/// Type of service of the highest class.
const HIGHEST: libc::c_int = 0xe0;
/// Sizes sent over idle links.
const SIZES: [usize; 4] = [24, 200, 700, FULL_DATAGRAM];
const IDLE_PROBES: usize = 240;
const PRIORITY_PROBES: usize = 240;
/// Share of the link that the lowest class must fill while frames of the highest class pass it.
const BACKGROUND: f64 = 0.9;

/// The results of the probes, microseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Probes {
    /// Arrival minus computed arrival on idle links: least, median and 99th percentile.
    pub timing_error_us: [f64; 3],
    /// Delay of a small frame of the highest class behind full load of the lowest, minus its delay
    /// on idle links by computation: median and 99th percentile. `None`: fewer than three hosts.
    pub priority_delay_us: Option<[f64; 2]>,
    /// Share of the link the lower class used meanwhile.
    pub background_load: f64,
    /// The numbers within and beyond their limits.
    pub verdict: Verdict,
}

/// Sends the probes; about a second. The rack must be idle.
pub fn probe(rack: &Rack) -> Result<Probes, TestbedError> {
    let config = rack.config();
    let bound_us = lateness_bound_us(config) as f64;
    let frame_us = config.full_frame_ns() as f64 / 1_000.0;
    let mut verdict = Verdict::default();

    rack.take_interval()?;
    let idle = idle_errors(rack)?;
    let interval = rack.take_interval()?;
    let timing_error_us = [
        idle.at_rank(1).unwrap_or(f64::NAN),
        at(&idle, Percentile::P50),
        at(&idle, Percentile::P99),
    ];
    let [least, median, p99] = timing_error_us;
    // The switch counts the faults that were requested.
    let fewest = IDLE_PROBES.saturating_sub(interval.lost as usize);
    let complete = (fewest..=IDLE_PROBES + interval.duplicated as usize).contains(&idle.len());
    // Rare stalls of the machine are not the rack's fault, so the tail is allowed a full frame.
    let (median_bound, mut p99_bound) = (2.0 * bound_us, bound_us.max(frame_us));
    if config.faults.duplication > 0.0 {
        // The duplicate of a frame follows it.
        p99_bound += frame_us;
    }
    let name = "wire timing";
    let early = -least;
    let detail = format!("a frame over an idle link came {early:.0} us too early (at most 5 us)");
    verdict.at_most(name, (early, 5.0), detail);
    let detail = format!(
        "half of the frames over an idle link came {median:.0} us or more too late (at most \
         {median_bound:.0} us)"
    );
    verdict.at_most(name, (median, median_bound), detail);
    let detail = format!(
        "1 % of the frames over an idle link came {p99:.0} us or more too late (at most \
         {p99_bound:.0} us)"
    );
    verdict.at_most(name, (p99, p99_bound), detail);
    if !complete {
        let detail = format!("{} of {IDLE_PROBES} frames over an idle link arrived", idle.len());
        verdict.at_least(name, (0.0, 1.0), detail);
    }

    let (mut priority_delay_us, mut background_load) = (None, 0.0);
    if config.hosts >= 3 {
        let (delays, load) = priority_delays(rack)?;
        let (median, p99) = (at(&delays, Percentile::P50), at(&delays, Percentile::P99));
        // A frame of the load may be in service at every port on the way.
        let ports = config.links(hosts_apart(config).0, hosts_apart(config).1) - 1;
        let allowed = ports as f64 * frame_us + p99_bound;
        let name = "strict priority";
        let detail = format!(
            "1 % of the frames of the highest class waited {p99:.0} us or more behind the lowest \
             (at most {allowed:.0} us: a frame at each of {ports} ports and {p99_bound:.0} us)"
        );
        verdict.at_most(name, (p99, allowed), detail);
        let (came, least) = (delays.len(), PRIORITY_PROBES * 9 / 10);
        let detail = format!("{came} of {PRIORITY_PROBES} such frames arrived (at least {least})");
        verdict.at_least(name, (came as f64, least as f64), detail);
        let detail = format!(
            "the lowest class filled {:.0} % of the link meanwhile (at least {:.0} %)",
            load * 100.0,
            BACKGROUND * 100.0
        );
        verdict.at_least(name, (load, BACKGROUND), detail);
        (priority_delay_us, background_load) = (Some([median, p99]), load);
    }
    Ok(Probes { timing_error_us, priority_delay_us, background_load, verdict })
}

/// Two hosts with as many links between them as any.
fn hosts_apart(config: &RackConfig) -> (usize, usize) {
    (0, config.hosts - 1)
}

/// Arrival minus computed arrival of frames sent one at a time from host 0 to the last, which is as
/// far away as any, microseconds.
fn idle_errors(rack: &Rack) -> Result<Sorted<f64>, TestbedError> {
    let last = hosts_apart(rack.config()).1;
    let (ready, done) = (Barrier::new(2), AtomicBool::new(false));
    let errors = rack.on_every_host(|host| match host.index {
        0 => {
            let socket = bind(host, 0)?;
            ready.wait();
            for n in 0..IDLE_PROBES {
                send_stamped(host, &socket, last, SIZES[n % SIZES.len()])?;
                thread::sleep(Duration::from_millis(1));
            }
            thread::sleep(Duration::from_millis(20));
            done.store(true, Ordering::SeqCst);
            Ok(Vec::new())
        }
        index if index == last => {
            let socket = bind(host, 0)?;
            ready.wait();
            let mut errors = Vec::new();
            receive_until(host, &socket, &done, |length, delay_ns| {
                errors.push(delay_ns as f64 / 1e3 - idle_us(host.rack, length));
            })?;
            Ok(errors)
        }
        _ => Ok(Vec::new()),
    })?;
    Ok(Sorted::new(errors.concat()))
}

/// Delays of high-priority probes to host 0, beyond those of idle links, while other hosts load its
/// link with the lowest class; and the share of the link that load took.
fn priority_delays(rack: &Rack) -> Result<(Sorted<f64>, f64), TestbedError> {
    let hosts = rack.config().hosts;
    let loaders = (hosts - 2).min(2);
    let (ready, done) = (Barrier::new(loaders + 2), AtomicBool::new(false));
    let results = rack.on_every_host(|host| {
        let mut delays = Vec::new();
        let mut load = 0.0;
        if host.index == 0 {
            let socket = bind(host, 0)?;
            ready.wait();
            let (start, mut wire) = (sys::monotonic_ns(), 0_u64);
            receive_until(host, &socket, &done, |length, delay_ns| {
                wire += u64::from(wire_bytes(length + HEADERS));
                if length == SMALL_DATAGRAM {
                    delays.push(delay_ns as f64 / 1e3 - idle_us(host.rack, length));
                }
            })?;
            let seconds = (sys::monotonic_ns() - start) as f64 / 1e9;
            load = wire as f64 * 8.0 / seconds / host.rack.link.0 as f64;
        } else if host.index <= loaders {
            let socket = bind(host, 0)?;
            ready.wait();
            while !done.load(Ordering::SeqCst) {
                send_stamped(host, &socket, 0, FULL_DATAGRAM)?;
            }
        } else if host.index == hosts - 1 {
            let socket = bind(host, HIGHEST)?;
            ready.wait();
            thread::sleep(Duration::from_millis(30));
            for _ in 0..PRIORITY_PROBES {
                send_stamped(host, &socket, 0, SMALL_DATAGRAM)?;
                thread::sleep(Duration::from_micros(1_310));
            }
            done.store(true, Ordering::SeqCst);
        }
        Ok((delays, load))
    })?;
    let load = results.iter().map(|r| r.1).sum();
    Ok((Sorted::new(results.into_iter().flat_map(|r| r.0).collect()), load))
}

/// Delay of a datagram between the first and the last host over idle links by computation: its
/// serialisation on each of them, and the first one's delay.
fn idle_us(rack: &RackConfig, length: usize) -> f64 {
    let (one, other) = hosts_apart(rack);
    let wire = wire_bytes(length + HEADERS);
    let bits_ns = rack.links(one, other) * rack.link.time_for(u64::from(wire)).0;
    (bits_ns as f64 + rack.uplink_delay.as_nanos() as f64) / 1e3
}

fn bind(host: Host<'_>, tos: libc::c_int) -> Result<UdpSocket, TestbedError> {
    let failed =
        |e| TestbedError::Transport { host: host.index, what: "opening a probe", source: e };
    let socket = UdpSocket::bind((host.address(), PORT)).map_err(failed)?;
    let set = |level, name, value| sys::set_option(socket.as_fd(), level, name, value);
    set(libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1).map_err(failed)?;
    set(libc::IPPROTO_IP, libc::IP_TOS, tos).map_err(failed)?;
    sys::exact_timers();
    Ok(socket)
}

/// Sends a datagram that carries its time of sending; blocks while the host's queue is full.
fn send_stamped(
    host: Host<'_>,
    socket: &UdpSocket,
    to: usize,
    length: usize,
) -> Result<(), TestbedError> {
    let mut datagram = [0; FULL_DATAGRAM];
    datagram[..8].copy_from_slice(&sys::monotonic_ns().to_le_bytes());
    let to = SocketAddr::from((address(to), PORT));
    let sent = socket.send_to(&datagram[..length], to);
    let failed =
        |e| TestbedError::Transport { host: host.index, what: "sending a probe", source: e };
    sent.map(drop).map_err(failed)
}

/// Receives until `done`: length and delay in nanoseconds of every datagram.
fn receive_until(
    host: Host<'_>,
    socket: &UdpSocket,
    done: &AtomicBool,
    mut each: impl FnMut(usize, i64),
) -> Result<(), TestbedError> {
    use std::os::fd::AsRawFd;
    let failed =
        |e| TestbedError::Transport { host: host.index, what: "receiving probes", source: e };
    let mut buffer = [0; 2_048];
    while !done.load(Ordering::SeqCst) {
        let fd = socket.as_raw_fd();
        let mut wanted = [libc::pollfd { fd, events: libc::POLLIN, revents: 0 }];
        sys::ppoll(&mut wanted, 2_000_000).map_err(failed)?;
        while let Some((length, at_ns)) =
            sys::receive_stamped(socket.as_fd(), &mut buffer).map_err(failed)?
        {
            if let Some(stamp) = buffer[..length].first_chunk::<8>() {
                each(length, at_ns as i64 - u64::from_le_bytes(*stamp) as i64);
            }
        }
    }
    Ok(())
}

/// A percentile for comparison with a limit: NaN, which passes no limit, if there is no sample.
fn at(sample: &Sorted<f64>, percentile: Percentile) -> f64 {
    sample.percentile(percentile).unwrap_or(f64::NAN)
}
