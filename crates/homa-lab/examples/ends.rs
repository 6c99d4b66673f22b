//! Shortest-remaining-first service if one end of a message is loaded, or both. Messages are a
//! fluid, without packets and without a protocol. `ends WORKLOAD LOAD MESSAGES SEED` prints the
//! 99th percentile of slowdown by message size for 144 hosts, once with the senders' links alone
//! and once with the receivers' too, and then also as the mean of each receiver's own percentile,
//! which is how the published curves were read. It checks Figure 10 without sharing code with the
//! simulator. Sizes below RTTbytes do not matter here, because a fluid has no frames to wait for.

use homa_workload::bins::SizeBins;
use homa_workload::framing::Framing;
use homa_workload::interval;
use homa_workload::load::mean_wire_bytes;
use homa_workload::quantile::{Percentile, Sorted};
use homa_workload::rng::Rng;
use homa_workload::sizes::{SizeDistribution, Workload};

const HOSTS: u32 = 144;
/// Host links, bytes per second.
const RATE: f64 = 1.25e9;
/// Delays of Homa's fabric beyond the host link, seconds.
const FIXED: f64 = 4.1e-6;

struct Message {
    src: usize,
    dst: usize,
    bytes: u32,
    /// Seconds of link time to go.
    left: f64,
    submitted: f64,
}

/// The best case as the authors' formula has it, seconds.
fn alone(bytes: u32) -> f64 {
    f64::from(bytes) / 1472.0 * 1538.0 / RATE + FIXED
}

/// A message that arrived.
struct Done {
    bytes: u32,
    dst: usize,
    slowdown: f64,
}

/// Serves, shortest remaining first, each message whose ends are free.
fn run(sizes: &SizeDistribution, load: f64, messages: u64, seed: u64, both: bool) -> Vec<Done> {
    let mut rng = Rng::stream(seed, "ends");
    let per_second = load * RATE / mean_wire_bytes(sizes, Framing::Paper) * f64::from(HOSTS);
    let mut gap = || -(1.0 - rng.uniform()).ln() / per_second;
    let (mut now, mut next) = (0.0, gap());
    let mut draw = Rng::stream(seed, "messages");
    let mut waiting: Vec<Message> = Vec::new();
    let (mut submitted, mut done) = (0, Vec::new());
    while submitted < messages || !waiting.is_empty() {
        waiting.sort_by(|a, b| a.left.total_cmp(&b.left));
        let (mut sending, mut receiving) = ([false; HOSTS as usize], [false; HOSTS as usize]);
        let mut served = Vec::new();
        for (place, message) in waiting.iter().enumerate() {
            if !(sending[message.src] || both && receiving[message.dst]) {
                (sending[message.src], receiving[message.dst]) = (true, true);
                served.push(place);
            }
        }
        let arrival = if submitted < messages { next - now } else { f64::INFINITY };
        let step = served.first().map_or(arrival, |&first| waiting[first].left.min(arrival));
        for place in served {
            waiting[place].left -= step;
        }
        now += step;
        waiting.retain(|message| {
            let ended = message.left <= 1e-12;
            if ended {
                let slowdown = (now - message.submitted + FIXED) / alone(message.bytes);
                done.push(Done { bytes: message.bytes, dst: message.dst, slowdown });
            }
            !ended
        });
        if step >= arrival {
            let bytes = sizes.sample(&mut draw);
            let src = draw.uniform_below(HOSTS) as usize;
            let other = draw.uniform_below(HOSTS - 1) as usize;
            let dst = other + usize::from(other >= src);
            let left = Framing::Paper.wire_bytes(bytes) as f64 / RATE;
            waiting.push(Message { src, dst, bytes, left, submitted: now });
            (submitted, next) = (submitted + 1, now + gap());
        }
    }
    done
}

/// The percentile of all, and the mean of each receiver's own.
fn p99(messages: &[Done]) -> (f64, f64) {
    let all = Sorted::new(messages.iter().map(|message| message.slowdown).collect());
    let values = messages.iter().map(|message| (message.dst, message.slowdown));
    let own = interval::mean_of_percentiles(values, Percentile::P99);
    let all = all.percentile(Percentile::P99);
    (all.unwrap_or(f64::NAN), own.map_or(f64::NAN, |own| own.mean))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let arg = |place: usize, default: &'static str| args.get(place).map_or(default, |arg| arg);
    let sizes = Workload::parse(arg(0, "w5"))?.sizes()?;
    let (load, messages, seed) =
        (arg(1, "0.8").parse()?, arg(2, "98000").parse()?, arg(3, "1").parse()?);
    let bins = SizeBins::percent(&sizes);
    let by_bin = |both| {
        let mut done: Vec<Vec<Done>> = bins.bins().iter().map(|_| Vec::new()).collect();
        for message in run(&sizes, load, messages, seed, both) {
            done[bins.of_size(message.bytes)].push(message);
        }
        done.into_iter().map(|messages| p99(&messages))
    };
    println!("{:>12} {:>10} {:>9} {:>9} by receiver", "bin ends, %", "bytes", "one end", "both");
    for ((bin, (one, _)), (both, own)) in bins.bins().iter().zip(by_bin(false)).zip(by_bin(true)) {
        let (share, bytes) = (bin.cum_share * 100.0, bin.max_bytes);
        println!("{share:>12.1} {bytes:>10} {one:>9.2} {both:>9.2} {own:>11.2}");
    }
    Ok(())
}
