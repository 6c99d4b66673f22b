//! The layers below the protocol: the event queue, compared with the heap that its tests check it
//! against, and a switch port. Run with `cargo bench -p homa-rpc-sim --bench layers`. The protocol
//! is measured by `cargo bench -p homa-rpc-proto`, whole networks by `--bench fabric`.
#![allow(missing_docs)]

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use homa_proto::Rate;
use homa_sim::engine::{EventQueue, Wheel};
use homa_sim::fabric::StrictPriority;
use homa_sim::software_switch::{SoftwarePort, SwitchFrame};
use homa_sim::{LinkRate, SimTime};
use homa_workload::rng::Rng;

/// Events or frames per sample.
const ITEMS: u32 = 100_000;
/// Random numbers are drawn before the measurement, because drawing them takes time, too.
const DRAWS: usize = 4_096;
/// Numbers of pending events, e.g. those of a loaded fabric of 144 hosts and of one of a thousand.
const PENDING: [u32; 3] = [600, 12_000, 100_000];

/// Delays as in a network of 10 Gbit/s links: the time of a frame, and a microsecond.
fn delays() -> Vec<u64> {
    let mut rng = Rng::stream(1, "delays");
    (0..DRAWS).map(|_| 1_000_000 + u64::from(rng.uniform_below(1_230_400))).collect()
}

/// Takes the first event and schedules another, so that `pending` of them are queued at any time.
macro_rules! hold {
    ($bencher:expr, $queue:expr, $pending:expr) => {{
        let (delays, mut queue) = (delays(), $queue);
        (0..$pending).for_each(|i| queue.push(SimTime(delays[i as usize % DRAWS]), i));
        $bencher.counter(ItemsCount::new(ITEMS)).bench_local(|| {
            for i in 0..ITEMS {
                let Some((at, event)) = queue.pop() else { return };
                queue.push(SimTime(at.0 + delays[i as usize % DRAWS]), black_box(event));
            }
        });
    }};
}

#[divan::bench(args = PENDING)]
fn wheel(bencher: Bencher<'_, '_>, pending: u32) {
    hold!(bencher, Wheel::default(), pending);
}

#[divan::bench(args = PENDING)]
fn heap(bencher: Bencher<'_, '_>, pending: u32) {
    hold!(bencher, EventQueue::default(), pending);
}

/// Frames of random priority arrive at 90 % load, and frames that have left are taken.
#[divan::bench]
fn switch_port(bencher: Bencher<'_, '_>) {
    let mut rng = Rng::stream(2, "frames");
    let frames: Vec<(u32, u8)> =
        (0..DRAWS).map(|_| (84 + rng.uniform_below(1_455), rng.uniform_below(8) as u8)).collect();
    bencher.counter(ItemsCount::new(ITEMS)).bench_local(|| {
        let mut port = SoftwarePort::new(LinkRate::new(Rate::gbps(10)), 1_000_000, StrictPriority);
        for i in 0..ITEMS {
            let now = SimTime(u64::from(i) * 720_000);
            while let Some(left) = port.next(now) {
                black_box(left);
            }
            let _ = port.enqueue(now, Bytes(frames[i as usize % DRAWS]));
        }
    });
}

#[derive(Clone, Copy)]
struct Bytes((u32, u8));

impl SwitchFrame for Bytes {
    fn bytes(&self) -> u32 {
        self.0.0
    }

    fn priority(&self) -> u8 {
        self.0.1
    }
}

fn main() {
    divan::main();
}
