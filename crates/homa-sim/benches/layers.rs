//! The layers below the protocol: the event queue beside the heap it is checked against, and a
//! switch port. `cargo bench -p homa-sim --bench layers`.
//!
//! Nanoseconds of processor time, the least of five runs.

mod common;

use std::hint::black_box;

use common::cpu_seconds;
use homa_proto::Rate;
use homa_sim::engine::{EventQueue, Wheel};
use homa_sim::switch::Port;
use homa_sim::{LinkRate, SimTime};
use homa_workload::rng::Rng;

const EVENTS: u32 = 1_000_000;
const RUNS: u32 = 5;

/// What one of `times` costs, at the best of several runs.
fn best(times: u32, mut run: impl FnMut()) -> f64 {
    let one = |run: &mut dyn FnMut()| {
        let start = cpu_seconds();
        run();
        (cpu_seconds() - start) * 1e9 / f64::from(times)
    };
    (0..RUNS).map(|_| one(&mut run)).fold(f64::INFINITY, f64::min)
}

/// Delays as on a network of 10 Gbit/s links: a frame's time and a microsecond.
fn delays() -> Vec<u64> {
    let mut rng = Rng::stream(1, "delays");
    (0..4_096).map(|_| 1_000_000 + u64::from(rng.uniform_below(1_230_400))).collect()
}

/// Takes the first event and schedules another, with `pending` of them at any time.
macro_rules! hold {
    ($queue:expr, $pending:expr) => {{
        let (delays, mut queue) = (delays(), $queue);
        (0..$pending).for_each(|i| queue.push(SimTime(delays[i as usize % 4_096]), i));
        best(EVENTS, || {
            for i in 0..EVENTS {
                let Some((at, event)) = queue.pop() else { return };
                queue.push(SimTime(at.0 + delays[i as usize % 4_096]), black_box(event));
            }
        })
    }};
}

/// A frame of random priority arrives, and those that have left are taken.
fn switch_port() -> f64 {
    let mut rng = Rng::stream(2, "frames");
    let frames: Vec<(u32, u8)> =
        (0..4_096).map(|_| (84 + rng.uniform_below(1_455), rng.uniform_below(8) as u8)).collect();
    best(EVENTS, || {
        let mut port = Port::new(LinkRate::new(Rate::gbps(10)), 1_000_000);
        for i in 0..EVENTS {
            // 90 % load.
            let now = SimTime(u64::from(i) * 720_000);
            while let Some(left) = port.next(now) {
                black_box(left);
            }
            let _ = port.enqueue(now, Bytes(frames[i as usize % 4_096]));
        }
    })
}

#[derive(Clone, Copy)]
struct Bytes((u32, u8));

impl homa_sim::switch::Frame for Bytes {
    fn bytes(&self) -> u32 {
        self.0.0
    }

    fn priority(&self) -> u8 {
        self.0.1
    }
}

fn main() {
    println!("{:>10} {:>14} {:>14}", "pending", "wheel ns", "heap ns");
    for pending in [600_u32, 12_000, 100_000] {
        let (wheel, heap) =
            (hold!(Wheel::default(), pending), hold!(EventQueue::default(), pending));
        println!("{pending:>10} {wheel:>14.1} {heap:>14.1}");
    }
    println!("switch port: {:.1} ns a frame", switch_port());
}
