//! Typed events of packets, in the order in which the engine reported them.
//!
//! Events of one port and of one packet come in the order of time; between ports a departure may be
//! reported late, with its own time.

use homa_proto::Receipt;
use serde::{Deserialize, Serialize};

use crate::engine::{AtPort, Backlog, LossCause, Probe};
use crate::time::SimTime;
use crate::topology::HostId;
use crate::transport::Label;

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
        /// It found a full buffer (otherwise: a fault or a dead host).
        overflow: bool,
    },
}

/// Keeps the first events of a run.
#[derive(Clone, Debug)]
pub struct Recorder {
    /// The events.
    pub events: Vec<TraceEvent>,
    limit: usize,
}

impl Recorder {
    /// A recorder of at most `limit` events.
    pub fn new(limit: usize) -> Self {
        Self { events: Vec::new(), limit }
    }

    fn keep(&mut self, event: TraceEvent) {
        if self.events.len() < self.limit {
            self.events.push(event);
        }
    }
}

impl<K> Probe<K> for Recorder {
    fn transmitted(&mut self, now: SimTime, host: HostId, slot: u32, _: &K, label: &Label) {
        self.keep(TraceEvent::Transmitted {
            at_ps: now.0,
            slot,
            host: host.0,
            to: label.to.0,
            wire_bytes: label.wire_bytes,
            priority: label.priority,
        });
    }

    fn enqueued(&mut self, now: SimTime, frame: &AtPort, backlog: &Backlog) {
        self.keep(TraceEvent::Enqueued {
            at_ps: now.0,
            slot: frame.slot,
            port: frame.port.0,
            queued_bytes: backlog.queued_bytes,
        });
    }

    fn departed(&mut self, at: SimTime, frame: &AtPort) {
        let port = frame.port.0;
        self.keep(TraceEvent::Departed { at_ps: at.0, slot: frame.slot, port });
    }

    fn received(
        &mut self,
        now: SimTime,
        host: HostId,
        from: HostId,
        slot: u32,
        _: &K,
        _: &Receipt,
    ) {
        let (host, from) = (host.0, from.0);
        self.keep(TraceEvent::Received { at_ps: now.0, slot, host, from });
    }

    fn lost(&mut self, now: SimTime, _: HostId, slot: u32, _: &K, cause: LossCause) {
        let overflow = cause == LossCause::Overflow;
        self.keep(TraceEvent::Lost { at_ps: now.0, slot, overflow });
    }
}
