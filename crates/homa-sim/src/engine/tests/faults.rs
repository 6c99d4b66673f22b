//! Claims about faults, with a transport other than Homa.

use std::cell::Cell;
use std::rc::Rc;

use crate::checker::saboteur::OneShot;
use crate::engine::*;
use crate::fabric::{Buffers, FabricConfig};
use crate::time::{SimDuration, SimTime};
use crate::topology::{HostId, Physics, SingleSwitch};
use homa_proto::{Body, Event, MessageKind, Packet, PeerId, Rate, Request, Submit, Time};
use homa_workload::rng::Rng;

/// Calls `(client, server, bytes)` by token; servers echo the length.
#[derive(Default)]
struct Echo {
    calls: Vec<(u32, u32, u32)>,
    answers: Vec<(u64, SimTime)>,
    failures: u32,
    restarts: u32,
}

impl Application for Echo {
    fn event<C: Context>(&mut self, net: &mut C, host: HostId, event: &Event) {
        match event {
            Event::Delivered(message) if message.kind == MessageKind::Request => {
                let answer = Submit::Response { rpc: message.rpc, length: message.length };
                net.submit(host, answer).unwrap();
            }
            Event::Delivered(message) => self.answers.push((message.cookie, net.now())),
            Event::Failed { .. } => self.failures += 1,
            _ => {}
        }
    }

    fn wake_host<C: Context>(&mut self, net: &mut C, host: HostId, token: u64) {
        let (_, server, length) = self.calls[token as usize];
        let request = Request {
            peer: PeerId(server),
            local_port: 1,
            remote_port: 2,
            length,
            deadline: Time(50_000_000),
            idempotent: false,
            head: 0,
            cookie: token,
        };
        net.submit(host, Submit::Request(request)).unwrap();
    }

    fn restarted<C: Context>(&mut self, _: &mut C, _: HostId) {
        self.restarts += 1;
    }
}

/// 10 Gbit/s: 800 ps a byte.
fn physics() -> Physics {
    let uniform = Physics::uniform(Rate::gbps(10), Rate::gbps(10), SimDuration::nanos(50));
    Physics { receiver_delay: SimDuration::nanos(500), ..uniform }
}

type Echoes<F> = Simulation<(OneShot, StrictPriority, Echo, (), F)>;

fn network<F: Fault<Packet>>(calls: &[(u32, u32, u32)], faults: F) -> Echoes<F> {
    let echo = Echo { calls: calls.to_vec(), ..Echo::default() };
    let wiring = SingleSwitch { hosts: 4, physics: physics() }.wire();
    let config = FabricConfig { buffers: Buffers::PerPort(100_000), ..FabricConfig::default() };
    let make = Box::new(|_, life| OneShot::new(life, None));
    let mut network = Simulation::new(wiring, config, make, (echo, (), faults));
    for (token, call) in calls.iter().enumerate() {
        network.wake_host_at(HostId(call.0), SimTime::ZERO, token as u64);
    }
    network
}

fn run<F: Fault<Packet>>(network: &mut Echoes<F>) {
    assert_ne!(network.run_until(SimTime(200_000_000_000), 1_000_000), Halt::Events);
    assert_eq!(network.packets_in_flight(), 0);
}

#[test]
fn an_idle_echo_takes_four_serialisations_and_the_fixed_delays() {
    let mut network = network(&[(0, 1, 1000)], NoFaults);
    run(&mut network);
    // 1000 + 56 + 20 + 38 wire bytes, twice each way; two cables and one software delay each way.
    let one_way = 2 * 1114 * 800 + 2 * 50_000 + 500_000;
    assert_eq!(network.application().answers, [(0, SimTime(2 * one_way))]);
    // Request, response and ack, two links each.
    assert_eq!(network.counters().packet_hops, 6);
}

