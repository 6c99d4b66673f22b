//! Open-loop load from one engine: RPCs start at their times whatever has finished, and latency
//! counts from the scheduled arrival, so a client that falls behind shows it.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use homa::CallOptions;
use homa::inline::{Completion, Engine, Wait};
use homa_testbed::{IdleTimes, Record};
use homa_workload::arrivals::Arrival;

use super::setup::LARGEST;

/// Longest sleep: how late a host notices that the others are through.
const NAP: Duration = Duration::from_millis(5);

/// One host's load.
pub struct OpenLoop<'a> {
    /// Arrivals in order of time.
    pub arrivals: &'a [Arrival],
    /// Addresses of the hosts in the arrivals.
    pub servers: &'a [SocketAddr],
    /// The common zero of the arrivals.
    pub start: Instant,
    /// When to stop waiting for stragglers.
    pub end: Instant,
    /// Hosts that still have RPCs in progress: a host serves until there are none.
    pub busy: &'a AtomicUsize,
}

/// The results of an open loop.
#[derive(Debug, Default)]
pub struct OpenLoopResult {
    /// Completed RPCs in the order of their arrivals.
    pub records: Vec<Record>,
    /// RPCs that failed or did not end in time.
    pub errors: usize,
}

impl OpenLoop<'_> {
    /// Runs the load and serves the others.
    pub fn run(&self, engine: &mut Engine) -> io::Result<OpenLoopResult> {
        let payload = vec![7; LARGEST as usize];
        let options = CallOptions::deadline(self.end - self.start);
        let mut latencies: Vec<Option<u64>> = vec![None; self.arrivals.len()];
        let (mut next, mut outstanding, mut through) = (0, 0usize, false);
        loop {
            let now = self.start.elapsed().as_nanos() as u64;
            while let Some(arrival) = self.arrivals.get(next).filter(|a| a.at_ns <= now) {
                let server = self.servers[usize::from(arrival.dst)];
                let request = &payload[..arrival.bytes as usize];
                if engine.call(server, request, next as u64, &options).is_ok() {
                    outstanding += 1;
                }
                next += 1;
            }
            let done = next == self.arrivals.len() && outstanding == 0;
            if !through && (done || Instant::now() >= self.end) {
                through = true;
                self.busy.fetch_sub(1, Ordering::SeqCst);
            }
            if through && self.busy.load(Ordering::SeqCst) == 0 {
                return Ok(self.reduce(&latencies));
            }
            let until_next = self.arrivals.get(next).map_or(NAP, |arrival| {
                Duration::from_nanos(arrival.at_ns.saturating_sub(now)).min(NAP)
            });
            engine.poll(Wait::For(until_next))?;
            while let Some(completion) = engine.next() {
                match completion {
                    Completion::Request { id, bytes, .. } => {
                        // If the reply cannot be sent, a client that still waits is informed.
                        if engine.reply(id, bytes).is_err() {
                            engine.refuse(id);
                        }
                    }
                    Completion::Response { cookie, result, .. } => {
                        outstanding -= 1;
                        let at_ns = self.arrivals[cookie as usize].at_ns;
                        let now = self.start.elapsed().as_nanos() as u64;
                        latencies[cookie as usize] = result.ok().map(|_| now - at_ns);
                    }
                    Completion::Cancelled { .. } | Completion::Readable { .. } => {}
                }
            }
        }
    }

    fn reduce(&self, latencies: &[Option<u64>]) -> OpenLoopResult {
        let ended = self.arrivals.iter().zip(latencies);
        let records: Vec<Record> = ended
            .filter_map(|(arrival, latency)| {
                Some(Record {
                    bytes: arrival.bytes,
                    due_ns: arrival.at_ns,
                    latency_ns: (*latency)?,
                })
            })
            .collect();
        OpenLoopResult { errors: self.arrivals.len() - records.len(), records }
    }
}

/// One echo RPC with nothing else in progress; nanoseconds.
fn exchange(engine: &mut Engine, server: SocketAddr, request: Vec<u8>) -> anyhow::Result<u64> {
    let start = Instant::now();
    engine.call(server, request, 0, &CallOptions::default())?;
    loop {
        engine.poll(Wait::Forever)?;
        if let Some(Completion::Response { result, .. }) = engine.next() {
            result?;
            return Ok(start.elapsed().as_nanos() as u64);
        }
    }
}

/// Median round trips of an idle server, the denominators of slowdown.
pub fn idle_times(
    engine: &mut Engine,
    server: SocketAddr,
    sizes: &[u32],
) -> anyhow::Result<IdleTimes> {
    IdleTimes::measure(sizes, |bytes, _| exchange(engine, server, vec![7; bytes as usize]))
}
