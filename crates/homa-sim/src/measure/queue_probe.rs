//! Queue lengths and priority use: one probe, on while it is open.
//!
//! Queue lengths (Homa Table 1) as the authors sampled them: what each arriving frame finds, over
//! all ports of a tier. Their text leaves frames in transmission out, their code adds the part of
//! the frame in service that has not left; both are kept. The mean over time is exact: the sum of
//! bytes x waiting time of all frames. Priority use (Homa Figure 14) counts the wire bytes that
//! begin to leave towards receivers.

use std::ops::Range;

use crate::engine::{AtPort, Backlog, Probe};
use crate::scenario::outcome::{QueueLength, Queues};
use crate::time::SimTime;
use crate::topology::{PortId, Tier};
use crate::transport::Transport;

/// See the module's description.
#[derive(Debug)]
pub struct QueueProbe {
    open: bool,
    opened: SimTime,
    closed: SimTime,
    queues: bool,
    tiers: [Seen; Tier::ALL.len()],
    /// By slot: since when the frame waits at its port.
    arrived: Vec<SimTime>,
    /// The ports to receivers.
    receivers: Range<PortId>,
    level_bytes: [u64; 8],
}

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    frames: u64,
    queued: u64,
    max_queued: u64,
    with_residual: u64,
    max_with_residual: u64,
    /// Bytes x picoseconds of waiting.
    area: u128,
}

impl QueueProbe {
    /// A closed probe that counts by level what leaves at the ports to `receivers`; `queues`: look
    /// at queues, too.
    pub fn new(queues: bool, receivers: Range<PortId>) -> Self {
        Self {
            open: false,
            opened: SimTime::ZERO,
            closed: SimTime::ZERO,
            queues,
            tiers: [Seen::default(); Tier::ALL.len()],
            arrived: Vec::new(),
            receivers,
            level_bytes: [0; 8],
        }
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

    /// Wire bytes towards receivers per level, lowest first.
    pub fn level_bytes(&self) -> [u64; 8] {
        self.level_bytes
    }

    /// Queue lengths; `ports` of each tier, in the order of [`Tier::ALL`].
    pub fn queues(&self, ports: [u64; Tier::ALL.len()]) -> Option<Queues> {
        if !self.queues {
            return None;
        }
        let time = self.closed.since(self.opened).0;
        let of = |tier: Tier| {
            let seen = &self.tiers[tier as usize];
            let frames = seen.frames.max(1) as f64;
            (seen.frames > 0).then(|| QueueLength {
                mean_bytes: seen.queued as f64 / frames,
                max_bytes: seen.max_queued,
                mean_bytes_with_residual: seen.with_residual as f64 / frames,
                max_bytes_with_residual: seen.max_with_residual,
                time_mean_bytes: seen.area as f64
                    / (time.max(1) as f64 * ports[tier as usize].max(1) as f64),
                frames: seen.frames,
            })
        };
        Some(Queues {
            host_up: of(Tier::HostUp),
            tor_up: of(Tier::TorUp),
            aggr_down: of(Tier::AggrDown),
            tor_down: of(Tier::TorDown),
            aggr_up: of(Tier::AggrUp),
            core_down: of(Tier::CoreDown),
            fabric: of(Tier::Fabric),
        })
    }

    /// A frame, or the rest of one, that waited at a port goes on.
    #[inline]
    fn on_wait_over(&mut self, at: SimTime, frame: &AtPort) {
        if !self.queues {
            return;
        }
        let arrived = self.arrived.get(frame.slot as usize);
        let waited = at.since(arrived.copied().unwrap_or(at).max(self.opened)).0;
        if waited > 0 {
            self.tiers[frame.tier as usize].area +=
                u128::from(waited) * u128::from(frame.wire_bytes);
        }
    }
}

impl<T: Transport> Probe<T> for QueueProbe {
    #[inline]
    fn enqueued(&mut self, now: SimTime, frame: &AtPort, backlog: &Backlog) {
        if !self.queues {
            return;
        }
        let slot = frame.slot as usize;
        if self.arrived.len() <= slot {
            self.arrived.resize(slot + 1, SimTime::ZERO);
        }
        self.arrived[slot] = now;
        if self.open {
            let seen = &mut self.tiers[frame.tier as usize];
            let with_residual = backlog.queued_bytes + u64::from(backlog.residual_bytes);
            seen.frames += 1;
            seen.queued += backlog.queued_bytes;
            seen.max_queued = seen.max_queued.max(backlog.queued_bytes);
            seen.with_residual += with_residual;
            seen.max_with_residual = seen.max_with_residual.max(with_residual);
        }
    }

    #[inline]
    fn departed(&mut self, at: SimTime, frame: &AtPort) {
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
            Backlog { queued_bytes: queued, residual_bytes: residual, in_service_priority: 0 };
        Probe::<Homa>::enqueued(probe, SimTime(now), &frame(slot, 3), &backlog);
    }

    #[test]
    fn means_over_arrivals_and_over_time() {
        let mut probe = QueueProbe::new(true, PortId(7)..PortId(8));
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
}
