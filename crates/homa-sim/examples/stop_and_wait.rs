//! How to add a transport: this one, stop and wait, in the fabric of Homa §5.2.
//! `cargo run -p homa-sim --example stop_and_wait`
//!
//! A transport is a state machine behind the six calls of [`Transport`]. Time is an argument, what
//! it wants to send is pulled when the wire is free, what it has to say to the application is an
//! event. It names no clock, no socket and no other host's state. What the fabric needs of a packet
//! is its [`Label`]; everything else in it is the transport's own. Then: a file in `scheme/` and a
//! line in its table.

use std::collections::{BTreeMap, VecDeque};

use homa_proto::{
    Delivered, Duration, Event, MessageId, MessageKind, PeerId, Place, Receipt, RpcHandle, RpcId,
    Submit, SubmitError, Submitted, Time,
};
use homa_sim::engine::{Application, Context, Fault, NoFaults, Simulation};
use homa_sim::fabric::FabricConfig;
use homa_sim::topology::LeafSpine;
use homa_sim::transport::{Arrival, Label, Transport};
use homa_sim::{HostId, SimTime};

/// Message bytes per packet, and the bytes around them on the wire.
const PAYLOAD: u32 = 1_460;
const HEADERS: u32 = 78;
/// When to send a packet again.
const PATIENCE: Duration = Duration::micros(50);

/// What travels: a range of a message, or an acknowledgement of all before `offset`.
#[derive(Clone, Copy, Debug)]
struct Packet {
    to: HostId,
    message: u32,
    offset: u32,
    /// 0: an acknowledgement.
    bytes: u32,
    total: u32,
}

struct Outgoing {
    to: HostId,
    message: u32,
    length: u32,
    acknowledged: u32,
    /// The next packet may go (again).
    ready: bool,
    due: Time,
}

/// One packet of every message is on its way at a time.
#[derive(Default)]
struct StopAndWait {
    outgoing: Vec<Outgoing>,
    /// By sender and message: bytes that are here. Nothing is forgotten, so that a late copy of a
    /// message is recognised.
    incoming: BTreeMap<(HostId, u32), u32>,
    acknowledgements: VecDeque<Packet>,
    events: VecDeque<Event>,
    messages: u32,
}

impl Transport for StopAndWait {
    type Packet = Packet;

    fn submit(&mut self, now: Time, what: Submit) -> Result<Submitted, SubmitError> {
        let Submit::OneWay { peer, length, .. } = what else {
            return Err(SubmitError::UnknownRpc);
        };
        self.messages += 1;
        let (to, message) = (HostId(peer.0), self.messages);
        let fresh = Outgoing { to, message, length, acknowledged: 0, ready: true, due: now };
        self.outgoing.push(fresh);
        let rpc = RpcHandle { index: message, generation: 0 };
        Ok(Submitted { rpc, message: Some(MessageId(message)) })
    }

    fn event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn receive(&mut self, _: Time, packet: &Packet, arrival: Arrival) -> Receipt {
        let Packet { message, offset, bytes, total, .. } = *packet;
        if bytes == 0 {
            if let Some(at) = self.outgoing.iter().position(|o| o.message == message) {
                let outgoing = &mut self.outgoing[at];
                outgoing.ready |= offset > outgoing.acknowledged;
                outgoing.acknowledged = outgoing.acknowledged.max(offset);
                if outgoing.acknowledged == outgoing.length {
                    self.outgoing.remove(at);
                    self.events.push_back(Event::Release { message: MessageId(message) });
                }
            }
            return Receipt::Consumed;
        }
        let here = self.incoming.entry((arrival.from, message)).or_default();
        let fresh = *here == offset;
        if fresh {
            *here += bytes;
        }
        let reply = Packet { to: arrival.from, offset: *here, bytes: 0, ..*packet };
        self.acknowledgements.push_back(reply);
        if fresh && *here == total {
            self.events.push_back(Event::Delivered(delivered(packet, arrival.from)));
        }
        Receipt::Place(Place { message: MessageId(message), total, offset, len: bytes })
    }

