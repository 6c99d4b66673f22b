//! What a network card does between a host's transport and its wire, as a wrapper around the
//! transport: the fabric sees one [`Transport`].
//!
//! A packet of a flow that the [`pacer`] knows waits for tokens; any other overtakes it. Where both
//! have a packet for the wire they take turns. Invariant: a packet that waits for tokens is counted
//! by `deadline` until there are enough, and by `has_packet`. Left out: the queue behind the pacer,
//! which is the wire itself.

pub mod pacer;

use homa_proto::{Event, Receipt, Submit, SubmitError, Submitted, Time};
use homa_workload::rng::Rng;

use crate::topology::HostId;
use crate::transport::{Arrival, Content, Label, Transport};

use pacer::{Pacer, PacerConfig};

/// What a NIC does besides taking a packet when the wire is free.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NicConfig {
    /// It spaces the packets of flows that met congestion (HULL §4.2).
    pub pacer: Option<PacerConfig>,
}

impl NicConfig {
    /// It does nothing.
    pub fn is_plain(&self) -> bool {
        self.pacer.is_none()
    }
}

/// See the module's description.
#[derive(Debug)]
pub struct Nic<T: Transport> {
    inner: T,
    pacer: Option<Pacer<T::Packet>>,
    /// Whose turn it is when both have a packet.
    paced_turn: bool,
    /// When the first packet that waits has its tokens, if that is to come.
    due: Option<Time>,
}

impl<T: Transport> Nic<T> {
    /// Around a transport; what is drawn depends on the seed and the host.
    pub fn new(inner: T, config: NicConfig, host: HostId, (life, seed): (u32, u64)) -> Self {
        let rng = || Rng::stream(seed, &format!("pacer of h{} #{life}", host.0));
        let pacer = config.pacer.map(|config| Pacer::new(config, rng()));
        Self { inner, pacer, paced_turn: false, due: None }
    }

    /// The transport behind it.
    pub fn inner(&self) -> &T {
        &self.inner
    }

    /// The pacer.
    pub fn pacer(&self) -> Option<&Pacer<T::Packet>> {
        self.pacer.as_ref()
    }

    /// The next packet of the transport that bypasses the bucket; those before it wait for tokens.
    fn unpaced(inner: &mut T, pacer: &mut Pacer<T::Packet>, now: Time) -> Option<T::Packet> {
        while pacer.has_room() {
            let packet = inner.transmit(now)?;
            let label = inner.label(&packet);
            if !pacer.is_associated((label.to.0, label.flow), now) {
                return Some(packet);
            }
            pacer.offer(packet, label.wire_bytes);
        }
        None
    }

    fn paced(&mut self, now: Time) -> Option<T::Packet> {
        let Self { inner, pacer: Some(pacer), paced_turn, .. } = self else { return None };
        pacer.advance(now);
        let first = if *paced_turn { pacer.release() } else { None };
        let packet = first.or_else(|| {
            *paced_turn = true;
            Self::unpaced(inner, pacer, now)
        });
        if first.is_some() {
            *paced_turn = false;
        }
        let packet = packet.or_else(|| pacer.release());
        self.due = pacer.due().filter(|due| *due > now);
        packet
    }
}

impl<T: Transport> Transport for Nic<T> {
    type Packet = T::Packet;

    #[inline]
    fn submit(&mut self, now: Time, what: Submit) -> Result<Submitted, SubmitError> {
        self.inner.submit(now, what)
    }

    #[inline]
    fn event(&mut self) -> Option<Event> {
        self.inner.event()
    }

    #[inline]
    fn receive(&mut self, now: Time, packet: &T::Packet, arrival: Arrival) -> Receipt {
        if let Some(pacer) = &mut self.pacer
            && T::echoes_congestion(packet)
        {
            pacer.echoed((arrival.from.0, self.inner.label(packet).flow), now);
        }
        self.inner.receive(now, packet, arrival)
    }

    #[inline]
    fn transmit(&mut self, now: Time) -> Option<T::Packet> {
        match self.pacer {
            None => self.inner.transmit(now),
            Some(_) => self.paced(now),
        }
    }

    #[inline]
    fn label(&self, packet: &T::Packet) -> Label {
        self.inner.label(packet)
    }

    fn content(packet: &T::Packet) -> Content {
        T::content(packet)
    }

    fn refused(&self) -> u64 {
        self.inner.refused()
    }

    fn echoes_congestion(packet: &T::Packet) -> bool {
        T::echoes_congestion(packet)
    }

    #[inline]
    fn expire(&mut self, now: Time) {
        if self.due.is_some_and(|due| due <= now) {
            self.due = None;
        }
        self.inner.expire(now);
    }

    #[inline]
    fn deadline(&self) -> Option<Time> {
        match (self.inner.deadline(), self.due) {
            (Some(own), Some(due)) => Some(own.min(due)),
            (own, due) => own.or(due),
        }
    }

    const READ_AHEAD_STEPS: u32 = T::READ_AHEAD_STEPS;

    fn read_ahead(&self, step: u32, packet: Option<(&T::Packet, HostId)>) -> u64 {
        self.inner.read_ahead(step, packet)
    }

    #[inline]
    fn has_packet(&self) -> bool {
        self.inner.has_packet() || self.pacer.as_ref().is_some_and(|pacer| !pacer.is_empty())
    }
}

#[cfg(test)]
mod tests;
