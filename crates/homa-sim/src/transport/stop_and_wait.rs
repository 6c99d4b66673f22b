//! Stop and wait: one packet of every message is on its way at a time. The smallest transport that
//! is correct, to read before writing another one.
//!
//! A transport is a state machine behind the calls of [`Transport`]. Time is an argument, what it
//! wants to send is pulled when the wire is free, what it has to say to the application is an
//! event. It names no clock, no socket and no other host's state. What the fabric needs of a packet
//! is its [`Label`], what measures need its [`Content`]; everything else in it is the transport's
//! own. Left out: answers to requests, a timeout that follows the round-trip time, forgetting.

use std::collections::{BTreeMap, VecDeque};

use homa_proto::{
    Delivered, DropReason, Duration, Event, MessageId, MessageKind, PeerId, Placement, Receipt,
    RpcHandle, Submit, SubmitError, Submitted, Time,
};

use crate::topology::HostId;

use super::{Arrival, Content, DataContent, Label, Transport, message_id};

/// Message bytes per packet, and the bytes around them on the wire.
const PAYLOAD: u32 = 1_460;
const HEADERS: u32 = 78;
/// The shortest frame, with preamble and gap.
const SHORTEST: u32 = 84;
/// When to send a packet again: longer than queues are in most networks. In others copies would
/// fill them for good, so that it doubles from copy to copy, up to the longest.
const TIMEOUT: Duration = Duration::millis(1);
const LONGEST: Duration = Duration::millis(1_000);

/// What travels: a range of a message, or an acknowledgement of all before `offset`.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    to: HostId,
    message: u32,
    offset: u32,
    /// 0: an acknowledgement.
    bytes: u32,
    total: u32,
    resent: bool,
}

#[derive(Debug)]
struct Outgoing {
    to: HostId,
    message: u32,
    length: u32,
    acknowledged: u32,
    /// How often the packet that follows was sent.
    sent: u32,
    /// Short again when a packet arrived that was sent once: of others nobody knows which copy was
    /// acknowledged (RFC 6298 §5.5, §5.7).
    timeout: Duration,
    /// The next packet may go (again).
    ready: bool,
    due: Time,
}

/// See the module's description.
#[derive(Debug)]
pub struct StopAndWait {
    outgoing: Vec<Outgoing>,
    /// By sender and message: bytes that are here. Nothing is forgotten, so that a late copy of a
    /// message is recognised.
    incoming: BTreeMap<(HostId, u32), u32>,
    acknowledgements: VecDeque<Packet>,
    events: VecDeque<Event>,
    messages: u32,
    copies: u64,
}

impl StopAndWait {
    /// A host's transport in its `life`-th life; numbers of messages of two lives never meet.
    pub fn new(life: u32) -> Self {
        Self {
            outgoing: Vec::new(),
            incoming: BTreeMap::new(),
            acknowledgements: VecDeque::new(),
            events: VecDeque::new(),
            messages: life << 24,
            copies: 0,
        }
    }

    fn on_acknowledgement(&mut self, message: u32, offset: u32) {
        let Some(at) = self.outgoing.iter().position(|o| o.message == message) else { return };
        let outgoing = &mut self.outgoing[at];
        if offset > outgoing.acknowledged {
            if outgoing.sent == 1 {
                outgoing.timeout = TIMEOUT;
            }
            (outgoing.ready, outgoing.sent, outgoing.acknowledged) = (true, 0, offset);
        }
        if outgoing.acknowledged == outgoing.length {
            self.outgoing.remove(at);
            self.events.push_back(Event::Release { message: MessageId(message) });
        }
    }

    fn on_data(&mut self, packet: &Packet, from: HostId) -> Receipt {
        let Packet { message, offset, bytes, total, .. } = *packet;
        let here = self.incoming.entry((from, message)).or_default();
        let fresh = *here == offset;
        if fresh {
            *here += bytes;
        }
        let reply = Packet { to: from, offset: *here, bytes: 0, ..*packet };
        let whole = *here == total;
        self.acknowledgements.push_back(reply);
        if !fresh {
            self.copies += 1;
            return Receipt::Dropped(DropReason::Duplicate);
        }
        if whole {
            self.events.push_back(Event::Delivered(delivered(packet, from)));
        }
        Receipt::Place(Placement { message: MessageId(message), total, offset, len: bytes })
    }
}

impl Transport for StopAndWait {
    type Packet = Packet;

    fn submit(&mut self, now: Time, what: Submit) -> Result<Submitted, SubmitError> {
        let Submit::OneWay { peer, length, .. } = what else {
            return Err(SubmitError::UnknownRpc);
        };
        self.messages += 1;
        let (to, message) = (HostId(peer.0), self.messages);
        self.outgoing.push(Outgoing {
            to,
            message,
            length,
            acknowledged: 0,
            sent: 0,
            timeout: TIMEOUT,
            ready: true,
            due: now,
        });
        let rpc = RpcHandle { index: message, generation: 0 };
        Ok(Submitted { rpc, message: Some(MessageId(message)) })
    }

