//! Claims about networks in partitions, with Homa as the transport: a division changes no message's
//! time unless two things happen at the same picosecond, and threads change nothing at all.

use homa_proto::{Config, Endpoint, Event, PeerId, Rate, Submit};
use homa_workload::rng::Rng;

use super::*;
use crate::draw::Draw;
use crate::engine::{Context, NoFaults};
use crate::fabric::{Buffers, Forwarding, StrictPriority};
use crate::headers::Headers;
use crate::topology::{FatTree, Graph, LeafSpine, Physics};
use crate::transport::Homa;

/// One-way messages `(from, to, bytes, at)`, which differ in sender, receiver or bytes.
#[derive(Clone, Default)]
struct Messages {
    list: Arc<Vec<(u32, u32, u32, SimTime)>>,
    delivered: Vec<(usize, SimTime)>,
    none: Vec<()>,
    /// Messages to wait for, if the run should stop then.
    awaited: Option<i64>,
}

impl Application for Messages {
    fn wake<C: Context>(&mut self, net: &mut C, token: u64) {
        let (from, to, length, _) = self.list[token as usize];
        let what = Submit::OneWay { peer: PeerId(to), length, cookie: token };
        net.submit(HostId(from), what).unwrap();
    }

    fn event<C: Context>(&mut self, net: &mut C, host: HostId, event: &Event) {
        let Event::Delivered(delivered) = event else { return };
        let ends = (delivered.peer.0, host.0, delivered.length);
        let index = self.list.iter().position(|one| (one.0, one.1, one.2) == ends).unwrap();
        self.delivered.push((index, net.now()));
        self.awaited = self.awaited.map(|awaited| awaited - 1);
    }
}

impl Divided for Messages {
    type Note = ();

    fn notes(&mut self, _: usize) -> &mut Vec<()> {
        &mut self.none
    }

    fn on_note(&mut self, (): ()) {}

    fn awaited(&self) -> Option<i64> {
        self.awaited
    }
}

fn homa() -> MakeTransport<Homa> {
    Box::new(|host, _| {
        let config = Config::sigcomm18(Rate::gbps(10)).seed(u64::from(host.0) << 32 | 1);
        Homa::new(Endpoint::new(config.validate().unwrap()), Headers::Authors)
    })
}

/// Random messages, which begin at different picoseconds.
fn messages(hosts: u32, count: u32, seed: u64) -> Messages {
    let mut rng = Rng::stream(seed, "messages");
    let message = |number: u32| {
        let from = rng.uniform_below(hosts);
        let to = (from + 1 + rng.uniform_below(hosts - 1)) % hosts;
        // Sizes differ, so that a message is found by its ends.
        let bytes = rng.log_between(1, 60_000) as u32 * 1_000 / 977 + number;
        (from, to, bytes, SimTime(rng.between(0, 400_000_000)))
    };
    let list: Vec<_> = (0..count).map(message).collect();
    Messages { list: Arc::new(list), ..Messages::default() }
}

type Members = Partitioned<(Homa, StrictPriority, Messages, (), NoFaults)>;

fn divided(
    (wiring, config): (&Wiring, FabricConfig),
    (partitions, threads, whole): (u32, usize, bool),
    messages: &Messages,
) -> Members {
    let division = Division::new(wiring, partitions, whole).unwrap();
    let of = |from: u32| usize::from(division.of_host(from));
    let owners: Vec<usize> = messages.list.iter().map(|message| of(message.0)).collect();
    let parts = (0..partitions).map(|_| (messages.clone(), (), NoFaults)).collect();
    let queue = &mut |_, _: &crate::topology::PortSpec| StrictPriority;
    let mut sim = Partitioned::new((wiring, config), (division, threads), (homa(), queue), parts);
    for (token, (owner, message)) in (0..).zip(owners.iter().zip(messages.list.iter())) {
        sim.members_mut()[*owner].wake_at(message.3, token);
    }
    sim
}

/// All deliveries of a run until nothing is pending, by message, and the counts.
type Result = (Vec<(usize, SimTime)>, (u64, u64), u64);

fn in_partitions(
    network: (&Wiring, FabricConfig),
    division: (u32, usize, bool),
    messages: &Messages,
) -> Result {
    let mut sim = divided(network, division, messages);
    assert_eq!(sim.run_until(SimTime::MAX, u64::MAX), Halt::Drained);
    assert_eq!((sim.pending(), sim.packets_in_flight()), (0, 0));
    let members = sim.members().iter();
    let mut delivered: Vec<_> =
        members.flat_map(|member| member.application().delivered.iter().copied()).collect();
    delivered.sort_unstable();
    let Counters { packet_hops, lost, .. } = sim.counters();
    (delivered, (packet_hops, lost), sim.trace_hash())
}

