//! The rules for every message transport here: calls over a network that loses, duplicates and
//! delays packets are each answered once, and no state is left.

use homa_proto::{Duration, Event, MessageKind, PeerId, Rate, Request, Submit, Time};
use homa_workload::rng::Rng;

use crate::engine::{Application, Context, Fault, RandomFaults, Simulation};
use crate::fabric::FabricConfig;
use crate::time::{SimDuration, SimTime};
use crate::topology::{HostId, LeafSpine};

use super::ndp::{Ndp, NdpConfig};
use super::parts::WireFormat;
use super::pfabric::{PFabric, PFabricConfig};
use super::{PacketMeta, Transport};

/// Metadata of an ordinary packet.
pub(super) fn arrival(from: u32) -> PacketMeta {
    PacketMeta::new(HostId(from), 0)
}

const HOSTS: u32 = 8;
const CALLS: u64 = 300;

/// Random calls. Servers send a response of the same length.
struct Calls {
    rng: Rng,
    /// For each call: requests delivered, responses delivered, and failures.
    seen: Vec<[u32; 3]>,
    released: u64,
    submitted: u64,
    cancelled: u64,
}

impl Calls {
    fn start<C: Context>(&mut self, net: &mut C, cookie: u64) {
        let host = self.rng.uniform_below(HOSTS);
        let peer = (host + 1 + self.rng.uniform_below(HOSTS - 1)) % HOSTS;
        let length = match self.rng.uniform_below(3) {
            0 => 1 + self.rng.uniform_below(1_400),
            1 => 1 + self.rng.uniform_below(20_000),
            _ => 1 + self.rng.uniform_below(200_000),
        };
        let deadline =
            if cookie % 10 == 9 { net.now() + SimDuration::micros(30) } else { SimTime::MAX };
        let deadline = if deadline == SimTime::MAX { Time::MAX } else { deadline.protocol() };
        let request = Request {
            peer: PeerId(peer),
            local_port: 1,
            remote_port: 2,
            length,
            deadline,
            idempotent: false,
            head: 0,
            cookie,
        };
        let submitted = net.submit(HostId(host), Submit::Request(request)).unwrap();
        self.submitted += 1;
        if cookie % 10 == 8 {
            net.submit(HostId(host), Submit::Cancel { rpc: submitted.rpc }).unwrap();
            self.cancelled += 1;
        }
    }
}

impl Application for Calls {
    fn wake<C: Context>(&mut self, net: &mut C, token: u64) {
        self.start(net, token);
    }

    fn event<C: Context>(&mut self, net: &mut C, host: HostId, event: &Event) {
        match event {
            Event::Delivered(message) if message.kind == MessageKind::Request => {
                let answer = Submit::Response { rpc: message.rpc, length: message.length };
                net.submit(host, answer).unwrap();
                self.submitted += 1;
            }
            Event::Delivered(message) => self.seen[message.cookie as usize][1] += 1,
            Event::Failed { cookie, .. } => self.seen[*cookie as usize][2] += 1,
            Event::Release { .. } => self.released += 1,
            _ => {}
        }
    }
}

pub(super) fn random_calls<T: Transport>(
    seed: u64,
    make: impl Fn(HostId, u32) -> T + Send + 'static,
    in_flight: fn(&T) -> (usize, usize),
) where
    RandomFaults: Fault<T::Packet>,
{
    let application = Calls {
        rng: Rng::stream(seed, "calls"),
        seen: vec![[0; 3]; CALLS as usize],
        released: 0,
        submitted: 0,
        cancelled: 0,
    };
    let faults = RandomFaults {
        rng: Rng::stream(seed, "faults"),
        loss_ppm: 20_000,
        duplicate_ppm: 20_000,
        delay_ppm: 20_000,
        max_delay_ns: 30_000,
        heals_at: SimTime::MAX,
    };
    let wiring = LeafSpine { racks: 2, hosts_per_rack: 4, spines: 2, ..LeafSpine::homa() }.wire();
    let parts = (application, (), faults);
    let mut sim = Simulation::new(wiring, FabricConfig::default(), Box::new(make), parts);
    for call in 0..CALLS {
        sim.wake_at(SimTime::ZERO + SimDuration::micros(3 * call), call);
    }
    sim.run_until(SimTime::ZERO + SimDuration::millis(3_000), u64::MAX);
    let application = sim.application();
    for (call, [_, answered, failed]) in application.seen.iter().enumerate() {
        let expected = match call % 10 {
            8 => *answered == 0 && *failed == 0,
            9 => answered + failed == 1,
            _ => (*answered, *failed) == (1, 0),
        };
        assert!(expected, "call {call} of seed {seed}: {answered} answers, {failed} failures");
    }
    assert!(application.released >= application.submitted, "seed {seed}: messages are released");
    let left: Vec<_> = sim.transports().map(in_flight).filter(|left| *left != (0, 0)).collect();
    assert_eq!((left, sim.packets_in_flight()), (vec![], 0), "seed {seed}");
    assert!(sim.pending() == 0, "seed {seed}: hosts come to rest");
}

#[test]
fn ndp_answers_every_call_once_despite_faults() {
    for seed in 0..8 {
        let config = NdpConfig {
            wire: WireFormat::ethernet(1_500, 40, 40),
            link: Rate::gbps(10),
            initial_window: 10,
            timeout: Duration::millis(1),
            paths: 2,
            avoid_bad_paths: true,
            again_first: false,
            seed,
        };
        random_calls(seed, move |host, life| Ndp::new(config, host, life), Ndp::in_flight);
    }
}

#[test]
fn pfabric_answers_every_call_once_despite_faults() {
    let config = PFabricConfig {
        wire: WireFormat::ethernet(1_500, 40, 40),
        initial_window: 8,
        max_window: 13,
        timeout: Duration::micros(24),
        probe_after: 5,
    };
    for seed in 0..8 {
        random_calls(seed, move |_, life| PFabric::new(config, life), PFabric::in_flight);
    }
}
