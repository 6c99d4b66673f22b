//! Claims about input-queued switches: the published delay of a hop, no loss at safe thresholds and
//! loss above them, and the report of a deadlock.

use arbtest::arbitrary::{Result, Unstructured};
use homa_workload::rng::Rng;

use homa_proto::{Event, Rate, Receipt, Submit, SubmitError, Submitted, Time};

use crate::engine::*;
use crate::fabric::cioq::pfc::{PfcLink, PfcThresholds, ResponseTime, safe_pause};
use crate::fabric::queue::Combined;
use crate::fabric::{CioqConfig, FabricConfig, PfcConfig};
use crate::scheme::detail::{LOSSLESS_SWITCH, SWITCH};
use crate::time::{LinkRate, SimDuration, SimTime};
use crate::topology::{Graph, HostId, Physics, PortId, SingleSwitch, Wiring};
use crate::transport::{Label, PacketMeta, Transport};

/// Wire bytes of DeTail's longest frame.
pub(super) const FRAME: u32 = 1_530;
/// Copper and transceivers (DeTail §5.1).
pub(super) const CABLE: SimDuration = SimDuration::nanos(5_476);

/// Has frames without end. It sends frames of the lowest level that is not paused and of the
/// greatest size, to the host of that level; with `any`, frames of any level and size to any host.
pub(super) struct Gusher {
    pub to: Vec<u32>,
    pub left: u32,
    pub levels: u8,
    /// Wire bytes of the longest frame.
    pub frame: u32,
    /// Chooses levels, sizes and receivers.
    pub any: Option<Rng>,
    /// Ignores pauses, and sends one level after the other.
    pub deaf: bool,
    pub paused: u8,
    pub received: Vec<SimTime>,
}

impl Gusher {
    pub fn new(to: Vec<u32>, frames: u32, levels: u8) -> Self {
        let (paused, received) = (0, Vec::new());
        Self { to, left: frames, levels, frame: FRAME, any: None, deaf: false, paused, received }
    }

    /// One of `hosts` that fill one level after the other. All hosts but the last send to host 0,
    /// which keeps the wire busy that pauses host 1. Given: frames, their wire bytes and levels.
    pub fn in_order(host: u32, hosts: u32, (frames, frame, levels): (u32, u32, u8)) -> Self {
        let to = vec![u32::from(host == hosts - 1 && host > 1)];
        Self { frame, ..Self::new(to, frames, levels) }
    }

    /// One of `hosts` that send frames of any level and size. Host 0 is the most frequent receiver.
    pub fn of_any_kind(
        host: u32,
        hosts: u32,
        (frames, frame, levels): (u32, u32, u8),
        seed: u64,
    ) -> Self {
        let to = (0..hosts).chain([0; 4]).filter(|&to| to != host).collect();
        let any = Some(Rng::stream(seed, &format!("gusher {host}")));
        Self { frame, any, ..Self::new(to, frames, levels) }
    }

    fn level(&mut self) -> Option<u8> {
        if self.deaf {
            return Some((self.left % u32::from(self.levels)) as u8);
        }
        let open: Vec<u8> =
            (0..self.levels).filter(|level| self.paused >> level & 1 == 0).collect();
        match &mut self.any {
            Some(rng) if !open.is_empty() => {
                Some(open[rng.uniform_below(open.len() as u32) as usize])
            }
            _ => open.first().copied(),
        }
    }

    fn size(&mut self) -> u32 {
        let Some(rng) = &mut self.any else { return self.frame };
        // Mostly long frames, because these need the most memory.
        if rng.chance(0.7) { self.frame } else { 64 + rng.uniform_below(self.frame - 63) }
    }
}

impl Transport for Gusher {
    type Packet = Label;

    fn submit(&mut self, _: Time, _: Submit) -> Result<Submitted, SubmitError> {
        Err(SubmitError::UnknownRpc)
    }

    fn event(&mut self) -> Option<Event> {
        None
    }

    fn receive(&mut self, now: Time, _: &Label, _: PacketMeta) -> Receipt {
        self.received.push(SimTime(now.0 * 1_000));
        Receipt::Consumed
    }

