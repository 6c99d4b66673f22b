//! Claims about switches that share memory: what an incast holds, no loss if headrooms suffice and
//! loss without them, and the report of a deadlock.

use arbtest::arbitrary::{Result, Unstructured};
use homa_proto::Rate;

use super::combined::{CABLE, FRAME, Gusher, drops, one_switch, ring};
use crate::engine::*;
use crate::fabric::cioq::pfc::ResponseTime;
use crate::fabric::shared::WHOLE;
use crate::fabric::{FabricConfig, PfcConfig, SharedConfig};
use crate::time::{LinkRate, SimDuration, SimTime};
use crate::topology::{HostId, PortId, Wiring};

const RESERVE: u32 = 4_096;
const GIGABIT: Rate = Rate::gbps(1);

fn config((rate, frame): (Rate, u32), priorities: u8, alpha: u32) -> SharedConfig {
    let response = ResponseTime::ByRate;
    let pfc = PfcConfig { thresholds: None, priorities, frame, cable: None, response };
    SharedConfig {
        memory: 1 << 40,
        alpha,
        link: rate,
        reserve: RESERVE,
        resume_gap: 3_072,
        headroom: None,
        exempt: 0,
        pfc,
    }
}

/// The same with pools of this size.
fn with_pool(wiring: &Wiring, config: SharedConfig, pool: u64) -> SharedConfig {
    SharedConfig { memory: tightest(wiring, config, []).0.aside + pool, ..config }
}

type Gush = Simulation<(Gusher, StrictPriority, (), (), NoFaults)>;

fn gush(
    wiring: Wiring,
    shared: SharedConfig,
    make: impl Fn(u32) -> Gusher + Send + 'static,
) -> Gush {
    let config = FabricConfig { shared: Some(shared), ..FabricConfig::default() };
    let make = Box::new(move |host: HostId, _| make(host.0));
    Simulation::new(wiring, config, make, ((), (), NoFaults))
}

/// Nothing is left in the memory of any switch.
fn is_empty(simulation: &Gush) -> bool {
    let net = &simulation.net;
    let links = 0..net.wiring.ports().len() as u32;
    let mut levels = links.flat_map(|link| (0..8).map(move |level| (link, level)));
    (0..net.wiring.switches()).all(|switch| net.shared.pool(switch).used == 0)
        && levels.all(|level| net.shared.level(level) == Default::default())
}

/// Hosts 1 to 8 send to host 0 without end.
fn incast(senders: u32, frames: u32, config: SharedConfig) -> Gush {
    gush(one_switch(senders + 1, GIGABIT, CABLE), config, move |host| {
        let (to, frames) = if host == 0 { (Vec::new(), 0) } else { (vec![0], frames) };
        Gusher::new(to, frames, 1)
    })
}

#[test]
fn an_incast_fills_its_share_and_its_headroom_without_loss() {
    let (senders, pool) = (8, 400_000);
    let wiring = one_switch(senders + 1, GIGABIT, CABLE);
    let config = with_pool(&wiring, config((GIGABIT, FRAME), 1, WHOLE / 8), pool);
    let mut simulation = incast(senders, 2_000, config);
    // Inputs fill alike, so that each is paused at a = (pool - 8 a)/8 bytes, or a frame before.
    let share = pool as u32 / 16;
    let (mut first, mut pooled, mut spare, mut used) = (None, 0, 0, 0);
    while simulation.step() {
        let net = &simulation.net;
        let levels = || (1..=senders).map(|host| net.shared.level((host, 0)));
        spare = spare.max(levels().map(|level| level.headroom).max().unwrap());
        pooled = levels().map(|level| level.pooled(RESERVE)).max().unwrap();
        used = used.max(net.shared.pool(0).used);
        if net.pauses.links[1].wanted != 0 {
            first = first.or(Some(pooled));
        }
    }
    let first = first.expect("it is paused");
    assert!((share - FRAME..=share).contains(&first), "{first} of {share}");
    // One after the other, each could take a ninth of what the others leave.
    let most = pool as f64 * (1.0 - (8.0_f64 / 9.0).powi(senders as i32));
    assert!(used as f64 <= most && used > u64::from(share) * 7, "{used} of {most}");
    // 36.456 us at 1 Gbit/s (DeTail §4.3.1), and the frame that reached the limit.
    assert!(spare > FRAME && spare <= 4_557 + FRAME, "{spare}");
    assert_eq!(pooled, 0);
    assert_eq!((drops(&simulation), is_empty(&simulation)), (0, true));
    // The port to host 0 never idles: its frames come one after the other.
    let received = &simulation.transport(HostId(0)).unwrap().received;
    let (first, last) = (received[0], *received.last().unwrap());
    let frame = LinkRate::new(GIGABIT).serialisation(FRAME).0;
    assert_eq!(received.len(), 16_000);
    assert!(last.since(first).0.abs_diff(15_999 * frame) < 1_000, "{first:?} to {last:?}");
    let report = simulation.pause_report().unwrap();
    assert_eq!(report.ports.iter().map(|port| port.pauses).sum::<u64>(), report.pauses);
    let ports: Vec<u32> = report.ports.iter().map(|port| port.port.0).collect();
    assert_eq!(ports, (1..=8).collect::<Vec<_>>());
    // Each of them sends an eighth of the time, and is paused nearly all of the rest.
    let whole = last.since(SimTime::ZERO).0 as f64;
    for port in &report.ports {
        let share = port.lasted.0 as f64 / whole;
        assert!((0.8..0.9).contains(&share), "{port:?} of {whole}");
    }
}

