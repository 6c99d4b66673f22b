//! Claims about the switches of a rack, with frames that carry a name.

use super::*;
use homa_proto::Rate;
use homa_sim::topology::{LeafSpine, Physics, SingleSwitch};

/// Name, wire bytes, priority.
type Named = (&'static str, u32, u8);

#[derive(Clone, Debug, PartialEq, Eq)]
struct TestFrame(Named);

impl SwitchFrame for TestFrame {
    fn bytes(&self) -> u32 {
        self.0.1
    }
    fn priority(&self) -> u8 {
        self.0.2
    }
}

const LINK: Rate = Rate::mbps(100);

/// Three hosts at one switch; 100 Mbit/s: 80 ns a byte, 123.04 us a full frame.
fn config(faults: Faults) -> FabricConfig {
    let physics = Physics::uniform(LINK, LINK, SimDuration::ZERO);
    FabricConfig {
        wiring: SingleSwitch { hosts: 3, physics }.wire(),
        forwarding: Forwarding::Spray,
        uplink_delay: SimDuration::ZERO,
        buffer_bytes: 4_000,
        marking: Marking::default(),
        faults,
    }
}

fn fabric(faults: Faults) -> Fabric<TestFrame> {
    Fabric::new(config(faults))
}

fn us(n: u64) -> SimTime {
    SimTime(n * 1_000_000)
}

/// Name, port and nanoseconds of each delivery up to `now`.
fn deliveries(fabric: &mut Fabric<TestFrame>, now: SimTime) -> Vec<(&'static str, usize, u64)> {
    let mut all = Vec::new();
    fabric.advance(now, |d| all.push((d.frame.0.0, d.port, d.at.0 / 1_000)));
    all
}

#[test]
fn an_idle_rack_takes_the_serialisation_time_twice() {
    let mut fabric = fabric(Faults::default());
    fabric.send(us(10), (0, 2), 0, TestFrame(("a", 1_538, 0)));
    assert_eq!(fabric.next_delivery(), Some(SimTime(256_080_000)));
    assert_eq!(deliveries(&mut fabric, us(256)), []);
    assert_eq!(fabric.next_delivery(), Some(SimTime(256_080_000)));
    assert_eq!(deliveries(&mut fabric, us(257)), [("a", 2, 256_080)]);
    assert_eq!(fabric.next_delivery(), None);
}

#[test]
fn frames_follow_each_other_on_a_long_uplink() {
    let uplink_delay = SimDuration::micros(1_000);
    let config = FabricConfig { uplink_delay, ..config(Faults::default()) };
    let mut fabric = Fabric::new(config);
    fabric.send(us(0), (0, 1), 0, TestFrame(("a", 1_000, 0)));
    fabric.send(us(0), (0, 1), 0, TestFrame(("b", 1_000, 0)));
    assert_eq!(fabric.next_delivery(), Some(us(1_160)));
    let expected = [("a", 1, 1_160_000), ("b", 1, 1_240_000)];
    assert_eq!(deliveries(&mut fabric, us(2_000)), expected);
}

#[test]
fn a_host_that_hands_over_a_burst_sends_it_back_to_back() {
    let mut fabric = fabric(Faults::default());
    fabric.send(us(0), (0, 1), 0, TestFrame(("a", 1_000, 0)));
    fabric.send(us(0), (0, 2), 0, TestFrame(("b", 1_000, 7)));
    fabric.send(us(500), (0, 1), 0, TestFrame(("c", 1_000, 0)));
    let expected = [("a", 1, 160_000), ("b", 2, 240_000), ("c", 1, 660_000)];
    assert_eq!(deliveries(&mut fabric, us(1_000)), expected);
}

#[test]
fn a_high_priority_frame_overtakes_all_but_the_one_on_the_wire() {
    let mut fabric = fabric(Faults::default());
    for name in ["low 1", "low 2"] {
        fabric.send(us(0), (0, 2), 0, TestFrame((name, 1_000, 0)));
    }
    fabric.send(us(0), (1, 2), 0, TestFrame(("low 3", 1_000, 0)));
    fabric.send(us(20), (1, 2), 0, TestFrame(("high", 100, 7)));
    let names: Vec<_> = deliveries(&mut fabric, us(1_000)).iter().map(|d| d.0).collect();
    // low 1 and low 3 arrive at 80 us; high arrives at 88 us, while low 1 is on the wire.
    assert_eq!(names, ["low 1", "high", "low 3", "low 2"]);
}

#[test]
fn looking_late_changes_no_delivery_time() {
    let send = |fabric: &mut Fabric<TestFrame>| {
        for n in 0..8 {
            let priority = (n % 3) as u8;
            fabric.send(us(30 * n), ((n % 2) as usize, 2), 0, TestFrame(("f", 1_000, priority)));
        }
    };
    let [mut prompt, mut late, mut waking] = [(); 3].map(|()| fabric(Faults::default()));
    send(&mut prompt);
    send(&mut late);
    let stepwise: Vec<_> = (0..2_000).flat_map(|n| deliveries(&mut prompt, us(n))).collect();
    assert_eq!(stepwise, deliveries(&mut late, us(2_000)));
    send(&mut waking);
    let mut at_wake_ups = Vec::new();
    while let Some(at) = waking.next_delivery() {
        at_wake_ups.extend(deliveries(&mut waking, at));
    }
    assert_eq!(stepwise, at_wake_ups);
    assert!(stepwise.len() > 4);
}

#[test]
fn frames_noticed_late_are_counted_and_still_delivered() {
    let mut fabric = fabric(Faults::default());
    assert_eq!(deliveries(&mut fabric, us(500)), []);
    fabric.send(us(10), (0, 1), 0, TestFrame(("a", 1_000, 0)));
    assert_eq!(deliveries(&mut fabric, us(1_000)), [("a", 1, 580_000)]);
    assert_eq!(fabric.counters().late, 1);
}

#[test]
fn a_full_port_drops_and_counts() {
    let mut fabric = fabric(Faults::default());
    for from in [0, 1, 0, 1, 0, 1] {
        fabric.send(us(0), (from, 2), 0, TestFrame(("f", 1_500, 0)));
    }
    let delivered = deliveries(&mut fabric, us(10_000)).len() as u64;
    assert!(fabric.counters().dropped > 0);
    assert_eq!(delivered + fabric.counters().dropped, 6);
    assert_eq!(fabric.next_delivery(), None);
}

#[test]
fn loss_and_duplication_have_their_rates_and_repeat_by_seed() {
    let run = |seed| {
        let mut fabric = fabric(Faults { loss: 0.1, duplication: 0.05, seed });
        let mut delivered = 0_u64;
        for n in 0..20_000 {
            fabric.send(us(500 * n), (0, 1), 0, TestFrame(("f", 100, 0)));
            fabric.advance(us(500 * n + 499), |_| delivered += 1);
        }
        (delivered, fabric.counters())
    };
    let (delivered, counters) = run(7);
    assert!((1_800..2_200).contains(&counters.lost), "{counters:?}");
    assert!((800..1_000).contains(&counters.duplicated), "{counters:?}");
    assert_eq!(delivered, 20_000 - counters.lost + counters.duplicated);
    assert_eq!(run(7), (delivered, counters));
    assert_ne!(run(8).1.lost, counters.lost);
}

/// Two racks of two hosts, two spines; nodes: TORs 4 and 5, spines 6 and 7.
fn leaf_spine(forwarding: Forwarding) -> Fabric<TestFrame> {
    let physics = Physics::uniform(LINK, LINK, SimDuration::ZERO);
    let wiring = LeafSpine { racks: 2, hosts_per_rack: 2, spines: 2, physics }.wire();
    let buffer_bytes = 100_000;
    Fabric::new(FabricConfig { wiring, forwarding, buffer_bytes, ..config(Faults::default()) })
}

#[test]
fn frames_to_another_rack_take_four_links_and_within_a_rack_two() {
    let mut fabric = leaf_spine(Forwarding::Ecmp);
    fabric.send(us(0), (0, 1), 0, TestFrame(("near", 1_000, 0)));
    fabric.send(us(1_000), (0, 3), 0, TestFrame(("far", 1_000, 0)));
    let expected = [("near", 1, 160_000), ("far", 3, 1_320_000)];
    assert_eq!(deliveries(&mut fabric, us(5_000)), expected);
}

#[test]
fn a_late_poll_changes_no_delivery_when_links_change() {
    let run = |steps: u64| {
        let mut fabric = leaf_spine(Forwarding::Spray);
        let slow = LinkChange::Rate(LinkRate::new(Rate::mbps(10)));
        let link = |at, ends: [u32; 2], change| LinkEvent { at, ends: ends.map(NodeId), change };
        fabric.change([link(us(900), [4, 7], slow), link(us(3_000), [5, 6], LinkChange::Down)]);
        for n in 0..40 {
            let to = 2 + (n % 2) as usize;
            fabric.send(us(97 * n), ((n / 3 % 2) as usize, to), 0, TestFrame(("f", 1_000, 0)));
        }
        let mut all = Vec::new();
        for step in 1..=steps {
            all.extend(deliveries(&mut fabric, us(40_000 / steps * step)));
        }
        (all, fabric.counters())
    };
    let (prompt, late) = (run(40_000), run(1));
    assert_eq!(prompt, late);
    let (delivered, counters) = late;
    assert_eq!(delivered.len() as u64 + counters.cut, 40);
    assert!(counters.cut > 0, "what waited for the link that failed: {counters:?}");
    // Over the slow link a frame takes 800 us.
    assert!(delivered.last().is_some_and(|last| last.2 > 4_500_000), "{delivered:?}");
}

#[test]
fn mended_links_are_as_they_were_built() {
    let mut fabric = leaf_spine(Forwarding::Spray);
    let link = |ends: [u32; 2], change| LinkEvent { at: us(10), ends: ends.map(NodeId), change };
    let slow = LinkChange::Rate(LinkRate::new(Rate::mbps(1)));
    fabric.change([link([4, 6], LinkChange::Down), link([4, 7], slow)]);
    fabric.send(us(100), (0, 3), 0, TestFrame(("slow", 1_000, 0)));
    assert_eq!(deliveries(&mut fabric, us(20_000)), [("slow", 3, 8_340_000)]);
    fabric.change(
        [link([5, 7], LinkChange::Down)].map(|event| LinkEvent { at: us(90_000), ..event }),
    );
    fabric.mend();
    for n in 0..20 {
        fabric.send(us(30_000 + 1_000 * n), (0, 3), 0, TestFrame(("f", 1_000, 0)));
    }
    let all = deliveries(&mut fabric, us(200_000));
    assert!((0..20).zip(&all).all(|(n, (_, _, at))| *at == 30_320_000 + 1_000_000 * n), "{all:?}");
    assert_eq!((all.len(), fabric.counters().cut), (20, 0));
}

/// A frame with marks.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Marked(u32, Marks);

impl SwitchFrame for Marked {
    fn bytes(&self) -> u32 {
        self.0
    }
    fn priority(&self) -> u8 {
        0
    }
    fn marks(&self) -> Marks {
        self.1
    }
    fn mark(&mut self, marks: Marks) {
        self.1 = marks;
    }
}

#[test]
fn a_phantom_queue_marks_a_full_link_and_no_slower_one() {
    let phantom = Some(PhantomConfig::PAPER);
    let marking = Marking { phantom, ..Marking::default() };
    let run = |gap_us: u64| {
        let mut fabric = Fabric::new(FabricConfig { marking, ..config(Faults::default()) });
        for n in 0..200 {
            fabric.send(us(gap_us * n), (0, 1), 0, Marked(1_538, Marks::ECT));
        }
        let mut ce = Vec::new();
        fabric.advance(us(1_000_000), |d| ce.push(d.frame.1.has(Marks::CE)));
        assert_eq!(fabric.counters().marked, ce.iter().filter(|ce| **ce).count() as u64);
        ce
    };
    // Back to back, as in homa-sim's `fabric/queue/phantom.rs`: the 20th is the first.
    let full = run(0);
    assert_eq!((full.len(), full.iter().position(|ce| *ce)), (200, Some(19)));
    assert!(full[19..].iter().all(|ce| *ce));
    // One in 131 us: 93.9 % of the link.
    assert!(run(131).iter().all(|ce| !ce));
}

#[test]
fn what_waits_at_a_port_is_seen_by_arrivals_and_by_probes() {
    let mut fabric = fabric(Faults::default());
    // Both arrive at 123.04 us; the second waits for the first until 246.08 us.
    for from in [0, 1] {
        fabric.send(us(0), (from, 2), 0, TestFrame(("f", 1_538, 0)));
    }
    // At 1,000 us no frame waits; at 2,000 us one has been in service since 1,923.04 us.
    fabric.send(us(1_800), (0, 2), 0, TestFrame(("f", 1_538, 0)));
    deliveries(&mut fabric, us(2_500));
    let seen = fabric.take_queueing();
    assert_eq!((seen[2].mean_bytes(), seen[2].max_bytes()), (Some(0.0), 0));
    let [mean, median, most] = seen[2].probes_us().unwrap();
    assert!((mean - 46.08 / 3.0).abs() < 0.01 && median == 0.0 && most == 46.08, "{mean} {most}");
    assert_eq!(seen[0].mean_bytes(), None);
}