    fn transmit(&mut self, _: Time) -> Option<Label> {
        if self.to.is_empty() || self.left == 0 {
            return None;
        }
        let priority = self.level()?;
        self.left -= 1;
        let turn = self.any.as_mut().map_or(u32::from(priority), |rng| rng.next_u64() as u32);
        let to = self.to[turn as usize % self.to.len()];
        Some(Label { priority, flow: to, ..Label::new(HostId(to), self.size()) })
    }

    fn label(&self, packet: &Label) -> Label {
        *packet
    }

    fn pause(&mut self, _: Time, levels: u8) {
        self.paused = levels;
    }

    fn has_packet(&self) -> bool {
        self.left > 0
    }

    fn expire(&mut self, _: Time) {}

    fn deadline(&self) -> Option<Time> {
        None
    }
}

type Gush = Simulation<(Gusher, Combined, (), (), NoFaults)>;

fn gush(wiring: Wiring, cioq: CioqConfig, make: impl Fn(u32) -> Gusher + Send + 'static) -> Gush {
    let config = FabricConfig { cioq: Some(cioq), ..FabricConfig::default() };
    let make = Box::new(move |host: HostId, _| make(host.0));
    let queues: MakeQueue<'_, Combined> = &mut |_: PortId, _: &_| Combined;
    Simulation::with_queues(wiring, config, (make, queues), ((), (), NoFaults))
}

pub(super) fn one_switch(hosts: u32, rate: Rate, cable: SimDuration) -> Wiring {
    SingleSwitch { hosts, physics: Physics::uniform(rate, rate, cable) }.wire()
}

pub(super) fn drops<W: World>(simulation: &Simulation<W>) -> u64 {
    let ports = 0..simulation.wiring().ports().len() as u32;
    ports.map(|port| simulation.dropped_frames(PortId(port))).sum()
}

#[test]
fn a_hop_takes_the_published_time() {
    let lookup = SimDuration::nanos(4_224);
    let cioq = CioqConfig { lookup, ..SWITCH };
    let mut simulation = gush(one_switch(2, Rate::gbps(1), CABLE), cioq, |host| {
        Gusher::new(if host == 0 { vec![1] } else { Vec::new() }, 1, 1)
    });
    simulation.run_to_drain();
    let arrived = simulation.transport(HostId(1)).unwrap().received[0];
    // DeTail §5.1: 12.24 + 3.06 + 0.476 + 5 + 4.224 = 25 us for the hop; the host's own link comes
    // before it.
    assert_eq!(arrived, SimTime::ZERO + SimDuration::nanos(25_000 + 12_240 + 5_476));
}

/// Rates at which senders need different times to react to a control frame.
const RATES: [Rate; 4] = [Rate::gbps(1), Rate::gbps(10), Rate::gbps(25), Rate::gbps(100)];

/// Inputs of `buffer` bytes that pause above `pause`, behind cables of that length.
#[derive(Clone, Copy, Debug)]
struct CableCase {
    rate: Rate,
    cable: SimDuration,
    buffer: u32,
    pause: u32,
    /// The forwarding engine's time.
    lookup: SimDuration,
    /// Factor by which the link to the receiver is slower.
    slower: u64,
}

impl CableCase {
    /// The link with the greatest safe threshold.
    fn safe((rate, cable): (Rate, SimDuration), buffer: u32) -> Self {
        let link = PfcLink::symmetric(rate, FRAME, cable);
        let pause = safe_pause(&link, u64::from(buffer), 8).unwrap();
        Self { rate, cable, buffer, pause, lookup: SimDuration::ZERO, slower: 1 }
    }

    /// Frames lost if every host sends to every other at all levels, the lowest first.
    fn lost(self, hosts: u32) -> u64 {
        let Self { rate, cable, buffer, pause, lookup, slower } = self;
        let thresholds = PfcThresholds { pause, unpause: pause.min(4_557) };
        let pfc = PfcConfig { thresholds: Some(thresholds), ..LOSSLESS_SWITCH.pfc.unwrap() };
        let cioq = CioqConfig { bytes: buffer, pfc: Some(pfc), lookup, ..LOSSLESS_SWITCH };
        let mut simulation = gush(one_switch(hosts, rate, cable), cioq, move |host| {
            // All hosts send to host 0, which keeps the wire busy that pauses host 1.
            Gusher::new(vec![u32::from(host == 0)], u32::MAX, 8)
        });
        let slow = LinkChange::Rate(Rate(rate.0 / slower));
        simulation.change_link(PortId(hosts), SimTime::ZERO, slow);
        // 100 ms at 1 Gbit/s, and the same number of frames at other rates.
        let time = SimDuration(SimDuration::millis(100).0 / (rate.0 / 1_000_000_000));
        simulation.run_until(SimTime::ZERO + time, u64::MAX);
        assert!(simulation.pause_report().unwrap().pauses > 10, "{self:?}");
        drops(&simulation)
    }
}

