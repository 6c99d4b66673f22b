//! Typed events of packets, in the order in which the engine reports them.
//!
//! Events of one port, and those of one packet, are in order of time. Across ports a departure may
//! be reported late; it then carries the time at which it happened.

use homa_proto::{Rate, Receipt};
use serde::{Deserialize, Serialize};

use crate::engine::{AtPort, LossCause, PortBacklog, Probe};
use crate::time::SimTime;
use crate::topology::{HostId, PortId};
use crate::transport::{Label, Transport};

/// Something that happened to a packet. `slot` names it until it is received or lost; times are
/// picoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum TraceEvent {
    /// Its first bit left its host.
    Transmitted {
        /// When.
        at_ps: u64,
        /// The packet.
        slot: u32,
        /// The sender.
        host: u32,
        /// The receiver.
        to: u32,
        /// Bytes on the wire.
        wire_bytes: u32,
        /// Priority level.
        priority: u8,
    },
    /// It arrived at a switch's output port.
    Enqueued {
        /// When.
        at_ps: u64,
        /// The packet.
        slot: u32,
        /// The port.
        port: u32,
        /// Wire bytes that waited there.
        queued_bytes: u64,
    },
    /// Its first bit left that port.
    Departed {
        /// When.
        at_ps: u64,
        /// The packet.
        slot: u32,
        /// The port.
        port: u32,
    },
    /// A frame of higher priority interrupted it.
    Interrupted {
        /// When.
        at_ps: u64,
        /// The packet.
        slot: u32,
        /// The port.
        port: u32,
        /// Bytes on the wire that have not left.
        left_bytes: u32,
    },
    /// Its rest began to leave.
    Resumed {
        /// When.
        at_ps: u64,
        /// The packet.
        slot: u32,
        /// The port.
        port: u32,
    },
    /// A switch trimmed its payload.
    Trimmed {
        /// When.
        at_ps: u64,
        /// The packet.
        slot: u32,
        /// Bytes on the wire that are left.
        left_bytes: u32,
    },
    /// A switch returned it to its sender.
    Returned {
        /// When.
        at_ps: u64,
        /// The packet.
        slot: u32,
        /// Bytes on the wire that are left.
        left_bytes: u32,
    },
    /// A link duplicated it.
    Copied {
        /// When.
        at_ps: u64,
        /// The packet.
        slot: u32,
        /// The copy.
        copy: u32,
    },
    /// It was delayed at the end of a link.
    Deferred {
        /// When.
        at_ps: u64,
        /// The packet.
        slot: u32,
        /// When it continues.
        until_ps: u64,
    },
    /// It was given to a transport.
    Received {
        /// When.
        at_ps: u64,
        /// The packet.
        slot: u32,
        /// The receiver.
        host: u32,
        /// The sender.
        from: u32,
    },
    /// It disappeared.
    Lost {
        /// When.
        at_ps: u64,
        /// The packet.
        slot: u32,
        /// True if a buffer was full; otherwise the cause is a fault or a dead host.
        overflow: bool,
    },
    /// The rate of a link changed, from its next frame on.
    RateChanged {
        /// When.
        at_ps: u64,
        /// The port that sends over this link.
        port: u32,
        /// The new rate, bits per second.
        bits_per_second: u64,
    },
}

impl TraceEvent {
    /// When it happened.
    pub const fn at_ps(&self) -> u64 {
        match *self {
            Self::Transmitted { at_ps, .. }
            | Self::Enqueued { at_ps, .. }
            | Self::Departed { at_ps, .. }
            | Self::Interrupted { at_ps, .. }
            | Self::Resumed { at_ps, .. }
            | Self::Trimmed { at_ps, .. }
            | Self::Returned { at_ps, .. }
            | Self::Copied { at_ps, .. }
            | Self::Deferred { at_ps, .. }
            | Self::Received { at_ps, .. }
            | Self::Lost { at_ps, .. }
            | Self::RateChanged { at_ps, .. } => at_ps,
        }
    }
}