fn undivided((wiring, config): (&Wiring, FabricConfig), messages: &Messages) -> Result {
    let parts = (messages.clone(), (), NoFaults);
    let mut sim = Simulation::new(wiring.clone(), config, homa(), parts);
    for (token, message) in (0..).zip(messages.list.iter()) {
        sim.wake_at(message.3, token);
    }
    sim.run_to_drain();
    let mut delivered = sim.application().delivered.clone();
    delivered.sort_unstable();
    let Counters { packet_hops, lost, .. } = sim.counters();
    (delivered, (packet_hops, lost), sim.trace_hash())
}

type Delivery = (usize, SimTime);

/// The deliveries that differ.
fn different(one: &[Delivery], other: &[Delivery]) -> Vec<(Delivery, Delivery)> {
    assert_eq!(one.len(), other.len());
    let pairs = one.iter().copied().zip(other.iter().copied());
    pairs.filter(|(one, other)| one != other).collect()
}

fn leaf_spine() -> Wiring {
    LeafSpine { racks: 6, hosts_per_rack: 6, spines: 3, ..LeafSpine::homa() }.wire()
}

fn fat_tree() -> Wiring {
    let delay = SimDuration::nanos(700);
    let physics = Physics::uniform(Rate::gbps(10), Rate::gbps(10), delay);
    FatTree { k: 6, oversubscription: 1, physics }.wire()
}

/// Hosts at a ring of switches, whose frames pass through the switches of others.
fn ring() -> Wiring {
    let mut text = String::new();
    for switch in 0..6 {
        for host in 0..4 {
            text += &format!("h{},s{switch},10,400\n", switch * 4 + host);
        }
        text += &format!("s{switch},s{},25,{}\n", (switch + 1) % 6, 500 + 10 * switch);
    }
    Graph::from_csv(&text).unwrap().wire()
}

/// The same network with links of different lengths, so that nothing happens at the same time.
fn uneven(wiring: Wiring) -> Wiring {
    let mut rng = Rng::stream(6, "delays");
    wiring.delayed(|| SimDuration(rng.between(0, 99_999)))
}

/// Paths that follow from the two hosts, without a random draw.
const FIXED: FabricConfig = FabricConfig {
    forwarding: Forwarding::HostPairs,
    buffers: Buffers::Unlimited,
    cut_through: false,
    preemption: false,
    cioq: None,
    shared: None,
    seed: 7,
};

#[test]
fn a_division_changes_no_time_of_delivery() {
    for wiring in [leaf_spine(), fat_tree(), ring()].map(uneven) {
        let messages = messages(wiring.hosts(), 900, 1);
        let (times, counts, _) = undivided((&wiring, FIXED), &messages);
        assert_eq!(times.len(), 900);
        for partitions in 1..=6 {
            for whole in [false, true] {
                let how = (partitions, 1, whole);
                let (own_times, own_counts, _) = in_partitions((&wiring, FIXED), how, &messages);
                assert_eq!(own_counts, counts, "{how:?}");
                assert_eq!(different(&own_times, &times), [], "{how:?}");
            }
        }
    }
}

#[test]
fn large_partitions_that_prefetch_change_no_time() {
    let physics = Physics::uniform(Rate::gbps(10), Rate::gbps(10), SimDuration::micros(1));
    let wiring = uneven(FatTree { k: 16, oversubscription: 1, physics }.wire());
    let message = |i: u32| (i % 1_024, (i * 5 + 77 + i / 1_024) % 1_024, 12_000 + i, SimTime(0));
    let list: Vec<_> = (0..4_096).map(message).filter(|one| one.0 != one.1).collect();
    let messages = Messages { list: Arc::new(list), ..Messages::default() };
    let (times, counts, _) = undivided((&wiring, FIXED), &messages);
    assert_eq!(times.len(), messages.list.len());
    let mut sim = divided((&wiring, FIXED), (2, 1, false), &messages);
    sim.run_until(SimTime::MAX, u64::MAX);
    let most = sim.members().iter().map(|member| member.counters().peak_pending).min();
    assert!(most > Some(crate::engine::wheel::PREFETCH_FROM), "too few to prefetch: {most:?}");
    let (own_times, own_counts, _) = in_partitions((&wiring, FIXED), (2, 2, false), &messages);
    assert_eq!((own_counts, different(&own_times, &times)), (counts, vec![]));
}

