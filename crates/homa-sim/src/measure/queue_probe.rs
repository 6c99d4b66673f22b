//! Queue lengths and priority use: one probe, active while it is open.
//!
//! Queue lengths (Homa Table 1) are sampled as the authors did: the queue that each arriving frame
//! finds, over all ports of a tier. Their text excludes the frame in transmission, but their code
//! adds the part of it that has not left; both values are kept. The mean over time is exact,
//! because it is the sum of bytes x waiting time of all frames. The total at all ports of a tier at
//! one time, and at all ports of a TOR switch, is exact to one frame per port, because a frame that
//! enters service at once, or is dropped, counts until the next one arrives. Priority use (Homa
//! Figure 14) counts the wire bytes that begin to leave towards receivers.

use std::ops::Range;

use crate::engine::{AtPort, PortBacklog, Probe};
use crate::scenario::outcome::{QueueLength, Queues};
use crate::time::SimTime;
use crate::topology::{PortId, PortSpec, Tier};
use crate::transport::Transport;

/// The probe of queue lengths and priority use.
#[derive(Clone, Debug)]
pub struct QueueProbe {
    open: bool,
    opened: SimTime,
    closed: SimTime,
    queues: bool,
    tiers: Vec<TierQueues>,
    /// By slot: start of the frame's wait at its port.
    arrived: Vec<SimTime>,
    /// By port: bytes that wait, as known from arrivals and departures.
    waiting: Vec<u64>,
    /// The ports to receivers.
    receivers: Range<PortId>,
    /// Measure the queues of these ports separately as well.
    apart: bool,
    level_bytes: [u64; 8],
    tors: TorQueues,
}

/// Bytes that wait at all ports of each TOR switch.
#[derive(Clone, Debug, Default)]
struct TorQueues {
    /// By port: its TOR switch, [`NO_TOR`] if it belongs to none.
    of: Vec<u32>,
    waiting: Vec<u64>,
    max: u64,
}

const NO_TOR: u32 = u32::MAX;

impl TorQueues {
    fn new(ports: &[PortSpec]) -> Self {
        let mut tors: Vec<u32> = ports
            .iter()
            .filter(|port| port.tier == Tier::TorDown)
            .map(|port| port.from.0)
            .collect();
        tors.sort_unstable();
        tors.dedup();
        let place = |port: &PortSpec| tors.binary_search(&port.from.0).map_or(NO_TOR, |n| n as u32);
        Self { of: ports.iter().map(place).collect(), waiting: vec![0; tors.len()], max: 0 }
    }

    /// The bytes that wait at a port change; while `open`, the most of any switch is kept.
    #[inline]
    fn change(&mut self, port: usize, (before, after): (u64, u64), open: bool) {
        let tor = self.of.get(port).copied().unwrap_or(NO_TOR);
        if let Some(waiting) = self.waiting.get_mut(tor as usize) {
            *waiting = *waiting + after - before;
            if open {
                self.max = self.max.max(*waiting);
            }
        }
    }
}

#[derive(Clone, Debug, Default)]
struct TierQueues {
    frames: u64,
    queued: u64,
    max_queued: u64,
    with_residual: u64,
    max_with_residual: u64,
    /// Sum of bytes x picoseconds of waiting.
    area: u128,
    /// Number of frames by the queue they found, in cells of [`CELL`] bytes.
    found: Vec<u64>,
    /// Bytes that wait at all ports together, and their maximum.
    together: u64,
    max_together: u64,
}

/// Bytes per cell.
const CELL: u64 = 64;

/// Index of the receivers' ports, behind the tiers.
const RECEIVERS: usize = Tier::ALL.len();

impl TierQueues {
    fn on_arrival(&mut self, backlog: &PortBacklog) {
        let with_residual = backlog.queued_bytes + u64::from(backlog.residual_bytes);
        self.frames += 1;
        self.queued += backlog.queued_bytes;
        self.max_queued = self.max_queued.max(backlog.queued_bytes);
        self.with_residual += with_residual;
        self.max_with_residual = self.max_with_residual.max(with_residual);
        self.max_together = self.max_together.max(self.together);
        let cell = (backlog.queued_bytes / CELL) as usize;
        if self.found.len() <= cell {
            self.found.resize(cell + 1, 0);
        }
        self.found[cell] += 1;
    }