    fn event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn receive(&mut self, _: Time, packet: &Packet, arrival: Arrival) -> Receipt {
        if packet.bytes > 0 {
            return self.on_data(packet, arrival.from);
        }
        self.on_acknowledgement(packet.message, packet.offset);
        Receipt::Consumed
    }

    fn transmit(&mut self, now: Time) -> Option<Packet> {
        if let Some(acknowledgement) = self.acknowledgements.pop_front() {
            return Some(acknowledgement);
        }
        let next = self.outgoing.iter_mut().find(|outgoing| outgoing.ready)?;
        let resent = next.sent > 0;
        if resent {
            next.timeout = Duration(2 * next.timeout.0).min(LONGEST);
        }
        (next.ready, next.sent, next.due) = (false, next.sent + 1, now + next.timeout);
        let Outgoing { to, message, length: total, acknowledged: offset, .. } = *next;
        let bytes = PAYLOAD.min(total - offset);
        Some(Packet { to, message, offset, bytes, total, resent })
    }

    fn label(&self, packet: &Packet) -> Label {
        // Acknowledgements need not wait behind data.
        let priority = if packet.bytes == 0 { 7 } else { 0 };
        let wire_bytes = (packet.bytes + HEADERS).max(SHORTEST);
        Label { priority, flow: packet.message, ..Label::new(packet.to, wire_bytes) }
    }

    /// An acknowledgement permits the next packet.
    fn content(packet: &Packet) -> Content {
        let Packet { message, offset, bytes: len, total, resent, .. } = *packet;
        if len == 0 {
            return Content::Permit { message, offset: offset + PAYLOAD };
        }
        let permitted = offset + len;
        Content::Data(DataContent { message, offset, len, total, permitted, resent })
    }

    fn refused(&self) -> u64 {
        self.copies
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
        id: message_id(packet.message),
        length: packet.total,
        cookie: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Application, Context, Fault, NoFaults, RandomFaults, Simulation};
    use crate::fabric::FabricConfig;
    use crate::time::SimTime;
    use crate::topology::{LeafSpine, Physics, SingleSwitch};
    use homa_proto::Rate;
    use homa_workload::rng::Rng;

    /// Hosts send a message each to one in another rack, and note when it is there.
    struct Shifted {
        bytes: u32,
        times: Vec<SimTime>,
    }

    impl Application for Shifted {
        fn wake<C: Context>(&mut self, net: &mut C, token: u64) {
            let peer = PeerId((token as u32 + 40) % 144);
            let what = Submit::OneWay { peer, length: self.bytes, cookie: token };
            net.submit(HostId(token as u32), what).unwrap();
        }

        fn event<C: Context>(&mut self, net: &mut C, _: HostId, event: &Event) {
            if let Event::Delivered(_) = event {
                self.times.push(net.now());
            }
        }
    }

    fn times(senders: u64, bytes: u32, faults: impl Fault<Packet>) -> Vec<SimTime> {
        let application = Shifted { bytes, times: Vec::new() };
        let make = Box::new(|_, life| StopAndWait::new(life));
        let wiring = LeafSpine::homa().wire();
        let parts = (application, (), faults);
        let mut simulation = Simulation::new(wiring, FabricConfig::default(), make, parts);
        (0..senders).for_each(|host| simulation.wake_at(SimTime::ZERO, host));
        simulation.run_to_drain();
        simulation.application().times.clone()
    }

    #[test]
    fn a_message_takes_a_round_trip_per_packet() {
        // 69 packets: 68 full ones with their acknowledgements, and the last one's way.
        let wiring = LeafSpine::homa().wire();
        let way = |bytes| wiring.ideal(HostId(0), HostId(40), &[bytes]).0;
        let last = 100_000 - 68 * PAYLOAD + HEADERS;
        let expected = 68 * (way(PAYLOAD + HEADERS) + way(SHORTEST)) + way(last);
        assert_eq!(times(1, 100_000, NoFaults), [SimTime(expected)]);
    }

    /// Queues of hundreds of packets in front of a slow link take longer than the first timeout.
    #[test]
    fn copies_do_not_fill_a_slow_network_for_good() {
        struct All(u32);
        impl Application for All {
            fn wake<C: Context>(&mut self, net: &mut C, token: u64) {
                let what = Submit::OneWay { peer: PeerId(0), length: 20_000, cookie: token };
                net.submit(HostId(1 + token as u32 % 3), what).unwrap();
            }

            fn event<C: Context>(&mut self, _: &mut C, _: HostId, event: &Event) {
                self.0 += u32::from(matches!(event, Event::Delivered(_)));
            }
        }
        let physics = Physics { host_rate: Rate::mbps(100), ..Physics::homa() };
        let wiring = SingleSwitch { hosts: 4, physics }.wire();
        let make = Box::new(|_, life| StopAndWait::new(life));
        let mut simulation =
            Simulation::new(wiring, FabricConfig::default(), make, (All(0), (), NoFaults));
        (0..60).for_each(|message| simulation.wake_at(SimTime::ZERO, message));
        // Ten times what 60 x 20 kB take on the link.
        simulation.run_until(SimTime(1_000_000_000_000), u64::MAX);
        assert_eq!(simulation.application().0, 60);
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
