//! Flows that last longer than a run (HULL §6.1, DCTCP §4.1), and probes in addition to any traffic
//! (HULL §5.2).

use crate::scenario::{FlowGroup, Probes};
use crate::time::SimTime;

use super::source::{EndedMessage, PROBE, Source, SourceActions, Start};
use super::tasks::TaskSource;
use super::workflows::Workflows;

/// Flows that begin at the start and never end.
#[derive(Clone, Debug)]
pub struct LongFlows {
    /// Groups of equal flows.
    pub groups: Vec<FlowGroup>,
}

impl LongFlows {
    /// Bytes of a flow: 16 seconds at a gigabit per second.
    pub const BYTES: u32 = 2_000_000_000;
}

impl Source for LongFlows {
    fn begin(&mut self, _: SimTime, actions: &mut SourceActions) {
        let flow = |(src, dst)| Start::new(src, dst, Self::BYTES);
        actions.starts.extend(self.groups.iter().flat_map(FlowGroup::pairs).map(flow));
    }

    fn due(&mut self, _: SimTime, _: u32, _: &mut SourceActions) {}
}

/// A source with probes in addition.
#[derive(Debug)]
pub struct Probing {
    inner: Box<dyn Source>,
    probes: Probes,
}

/// The token of probes; no source has that many tokens.
const TOKEN: u32 = u32::MAX;

impl Probing {
    /// Adds probes from the start on.
    pub fn new(inner: Box<dyn Source>, probes: Probes) -> Self {
        Self { inner, probes }
    }
}

impl Source for Probing {
    fn begin(&mut self, now: SimTime, actions: &mut SourceActions) {
        actions.wakes.push((now + self.probes.every.duration(), TOKEN));
        self.inner.begin(now, actions);
    }

    fn due(&mut self, now: SimTime, token: u32, actions: &mut SourceActions) {
        if token != TOKEN {
            return self.inner.due(now, token, actions);
        }
        let Probes { from: src, to: dst, every, bytes, .. } = self.probes;
        actions.starts.push(Start { class: PROBE, ..Start::new(src, dst, bytes) });
        actions.wakes.push((now + every.duration(), TOKEN));
    }

    fn ended(&mut self, now: SimTime, ended: EndedMessage, actions: &mut SourceActions) {
        self.inner.ended(now, ended, actions);
    }

    fn sampled(&mut self, now: SimTime, actions: &mut SourceActions) {
        self.inner.sampled(now, actions);
    }

    fn traffic_ended(&mut self, keeps_load: bool) {
        self.inner.traffic_ended(keeps_load);
    }

    fn runs_past_end(&self) -> bool {
        self.inner.runs_past_end()
    }

    fn is_finished(&self) -> bool {
        self.inner.is_finished()
    }

    fn workflows(&self) -> Option<&Workflows> {
        self.inner.workflows()
    }

    fn tasks(&self) -> Option<&TaskSource> {
        self.inner.tasks()
    }
}
