//! `homa bench --peer ADDR --cp-node`: load as the kernel module's `cp_node client` makes it,
//! against a kernel host's `cp_node server` or our own `homa serve --cp-node`.
//!
//! Arrivals are those of `bench --peer`. Round trips count from the sending of the request, as the
//! module's tool counts them; `behind_ms` tells how late requests were sent at worst, which is what
//! that leaves out. Left out: several client ports, the tool's control connection.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use homa::CallOptions;
use homa::inline::{Completion, Engine, Wait};
use homa_workload::arrivals::{Arrival, schedule};
use homa_workload::quantile::{Percentile, Sorted};
use serde::Serialize;

use super::args::Args;
use super::config::{Config, Network, command_line};
use super::setup::{OFFER_HINT, offer};
use crate::commands::driver::Driver;
use crate::cp_node::{answered, request};
use crate::failure::{Failure, Hint, Outcome, Verdict};
use crate::output::{Format, json, line};

/// How long stragglers may take after the last arrival.
const GRACE: Duration = Duration::from_secs(5);
/// Longest sleep between looks at the clock.
const NAP: Duration = Duration::from_millis(5);
/// Requests in progress that a number of 16 bits tells apart.
const NUMBERS: usize = 1 << 16;
const SECOND: Duration = Duration::from_secs(1);

/// The whole result.
#[derive(Debug, Serialize)]
struct CpNodeReport {
    config: Config,
    driver: &'static str,
    /// Every request was answered, and rightly.
    valid: bool,
    offered: usize,
    completed: usize,
    errors: usize,
    /// How late a request was sent at worst.
    behind_ms: f64,
    /// One entry per second.
    seconds: Vec<CpNodeInterval>,
    total: CpNodeInterval,
}

/// RPCs completed in an interval; a figure is absent if no RPC completed.
#[derive(Clone, Debug, Serialize)]
struct CpNodeInterval {
    seconds: f64,
    kops: f64,
    gbps_out: f64,
    gbps_in: f64,
    p50_us: Option<f64>,
    p99_us: Option<f64>,
    p999_us: Option<f64>,
    mean_request_bytes: Option<f64>,
}

/// Completed RPCs of a stretch of time.
#[derive(Clone, Debug, Default)]
struct CpNodeTally {
    sent: u64,
    received: u64,
    times_ns: Vec<u64>,
}

impl CpNodeTally {
    fn add(&mut self, sent: usize, received: usize, time: Duration) {
        self.sent += sent as u64;
        self.received += received as u64;
        self.times_ns.push(time.as_nanos() as u64);
    }

    fn merge(&mut self, other: &Self) {
        self.sent += other.sent;
        self.received += other.received;
        self.times_ns.extend_from_slice(&other.times_ns);
    }

    fn over(&self, time: Duration) -> CpNodeInterval {
        let (seconds, count) = (time.as_secs_f64().max(1e-9), self.times_ns.len());
        let sorted = Sorted::new(self.times_ns.clone());
        let us = |p| sorted.percentile(p).map(|ns| rounded(ns as f64 / 1e3, 1));
        let gbps = |bytes: u64| rounded(bytes as f64 * 8e-9 / seconds, 4);
        CpNodeInterval {
            seconds: rounded(seconds, 3),
            kops: rounded(count as f64 / seconds / 1e3, 3),
            gbps_out: gbps(self.sent),
            gbps_in: gbps(self.received),
            p50_us: us(Percentile::P50),
            p99_us: us(Percentile::P99),
            p999_us: us(Percentile::P999),
            mean_request_bytes: (count > 0).then(|| rounded(self.sent as f64 / count as f64, 1)),
        }
    }
}

fn rounded(value: f64, digits: i32) -> f64 {
    let scale = 10f64.powi(digits);
    (value * scale).round() / scale
}

/// A request in progress, at its number.
#[derive(Clone, Copy)]
struct Pending {
    at: Instant,
    bytes: usize,
}

/// The load and what became of it.
struct CpNodeRun<'a> {
    args: &'a Args,
    server: SocketAddr,
    arrivals: &'a [Arrival],
    pending: Vec<Option<Pending>>,
    outstanding: usize,
    errors: usize,
    behind: Duration,
    /// The present second, the past ones, and when the present one began.
    now: CpNodeTally,
    past: Vec<CpNodeInterval>,
    total: CpNodeTally,
    began: Instant,
}

