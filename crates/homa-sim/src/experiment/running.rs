//! A simulation without the types of its hosts, queues, probes and faults, and the interface of its
//! measures. Calls here are virtual, but none of them is made per packet.

use std::io::Write;

use crate::checker::MessageChecker;
use crate::engine::{Counters, Fault, Halt, PauseReport, Simulation};
use crate::engine::{Probe, World};
use crate::fabric::PortQueue;
use crate::nic::NicCounters;
use crate::scenario::ScenarioOutcome;
use crate::time::SimTime;
use crate::topology::PortId;
use crate::trace::{Capture, Recorder, TraceListener};
use crate::traffic::Generator;
use crate::transport::{Timeouts, Transport};

use super::applications::Applications;
use super::assemble::MeasurementWindow;
use super::network::ScenarioNetwork;

/// A probe that measures.
pub(super) trait Measure {
    /// Called when the measurement begins.
    fn open(&mut self, _now: SimTime) {}
    /// Called when the measurement ends.
    fn close(&mut self, _now: SimTime) {}
    /// Writes the results to `outcome`.
    fn report(&self, _window: &MeasurementWindow<'_>, _outcome: &mut ScenarioOutcome) {}
    /// Takes over what the same probe has measured in another partition of the network. Probes
    /// without this are refused in networks with several.
    fn absorb(&mut self, _other: &Self)
    where
        Self: Sized,
    {
    }
}

impl Measure for () {}

impl<W: Write> Measure for Capture<W> {}

impl<L: TraceListener> Measure for Recorder<L> {}

impl Measure for &mut MessageChecker {}

impl<A: Measure, B: Measure> Measure for (A, B) {
    fn open(&mut self, now: SimTime) {
        self.0.open(now);
        self.1.open(now);
    }

    fn close(&mut self, now: SimTime) {
        self.0.close(now);
        self.1.close(now);
    }

    fn report(&self, window: &MeasurementWindow<'_>, outcome: &mut ScenarioOutcome) {
        self.0.report(window, outcome);
        self.1.report(window, outcome);
    }

    fn absorb(&mut self, other: &Self) {
        self.0.absorb(&other.0);
        self.1.absorb(&other.1);
    }
}

impl<A: Measure> Measure for Option<A> {
    fn open(&mut self, now: SimTime) {
        if let Some(probe) = self {
            probe.open(now);
        }
    }

    fn close(&mut self, now: SimTime) {
        if let Some(probe) = self {
            probe.close(now);
        }
    }

    fn report(&self, window: &MeasurementWindow<'_>, outcome: &mut ScenarioOutcome) {
        if let Some(probe) = self {
            probe.report(window, outcome);
        }
    }

    fn absorb(&mut self, other: &Self) {
        if let (Some(probe), Some(other)) = (self, other) {
            probe.absorb(other);
        }
    }
}

/// A type-erased simulation. The methods are those of [`Simulation`].
pub(super) trait AnySimulation {
    /// Schedules the start of traffic and the network's changes and pauses.
    fn begin(&mut self, network: &ScenarioNetwork);
    fn run_until(&mut self, end: SimTime, max_events: u64) -> Halt;
    fn now(&self) -> SimTime;
    fn last_event(&self) -> SimTime;
    fn pending(&self) -> usize;
    fn packets_in_flight(&self) -> u32;
    fn counters(&self) -> Counters;
    fn trace_hash(&self) -> u64;
    fn sent_bytes(&self, port: PortId) -> u64;
    fn dropped_frames(&self, port: PortId) -> u64;
    /// Packets that transports refused.
    fn refused(&self) -> u64;
    /// Counters of each host's NIC; empty if NICs only send or if a host is down.
    fn nics(&self) -> Vec<NicCounters>;
    /// The pauses of ports; `None` without priority flow control.
    fn pause_report(&self) -> Option<PauseReport>;
    /// Retransmission timeouts of all hosts.
    fn timeouts(&self) -> Timeouts;
    fn generator(&self) -> &Generator;
    fn generator_mut(&mut self) -> &mut Generator;
    fn measure(&mut self) -> &mut dyn Measure;
    /// Writes the measures' results to `outcome`.
    fn report(&mut self, window: &MeasurementWindow<'_>, outcome: &mut ScenarioOutcome);
    /// Processor seconds of threads other than the caller's.
    fn cpu_elsewhere(&self) -> f64 {
        0.0
    }
}

impl<T, Q, P, F> AnySimulation for Simulation<(T, Q, Applications, P, F)>
where
    T: Transport,
    Q: PortQueue,
    P: Probe<T> + Measure,
    F: Fault<T::Packet>,
    (T, Q, Applications, P, F): World<Host = T, App = Applications, Probe = P>,
{
    fn begin(&mut self, network: &ScenarioNetwork) {
        for (host, at, token) in self.application().first_wakes() {
            match host {
                Some(host) => self.wake_host_at(host, at, token),
                None => self.wake_at(at, token),
            }
        }
        for change in &network.changes {
            self.change_link(change.port, change.at, change.what);
        }
        for pause in &network.pauses {
            self.pause(pause.host, pause.at, pause.length);
        }
    }

    fn run_until(&mut self, end: SimTime, max_events: u64) -> Halt {
        self.run_until(end, max_events)
    }

    fn now(&self) -> SimTime {
        self.now()
    }

    fn last_event(&self) -> SimTime {
        self.last_event()
    }

    fn pending(&self) -> usize {
        self.pending()
    }

    fn packets_in_flight(&self) -> u32 {
        self.packets_in_flight()
    }

    fn counters(&self) -> Counters {
        self.counters()
    }

    fn trace_hash(&self) -> u64 {
        self.trace_hash()
    }

    fn sent_bytes(&self, port: PortId) -> u64 {
        self.sent_bytes(port)
    }

    fn dropped_frames(&self, port: PortId) -> u64 {
        self.dropped_frames(port)
    }

    fn refused(&self) -> u64 {
        self.transports().map(Transport::refused).sum()
    }

    fn nics(&self) -> Vec<NicCounters> {
        let now = self.now().protocol();
        let all: Option<Vec<_>> = self.transports().map(|host| host.nic(now)).collect();
        all.unwrap_or_default()
    }

    fn pause_report(&self) -> Option<PauseReport> {
        self.pause_report()
    }

    fn timeouts(&self) -> Timeouts {
        self.transports().map(Transport::timeouts).fold(Timeouts::default(), Timeouts::plus)
    }

    fn generator(&self) -> &Generator {
        &self.application().generator
    }

    fn generator_mut(&mut self) -> &mut Generator {
        &mut self.application_mut().generator
    }

    fn measure(&mut self) -> &mut dyn Measure {
        self.probe_mut()
    }

    fn report(&mut self, window: &MeasurementWindow<'_>, outcome: &mut ScenarioOutcome) {
        self.probe().report(window, outcome);
    }
}