#[test]
fn nothing_is_lost_at_a_safe_threshold() {
    for rate in RATES {
        for cable in [SimDuration::nanos(100), SimDuration::nanos(1_000), CABLE] {
            for hosts in [3, 5, 9] {
                let reaction = PfcLink::symmetric(rate, FRAME, cable).reaction_bytes() as u32;
                let safe = CableCase::safe((rate, cable), 8 * (reaction + 11_827));
                for slower in [1, 50] {
                    let link = CableCase { slower, ..safe };
                    assert_eq!(link.lost(hosts), 0, "{link:?}, {hosts} hosts");
                }
            }
        }
    }
}

#[test]
fn a_host_without_pfc_still_sends_levels_that_are_not_paused() {
    // Three hosts send to host 0, so that each gets a third of its link. One of them also sends at
    // a higher level to host 4, whose link is idle. If its card were first in, first out, host 4
    // would wait for host 0.
    let mut simulation = gush(one_switch(5, Rate::gbps(1), CABLE), LOSSLESS_SWITCH, |host| {
        let (to, frames) = match host {
            1 => (vec![0, 4], 400),
            2 | 3 => (vec![0], 200),
            _ => (Vec::new(), 0),
        };
        let levels = to.len() as u8;
        Gusher { deaf: true, ..Gusher::new(to, frames, levels) }
    });
    simulation.run_to_drain();
    assert!(simulation.pause_report().unwrap().pauses > 10);
    let [all, free] = [0, 4].map(|host| &simulation.transport(HostId(host)).unwrap().received);
    assert_eq!((all.len(), free.len(), drops(&simulation)), (600, 200, 0));
    // Host 1's link carries its 400 frames in 4.9 ms, host 0's its 600 in 7.3.
    let last = |received: &[SimTime]| received.last().unwrap().since(SimTime::ZERO);
    assert!(last(free) < SimDuration::micros(5_000), "held up by others: {:?}", last(free));
    assert!(last(all) > SimDuration::micros(7_300));
}

#[test]
fn a_pause_does_not_end_over_a_link_that_is_down() {
    let hosts = 3;
    let mut simulation =
        gush(one_switch(hosts, Rate::gbps(1), CABLE), LOSSLESS_SWITCH, move |host| {
            Gusher::new(if host == 0 { Vec::new() } else { vec![0] }, u32::MAX, 8)
        });
    let millis = |n| SimTime::ZERO + SimDuration::millis(n);
    // The link from the switch to host 1; the link from host 1 works throughout.
    let back = PortId(hosts + 1);
    simulation.change_link(back, millis(10), LinkChange::Fail);
    simulation.change_link(back, millis(20), LinkChange::Recover);
    let left = [9, 12, 19, 30].map(|until| {
        simulation.run_until(millis(until), u64::MAX);
        simulation.transport(HostId(1)).unwrap().left
    });
    assert!(left[0] < u32::MAX);
    assert_eq!(left[1], left[2], "it stays paused, because the release cannot reach it");
    assert!(left[3] < left[2] - 100, "until the link works again");
    assert_eq!(drops(&simulation), 0);
}

