//! Claims about the network with Homa as the transport.

mod combined;
mod fabric;
mod faults;
mod plain;
mod queues;
mod shared;

use super::*;
use crate::headers::Headers;
use crate::time::SimDuration;
use crate::topology::{FatTree, LeafSpine, Physics, Wiring};
use crate::transport::Homa;
use homa_proto::{Config, Endpoint, Event, PeerId, Rate, Submit};

/// One-way messages: `(from, to, bytes, at)`.
#[derive(Default)]
struct Flows {
    flows: Vec<(u32, u32, u32, SimTime)>,
    delivered: Vec<(u64, SimTime)>,
}

impl Application for Flows {
    fn wake<C: Context>(&mut self, net: &mut C, token: u64) {
        let (from, to, length, _) = self.flows[token as usize];
        let what = Submit::OneWay { peer: PeerId(to), length, cookie: token };
        net.submit(HostId(from), what).unwrap();
    }

    fn event<C: Context>(&mut self, net: &mut C, host: HostId, event: &Event) {
        if let Event::Delivered(delivered) = event {
            let same = |f: &(u32, u32, u32, SimTime)| {
                (f.0, f.1, f.2) == (delivered.peer.0, host.0, delivered.length)
            };
            let index = self.flows.iter().position(same).unwrap();
            self.delivered.push((index as u64, net.now()));
        }
    }
}

fn homa(framing: Headers) -> MakeTransport<Homa> {
    Box::new(move |host, life| {
        let seed = u64::from(host.0) << 32 | u64::from(life) | 1;
        let config = Config::sigcomm18(Rate::gbps(10)).seed(seed);
        Homa::new(Endpoint::new(config.validate().unwrap()), framing)
    })
}

fn run(
    flows: &[(u32, u32, u32, SimTime)],
) -> Simulation<(Homa, StrictPriority, Flows, (), NoFaults)> {
    run_on(LeafSpine::homa().wire(), flows)
}

fn run_on(
    wiring: Wiring,
    flows: &[(u32, u32, u32, SimTime)],
) -> Simulation<(Homa, StrictPriority, Flows, (), NoFaults)> {
    let application = Flows { flows: flows.to_vec(), delivered: Vec::new() };
    let make = homa(Headers::Authors);
    let mut simulation =
        Simulation::new(wiring, FabricConfig::default(), make, (application, (), NoFaults));
    for (token, flow) in flows.iter().enumerate() {
        simulation.wake_at(flow.3, token as u64);
    }
    simulation.run_until(SimTime(50_000_000_000), 10_000_000);
    simulation
}

#[test]
fn idle_one_way_times_are_exact() {
    // 97 wire bytes: 77.6 ns at 10 and 19.4 ns at 40 Gbit/s, twice each, and 2.25 us.
    let simulation = run(&[(0, 143, 1, SimTime(5_000_000))]);
    let expected = 5_000_000 + 2_250_000 + 2 * 77_600 + 2 * 19_400;
    assert_eq!(simulation.application().delivered, [(0, SimTime(expected))]);
    assert_eq!(simulation.counters().packet_hops, 4);
    // Within a rack: 1.75 us.
    let simulation = run(&[(0, 15, 1, SimTime(0))]);
    assert_eq!(simulation.application().delivered, [(0, SimTime(1_750_000 + 2 * 77_600))]);
}

#[test]
fn the_ideal_time_is_the_published_one() {
    let wiring = LeafSpine::homa().wire();
    let ideal = |to, frames: &[u32]| wiring.ideal(HostId(0), HostId(to), frames).0;
    assert_eq!(ideal(143, &[84]), 2_418_000);
    assert_eq!(ideal(143, &[1538]), 5_326_000);
    assert_eq!(ideal(15, &[84]), 1_884_400);
}

#[test]
fn a_long_message_arrives() {
    let simulation = run(&[(0, 143, 1_000_000, SimTime(0)), (1, 142, 3_000_000, SimTime(0))]);
    assert_eq!(simulation.application().delivered.len(), 2);
}

#[test]
fn a_large_network_that_prefetches_delivers_everything() {
    let physics = Physics::uniform(Rate::gbps(10), Rate::gbps(10), SimDuration::micros(1));
    let wiring = FatTree { k: 16, oversubscription: 1, physics }.wire();
    // Many peers per host, packets with and without a grant, and frames that wait.
    let flow = |i: u32| (i % 1_024, (i * 5 + 77 + i / 1_024) % 1_024, 12_000 + i, SimTime(0));
    let flows: Vec<_> = (0..2_048).map(flow).filter(|flow| flow.0 != flow.1).collect();
    let simulation = run_on(wiring, &flows);
    assert!(
        simulation.counters().peak_pending > wheel::PREFETCH_FROM,
        "too few events to prefetch"
    );
    assert_eq!(simulation.application().delivered.len(), flows.len());
    assert_eq!((simulation.packets_in_flight(), simulation.counters().lost), (0, 0));
}
