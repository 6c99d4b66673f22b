//! Packet-hops per CPU-second by workload: `cargo bench -p homa-rpc-sim --bench fabric [-- NAME…]`.
//!
//! A packet-hop is one packet, data or control, serialised on one link and delivered at its far
//! end. CPU time is that of the event loop. The workloads `engine-*` run a transport that costs
//! almost nothing.

mod common;

use common::{Flow, Sender, cpu_seconds, homa, perm, permutation, poisson, web60, window::Window};
use homa_proto::Rate;
use homa_sim::engine::{Counters, MakeTransport, NoFaults, Simulation};
use homa_sim::fabric::FabricConfig;
use homa_sim::measure::cost::peak_rss_bytes;
use homa_sim::topology::{FatTree, LeafSpine, Physics, Wiring};
use homa_sim::transport::Transport;
use homa_sim::{SimDuration, SimTime};

/// 144 hosts, 10 and 40 Gbit/s, 1 us per link. We measured other simulators on the same network.
fn rivals() -> Wiring {
    let physics = Physics::uniform(Rate::gbps(10), Rate::gbps(40), SimDuration::micros(1));
    LeafSpine { physics, ..LeafSpine::homa() }.wire()
}

/// `k³/4` hosts in three tiers, 100 Gbit/s, 1 us per link.
fn fat_tree(k: u32) -> Wiring {
    fat_tree_of(k, Rate::gbps(100))
}

fn fat_tree_of(k: u32, rate: Rate) -> Wiring {
    let physics = Physics::uniform(rate, rate, SimDuration::micros(1));
    FatTree { k, oversubscription: 1, physics }.wire()
}

/// Every host sends 200 kB at 10 Gbit/s, so that only the number of hosts differs between sizes.
fn growth(name: &str, k: u32) {
    let (wiring, make) = (fat_tree_of(k, Rate::gbps(10)), homa(Rate::gbps(10), 28_000, 1_500));
    measure(name, wiring, permutation(k.pow(3) / 4, 200_000), make);
}

fn measure<T: Transport>(name: &str, wiring: Wiring, flows: Vec<Flow>, make: MakeTransport<T>) {
    let (messages, sender) = (flows.len(), Sender::new(flows));
    let first = sender.first();
    let mut simulation =
        Simulation::new(wiring, FabricConfig::default(), make, (sender, (), NoFaults));
    if messages == simulation.wiring().hosts() as usize || first == SimTime::ZERO {
        (0..messages as u64).take(1).for_each(|token| simulation.wake_at(first, token));
    } else {
        simulation.wake_at(first, 0);
    }
    let start = cpu_seconds();
    let halt = simulation.run_to_drain();
    let seconds = cpu_seconds() - start;
    let Counters { packet_hops, events, peak_pending, .. } = simulation.counters();
    println!(
        "{name:14} {packet_hops:>11} hops {:>5.2} events/hop {seconds:>7.3} CPU s {:>6.1} ns/hop \
         {:>6.2} M hops/s, {peak_pending} pending, {}/{messages} by {:.3} ms ({halt:?}), {} MB, \
         {:016x}",
        events as f64 / packet_hops as f64,
        seconds * 1e9 / packet_hops as f64,
        packet_hops as f64 / seconds / 1e6,
        simulation.application().delivered,
        simulation.application().last.0 as f64 / 1e9,
        peak_rss_bytes() / 1_000_000,
        simulation.trace_hash(),
    );
}

fn run(name: &str) {
    let windows = || -> MakeTransport<Window> { Box::new(|_, _| Window::new()) };
    let slow = || homa(Rate::gbps(10), 14_100, 1_500);
    let fast = || homa(Rate::gbps(100), 150_000, 1_500);
    // The frame size of another simulator's permutation of 1,024 hosts.
    let jumbo = || homa(Rate::gbps(100), 150_000, 4_000);
    match name {
        "engine-perm" => measure(name, rivals(), perm(7_000), windows()),
        "engine-perm1024" => measure(name, fat_tree(16), permutation(1_024, 2_000_000), windows()),
        "engine-perm8192" => measure(name, fat_tree(32), permutation(8_192, 2_000_000), windows()),
        "engine-brief" => measure(name, rivals(), perm(200), windows()),
        "brief" => measure(name, rivals(), perm(200), slow()),
        "perm" => measure(name, rivals(), perm(7_000), slow()),
        "web60" => measure(name, rivals(), web60(), slow()),
        "perm1024" => measure(name, fat_tree(16), permutation(1_024, 2_000_000), fast()),
        "engine-brief8192" => measure(name, fat_tree(32), permutation(8_192, 200_000), windows()),
        "brief8192" => measure(name, fat_tree(32), permutation(8_192, 200_000), fast()),
        "brief1024" => measure(name, fat_tree(16), permutation(1_024, 200_000), fast()),
        "brief128" => measure(name, fat_tree(8), permutation(128, 200_000), fast()),
        "growth128" => growth(name, 8),
        "growth1024" => growth(name, 16),
        "growth8192" => growth(name, 32),
        "short1024" => measure(
            name,
            fat_tree(16),
            permutation(1_024, 2_000_000),
            homa(Rate::gbps(100), 20_000, 1_500),
        ),
        "jumbo1024" => measure(name, fat_tree(16), permutation(1_024, 2_000_000), jumbo()),
        "jumbo8192" => measure(name, fat_tree(32), permutation(8_192, 2_000_000), jumbo()),
        "perm8192" => measure(name, fat_tree(32), permutation(8_192, 2_000_000), fast()),
        "w1" => measure(name, LeafSpine::homa().wire(), poisson("w1", 1_000_000, 1.523), slow()),
        "w2" => measure(name, LeafSpine::homa().wire(), poisson("w2", 500_000, 1.256), slow()),
        "w3" => measure(name, LeafSpine::homa().wire(), poisson("w3", 200_000, 1.127), slow()),
        "w4" => measure(name, LeafSpine::homa().wire(), poisson("w4", 20_000, 1.113), slow()),
        "w5" => measure(name, LeafSpine::homa().wire(), poisson("w5", 1_500, 1.114), slow()),
        other => eprintln!("no workload {other:?}"),
    }
}

fn main() {
    let names: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    if names.is_empty() {
        ["engine-perm", "perm", "w4"].into_iter().for_each(run);
    }
    names.iter().for_each(|name| run(name));
}