#[test]
fn ports_between_partitions_follow_the_rules_of_the_others() {
    let equal = LeafSpine {
        racks: 4,
        hosts_per_rack: 6,
        spines: 2,
        // Slow links between switches, so that frames wait there and overtake each other.
        physics: Physics { fabric_rate: Rate::gbps(5), ..Physics::homa() },
    };
    let wiring = uneven(equal.wire());
    let messages = messages(wiring.hosts(), 700, 2);
    let per_port = Buffers::PerPort(30_000);
    let shared = Buffers::Shared { bytes: 60_000, alpha_percent: 100 };
    for (config, whole, loses) in [
        (FIXED, false, false),
        (FabricConfig { cut_through: true, ..FIXED }, false, false),
        (FabricConfig { preemption: true, ..FIXED }, false, false),
        (FabricConfig { buffers: per_port, ..FIXED }, false, true),
        (FabricConfig { buffers: Buffers::PerLevel(20_000), ..FIXED }, false, true),
        (FabricConfig { buffers: per_port, preemption: true, ..FIXED }, false, true),
        (FabricConfig { buffers: per_port, cut_through: true, ..FIXED }, false, true),
        (FabricConfig { buffers: shared, ..FIXED }, true, true),
    ] {
        let (times, counts, _) = undivided((&wiring, config), &messages);
        assert_eq!(counts.1 > 0, loses, "{config:?}");
        for partitions in [2, 4] {
            let how = (partitions, 2, whole);
            let (own_times, own_counts, _) = in_partitions((&wiring, config), how, &messages);
            assert_eq!(own_counts, counts, "{config:?}");
            assert_eq!(different(&own_times, &times), [], "{config:?}");
        }
    }
}

#[test]
fn the_number_of_threads_changes_nothing() {
    let spray = FabricConfig { forwarding: Forwarding::Spray, ..FIXED };
    let wiring = leaf_spine();
    // Many begin at the same time, so that the order of equal times counts.
    let mut messages = messages(wiring.hosts(), 900, 3);
    let rounded = messages
        .list
        .iter()
        .map(|&(from, to, bytes, at)| (from, to, bytes, SimTime(at.0 / 20_000_000 * 20_000_000)));
    messages.list = Arc::new(rounded.collect());
    let one = in_partitions((&wiring, spray), (5, 1, false), &messages);
    assert_eq!(one.0.len(), 900);
    for threads in [2, 3, 5, 8] {
        let some = in_partitions((&wiring, spray), (5, threads, false), &messages);
        assert_eq!(some, one, "{threads} threads");
    }
    let other = in_partitions((&wiring, spray), (4, 1, false), &messages);
    assert_ne!(other.2, one.2, "each partition draws from its own stream");
}

#[test]
fn a_run_halts_between_windows() {
    let wiring = leaf_spine();
    let messages = messages(wiring.hosts(), 300, 4);
    let (all, (hops, _), hash) = in_partitions((&wiring, FIXED), (3, 2, false), &messages);
    let mut sim = divided((&wiring, FIXED), (3, 2, false), &messages);
    let middle = SimTime(200_000_000);
    assert_eq!(sim.run_until(middle, u64::MAX), Halt::Time);
    assert_eq!((sim.now(), sim.members()[2].now()), (middle, middle));
    assert!(sim.pending() > 0 && sim.counters().packet_hops < hops);
    // In steps of some events, and of nothing, it is the same run.
    assert_eq!(sim.run_until(middle, u64::MAX), Halt::Time);
    let before = sim.counters().events;
    assert_eq!(sim.run_until(SimTime::MAX, 100), Halt::Events);
    let after = sim.counters().events;
    assert!((before + 100..before + 1_000).contains(&after), "{before} {after}");
    assert_eq!(sim.run_until(SimTime::MAX, u64::MAX), Halt::Drained);
    assert_eq!((sim.counters().packet_hops, sim.trace_hash()), (hops, hash));
    let last = all.iter().map(|(_, at)| *at).max().unwrap();
    assert!(sim.last_event() >= last && sim.now() == sim.last_event());
    let later = sim.now() + SimDuration::millis(1);
    assert_eq!((sim.run_until(later, u64::MAX), sim.now()), (Halt::Drained, later));
}

#[test]
fn a_run_stops_when_all_together_have_what_they_wait_for() {
    let wiring = leaf_spine();
    let messages = Messages { awaited: Some(100), ..messages(wiring.hosts(), 300, 5) };
    let mut sim = divided((&wiring, FIXED), (3, 1, false), &messages);
    // Each of three partitions waits for a hundred, and together they deliver three hundred.
    assert_eq!(sim.run_until(SimTime::MAX, u64::MAX), Halt::Stopped);
    let delivered = sim.members().iter().map(|member| member.application().delivered.len());
    assert_eq!(delivered.sum::<usize>(), 300);
    assert!(sim.pending() > 0, "timers are left");
}
