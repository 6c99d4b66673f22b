//! The program of a host of the swarm: the protocol or, at the hostile host of some scenarios, an
//! attacker.
//!
//! A packet of the hostile host claims in [`Packet::peer`] whom it is from, and honest hosts
//! believe it. Packets that they send to its address, or to unused addresses, go to its link.

use homa_proto::{Event, Packet, Receipt, Submit, SubmitError, Submitted, Time};

use crate::topology::HostId;
use crate::transport::{Homa, Label, PacketMeta, Transport};

use super::hostile::Attacker;

/// The program of a host of the swarm.
#[derive(Debug)]
pub enum SwarmHost {
    /// The protocol, and the hostile host's number if there is one.
    Honest(Box<Homa>, Option<HostId>),
    /// The attacker.
    Hostile(Box<Attacker>),
}

impl SwarmHost {
    /// The protocol, if this host runs it.
    pub fn honest(&self) -> Option<&Homa> {
        match self {
            Self::Honest(homa, _) => Some(homa),
            Self::Hostile(_) => None,
        }
    }
}

impl Transport for SwarmHost {
    type Packet = Packet;

    fn submit(&mut self, now: Time, what: Submit) -> Result<Submitted, SubmitError> {
        match self {
            Self::Honest(homa, _) => homa.submit(now, what),
            Self::Hostile(_) => Err(SubmitError::UnknownRpc),
        }
    }

    fn event(&mut self) -> Option<Event> {
        match self {
            Self::Honest(homa, _) => homa.event(),
            Self::Hostile(_) => None,
        }
    }

    fn receive(&mut self, now: Time, packet: &Packet, arrival: PacketMeta) -> Receipt {
        match self {
            Self::Honest(homa, hostile) if *hostile == Some(arrival.from) => {
                let from = HostId(packet.peer.0);
                homa.receive(now, packet, PacketMeta { from, ..arrival })
            }
            Self::Honest(homa, _) => homa.receive(now, packet, arrival),
            Self::Hostile(attacker) => {
                attacker.on_packet(packet, arrival.from);
                Receipt::Consumed
            }
        }
    }

    fn transmit(&mut self, now: Time) -> Option<Packet> {
        match self {
            Self::Honest(homa, _) => homa.transmit(now),
            Self::Hostile(attacker) => attacker.send(),
        }
    }

    fn label(&self, packet: &Packet) -> Label {
        match self {
            Self::Honest(homa, hostile) => {
                let label = homa.label(packet);
                let link = hostile.map_or(label.to, |hostile| label.to.min(hostile));
                Label { to: link, ..label }
            }
            Self::Hostile(attacker) => attacker.label(packet),
        }
    }

    fn expire(&mut self, now: Time) {
        match self {
            Self::Honest(homa, _) => homa.expire(now),
            Self::Hostile(attacker) => attacker.act(now),
        }
    }

    fn deadline(&self) -> Option<Time> {
        match self {
            Self::Honest(homa, _) => homa.deadline(),
            Self::Hostile(attacker) => attacker.deadline(),
        }
    }

    fn has_packet(&self) -> bool {
        match self {
            Self::Honest(homa, _) => homa.has_packet(),
            Self::Hostile(attacker) => attacker.has_packet(),
        }
    }
}
