//! Wasted bandwidth (Homa Figure 13): receivers' links that idle although senders wait for grants.
//!
//! A sender wants grants from a receiver while one of its messages to it has ungranted bytes. While
//! more senders want grants than the degree of overcommitment, the receiver withholds grants. Bytes
//! that its link could have carried in that time and did not are wasted.

use std::collections::BTreeMap;
use std::ops::Range;

use homa_proto::Receipt;
use homa_workload::interval::{GroupMean, mean};

use crate::engine::{AtPort, Probe};
use crate::time::{SimDuration, SimTime};
use crate::topology::{HostId, Tier};
use crate::transport::{Label, PacketContent, Transport};

/// The probe of wasted bandwidth.
#[derive(Debug)]
pub struct Wasted {
    degree: usize,
    hosts: u32,
    open: Option<SimTime>,
    closed: SimTime,
    receivers: Vec<Receiver>,
}

#[derive(Clone, Debug, Default)]
struct Receiver {
    /// By sender: its messages with ungranted bytes, by number, and their lengths.
    wanting: BTreeMap<u32, Vec<(u32, u32)>>,
    withholding: Option<SimTime>,
    withheld: SimDuration,
    /// Wire bytes that began to arrive while grants were withheld.
    bytes: u64,
}

impl Wasted {
    /// A closed probe for a degree of overcommitment.
    pub fn new(hosts: u32, degree: usize) -> Self {
        let receivers = vec![Receiver::default(); hosts as usize];
        Self { degree, hosts, open: None, closed: SimTime::ZERO, receivers }
    }

    /// Measurement begins.
    pub fn open(&mut self, now: SimTime) {
        self.open = Some(now);
        for receiver in &mut self.receivers {
            receiver.withholding = receiver.withholding.map(|_| now);
        }
    }

    /// Measurement ends.
    pub fn close(&mut self, now: SimTime) {
        for receiver in &mut self.receivers {
            if let Some(since) = receiver.withholding {
                receiver.withheld = receiver.withheld + now.since(since);
            }
        }
        self.closed = now;
    }

    /// Share of the receivers' links, of `bytes_per_second`, that was wasted: the mean over
    /// `receivers`, by host. Its interval treats them as independent, because each has its own
    /// messages, although they share senders. `None` if no time was measured.
    pub fn share(&self, bytes_per_second: f64, receivers: &Range<u32>) -> Option<GroupMean> {
        let time = self.closed.since(self.open?).0 as f64 / 1e12;
        if time <= 0.0 {
            return None;
        }
        mean(receivers.clone().map(|host| {
            let receiver = &self.receivers[host as usize];
            let withheld = receiver.withheld.0 as f64 / 1e12;
            (withheld - receiver.bytes as f64 / bytes_per_second).max(0.0) / time
        }))
    }

    fn counts(&self, now: SimTime) -> bool {
        self.open.is_some() && (self.closed == SimTime::ZERO || now < self.closed)
    }

    /// The set of senders that want grants may have changed.
    fn update(&mut self, now: SimTime, host: HostId) {
        let counts = self.counts(now);
        let receiver = &mut self.receivers[host.0 as usize];
        let withholds = receiver.wanting.len() > self.degree;
        match (withholds, receiver.withholding) {
            (true, None) => receiver.withholding = Some(now),
            (false, Some(since)) => {
                if counts {
                    receiver.withheld = receiver.withheld + now.since(since);
                }
                receiver.withholding = None;
            }
            _ => {}
        }
    }
}

impl<T: Transport> Probe<T> for Wasted {
    fn transmitted(
        &mut self,
        now: SimTime,
        host: HostId,
        _slot: u32,
        packet: &T::Packet,
        label: &Label,
    ) {
        // A grant may name an earlier message of the sender again; only the end of a message
        // matters.
        let PacketContent::Permit { message, offset } = T::content(packet) else { return };
        let sender = label.to.0;
        let wanting = &mut self.receivers[host.0 as usize].wanting;
        let Some(messages) = wanting.get_mut(&sender) else { return };
        let known = messages.iter().position(|(number, _)| *number == message);
        if let Some(at) = known
            && offset >= messages[at].1
        {
            messages.swap_remove(at);
            if messages.is_empty() {
                wanting.remove(&sender);
            }
            self.update(now, host);
        }
    }

    fn departed(&mut self, at: SimTime, frame: &AtPort) {
        if frame.tier == Tier::TorDown && self.counts(at) {
            let host = frame.port.0 - self.hosts;
            let receiver = &mut self.receivers[host as usize];
            if receiver.withholding.is_some_and(|since| since <= at) {
                receiver.bytes += u64::from(frame.wire_bytes);
            }
        }
    }

    fn received(
        &mut self,
        now: SimTime,
        host: HostId,
        from: HostId,
        _slot: u32,
        packet: &T::Packet,
        _receipt: &Receipt,
    ) {
        let PacketContent::Data(data) = T::content(packet) else { return };
        let first = data.offset == 0 && !data.resent;
        if first && data.total > data.permitted {
            let wanting = &mut self.receivers[host.0 as usize].wanting;
            wanting.entry(from.0).or_default().push((data.message, data.total));
            self.update(now, host);
        }
    }
}