    fn absorb(&mut self, other: &Self) {
        self.frames += other.frames;
        self.queued += other.queued;
        self.max_queued = self.max_queued.max(other.max_queued);
        self.with_residual += other.with_residual;
        self.max_with_residual = self.max_with_residual.max(other.max_with_residual);
        self.area += other.area;
        self.max_together += other.max_together;
        if self.found.len() < other.found.len() {
            self.found.resize(other.found.len(), 0);
        }
        self.found.iter_mut().zip(&other.found).for_each(|(own, other)| *own += other);
    }

    /// Statistics over `time` picoseconds and `ports` ports; `None` if no frame arrived.
    fn length(&self, time: u64, ports: u64) -> Option<QueueLength> {
        let frames = self.frames.max(1) as f64;
        (self.frames > 0).then(|| QueueLength {
            mean_bytes: self.queued as f64 / frames,
            max_bytes: self.max_queued,
            mean_bytes_with_residual: self.with_residual as f64 / frames,
            max_bytes_with_residual: self.max_with_residual,
            time_mean_bytes: self.area as f64 / (time.max(1) as f64 * ports.max(1) as f64),
            p1_bytes: self.quantile(0.01),
            p50_bytes: self.quantile(0.5),
            p99_bytes: self.quantile(0.99),
            together_max_bytes: self.max_together,
            frames: self.frames,
        })
    }

    /// The largest queue that a share of the frames found, rounded to a cell.
    fn quantile(&self, share: f64) -> u64 {
        let rank = (self.frames as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        let cell = self.found.iter().position(|frames| {
            seen += frames;
            seen >= rank
        });
        cell.unwrap_or(0) as u64 * CELL
    }
}

impl QueueProbe {
    /// A closed probe that counts, by level, bytes that leave at the ports to `receivers`. With
    /// `queues` it also measures queues, those of the receivers' ports separately if `apart`.
    pub fn new(queues: bool, receivers: Range<PortId>, apart: bool) -> Self {
        Self {
            open: false,
            opened: SimTime::ZERO,
            closed: SimTime::ZERO,
            queues,
            tiers: vec![TierQueues::default(); RECEIVERS + 1],
            apart,
            arrived: Vec::new(),
            waiting: Vec::new(),
            receivers,
            level_bytes: [0; 8],
            tors: TorQueues::default(),
        }
    }

    /// Also measures the bytes that wait at all ports of a TOR switch of this network.
    pub fn with_tors(self, ports: &[PortSpec]) -> Self {
        Self { tors: TorQueues::new(ports), ..self }
    }

    /// Takes over what was measured at other ports of the same network in the same time. The total
    /// at all ports of a tier then is an upper bound, the sum of the largest totals of both.
    pub(crate) fn absorb(&mut self, other: &Self) {
        self.tiers.iter_mut().zip(&other.tiers).for_each(|(own, other)| own.absorb(other));
        self.level_bytes.iter_mut().zip(other.level_bytes).for_each(|(own, other)| *own += other);
        self.tors.max = self.tors.max.max(other.tors.max);
    }

    /// Measurement begins.
    pub fn open(&mut self, now: SimTime) {
        (self.open, self.opened) = (true, now);
    }

    /// Measurement ends.
    pub fn close(&mut self, now: SimTime) {
        if self.open {
            (self.open, self.closed) = (false, now);
        }
    }

    /// Wire bytes towards receivers by level, lowest first.
    pub fn level_bytes(&self) -> [u64; 8] {
        self.level_bytes
    }

    /// Queue lengths, for a number of `ports` of each tier in the order of [`Tier::ALL`].
    pub fn queues(&self, ports: [u64; Tier::ALL.len()]) -> Option<Queues> {
        if !self.queues {
            return None;
        }
        let time = self.closed.since(self.opened).0;
        let of = |tier: Tier| self.tiers[tier as usize].length(time, ports[tier as usize]);
        let receivers = u64::from(self.receivers.end.0 - self.receivers.start.0);
        Some(Queues {
            host_up: of(Tier::HostUp),
            tor_up: of(Tier::TorUp),
            aggr_down: of(Tier::AggrDown),
            tor_down: of(Tier::TorDown),
            aggr_up: of(Tier::AggrUp),
            core_down: of(Tier::CoreDown),
            fabric: of(Tier::Fabric),
            receivers: self.tiers[RECEIVERS].length(time, receivers),
            tor_max_bytes: Some(self.tors.max),
        })
    }

