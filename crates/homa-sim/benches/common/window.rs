//! A transport that costs almost nothing: a window of full packets with one ACK per packet. If it
//! runs, the benchmark measures the engine.

use std::collections::VecDeque;

use homa_proto::{
    Delivered, Event, MessageId, MessageKind, PeerId, Receipt, RpcHandle, RpcId, Submit,
    SubmitError, Submitted, Time,
};
use homa_sim::HostId;
use homa_sim::transport::{Label, PacketMeta, Transport};

const WINDOW: u32 = 30;

#[derive(Clone, Copy, Debug)]
pub struct Packet {
    to: u32,
    ack: bool,
    last: bool,
}

/// The sender sends one message at a time to one receiver.
pub struct Window {
    to: u32,
    left: u32,
    credit: u32,
    acks: VecDeque<u32>,
    events: VecDeque<Event>,
}

impl Window {
    pub fn new() -> Self {
        Self { to: 0, left: 0, credit: WINDOW, acks: VecDeque::new(), events: VecDeque::new() }
    }
}

impl Transport for Window {
    type Packet = Packet;

    fn submit(&mut self, _: Time, what: Submit) -> Result<Submitted, SubmitError> {
        let Submit::OneWay { peer, length, .. } = what else { return Err(SubmitError::UnknownRpc) };
        self.to = peer.0;
        self.left = length.div_ceil(1460);
        Ok(Submitted { rpc: RpcHandle { index: 0, generation: 0 }, message: None })
    }

    fn event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn receive(&mut self, _: Time, packet: &Packet, arrival: PacketMeta) -> Receipt {
        if packet.ack {
            self.credit += 1;
            return Receipt::Consumed;
        }
        self.acks.push_back(arrival.from.0);
        if packet.last {
            self.events.push_back(Event::Delivered(Delivered {
                rpc: RpcHandle { index: 0, generation: 0 },
                message: MessageId(0),
                kind: MessageKind::OneWay,
                peer: PeerId(arrival.from.0),
                remote_port: 0,
                local_port: 0,
                id: RpcId(0),
                length: 1,
                cookie: 0,
            }));
        }
        Receipt::Consumed
    }

    fn transmit(&mut self, _: Time) -> Option<Packet> {
        if let Some(to) = self.acks.pop_front() {
            return Some(Packet { to, ack: true, last: false });
        }
        if self.left == 0 || self.credit == 0 {
            return None;
        }
        self.left -= 1;
        self.credit -= 1;
        Some(Packet { to: self.to, ack: false, last: self.left == 0 })
    }

    fn label(&self, packet: &Packet) -> Label {
        let (wire_bytes, priority) = if packet.ack { (84, 7) } else { (1538, 0) };
        Label { priority, ..Label::new(HostId(packet.to), wire_bytes) }
    }

    fn expire(&mut self, _: Time) {}

    fn deadline(&self) -> Option<Time> {
        None
    }

    fn has_packet(&self) -> bool {
        !self.acks.is_empty() || (self.left > 0 && self.credit > 0)
    }
}