#[test]
fn without_headroom_frames_are_lost() {
    let wiring = one_switch(9, GIGABIT, CABLE);
    for (headroom, loses) in [(Some(0), true), (Some(3_000), true), (None, false)] {
        let config = SharedConfig { headroom, ..config((GIGABIT, FRAME), 1, WHOLE / 8) };
        let mut simulation = incast(8, 500, with_pool(&wiring, config, 100_000));
        simulation.run_to_drain();
        assert_eq!(drops(&simulation) > 0, loses, "{headroom:?}");
        assert!(is_empty(&simulation), "{headroom:?}");
    }
}

#[test]
fn exempt_levels_neither_count_nor_pause() {
    // Hosts 1 to 3 send frames of levels 0 to 3 in turn; level 3 neither counts nor pauses.
    let wiring = one_switch(4, GIGABIT, CABLE);
    let config = SharedConfig { exempt: 1 << 3, ..config((GIGABIT, FRAME), 3, WHOLE / 8) };
    let config = with_pool(&wiring, config, 30_000);
    let mut simulation = gush(wiring, config, |host| {
        let (to, frames) = if host == 0 { (Vec::new(), 0) } else { (vec![0], 400) };
        Gusher { deaf: true, ..Gusher::new(to, frames, 4) }
    });
    while simulation.step() {
        let net = &simulation.net;
        for link in 1..4 {
            assert_eq!(net.pauses.links[link].wanted >> 3, 0);
            assert_eq!(net.shared.level((link as u32, 3)), Default::default());
        }
    }
    assert!(simulation.pause_report().unwrap().pauses > 10);
    assert_eq!(simulation.transport(HostId(0)).unwrap().received.len(), 1_200);
    assert_eq!((drops(&simulation), is_empty(&simulation)), (0, true));
}

#[test]
fn a_link_that_fails_frees_memory_and_ends_its_pauses() {
    let wiring = one_switch(4, GIGABIT, CABLE);
    let config = with_pool(&wiring, config((GIGABIT, FRAME), 1, WHOLE / 8), 50_000);
    let mut simulation = gush(wiring, config, |host| {
        let (to, frames) = if host == 0 { (Vec::new(), 0) } else { (vec![0], 2_000) };
        Gusher::new(to, frames, 1)
    });
    let millis = |n| SimTime::ZERO + SimDuration::millis(n);
    // The link of host 1, then the link to the receiver.
    let mut outage = |port, from, until| {
        simulation.change_link(PortId(port), millis(from), LinkChange::Fail);
        simulation.change_link(PortId(port), millis(until), LinkChange::Recover);
    };
    outage(1, 4, 6);
    outage(4, 12, 13);
    simulation.run_until(millis(5), u64::MAX);
    assert_eq!(simulation.net.pauses.paused(1), 0, "its link is down");
    simulation.run_until(SimTime(millis(12).0 + 1), u64::MAX);
    assert_eq!(simulation.net.shared.pool(0).used, 0, "nothing waits for a link that is down");
    simulation.run_to_drain();
    assert_eq!((drops(&simulation), is_empty(&simulation)), (0, true));
    assert_eq!(simulation.packets_in_flight(), 0);
    let left: Vec<u32> = (1..4).map(|h| simulation.transport(HostId(h)).unwrap().left).collect();
    assert_eq!(left, [0; 3], "all have continued");
}

