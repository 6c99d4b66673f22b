//! A message at its receiver: an ACK or NACK immediately, a PULL in its turn (NDP §3.2).

use homa_proto::{DropReason, Receipt, Time};

use crate::topology::HostId;
use crate::transport::exchange::{Head, MessageLookup, Ref};
use crate::transport::parts::{PacketSet, Piece};

use super::pulls::Pulls;
use super::{Ndp, NdpBody, NdpConfig};

/// A message that is being received.
#[derive(Clone, Debug)]
pub(super) struct NdpReceiving {
    here: PacketSet,
    /// Packets whose header arrived before their payload.
    headers: PacketSet,
    /// How many of them have arrived since.
    recovered: u32,
    packets: u32,
    /// Its last packet, or that packet's header, arrived: the sender has no new data.
    last_seen: bool,
    pulls: Pulls,
}

impl NdpReceiving {
    pub fn new(config: &NdpConfig, length: u32) -> Self {
        let packets = config.wire.packets(length);
        Self {
            here: PacketSet::new(packets),
            headers: PacketSet::new(packets),
            recovered: 0,
            packets,
            last_seen: false,
            pulls: Pulls::default(),
        }
    }

    /// Packets that lack their payload, because only the header arrived.
    fn without_payload(&self) -> u32 {
        self.headers.count() - self.recovered
    }
}

impl Ndp {
    fn find(&mut self, now: Time, from: HostId, (head, length): (&Head, u32)) -> MessageLookup {
        let config = &self.config;
        self.exchange.arrived(now, from, (head, length), || NdpReceiving::new(config, length))
    }

    pub(super) fn on_data(
        &mut self,
        now: Time,
        from: HostId,
        (head, Piece { packet, offset, len, total }): (&Head, Piece),
        came_by: u16,
    ) -> Receipt {
        let packets = self.config.wire.packets(total);
        let reply = head.to(from);
        let message = match self.find(now, from, (head, total)) {
            MessageLookup::Open(message) => message,
            MessageLookup::Done => {
                self.say(reply, NdpBody::Ack { packet, prefix: packets, came_by });
                return self.refuse(DropReason::Duplicate);
            }
            MessageLookup::Stale => return self.refuse(DropReason::UnknownRpc),
        };
        let Some(incoming) = self.exchange.incoming(message) else { return Receipt::Consumed };
        let receiving = &mut incoming.state;
        let fresh = packet < packets && receiving.here.insert(packet);
        receiving.recovered += u32::from(fresh && receiving.headers.contains(packet));
        let prefix = receiving.here.prefix();
        let whole = receiving.here.count() == packets;
        self.say(reply, NdpBody::Ack { packet, prefix, came_by });
        self.want_pull(message, packet);
        self.pull(now);
        if !fresh {
            return self.refuse(DropReason::Duplicate);
        }
        self.exchange.place(message, (offset, len), whole)
    }

    /// A packet arrived whose payload a switch trimmed.
    pub(super) fn on_header(
        &mut self,
        now: Time,
        from: HostId,
        (head, Piece { packet, total, .. }): (&Head, Piece),
        came_by: u16,
    ) {
        let reply = head.to(from);
        let packets = self.config.wire.packets(total);
        match self.find(now, from, (head, total)) {
            MessageLookup::Open(message) => {
                let Some(incoming) = self.exchange.incoming(message) else { return };
                let receiving = &mut incoming.state;
                if packet >= packets {
                    return;
                }
                let prefix = receiving.here.prefix();
                let body = if receiving.here.contains(packet) {
                    NdpBody::Ack { packet, prefix, came_by }
                } else {
                    receiving.headers.insert(packet);
                    NdpBody::Nack { packet, came_by }
                };
                self.say(reply, body);
                self.want_pull(message, packet);
                self.pull(now);
            }
            MessageLookup::Done => {
                self.say(reply, NdpBody::Ack { packet, prefix: packets, came_by })
            }
            MessageLookup::Stale => {}
        }
    }

    /// Adds a pull for a packet or header that arrived, unless the sender has no packet left to
    /// send for it.
    fn want_pull(&mut self, message: Ref, packet: u32) {
        let Some(incoming) = self.exchange.incoming(message) else { return };
        let receiving = &mut incoming.state;
        self.pulls.add(&mut receiving.pulls, message);
        receiving.last_seen |= packet + 1 == receiving.packets;
        if receiving.last_seen {
            let most = receiving.without_payload();
            receiving.pulls.limit(most);
        }
    }

    /// Sends PULLs that are due.
    pub(super) fn pull(&mut self, now: Time) {
        while !self.pulls.is_empty() && self.pacer.next() <= now {
            let Some(message) = self.pulls.take() else { return };
            let Some(incoming) = self.exchange.incoming(message) else { continue };
            let (head, length) = (incoming.head, incoming.length);
            let pulls = &mut incoming.state.pulls;
            if self.pulls.serve(pulls, message) {
                let count = pulls.sent;
                self.pacer.take(now);
                let end = self.config.permitted(count, length);
                self.say(head, NdpBody::Pull { count, end });
            }
        }
    }
}