    /// The statistics that count a frame: those of its tier, and those of the receivers' ports.
    fn seen(&mut self, frame: &AtPort) -> impl Iterator<Item = &mut TierQueues> {
        let own = self.apart && self.receivers.contains(&frame.port);
        let tier = frame.tier as usize;
        let tiers = self.tiers.iter_mut().enumerate();
        tiers.filter_map(move |(place, seen)| {
            (place == tier || own && place == RECEIVERS).then_some(seen)
        })
    }

    /// From now on `bytes` wait at a frame's port.
    #[inline]
    fn set_waiting(&mut self, frame: &AtPort, bytes: u64) {
        let port = frame.port.0 as usize;
        if self.waiting.len() <= port {
            self.waiting.resize(port + 1, 0);
        }
        let before = std::mem::replace(&mut self.waiting[port], bytes);
        self.seen(frame).for_each(|seen| seen.together = seen.together + bytes - before);
        self.tors.change(port, (before, bytes), self.open);
    }

    /// A frame, or the rest of one, that waited at a port enters service.
    #[inline]
    fn on_wait_over(&mut self, at: SimTime, frame: &AtPort) {
        if !self.queues {
            return;
        }
        let arrived = self.arrived.get(frame.slot as usize);
        let waited = at.since(arrived.copied().unwrap_or(at).max(self.opened)).0;
        if waited > 0 {
            let area = u128::from(waited) * u128::from(frame.wire_bytes);
            self.seen(frame).for_each(|seen| seen.area += area);
        }
    }
}

impl<T: Transport> Probe<T> for QueueProbe {
    #[inline]
    fn enqueued(&mut self, now: SimTime, frame: &AtPort, backlog: &PortBacklog) {
        if !self.queues {
            return;
        }
        let slot = frame.slot as usize;
        if self.arrived.len() <= slot {
            self.arrived.resize(slot + 1, SimTime::ZERO);
        }
        self.arrived[slot] = now;
        self.set_waiting(frame, backlog.queued_bytes + u64::from(frame.wire_bytes));
        if self.open {
            self.seen(frame).for_each(|seen| seen.on_arrival(backlog));
        }
    }

    #[inline]
    fn departed(&mut self, at: SimTime, frame: &AtPort) {
        if self.queues {
            let waiting = self.waiting.get(frame.port.0 as usize).copied().unwrap_or(0);
            self.set_waiting(frame, waiting.saturating_sub(u64::from(frame.wire_bytes)));
        }
        if !self.open {
            return;
        }
        if self.receivers.contains(&frame.port) {
            self.level_bytes[usize::from(frame.priority & 7)] += u64::from(frame.wire_bytes);
        }
        self.on_wait_over(at, frame);
    }

    #[inline]
    fn interrupted(&mut self, now: SimTime, frame: &AtPort) {
        if let Some(arrived) = self.arrived.get_mut(frame.slot as usize) {
            *arrived = now;
        }
    }

