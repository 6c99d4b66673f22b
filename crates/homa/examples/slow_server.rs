//! What a slow server costs if calls are balanced. Eight servers answer after 2 ms, then one of
//! them after 20 ms, each on its own engine on loopback. Calls start at random times, and their
//! latencies are compared with those of seven healthy servers: medians of five rounds, in which the
//! three cases take turns.
//!
//! ```text
//! cargo run --release -p homa-rpc --features balance --example slow_server -- \
//!     [CALLS_PER_S] [SECONDS]
//! ```

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use homa::balance::{Balancer, Config, Target};
use homa::{CallOptions, Client, Server};
use tokio::time::{sleep, sleep_until};

/// The time that a healthy server takes for an answer.
const TAKES: Duration = Duration::from_millis(2);

const ROUNDS: usize = 5;

/// Calls at the beginning that are not counted: no server has been measured then.
const WARM_UP: Duration = Duration::from_secs(1);

/// Starts a server, and counts its requests.
fn start(takes: Duration) -> Result<(SocketAddr, Arc<AtomicU32>), Box<dyn Error>> {
    let server = Server::bind("127.0.0.1:0".parse()?)?;
    server.engine().drive_on_tokio()?;
    let (at, requests) = (server.local_addr(), Arc::new(AtomicU32::new(0)));
    let count = requests.clone();
    tokio::spawn(async move {
        while let Some(request) = server.accept_async().await {
            count.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(async move {
                sleep(takes).await;
                let _ = request.reply_async("found").await;
            });
        }
    });
    Ok((at, requests))
}

/// Calls at random times with this mean rate. Returns the median and the 99th percentile of the
/// latencies in milliseconds, and the percentage of calls that the last server gets.
async fn measure(
    servers: &[Duration],
    options: CallOptions,
    rate: f64,
    seconds: f64,
) -> Result<[f64; 3], Box<dyn Error>> {
    let started = servers.iter().map(|takes| start(*takes)).collect::<Result<Vec<_>, _>>()?;
    let target = Target::list(started.iter().map(|(at, _)| *at));
    let balancer = Balancer::new(target, Config::default().seed(1))?;
    let client = Client::new()?;
    client.engine().drive_on_tokio()?;
    let (began, mut state, mut calls) = (Instant::now(), 1u64, Vec::new());
    let mut next = began;
    while next < began + WARM_UP + Duration::from_secs_f64(seconds) {
        sleep_until(next.into()).await;
        let (balancer, client) = (balancer.clone(), client.clone());
        calls.push(tokio::spawn(async move {
            // From the time at which the call should start, so that a late start counts.
            let answered = balancer.call(&client, "find", &options).await;
            answered.map(|_| (next, next.elapsed()))
        }));
        // Exponential times between calls, from a small generator (Knuth, MMIX).
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let share = ((state >> 11) as f64 + 1.0) / (1u64 << 53) as f64;
        next += Duration::from_secs_f64(-share.ln() / rate);
    }
    let mut times = Vec::new();
    for call in calls {
        let (at, took) = call.await??;
        if at >= began + WARM_UP {
            times.push(took.as_secs_f64() * 1e3);
        }
    }
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    let requests: Vec<u32> =
        started.iter().map(|(_, requests)| requests.load(Ordering::Relaxed)).collect();
    let last = requests.last().copied().unwrap_or(0);
    let share = 100.0 * f64::from(last) / f64::from(requests.iter().sum::<u32>());
    Ok([at(0.5), at(0.99), share])
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let rate: f64 = arguments.next().map_or(Ok(500.0), |text| text.parse())?;
    let seconds: f64 = arguments.next().map_or(Ok(4.0), |text| text.parse())?;
    let options = CallOptions::default();
    let healthy = vec![TAKES; 7];
    let mut one_slow = healthy.clone();
    one_slow.push(10 * TAKES);
    let cases = [
        ("seven healthy", healthy, options),
        ("eight, the last ten times slower", one_slow.clone(), options),
        ("the same, calls hedged", one_slow, options.idempotent()),
    ];
    let mut rounds = [const { Vec::new() }; 3];
    for _ in 0..ROUNDS {
        for ((_, servers, options), rounds) in cases.iter().zip(&mut rounds) {
            rounds.push(measure(servers, *options, rate, seconds).await?);
        }
    }
    println!("{:<38} {:>8} {:>8} {:>11}", "", "p50 ms", "p99 ms", "last server");
    for ((what, ..), rounds) in cases.iter().zip(rounds) {
        let [p50, p99, share] = [0, 1, 2].map(|column| {
            let mut values: Vec<f64> =
                rounds.iter().map(|round: &[f64; 3]| round[column]).collect();
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        });
        println!("{what:<38} {p50:>8.2} {p99:>8.2} {share:>9.2} %");
    }
    Ok(())
}
