//! Searches at a rate, and what they cost.

use std::time::{Duration, Instant};

use tokio::time::{sleep_until, timeout};
use tonic::Request;

use super::service::{Channel, DEADLINE, LEAVES, Query, SEARCHES, SearchClient};

/// What searches at one rate had.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    /// Searches a second that were begun.
    pub offered: f64,
    /// Searches a second that were answered within the deadline, with all shards.
    pub answered: f64,
    /// Median and 99th percentile of the time until the answer, ms; those without count as the
    /// deadline.
    pub p50_ms: f64,
    pub p99_ms: f64,
    /// CPU time of the process, with client, root and leaves, for one that was answered, us.
    pub cpu_us: f64,
}

/// A search; `None` if its answer is late or lacks a shard.
async fn search(mut client: SearchClient<Channel>, number: u32, from: Instant) -> Option<Duration> {
    let mut request = Request::new(Query { words: "cats and dogs".into(), number });
    request.set_timeout(DEADLINE);
    let left = (from + DEADLINE).saturating_duration_since(Instant::now());
    let answer = timeout(left, client.find(request)).await.ok()?.ok()?;
    let took = from.elapsed();
    (answer.into_inner().shards as usize == LEAVES && took <= DEADLINE).then_some(took)
}

/// Searches that begin at random times, with a mean of `rate` a second. A search that the client
/// begins late has waited since the time at which it was due.
pub async fn at_rate(client: &SearchClient<Channel>, rate: f64, time: Duration) -> Figures {
    let (began, cpu) = (Instant::now(), cpu_time());
    let (mut next, mut state, mut searches) = (began, 1u64, Vec::new());
    while next < began + time {
        sleep_until(next.into()).await;
        let number = searches.len() as u32;
        searches.push(tokio::spawn(search(client.clone(), number, next)));
        // Exponential times between searches, from a small generator (Knuth, MMIX).
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let share = ((state >> 11) as f64 + 1.0) / (1u64 << 53) as f64;
        next += Duration::from_secs_f64(-share.ln() / rate);
    }
    let (begun, mut times) = (searches.len().max(1), Vec::new());
    for search in searches {
        times.push(search.await.ok().flatten());
    }
    let cpu = cpu_time().saturating_sub(cpu).as_secs_f64() * 1e6;
    let answered = times.iter().flatten().count() as f64;
    let all = times.into_iter().map(|took| took.unwrap_or(DEADLINE).as_secs_f64() * 1e3);
    let mut all: Vec<f64> = all.collect();
    all.sort_by(f64::total_cmp);
    let at = |share: f64| all.get((all.len() as f64 * share) as usize).copied().unwrap_or(0.0);
    let offered = begun as f64 / time.as_secs_f64();
    let cpu_us = cpu / answered.max(1.0);
    let answered = answered / time.as_secs_f64();
    Figures { offered, answered, p50_ms: at(0.5), p99_ms: at(0.99), cpu_us }
}

/// Searches a second if [`SEARCHES`] are always in progress: what the service can do on this
/// machine. More would be refused at once by the root over TCP, and callers would spin.
pub async fn capacity(client: &SearchClient<Channel>, time: Duration) -> f64 {
    let end = Instant::now() + time;
    let callers = (0..SEARCHES).map(|_| {
        let client = client.clone();
        tokio::spawn(async move {
            let mut done = 0;
            while Instant::now() < end {
                done += u32::from(search(client.clone(), done, Instant::now()).await.is_some());
            }
            done
        })
    });
    let mut done = 0;
    for caller in callers.collect::<Vec<_>>() {
        done += caller.await.unwrap_or(0);
    }
    f64::from(done) / time.as_secs_f64()
}

/// CPU time of this process so far, in steps of 10 ms (`man 5 proc_pid_stat`).
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks = after_name.split_whitespace().skip(11).take(2);
    let ticks: u64 = ticks.filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
    Duration::from_millis(10 * ticks)
}
