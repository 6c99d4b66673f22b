//! Stop and wait: one packet of each message is in flight at a time. This is the smallest correct
//! transport; read it before you write another.
//!
//! A transport is a state machine behind the calls of [`Transport`]. Time is an argument. Packets
//! are pulled when the wire is free. Events report to the application. A transport uses no clock,
//! no socket and no other host's state. The fabric sees only a packet's [`Label`], and measures see
//! its [`PacketContent`]; everything else in a packet is private to the transport. Left out:
//! responses to requests, an RTO that follows the round-trip time, and removal of old state.

use std::collections::{BTreeMap, VecDeque};

use homa_proto::{
    Delivered, DropReason, Duration, Event, MessageId, MessageKind, PeerId, Placement, Receipt,
    RpcHandle, Submit, SubmitError, Submitted, Time,
};

use crate::topology::HostId;

use super::{DataContent, Label, PacketContent, PacketMeta, Transport, message_id};

/// Message bytes per packet, and the header bytes around them on the wire.
const PAYLOAD: u32 = 1_460;
const HEADERS: u32 = 78;
/// The shortest frame, including preamble and gap.
const SHORTEST: u32 = 84;
/// The RTO, longer than the queueing delay of most networks. It doubles with every copy, up to the
/// longest, because copies could otherwise fill a slower network forever.
const TIMEOUT: Duration = Duration::millis(1);
const LONGEST: Duration = Duration::millis(1_000);

/// A range of a message, or an acknowledgement of all bytes before `offset`.
#[derive(Clone, Copy, Debug)]
pub struct StopAndWaitPacket {
    to: HostId,
    message: u32,
    offset: u32,
    /// 0 for an acknowledgement.
    bytes: u32,
    total: u32,
    resent: bool,
}

#[derive(Debug)]
struct PendingMessage {
    to: HostId,
    message: u32,
    length: u32,
    acknowledged: u32,
    /// How often the next packet was sent.
    sent: u32,
    /// It is reset if a packet is acknowledged that was sent only once. For others it is unknown
    /// which copy was acknowledged (RFC 6298 §5.5, §5.7).
    timeout: Duration,
    /// The next packet should be sent, for the first time or again.
    ready: bool,
    due: Time,
}

/// See the module's description.
#[derive(Debug)]
pub struct StopAndWait {
    outgoing: Vec<PendingMessage>,
    /// By sender and message: bytes received. Entries are kept forever, so that a late copy of a
    /// message is recognised.
    incoming: BTreeMap<(HostId, u32), u32>,
    acknowledgements: VecDeque<StopAndWaitPacket>,
    events: VecDeque<Event>,
    messages: u32,
    copies: u64,
}

impl StopAndWait {
    /// A host's transport in its `life`-th life. Message numbers of different lives do not overlap.
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

    fn on_data(&mut self, packet: &StopAndWaitPacket, from: HostId) -> Receipt {
        let StopAndWaitPacket { message, offset, bytes, total, .. } = *packet;
        let here = self.incoming.entry((from, message)).or_default();
        let fresh = *here == offset;
        if fresh {
            *here += bytes;
        }
        let reply = StopAndWaitPacket { to: from, offset: *here, bytes: 0, ..*packet };
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
    type Packet = StopAndWaitPacket;

    fn submit(&mut self, now: Time, what: Submit) -> Result<Submitted, SubmitError> {
        let Submit::OneWay { peer, length, .. } = what else {
            return Err(SubmitError::UnknownRpc);
        };
        self.messages += 1;
        let (to, message) = (HostId(peer.0), self.messages);
        self.outgoing.push(PendingMessage {
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

    fn receive(&mut self, _: Time, packet: &StopAndWaitPacket, arrival: PacketMeta) -> Receipt {
        if packet.bytes > 0 {
            return self.on_data(packet, arrival.from);
        }
        self.on_acknowledgement(packet.message, packet.offset);
        Receipt::Consumed
    }

    fn transmit(&mut self, now: Time) -> Option<StopAndWaitPacket> {
        if let Some(acknowledgement) = self.acknowledgements.pop_front() {
            return Some(acknowledgement);
        }
        let next = self.outgoing.iter_mut().find(|outgoing| outgoing.ready)?;
        let resent = next.sent > 0;
        if resent {
            next.timeout = Duration(2 * next.timeout.0).min(LONGEST);
        }
        (next.ready, next.sent, next.due) = (false, next.sent + 1, now + next.timeout);
        let PendingMessage { to, message, length: total, acknowledged: offset, .. } = *next;
        let bytes = PAYLOAD.min(total - offset);
        Some(StopAndWaitPacket { to, message, offset, bytes, total, resent })
    }

    fn label(&self, packet: &StopAndWaitPacket) -> Label {
        // Acknowledgements should not wait behind data.
        let priority = if packet.bytes == 0 { 7 } else { 0 };
        let wire_bytes = (packet.bytes + HEADERS).max(SHORTEST);
        Label { priority, flow: packet.message, ..Label::new(packet.to, wire_bytes) }
    }

    /// An acknowledgement permits the next packet.
    fn content(packet: &StopAndWaitPacket) -> PacketContent {
        let StopAndWaitPacket { message, offset, bytes: len, total, resent, .. } = *packet;
        if len == 0 {
            return PacketContent::Permit { message, offset: offset + PAYLOAD };
        }
        let permitted = offset + len;
        PacketContent::Data(DataContent { message, offset, len, total, permitted, resent })
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

fn delivered(packet: &StopAndWaitPacket, from: HostId) -> Delivered {
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

    /// Each host sends one message to a host in another rack and records when it arrives.
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

    fn times(senders: u64, bytes: u32, faults: impl Fault<StopAndWaitPacket>) -> Vec<SimTime> {
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
        // 69 packets: 68 full ones, each with its acknowledgement, and the trip of the last one.
        let wiring = LeafSpine::homa().wire();
        let trip = |bytes| wiring.ideal(HostId(0), HostId(40), &[bytes]).0;
        let last = 100_000 - 68 * PAYLOAD + HEADERS;
        let expected = 68 * (trip(PAYLOAD + HEADERS) + trip(SHORTEST)) + trip(last);
        assert_eq!(times(1, 100_000, NoFaults), [SimTime(expected)]);
    }

    /// Queues of hundreds of packets on a slow link delay packets for longer than the first RTO.
    #[test]
    fn copies_do_not_fill_a_slow_network_forever() {
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
        // Ten times the time that 60 messages of 20 kB take on the link.
        simulation.run_until(SimTime(1_000_000_000_000), u64::MAX);
        assert_eq!(simulation.application().0, 60);
    }

    #[test]
    fn all_messages_arrive_if_packets_are_lost_and_duplicated() {
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
