//! The cost of the protocol, without network or sockets: `cargo bench -p homa-rpc-proto`.
//!
//! `one_way` is the work of a simulated host at 80 % load (items are DATA packets, with the GRANTs
//! and the messages they belong to); `rpc` is the work of both ends per call.
#![allow(missing_docs)]

mod mesh;

use divan::Bencher;
use divan::counter::ItemsCount;
use homa_proto::{Config, PriorityAllocation, Rate};
use mesh::Mesh;

const LINK: Rate = Rate::gbps(10);
/// DATA packets per host and sample.
const PACKETS: u64 = 1_000;

/// Twenty quantiles of message sizes, and rounds per message and host at 80 % load.
struct MessageSizes {
    bytes: [u32; 20],
    rounds_per_message: f64,
}

/// Like W1: short messages.
const SHORT: MessageSizes = MessageSizes {
    bytes: [
        2, 2, 3, 5, 11, 11, 15, 27, 50, 79, 100, 151, 200, 264, 330, 400, 503, 804, 1_300, 1_876,
    ],
    rounds_per_message: 0.25,
};

/// Like W4: nearly all bytes in long messages.
const LONG: MessageSizes = MessageSizes {
    bytes: [
        300, 315, 340, 376, 430, 502, 530, 561, 600, 662, 800, 960, 2_000, 6_387, 20_000, 49_408,
        80_000, 120_373, 273_075, 2_000_000,
    ],
    rounds_per_message: 110.0,
};

fn simulator(levels: &[u32]) -> Config {
    let priorities = PriorityAllocation::precomputed(8, levels).expect("at most eight levels");
    Config::sigcomm18_sim(LINK).priorities(priorities)
}

fn configs() -> [(&'static str, Config); 3] {
    let large = Config::for_users(LINK).max_message(1 << 30);
    [("sigcomm18-sim", simulator(&[])), ("sigcomm18", Config::sigcomm18(LINK)), ("default", large)]
}

fn run(mesh: &mut Mesh, hosts: u32, sizes: &MessageSizes) {
    let end = mesh.data + PACKETS * u64::from(hosts);
    while mesh.data < end {
        for host in 0..hosts {
            let mut due = 1.0 / sizes.rounds_per_message;
            while due > 0.0 {
                let draw = mesh.random();
                if f64::from(draw) / f64::from(u32::MAX) < due {
                    let size = sizes.bytes[mesh.random() as usize % 20];
                    mesh.send(host as usize, size);
                }
                due -= 1.0;
            }
        }
        mesh.step(if sizes.rounds_per_message < 1.0 { 5 } else { 1 });
    }
}

#[divan::bench_group(sample_count = 25, sample_size = 1)]
mod one_way {
    use super::*;

    fn bench(bencher: Bencher, config: &Config, hosts: u32, sizes: &MessageSizes) {
        let mut mesh = Mesh::new(config, hosts);
        run(&mut mesh, hosts, sizes);
        bencher
            .counter(ItemsCount::new(PACKETS * u64::from(hosts)))
            .bench_local(|| run(&mut mesh, hosts, sizes));
    }

    #[divan::bench(args = [0, 1, 2])]
    fn long_16_hosts(bencher: Bencher, profile: usize) {
        bench(bencher, &configs()[profile].1, 16, &LONG);
    }

    #[divan::bench(args = [0, 1, 2])]
    fn short_16_hosts(bencher: Bencher, profile: usize) {
        bench(bencher, &configs()[profile].1, 16, &SHORT);
    }

    #[divan::bench]
    fn long_144_hosts(bencher: Bencher) {
        bench(bencher, &simulator(&[]), 144, &LONG);
    }

    #[divan::bench]
    fn short_144_hosts(bencher: Bencher) {
        bench(bencher, &simulator(&[11, 125, 273, 468, 764, 1_275]), 144, &SHORT);
    }
}

#[divan::bench_group(sample_count = 20, sample_size = 1)]
mod rpc {
    use super::*;

    const CALLS: u64 = 20_000;

    fn calls(mesh: &mut Mesh, outstanding: u64, issued: &mut u64) {
        let end = mesh.delivered + CALLS;
        while mesh.delivered < end {
            while *issued < mesh.delivered + outstanding {
                mesh.call(100);
                *issued += 1;
            }
            mesh.step(outstanding as usize);
        }
    }

    #[divan::bench(args = [1, 64, 256])]
    fn echo_of_100_bytes(bencher: Bencher, outstanding: u64) {
        let mut mesh = Mesh::new(&Config::for_users(LINK), 2);
        let mut issued = 0;
        calls(&mut mesh, outstanding, &mut issued);
        bencher
            .counter(ItemsCount::new(CALLS))
            .bench_local(|| calls(&mut mesh, outstanding, &mut issued));
        let acks = mesh.acks_sent() as f64 / mesh.delivered as f64;
        println!("\n{acks:.3} explicit ACKs per call");
    }
}

fn main() {
    divan::main();
}