/// A consumer of events.
pub trait TraceListener {
    /// Takes the next event.
    fn on_event(&mut self, event: &TraceEvent);
}

/// Keeps every event of a run.
impl TraceListener for Vec<TraceEvent> {
    fn on_event(&mut self, event: &TraceEvent) {
        self.push(*event);
    }
}

impl<L: TraceListener> TraceListener for &mut L {
    fn on_event(&mut self, event: &TraceEvent) {
        (**self).on_event(event);
    }
}

/// A probe that reports packet events to a listener.
#[derive(Clone, Debug)]
pub struct Recorder<L>(pub L);

impl<T: Transport, L: TraceListener> Probe<T> for Recorder<L> {
    fn transmitted(&mut self, now: SimTime, host: HostId, slot: u32, _: &T::Packet, label: &Label) {
        self.0.on_event(&TraceEvent::Transmitted {
            at_ps: now.0,
            slot,
            host: host.0,
            to: label.to.0,
            wire_bytes: label.wire_bytes,
            priority: label.priority,
        });
    }

    fn enqueued(&mut self, now: SimTime, frame: &AtPort, backlog: &PortBacklog) {
        self.0.on_event(&TraceEvent::Enqueued {
            at_ps: now.0,
            slot: frame.slot,
            port: frame.port.0,
            queued_bytes: backlog.queued_bytes,
        });
    }

    fn departed(&mut self, at: SimTime, frame: &AtPort) {
        let port = frame.port.0;
        self.0.on_event(&TraceEvent::Departed { at_ps: at.0, slot: frame.slot, port });
    }

    fn interrupted(&mut self, now: SimTime, frame: &AtPort) {
        self.0.on_event(&TraceEvent::Interrupted {
            at_ps: now.0,
            slot: frame.slot,
            port: frame.port.0,
            left_bytes: frame.wire_bytes,
        });
    }

    fn resumed(&mut self, now: SimTime, frame: &AtPort) {
        let port = frame.port.0;
        self.0.on_event(&TraceEvent::Resumed { at_ps: now.0, slot: frame.slot, port });
    }

    fn trimmed(&mut self, now: SimTime, frame: &AtPort) {
        let (slot, left_bytes) = (frame.slot, frame.wire_bytes);
        self.0.on_event(&TraceEvent::Trimmed { at_ps: now.0, slot, left_bytes });
    }

    fn returned(&mut self, now: SimTime, slot: u32, wire_bytes: u16) {
        let left_bytes = u32::from(wire_bytes);
        self.0.on_event(&TraceEvent::Returned { at_ps: now.0, slot, left_bytes });
    }

    fn copied(&mut self, now: SimTime, slot: u32, copy: u32) {
        self.0.on_event(&TraceEvent::Copied { at_ps: now.0, slot, copy });
    }

    fn deferred(&mut self, now: SimTime, slot: u32, until: SimTime) {
        self.0.on_event(&TraceEvent::Deferred { at_ps: now.0, slot, until_ps: until.0 });
    }

    fn received(
        &mut self,
        now: SimTime,
        host: HostId,
        from: HostId,
        slot: u32,
        _: &T::Packet,
        _: &Receipt,
    ) {
        let (host, from) = (host.0, from.0);
        self.0.on_event(&TraceEvent::Received { at_ps: now.0, slot, host, from });
    }

    fn lost(&mut self, now: SimTime, _: HostId, slot: u32, _: &T::Packet, cause: LossCause) {
        let overflow = cause == LossCause::Overflow;
        self.0.on_event(&TraceEvent::Lost { at_ps: now.0, slot, overflow });
    }

    fn rate_changed(&mut self, now: SimTime, port: PortId, rate: Rate) {
        let (port, bits_per_second) = (port.0, rate.0);
        self.0.on_event(&TraceEvent::RateChanged { at_ps: now.0, port, bits_per_second });
    }
}
