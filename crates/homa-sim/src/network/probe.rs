//! Observation: typed events of a run, for checkers and measures. A probe cannot influence
//! anything.

use homa_proto::{Event, Packet, Receipt, Submit, SubmitError, Submitted};

use crate::time::SimTime;

use super::HostId;

/// Why a packet never arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossCause {
    /// A fault.
    Fault,
    /// The output port's buffer was full.
    Overflow,
    /// The destination host was down.
    HostDown,
    /// There is no such host.
    NoRoute,
}

/// Something that happened.
#[derive(Clone, Copy, Debug)]
pub enum Observed<'a> {
    /// An application submitted something at `host`.
    Submitted {
        /// Where.
        host: HostId,
        /// What it asked for.
        what: &'a Submit,
        /// The transport's answer.
        result: &'a Result<Submitted, SubmitError>,
    },
    /// The transport at `host` reported something to its application.
    Event {
        /// Where.
        host: HostId,
        /// What.
        event: &'a Event,
    },
    /// A packet's first bit left `host`.
    Transmitted {
        /// Where.
        host: HostId,
        /// As the transport gave it.
        packet: &'a Packet,
    },
    /// A packet was given to the transport at `host`.
    Received {
        /// Where.
        host: HostId,
        /// As the transport got it.
        packet: &'a Packet,
        /// Its answer.
        receipt: &'a Receipt,
    },
    /// A packet to `host` disappeared.
    Lost {
        /// Where it was going.
        host: HostId,
        /// The packet as it was sent.
        packet: &'a Packet,
        /// Why.
        cause: LossCause,
    },
    /// `host` stopped without a trace of its state.
    Crashed {
        /// Where.
        host: HostId,
    },
    /// `host` runs a new transport.
    Restarted {
        /// Where.
        host: HostId,
    },
}

/// Receives what happens.
pub trait Probe {
    /// Called in the order of time, once per happening.
    fn observe(&mut self, now: SimTime, what: Observed<'_>);
}

/// Observes nothing.
impl Probe for () {
    fn observe(&mut self, _: SimTime, _: Observed<'_>) {}
}

/// Two probes see the same.
impl<A: Probe, B: Probe> Probe for (A, B) {
    fn observe(&mut self, now: SimTime, what: Observed<'_>) {
        self.0.observe(now, what);
        self.1.observe(now, what);
    }
}