    fn transmit(&mut self, now: Time) -> Option<Packet> {
        if let Some(acknowledgement) = self.acknowledgements.pop_front() {
            return Some(acknowledgement);
        }
        let next = self.outgoing.iter_mut().find(|outgoing| outgoing.ready)?;
        next.ready = false;
        next.due = now + PATIENCE;
        let Outgoing { to, message, length, acknowledged: offset, .. } = *next;
        let bytes = PAYLOAD.min(length - offset);
        Some(Packet { to, message, offset, bytes, total: length })
    }

    fn label(&self, packet: &Packet) -> Label {
        // Short before long: acknowledgements need not wait behind data.
        let priority = if packet.bytes == 0 { 7 } else { 0 };
        let wire_bytes = (packet.bytes + HEADERS).max(84);
        Label { to: packet.to, wire_bytes, priority, flow: packet.message }
    }

    fn expire(&mut self, now: Time) {
        let due = self.outgoing.iter_mut().filter(|outgoing| outgoing.due <= now);
        due.for_each(|outgoing| outgoing.ready = true);
    }

    fn deadline(&self) -> Option<Time> {
        self.outgoing.iter().filter(|o| !o.ready).map(|o| o.due).min()
    }

    fn has_packet(&self) -> bool {
        !self.acknowledgements.is_empty() || self.outgoing.iter().any(|o| o.ready)
    }
}

fn delivered(packet: &Packet, from: HostId) -> Delivered {
    Delivered {
        rpc: RpcHandle { index: packet.message, generation: 0 },
        message: MessageId(packet.message),
        kind: MessageKind::OneWay,
        peer: PeerId(from.0),
        remote_port: 0,
        local_port: 0,
        id: RpcId(u64::from(packet.message)),
        length: packet.total,
        cookie: 0,
    }
}

/// Hosts send a message each to one in another rack, and note when it is there.
struct Shifted {
    bytes: u32,
    times: Vec<SimTime>,
}

impl Application for Shifted {
    fn wake<C: Context>(&mut self, net: &mut C, token: u64) {
        let peer = PeerId((token as u32 + 40) % 144);
        let what = Submit::OneWay { peer, length: self.bytes, cookie: token };
        let _ = net.submit(HostId(token as u32), what);
    }

    fn event<C: Context>(&mut self, net: &mut C, _: HostId, event: &Event) {
        if let Event::Delivered(_) = event {
            self.times.push(net.now());
        }
    }
}

fn times(senders: u64, bytes: u32, faults: impl Fault<Packet>) -> Vec<SimTime> {
    let application = Shifted { bytes, times: Vec::new() };
    let make = Box::new(|_, _| StopAndWait::default());
    let wiring = LeafSpine::homa().wire();
    let parts = (application, (), faults);
    let mut simulation = Simulation::new(wiring, FabricConfig::default(), make, parts);
    (0..senders).for_each(|host| simulation.wake_at(SimTime::ZERO, host));
    simulation.run_to_drain();
    simulation.application().times.clone()
}

fn main() {
    let times = times(144, 100_000, NoFaults);
    let last = times.last().map_or(0.0, |last| last.0 as f64 / 1e6);
    println!("{} messages of 100 kB delivered; the last after {last:.1} us", times.len());
}

#[cfg(test)]
mod tests {
    use super::*;
    use homa_sim::engine::RandomFaults;
    use homa_workload::rng::Rng;

    #[test]
    fn a_message_takes_a_round_trip_per_packet() {
        // 69 packets: 68 full ones with their acknowledgements, and the last one's way.
        let wiring = LeafSpine::homa().wire();
        let way = |bytes| wiring.ideal(HostId(0), HostId(40), &[bytes]).0;
        let last = 100_000 - 68 * PAYLOAD + HEADERS;
        let expected = 68 * (way(PAYLOAD + HEADERS) + way(84)) + way(last);
        assert_eq!(times(1, 100_000, NoFaults), [SimTime(expected)]);
    }

    #[test]
    fn everything_arrives_although_packets_are_lost_and_doubled() {
        let faults = RandomFaults {
            rng: Rng::stream(1, "faults"),
            loss_ppm: 20_000,
            duplicate_ppm: 20_000,
            delay_ppm: 0,
            max_delay_ns: 10_000,
            heals_at: SimTime::MAX,
        };
        assert_eq!(times(144, 20_000, faults).len(), 144);
    }
}