#[test]
fn senders_share_the_receivers_link_and_the_rest_is_dropped() {
    let calls: Vec<_> = (0..300).map(|i| (i % 3, 3, 1000)).collect();
    let mut network = network(&calls, NoFaults);
    assert_eq!(network.run_until(SimTime(800_000_000), 1_000_000), Halt::Time);
    // Three links at full rate feed one, so two thirds of each packet's bytes queue until the
    // limit.
    assert!(network.dropped_frames(network.wiring().downlink(HostId(3))) > 0);
    run(&mut network);
    assert_eq!(network.application().answers.len(), 300);
}

#[test]
fn scripted_loss_costs_one_retransmission() {
    let mut lost = 0;
    let script = Script(move |_, link, _: &Packet| {
        lost += u32::from(link == DirectedLink::Up(HostId(0)));
        if lost == 1 && link == DirectedLink::Up(HostId(0)) {
            PacketFate::Lose
        } else {
            PacketFate::Pass
        }
    });
    let mut network = network(&[(0, 1, 100)], script);
    run(&mut network);
    let [(0, at)] = network.application().answers[..] else { panic!() };
    assert!(at > SimTime(1_000_000_000) && at < SimTime(1_010_000_000), "{at:?}");
}

#[test]
fn a_paused_host_answers_later_and_a_crashed_one_never() {
    let mut paused = network(&[(0, 1, 100), (2, 3, 100)], NoFaults);
    paused.pause(HostId(1), SimTime(0), SimDuration::micros(500));
    paused.crash(HostId(3), SimTime(0), None);
    run(&mut paused);
    let [(0, at)] = paused.application().answers[..] else { panic!() };
    assert!(at > SimTime(500_000_000) && at < SimTime(510_000_000), "{at:?}");
    assert_eq!(paused.application().failures, 1);
    assert!(paused.transport(HostId(3)).is_none());
}

#[test]
fn after_a_pause_a_host_reads_packets_before_timers_run() {
    let requests = Rc::new(Cell::new(0));
    let counter = requests.clone();
    let count = Script(move |_, link, packet: &Packet| {
        let request = matches!(packet.body, Body::Data(_)) && link == DirectedLink::Up(HostId(0));
        counter.set(counter.get() + u32::from(request));
        PacketFate::Pass
    });
    let mut network = network(&[(0, 1, 100)], count);
    network.pause(HostId(1), SimTime(0), SimDuration::millis(2));
    network.pause(HostId(0), SimTime(500_000_000), SimDuration::millis(20));
    run(&mut network);
    let [(0, at)] = network.application().answers[..] else { panic!() };
    assert_eq!(at, SimTime(20_500_000_000));
    // The client's timer was due before the response arrived, but nothing is sent again.
    assert_eq!(requests.get(), 1);
}

#[test]
fn wake_ups_of_an_earlier_life_never_come() {
    let mut network = network(&[(0, 1, 100), (0, 1, 100)], NoFaults);
    network.wake_host_at(HostId(0), SimTime(3_000_000_000), 1);
    network.crash(HostId(0), SimTime(1_000), Some(SimDuration::millis(1)));
    run(&mut network);
    assert_eq!(network.application().restarts, 1);
    assert_eq!(network.application().answers, []);
}

#[test]
fn equal_seeds_give_equal_traces_and_other_seeds_others() {
    let trace = |seed| {
        let faults = RandomFaults {
            rng: Rng::stream(seed, "faults"),
            loss_ppm: 50_000,
            duplicate_ppm: 50_000,
            delay_ppm: 50_000,
            max_delay_ns: 20_000,
            heals_at: SimTime(20_000_000_000),
        };
        let calls: Vec<_> = (0..200).map(|i| (i % 3, 3 - i % 2, 500)).collect();
        let mut network = network(&calls, faults);
        run(&mut network);
        assert_eq!(
            network.application().answers.len() + network.application().failures as usize,
            200
        );
        network.trace_hash()
    };
    assert_eq!(trace(1), trace(1));
    assert_ne!(trace(1), trace(2));
}