/// A switch whose hosts send everything that is not paused.
#[derive(Debug)]
struct AnySwitch {
    rate: Rate,
    cable: SimDuration,
    frame: u32,
    levels: u8,
    alpha: u32,
    /// Bytes of the pool.
    pool: u64,
    hosts: u32,
    /// Senders fill one level after the other, the lowest first, with the longest frames. If false,
    /// they send anything.
    in_order: bool,
    /// Factor by which the link to host 0, the most frequent receiver, is slower.
    slower: u64,
    seed: u64,
}

impl AnySwitch {
    fn draw(u: &mut Unstructured<'_>) -> Result<Self> {
        let rate = Rate::mbps(*u.choose(&[100, 1_000, 10_000, 25_000, 100_000])?);
        Ok(Self {
            rate,
            cable: SimDuration::nanos(u.int_in_range(0..=20_000)?),
            frame: u.int_in_range(200..=9_038)?,
            levels: u.int_in_range(1..=8)?,
            alpha: *u.choose(&[WHOLE / 100, WHOLE / 8, WHOLE / 2, WHOLE])?,
            pool: u.int_in_range(0..=200_000)?,
            hosts: u.int_in_range(2..=20)?,
            in_order: u.arbitrary()?,
            slower: *u.choose(if rate.0 < 1_000_000_000 { &[1, 5] } else { &[1, 5, 50] })?,
            seed: u.arbitrary()?,
        })
    }

    /// Frames lost.
    fn lost(&self) -> u64 {
        let Self { rate, frame, levels, hosts, in_order, seed, .. } = *self;
        let wiring = one_switch(hosts, rate, self.cable);
        let slow = Rate(rate.0 / self.slower);
        let config = config((rate, frame), levels, self.alpha);
        let aside = tightest(&wiring, config, [(hosts, SimTime::ZERO, slow)]).0.aside;
        let config = SharedConfig { memory: aside + self.pool, ..config };
        let mut simulation = gush(wiring, config, move |host| {
            let frames = (1_000, frame, levels);
            match in_order {
                true => Gusher::in_order(host, hosts, frames),
                false => Gusher::of_any_kind(host, hosts, frames, seed),
            }
        });
        simulation.change_link(PortId(hosts), SimTime::ZERO, LinkChange::Rate(slow));
        simulation.run_to_drain();
        assert!(is_empty(&simulation), "{self:?}");
        assert_eq!(simulation.packets_in_flight(), 0, "{self:?}");
        drops(&simulation)
    }
}

#[test]
fn nothing_is_lost_in_the_headroom_of_any_link() {
    arbtest::arbtest(|u| {
        let switch = AnySwitch::draw(u)?;
        assert_eq!(switch.lost(), 0, "{switch:?}");
        Ok(())
    })
    .budget_ms(3_000);
}

#[test]
fn a_circle_of_pauses_is_reported_and_only_then() {
    let around = |hosts: u32| {
        let wiring = ring();
        let config = with_pool(&wiring, config((GIGABIT, FRAME), 1, WHOLE / 8), 50_000);
        let mut simulation = gush(wiring, config, move |host| {
            let to = if host < hosts { vec![(host + 2) % 5] } else { Vec::new() };
            Gusher::new(to, u32::MAX, 1)
        });
        simulation.run_until(SimTime::ZERO + SimDuration::millis(200), u64::MAX);
        assert_eq!(drops(&simulation), 0);
        simulation.pause_report().unwrap()
    };
    let locked = around(5);
    assert_eq!(locked.circle.len(), 5, "{locked:?}");
    assert!(locked.longest > SimDuration::millis(100), "{locked:?}");
    let held: Vec<_> = locked.stuck.iter().filter(|stuck| stuck.levels == 1).collect();
    assert!(held.len() >= 5 && held.iter().all(|stuck| !stuck.waits_for.is_empty()), "{held:?}");
    // Without the last flow the circle is open, so that everything moves.
    let open = around(4);
    assert_eq!(open.circle, [], "{open:?}");
    assert!(open.longest < SimDuration::millis(100), "{open:?}");
}