impl CpNodeRun<'_> {
    fn drive(&mut self, engine: &mut Engine) -> std::io::Result<Duration> {
        let start = Instant::now();
        self.began = start;
        let end = start + self.args.duration() + GRACE;
        let mut next = 0;
        while (next < self.arrivals.len() || self.outstanding > 0) && Instant::now() < end {
            while let Some(arrival) = self.arrivals.get(next)
                && Duration::from_nanos(arrival.at_ns) <= start.elapsed()
                && self.pending[next % NUMBERS].is_none()
            {
                let late = start.elapsed().saturating_sub(Duration::from_nanos(arrival.at_ns));
                self.behind = self.behind.max(late);
                self.send(engine, next, arrival.bytes as usize);
                next += 1;
            }
            let until_next = self.arrivals.get(next).map_or(NAP, |arrival| {
                Duration::from_nanos(arrival.at_ns).saturating_sub(start.elapsed()).min(NAP)
            });
            engine.poll(Wait::For(until_next))?;
            self.take(engine);
            if self.began.elapsed() >= SECOND {
                self.close_second();
            }
        }
        if !self.now.times_ns.is_empty() {
            self.close_second();
        }
        self.errors += self.arrivals.len() - next + self.outstanding;
        Ok(start.elapsed())
    }

    fn send(&mut self, engine: &mut Engine, index: usize, bytes: usize) {
        let (number, port) = ((index % NUMBERS) as u16, (index % self.args.ports()) as u16);
        let mut server = self.server;
        server.set_port(server.port() + port);
        let message = request(bytes, number, port as u8, self.args.short_responses);
        let bytes = message.len();
        let options = CallOptions::deadline(self.args.duration() + GRACE);
        match engine.call(server, message, number.into(), &options) {
            Ok(_) => {
                self.pending[usize::from(number)] = Some(Pending { at: Instant::now(), bytes });
                self.outstanding += 1;
            }
            Err(_) => self.errors += 1,
        }
    }

    fn take(&mut self, engine: &mut Engine) {
        while let Some(completion) = engine.next() {
            let Completion::Response { cookie, result, .. } = completion else { continue };
            let number = cookie as usize % NUMBERS;
            let Some(pending) = self.pending[number].take() else { continue };
            self.outstanding -= 1;
            match result {
                Ok(bytes) if answered(&bytes) == Some(number as u16) => {
                    self.now.add(pending.bytes, bytes.len(), pending.at.elapsed());
                }
                Ok(_) | Err(_) => self.errors += 1,
            }
        }
    }

    fn close_second(&mut self) {
        let now = Instant::now();
        let tally = std::mem::take(&mut self.now);
        let interval = tally.over(now - self.began);
        if self.args.format == Format::Table {
            show("", &interval);
        }
        self.total.merge(&tally);
        self.past.push(interval);
        self.began = now;
    }
}

/// One line, in the order and the units of the module's tool.
fn show(prefix: &str, interval: &CpNodeInterval) {
    let us = |time: Option<f64>| time.map_or("-".into(), |us| format!("{us:.1}"));
    line(format!(
        "{prefix}Clients: {:.2} Kops/s, {:.3} Gbps out, {:.3} Gbps in, RTT (us) P50 {} P99 {} \
         P99.9 {}, mean request {} B",
        interval.kops,
        interval.gbps_out,
        interval.gbps_in,
        us(interval.p50_us),
        us(interval.p99_us),
        us(interval.p999_us),
        us(interval.mean_request_bytes),
    ));
}

/// Checks that the server answers as `cp_node` does before the load begins.
fn greet(engine: &mut Engine, driver: Driver, server: SocketAddr) -> Result<(), Failure> {
    let failed = |error| driver.failure(server, error, "--cp-node");
    let options = CallOptions::deadline(GRACE);
    engine.call(server, request(0, 0, 0, false), 0, &options).map_err(failed)?;
    loop {
        engine.poll(Wait::Forever).hint("the socket failed: run it again")?;
        if let Some(Completion::Response { result, .. }) = engine.next() {
            let bytes = result.map_err(failed)?;
            let hint = "start the server there with `cp_node server`, or `homa serve --cp-node` \
                        with the same --driver";
            return match answered(&bytes) {
                Some(0) => Ok(()),
                _ => Err(Failure::new(anyhow::anyhow!("{server} does not speak cp_node"), hint)),
            };
        }
    }
}

/// Loads the server and prints a line per second.
pub fn run(args: &Args, server: SocketAddr) -> Outcome {
    if server.port().checked_add(u16::from(args.ports) - 1).is_none() {
        let error = anyhow::anyhow!("there are no {} ports from {server} on", args.ports);
        return Err(Failure::new(error, "choose fewer --ports, or servers at lower ports"));
    }
    let (mut offer, sizes) = offer(args)?;
    // Two hosts: this one asks, the server answers.
    offer.hosts = 2;
    let arrivals = schedule(&offer, &sizes).hint(OFFER_HINT)?;
    let mut engine = args.driver.inline(server, &args.protection)?;
    greet(&mut engine, args.driver, server)?;
    let mut run = CpNodeRun {
        args,
        server,
        arrivals: &arrivals[0],
        pending: vec![None; NUMBERS],
        outstanding: 0,
        errors: 0,
        behind: Duration::ZERO,
        now: CpNodeTally::default(),
        past: Vec::new(),
        total: CpNodeTally::default(),
        began: Instant::now(),
    };
    let time = run.drive(&mut engine).hint("the socket failed under load: run it again")?;
    let total = run.total.over(time);
    let (offered, completed) = (run.arrivals.len(), run.total.times_ns.len());
    let (valid, behind_ms) = (run.errors == 0, rounded(run.behind.as_secs_f64() * 1e3, 2));
    if args.format == Format::Json {
        json(&CpNodeReport {
            config: Config::new(args, Network::Peer),
            driver: args.driver.name(),
            valid,
            offered,
            completed,
            errors: run.errors,
            behind_ms,
            seconds: run.past,
            total,
        })?;
    } else {
        show("Total. ", &total);
        line(format!(
            "{completed} of {offered} RPCs completed over {}, {} errors; requests were sent up to \
             {behind_ms} ms late.",
            args.driver.name(),
            run.errors
        ));
        line(format!("Repeat: {}", command_line(args)));
    }
    Ok(if valid { Verdict::Passed } else { Verdict::CheckFailed })
}