    #[inline]
    fn resumed(&mut self, now: SimTime, frame: &AtPort) {
        if self.open {
            self.on_wait_over(now, frame);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::Homa;

    fn frame(slot: u32, priority: u8) -> AtPort {
        AtPort { port: PortId(7), tier: Tier::TorDown, slot, wire_bytes: 1000, priority }
    }

    fn enqueue(probe: &mut QueueProbe, now: u64, slot: u32, (queued, residual): (u64, u32)) {
        let backlog =
            PortBacklog { queued_bytes: queued, residual_bytes: residual, in_service_priority: 0 };
        Probe::<Homa>::enqueued(probe, SimTime(now), &frame(slot, 3), &backlog);
    }

    #[test]
    fn means_over_arrivals_and_over_time() {
        let mut probe = QueueProbe::new(true, PortId(7)..PortId(8), true);
        probe.open(SimTime(0));
        enqueue(&mut probe, 0, 0, (0, 0));
        Probe::<Homa>::departed(&mut probe, SimTime(0), &frame(0, 3));
        enqueue(&mut probe, 100, 1, (0, 400));
        Probe::<Homa>::departed(&mut probe, SimTime(600), &frame(1, 7));
        probe.close(SimTime(1000));
        enqueue(&mut probe, 2000, 1, (9000, 400));
        let mut ports = [0; Tier::ALL.len()];
        ports[Tier::TorDown as usize] = 2;
        let down = probe.queues(ports).unwrap().tor_down.unwrap();
        assert_eq!((down.frames, down.max_bytes, down.max_bytes_with_residual), (2, 0, 400));
        assert_eq!(down.mean_bytes_with_residual, 200.0);
        // 1000 B waited for 500 of 1000 ps, at one of two ports.
        assert_eq!(down.time_mean_bytes, 250.0);
        assert_eq!(probe.level_bytes(), [0, 0, 0, 1000, 0, 0, 0, 1000]);
    }

    #[test]
    fn probes_of_partitions_add_up() {
        let probe = || QueueProbe::new(true, PortId(7)..PortId(8), false);
        let (mut one, mut other, mut both) = (probe(), probe(), probe());
        for probe in [&mut one, &mut other, &mut both] {
            probe.open(SimTime(0));
        }
        for probe in [&mut one, &mut both] {
            enqueue(probe, 10, 0, (5_000, 0));
        }
        for probe in [&mut other, &mut both] {
            enqueue(probe, 20, 1, (1_000, 300));
            Probe::<Homa>::departed(probe, SimTime(90), &frame(1, 7));
        }
        for probe in [&mut one, &mut other, &mut both] {
            probe.close(SimTime(100));
        }
        one.absorb(&other);
        let ports = [1; Tier::ALL.len()];
        let [one, both] = [&one, &both].map(|probe| {
            let down = probe.queues(ports).unwrap().tor_down.unwrap();
            (QueueLength { together_max_bytes: 0, ..down }, probe.level_bytes())
        });
        assert_eq!(one, both);
        assert_eq!(one.0.frames, 2);
    }

    #[test]
    fn bytes_at_all_ports_of_a_tor_switch() {
        let wiring = crate::topology::LeafSpine::homa().wire();
        let mut probe = QueueProbe::new(true, PortId(0)..PortId(0), false);
        probe = probe.with_tors(wiring.ports());
        let at = |port: PortId, slot, wire_bytes| {
            let tier = wiring.ports()[port.0 as usize].tier;
            AtPort { port, tier, slot, wire_bytes, priority: 0 }
        };
        let mut waits = |port, slot, wire_bytes| {
            let backlog =
                PortBacklog { queued_bytes: 0, residual_bytes: 0, in_service_priority: 0 };
            let frame = at(port, slot, wire_bytes);
            Probe::<Homa>::enqueued(&mut probe, SimTime(0), &frame, &backlog);
        };
        let down = |host| wiring.downlink(crate::topology::HostId(host));
        let first = wiring.ports()[down(0).0 as usize].from;
        let up =
            wiring.ports().iter().position(|port| (port.from, port.tier) == (first, Tier::TorUp));
        waits(down(0), 0, 100);
        waits(down(1), 1, 200);
        waits(PortId(up.unwrap() as u32), 2, 400);
        // Another rack, and a host's own port.
        waits(down(16), 3, 650);
        waits(PortId(0), 4, 5_000);
        let most = |probe: &QueueProbe| probe.queues([1; Tier::ALL.len()]).unwrap().tor_max_bytes;
        assert_eq!(most(&probe), Some(0), "not open yet");
        probe.open(SimTime(0));
        let frame = at(down(0), 5, 50);
        let backlog = PortBacklog { queued_bytes: 100, residual_bytes: 0, in_service_priority: 0 };
        Probe::<Homa>::enqueued(&mut probe, SimTime(0), &frame, &backlog);
        Probe::<Homa>::departed(&mut probe, SimTime(1), &at(down(1), 1, 200));
        assert_eq!(most(&probe), Some(750));
    }

    #[test]
    fn percentiles_of_queues_that_frames_find() {
        let mut probe = QueueProbe::new(true, PortId(7)..PortId(8), true);
        probe.open(SimTime(0));
        (0..100).for_each(|n| enqueue(&mut probe, n, 0, (n * 640, 0)));
        let down = probe.queues([1; Tier::ALL.len()]).unwrap().tor_down.unwrap();
        assert_eq!((down.p1_bytes, down.p50_bytes, down.p99_bytes), (0, 49 * 640, 98 * 640));
        assert_eq!(down.max_bytes, 99 * 640);
        assert_eq!(probe.queues([1; Tier::ALL.len()]).unwrap().receivers, Some(down));
        // The last frame and the queue it found.
        assert_eq!(down.together_max_bytes, 99 * 640 + 1000);
    }
}