#[test]
fn one_frame_above_the_safe_threshold_loses_frames() {
    // The cable is chosen so that the reaction takes whole frames and a half, and the threshold is
    // five frames, so that a level may exceed whole frames by half a frame under the bound. With a
    // threshold one frame higher, it reaches the next frame if the control frame waits for half a
    // frame or more. The look-up time shifts the frames on the way back against those that arrive,
    // and thus sets that wait. Almost nothing leaves an input during the reactions of its eight
    // levels, because the receiver is slow and many senders share the memory at its port.
    for rate in RATES {
        let frame = LinkRate::new(rate).serialisation(FRAME).0;
        let least = PfcLink::symmetric(rate, FRAME, SimDuration::nanos(100)).reaction().total().0;
        let halves = 2 * least.div_ceil(frame) + 1;
        let cable = SimDuration::nanos(100) + SimDuration((halves * frame / 2 - least) / 2);
        let reaction = halves as u32 * FRAME / 2;
        let safe = CableCase::safe((rate, cable), 8 * (5 * FRAME + reaction));
        let safe = CableCase { slower: 50, ..safe };
        assert_eq!(safe.pause, 5 * FRAME, "{safe:?}");
        let lost = |pause| {
            let lookups = (0..24).map(|step| SimDuration(step * frame / 24));
            lookups.map(|lookup| CableCase { pause, lookup, ..safe }.lost(129)).collect::<Vec<_>>()
        };
        assert_eq!(lost(safe.pause), [0; 24], "{safe:?}");
        let above = lost(safe.pause + FRAME);
        assert!(above.iter().any(|&frames| frames > 0), "{safe:?}: the bound is not the least");
    }
}

/// A network of one switch with thresholds by the documented rule, whose hosts send everything that
/// is not paused.
#[derive(Debug)]
struct AnyLink {
    rate: Rate,
    cable: SimDuration,
    frame: u32,
    priorities: u8,
    buffer: u32,
    hosts: u32,
    speedup: u32,
    virtual_outputs: bool,
    /// Senders fill one level after the other, the lowest first, with the longest frames, because
    /// inputs then hold most. If false, they send anything.
    in_order: bool,
    /// Factor by which the link to host 0, the most frequent receiver, is slower.
    slower: u64,
    /// The forwarding engine's time.
    lookup: SimDuration,
    seed: u64,
}

impl AnyLink {
    fn draw(u: &mut Unstructured<'_>) -> Result<Self> {
        let rate = Rate::mbps(*u.choose(&[100, 1_000, 10_000, 25_000, 100_000])?);
        let cable = SimDuration::nanos(u.int_in_range(0..=20_000)?);
        let frame = u.int_in_range(200..=9_038)?;
        let priorities = u.int_in_range(1..=8)?;
        let link = PfcLink::symmetric(rate, frame, cable);
        let room = link.reaction_bytes() as u32 + u.int_in_range(0..=50_000)?;
        let frame_time = LinkRate::new(rate).serialisation(frame).0;
        Ok(Self {
            rate,
            cable,
            frame,
            priorities,
            buffer: room * u32::from(priorities),
            hosts: u.int_in_range(2..=20)?,
            speedup: u.int_in_range(1..=4)?,
            virtual_outputs: u.arbitrary()?,
            in_order: u.arbitrary()?,
            slower: *u.choose(&[1, 5, 50])?,
            lookup: SimDuration(u.int_in_range(0..=frame_time)?),
            seed: u.arbitrary()?,
        })
    }

    fn lost(&self) -> u64 {
        let link = PfcLink::symmetric(self.rate, self.frame, self.cable);
        let pause = safe_pause(&link, u64::from(self.buffer), self.priorities).unwrap();
        let thresholds = Some(PfcThresholds { pause, unpause: (pause / 2).max(1) });
        let (priorities, frame) = (self.priorities, self.frame);
        let response = ResponseTime::ByRate;
        let pfc = PfcConfig { thresholds, priorities, frame, cable: None, response };
        let cioq = CioqConfig {
            bytes: self.buffer,
            speedup: self.speedup,
            virtual_outputs: self.virtual_outputs,
            pfc: Some(pfc),
            lookup: self.lookup,
            ..LOSSLESS_SWITCH
        };
        let physics = Physics::uniform(self.rate, self.rate, self.cable);
        let wiring = SingleSwitch { hosts: self.hosts, physics }.wire();
        let (hosts, seed) = (self.hosts, self.seed);
        let (in_order, slower) = (self.in_order, self.slower);
        let mut simulation = gush(wiring, cioq, move |host| {
            // If host 0 sent, its slow link would delay the control frames that pause it, beyond
            // what the threshold allows for.
            if host == 0 && slower > 1 {
                return Gusher::new(Vec::new(), 0, priorities);
            }
            let frames = (3_000, frame, priorities);
            match in_order {
                true => Gusher::in_order(host, hosts, frames),
                false => Gusher::of_any_kind(host, hosts, frames, seed),
            }
        });
        let slow = LinkChange::Rate(Rate(self.rate.0 / self.slower));
        simulation.change_link(PortId(hosts), SimTime::ZERO, slow);
        simulation.run_until(SimTime::ZERO + SimDuration::millis(2_000), u64::MAX);
        drops(&simulation)
    }
}

