//! Flows longer than a run (HULL §6.1, DCTCP §4.1), and probes beside any traffic (HULL §5.2).

use crate::scenario::{FlowGroup, Probes};
use crate::time::SimTime;

use super::source::{Asked, Ended, PROBE, Source, Start};
use super::workflows::Workflows;

/// Flows from the start on, none of which ends.
#[derive(Clone, Debug)]
pub struct LongFlows {
    /// Alike flows.
    pub groups: Vec<FlowGroup>,
}

impl LongFlows {
    /// Bytes of a flow: 16 seconds of a gigabit per second.
    pub const BYTES: u32 = 2_000_000_000;
}

impl Source for LongFlows {
    fn begin(&mut self, _: SimTime, asked: &mut Asked) {
        let flow = |(src, dst)| Start::new(src, dst, Self::BYTES);
        asked.starts.extend(self.groups.iter().flat_map(FlowGroup::pairs).map(flow));
    }

    fn due(&mut self, _: SimTime, _: u32, _: &mut Asked) {}
}

/// A source with probes beside it.
#[derive(Debug)]
pub struct Probing {
    inner: Box<dyn Source>,
    probes: Probes,
}

/// No source asks for as many times.
const TOKEN: u32 = u32::MAX;

impl Probing {
    /// Probes from the start on.
    pub fn new(inner: Box<dyn Source>, probes: Probes) -> Self {
        Self { inner, probes }
    }
}

impl Source for Probing {
    fn begin(&mut self, now: SimTime, asked: &mut Asked) {
        asked.wakes.push((now + self.probes.every.duration(), TOKEN));
        self.inner.begin(now, asked);
    }

    fn due(&mut self, now: SimTime, token: u32, asked: &mut Asked) {
        if token != TOKEN {
            return self.inner.due(now, token, asked);
        }
        let Probes { from: src, to: dst, every, bytes, .. } = self.probes;
        asked.starts.push(Start { class: PROBE, ..Start::new(src, dst, bytes) });
        asked.wakes.push((now + every.duration(), TOKEN));
    }

    fn ended(&mut self, now: SimTime, ended: Ended, asked: &mut Asked) {
        self.inner.ended(now, ended, asked);
    }

    fn over(&mut self, goes_on: bool) {
        self.inner.over(goes_on);
    }

    fn sees_through(&self) -> bool {
        self.inner.sees_through()
    }

    fn is_through(&self) -> bool {
        self.inner.is_through()
    }

    fn workflows(&self) -> Option<&Workflows> {
        self.inner.workflows()
    }
}
