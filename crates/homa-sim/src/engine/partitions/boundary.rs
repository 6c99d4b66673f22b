//! The boundary of a partition: which partitions have the other hosts and queues, and the frames on
//! their way there.
//!
//! A port whose link crosses acts as if the link had no delay, so that its only event is the end of
//! a transmission. The frame then leaves the partition, with the time at which it takes effect at
//! the far end: later by the delay of the link, which is at least the lookahead.

use std::sync::Arc;

use crate::fabric::{Frame, Parcel};
use crate::time::SimTime;
use crate::topology::{Division, NodeId};

use super::super::agenda::NetEvent;
use super::super::net::Net;
use super::super::world::{PacketOf, TagOf, World};

/// A frame on a link into another partition.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Crossing<K, Tag> {
    /// When it takes effect at the far end of the link.
    pub at: SimTime,
    /// The link.
    pub port: u32,
    frame: Frame,
    tag: Tag,
    parcel: Parcel<K>,
}

/// The boundary of one partition.
#[derive(Debug)]
pub(in crate::engine) struct Boundary<K, Tag> {
    number: u16,
    division: Arc<Division>,
    /// By partition: frames that have left for it, in the order of leaving.
    leaving: Vec<Vec<Crossing<K, Tag>>>,
    /// The earliest time at which one of them takes effect.
    earliest: SimTime,
}

impl<K, Tag> Boundary<K, Tag> {
    /// The boundary of partition `number`.
    pub fn new(number: u16, division: Arc<Division>) -> Self {
        let leaving = (0..division.partitions()).map(|_| Vec::new()).collect();
        Self { number, division, leaving, earliest: SimTime::MAX }
    }

    pub fn number(&self) -> u16 {
        self.number
    }

    pub fn has_host(&self, host: u32) -> bool {
        self.division.of_host(host) == self.number
    }

    /// The frames for another partition, to be taken out.
    pub fn leaving(&mut self, to: usize) -> &mut Vec<Crossing<K, Tag>> {
        &mut self.leaving[to]
    }

    /// The earliest time at which a frame that left since the last call takes effect.
    pub fn take_earliest(&mut self) -> SimTime {
        std::mem::replace(&mut self.earliest, SimTime::MAX)
    }
}

impl<W: World> Net<W> {
    /// Marks the ports whose frames may take effect in another partition.
    pub(in crate::engine) fn mark_crossing(&mut self) {
        let Some(here) = &self.boundary else { return };
        for (index, port) in (0..).zip(&mut self.ports) {
            if here.division.crosses(&self.wiring, index) {
                port.cross();
            }
        }
    }

    /// A frame has left a port whose link may lead into another partition.
    #[inline(never)]
    pub(in crate::engine) fn send_over(&mut self, port: u32, slot: u32) {
        self.counters.packet_hops += 1;
        let spec = &self.wiring.ports()[port as usize];
        let (at, node) = (self.now + spec.delay, spec.to);
        let Some(here) = &mut self.boundary else { return };
        let frame = self.flights.frame(slot);
        let switch = node.0 - self.wiring.hosts();
        let to = here.division.of_arrival(self.wiring.routes(), switch, frame.to());
        // A frame without a route is lost here, when it reaches the switch.
        match to.filter(|to| *to != here.number) {
            None => self.approach(slot, node, at),
            Some(to) => {
                let (tag, parcel) = (self.flights.tags[slot as usize], *self.flights.parcel(slot));
                here.leaving[usize::from(to)].push(Crossing { at, port, frame, tag, parcel });
                here.earliest = here.earliest.min(at);
                self.flights.remove(slot);
            }
        }
    }

    /// A frame of another partition is on its way.
    pub(in crate::engine) fn admit_crossing(&mut self, crossing: &Crossing<PacketOf<W>, TagOf<W>>) {
        let Crossing { at, port, frame, tag, parcel } = *crossing;
        let node = self.wiring.ports()[port as usize].to;
        let slot = self.flights.insert(frame, tag, parcel);
        self.approach(slot, node, at);
    }

    /// A frame takes effect at a node at `at`.
    fn approach(&mut self, slot: u32, node: NodeId, at: SimTime) {
        self.flights.frames[slot as usize].next = node.0;
        self.schedule(at, NetEvent::Deferred(slot));
    }
}