#[test]
fn nothing_is_lost_at_the_safe_threshold_of_any_link() {
    arbtest::arbtest(|u| {
        let link = AnyLink::draw(u)?;
        assert_eq!(link.lost(), 0, "{link:?}");
        Ok(())
    })
    // A bound that is one frame too high is found within a second.
    .budget_ms(3_000);
}

/// Five switches in a ring, with a host at each that sends two switches ahead.
pub(super) fn ring() -> Wiring {
    let hosts = (0..5).map(|i| format!("h{i},s{i},1,5476\n"));
    let links = (0..5).map(|i| format!("s{i},s{},1,5476\n", (i + 1) % 5));
    Graph::from_csv(&hosts.chain(links).collect::<String>()).unwrap().wire()
}

#[test]
fn a_circle_of_pauses_is_reported_and_only_then() {
    let around = |hosts: u32| {
        let mut simulation = gush(ring(), LOSSLESS_SWITCH, move |host| {
            let to = if host < hosts { vec![(host + 2) % 5] } else { Vec::new() };
            Gusher::new(to, 20_000, 1)
        });
        simulation.run_until(SimTime::ZERO + SimDuration::millis(200), u64::MAX);
        assert_eq!(drops(&simulation), 0);
        simulation.pause_report().unwrap()
    };
    let locked = around(5);
    assert_eq!(locked.circle.len(), 5, "{locked:?}");
    assert!(locked.longest > SimDuration::millis(100), "{locked:?}");
    // Without the last flow the circle is open, so that everything moves.
    let open = around(4);
    assert_eq!(open.circle, [], "{open:?}");
    assert!(open.longest < SimDuration::millis(100), "{open:?}");
}

#[test]
fn a_locked_level_is_reported_while_others_continue() {
    // Links between switches are faster than those of hosts, so that level 1 always has room.
    let hosts = (0..5).map(|i| format!("h{i},s{i},3,5476\n"));
    let links = (0..5).map(|i| format!("s{i},s{},5,5476\n", (i + 1) % 5));
    let graph = Graph::from_csv(&hosts.chain(links).collect::<String>()).unwrap();
    let mut simulation = gush(graph.wire(), LOSSLESS_SWITCH, |host| {
        Gusher::new(vec![(host + 2) % 5, (host + 1) % 5], u32::MAX, 2)
    });
    let mut heard = 0;
    for step in 0..40 {
        let now = SimTime::ZERO + SimDuration::millis(20) + SimDuration::nanos(step * 7_300);
        simulation.run_until(now, u64::MAX);
        let report = simulation.pause_report().unwrap();
        assert_eq!(report.circle.len(), 5, "{now:?}: {report:?}");
        assert!(report.longest > SimDuration::millis(15), "{now:?}: {report:?}");
        let received = simulation.transport(HostId(0)).unwrap().received.len();
        assert!(received > heard || step == 0, "level 1 continues");
        heard = received;
    }
}

/// Frames dropped at the port to host 2 and at all other places, when two hosts overload it.
fn dropped_by_place(output_drops: bool) -> (u64, u64) {
    let cioq = CioqConfig { output_drops, ..SWITCH };
    let mut simulation = gush(one_switch(3, Rate::gbps(1), CABLE), cioq, |host| {
        Gusher::new(if host < 2 { vec![2] } else { Vec::new() }, 500, 1)
    });
    simulation.run_to_drain();
    let ports = (0..).zip(simulation.wiring().ports());
    let to = |host: u32| ports.clone().filter(move |(_, port)| port.to.0 == host);
    let at: u64 = to(2).map(|(port, _)| simulation.dropped_frames(PortId(port))).sum();
    let received = simulation.transport(HostId(2)).unwrap().received.len() as u64;
    let all = drops(&simulation);
    assert_eq!(received + all, 1_000);
    (at, all - at)
}

#[test]
fn the_option_decides_where_a_switch_drops() {
    let (outputs, inputs) = dropped_by_place(false);
    assert!(outputs == 0 && inputs > 100, "{outputs} {inputs}");
    let (outputs, inputs) = dropped_by_place(true);
    assert!(outputs > 100 && inputs == 0, "{outputs} {inputs}");
}
