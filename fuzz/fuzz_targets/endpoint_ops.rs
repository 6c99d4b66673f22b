//! Arbitrary operation sequences of two endpoints, of any profile, through a network that loses,
//! repeats, reorders, forges and damages packets (as raw IP carries them, or as datagrams do, with
//! proofs of address), while a third host says what it likes, and either host restarts: no panic;
//! every placed byte lies within its message and every delivered message is whole; every call ends
//! exactly once, and by its deadline once the network got well; the memory for incoming messages
//! stays within its budget and one message, and the packets that wait for the link within their
//! bound. If clients prove their address and no proof is forged, no request is executed twice,
//! not by a server that restarted either.
#![no_main]

use homa_proto::wire::{self, datagram};
use homa_proto::{
    Body, Config, Delivered, Duration, Endpoint, Event, MessageKind, Packet, PeerId, PeerInfo,
    Quoted, Rate, Receipt, Request, RpcHandle, RpcId, Submit, Time, Unreachable,
};
use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use std::collections::{BTreeMap, BTreeSet};

const PEER: PeerId = PeerId(0);
const STRANGER: PeerId = PeerId(1);
const BUDGET: u64 = 200_000;
const MAX_MESSAGE: u32 = 50_000;
const PORT: u16 = 4000;
const DEADLINE: Duration = Duration::millis(50);
/// Answers that may wait for the link, and the grants, acks and RESENDs that are our own.
const MAX_WAITING: usize = 6_000;
/// Steps of a network that got well; far more than any exchange needs.
const MOST_ROUNDS: usize = 20_000;

/// How a call stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Open(RpcHandle),
    Cancelled,
    Ended,
}

/// One of the two hosts.
struct Host {
    profile: u8,
    /// Of the process that runs now: another than those before.
    seed: u64,
    endpoint: Endpoint,
    /// Clients prove their address to it.
    proves: bool,
    /// Requests that it executed, in any life.
    executed: BTreeSet<u64>,
    /// The largest memory budget it ever had.
    budget: u64,
    /// By cookie.
    calls: Vec<Call>,
    /// Requests that the application holds unanswered.
    requests: Vec<RpcHandle>,
    /// Bytes placed into each incoming message.
    placed: BTreeMap<u32, u64>,
    /// Packets on their way to this host.
    arriving: Vec<Packet>,
}

impl Host {
    fn new(profile: u8, seed: u64) -> Self {
        let endpoint = Self::endpoint(profile, seed);
        let config = endpoint.config();
        Self {
            profile,
            seed,
            proves: config.validate_addresses,
            executed: BTreeSet::new(),
            budget: config.memory_budget,
            endpoint,
            calls: Vec::new(),
            requests: Vec::new(),
            placed: BTreeMap::new(),
            arriving: Vec::new(),
        }
    }

    fn endpoint(profile: u8, seed: u64) -> Endpoint {
        let small = profile & 0x80 != 0;
        let mut config = match profile % 3 {
            0 => Config::for_users(Rate::gbps(10)),
            1 => Config::linux(),
            _ => Config::sigcomm18(Rate::gbps(10)),
        };
        config.seed = seed;
        config.validate_addresses = profile & 0x40 != 0 && profile % 3 == 0;
        // Long enough for many grants, short enough for thousands of runs a second.
        config.max_message = MAX_MESSAGE;
        config.max_rpcs = 20;
        config.readable_events = true;
        if small {
            config.memory_budget = BUDGET;
        }
        let mut endpoint = Endpoint::new(config.validate().expect("the profiles are valid"));
        endpoint.open_peer(PEER, PeerInfo { host: 0, max_payload: 1400 });
        endpoint.open_peer(STRANGER, PeerInfo { host: 1, max_payload: 1400 });
        endpoint.listen(PORT);
        endpoint
    }

    /// The host's process ends, and another begins: what arrives for the first meets the second.
    fn restart(&mut self, now: Time) {
        self.seed += 2;
        self.endpoint = Self::endpoint(self.profile, self.seed);
        self.endpoint.expire(now);
        self.budget = self.endpoint.config().memory_budget;
        self.calls.iter_mut().for_each(|call| *call = Call::Ended);
        self.requests.clear();
        self.placed.clear();
    }

    fn call(&mut self, now: Time, length: u32, idempotent: bool) {
        let request = Request {
            peer: PEER,
            local_port: PORT,
            remote_port: PORT,
            length,
            deadline: now + DEADLINE,
            idempotent,
            head: 0,
            cookie: self.calls.len() as u64,
        };
        if let Ok(submitted) = self.endpoint.submit(now, Submit::Request(request)) {
            self.calls.push(Call::Open(submitted.rpc));
        }
    }

    fn cancel(&mut self, now: Time, index: usize) {
        let Some(call) = self.calls.get_mut(index) else { return };
        if let Call::Open(rpc) = *call
            && self.endpoint.submit(now, Submit::Cancel { rpc }).is_ok()
        {
            *call = Call::Cancelled;
        }
    }

    fn reply(&mut self, now: Time, length: u32) {
        if let Some(rpc) = self.requests.pop() {
            // Refused when the call was given up in between.
            let _ = self.endpoint.submit(now, Submit::Response { rpc, length });
        }
    }

    fn receive(&mut self, now: Time, packet: &Packet) {
        if let Receipt::Place(place) = self.endpoint.receive(now, packet) {
            assert!(place.offset.checked_add(place.len).is_some_and(|end| end <= place.total));
            *self.placed.entry(place.message.0).or_default() += u64::from(place.len);
        }
        self.drain();
    }

    /// The stranger says something of as many RPCs.
    fn flood(&mut self, now: Time, packet: &Packet, many: u16) {
        for n in 0..u64::from(many) {
            let id = RpcId(packet.id.0.wrapping_add(2 * n));
            self.receive(now, &Packet { peer: STRANGER, id, ..*packet });
        }
    }

    fn drain(&mut self) {
        while let Some(event) = self.endpoint.event() {
            match event {
                Event::Delivered(delivered) => self.delivered(&delivered),
                Event::Failed { cookie, .. } => self.end(cookie),
                Event::Cancelled { rpc } => self.requests.retain(|held| *held != rpc),
                Event::Release { message } => {
                    self.placed.remove(&message.0);
                }
                Event::Started { .. } | Event::Readable { .. } => {}
            }
        }
    }

    fn delivered(&mut self, delivered: &Delivered) {
        let placed = self.placed.remove(&delivered.message.0);
        assert_eq!(placed, Some(u64::from(delivered.length)), "every byte was placed once");
        match delivered.kind {
            MessageKind::Request => {
                let new = self.executed.insert(delivered.id.0);
                assert!(new || !self.proves, "{:?} is executed twice", delivered.id);
                self.requests.push(delivered.rpc);
            }
            MessageKind::Response => self.end(delivered.cookie),
            MessageKind::OneWay => panic!("nobody sends one-way messages here"),
        }
    }

    fn check(&self) {
        let most = self.budget + u64::from(MAX_MESSAGE);
        let held = self.endpoint.credit().memory;
        assert!(held <= most, "{held} bytes held");
        let waiting = self.endpoint.waiting_control();
        assert!(waiting <= MAX_WAITING, "{waiting} packets wait");
    }

    fn end(&mut self, cookie: u64) {
        let call = &mut self.calls[cookie as usize];
        assert!(matches!(call, Call::Open(_)), "call {cookie} ends again after {call:?}");
        *call = Call::Ended;
    }

    /// The next packet to the other host, through bytes and back, as that sees it.
    fn transmit(&mut self, now: Time) -> Option<Packet> {
        let packet = loop {
            let packet = self.endpoint.transmit(now)?;
            if packet.peer == PEER {
                break packet;
            }
        };
        let bytes = encoded(&packet, self.proves);
        Some(decoded(&bytes, self.proves).expect("what an endpoint sends is well formed"))
    }
}

struct World {
    now: Time,
    hosts: [Host; 2],
}

impl World {
    fn operate(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let operation = u.int_in_range(0..=16)?;
        let which = usize::from(u.arbitrary::<bool>()?);
        let now = self.now;
        let host = &mut self.hosts[which];
        match operation {
            0 => host.call(now, length(u)?, u.arbitrary()?),
            1 => host.reply(now, length(u)?),
            2 => host.cancel(now, u.arbitrary::<u8>()?.into()),
            3..=5 => {
                let Some(at) = u.arbitrary::<u8>()?.checked_rem(host.arriving.len() as u8) else {
                    return Ok(());
                };
                let at = usize::from(at);
                match operation {
                    3 => drop(host.arriving.swap_remove(at)),
                    4 => host.arriving.push(host.arriving[at]),
                    _ => {
                        let packet = host.arriving.swap_remove(at);
                        host.receive(now, &packet);
                    }
                }
            }
            6 => {
                let forged = u.bytes(u.len().min(120))?;
                if let Some(packet) = decoded(forged, host.proves) {
                    host.receive(now, &packet);
                }
            }
            16 => host.restart(now),
            7 => {
                let bytes = u.arbitrary::<u32>()?.into();
                // Memory that is already in use may stay.
                host.budget = host.budget.max(bytes);
                host.endpoint.limit_memory(now, bytes);
            }
            8 => {
                let what = unreachable(u)?;
                let of = host.arriving.last().filter(|_| what != Unreachable::Host).copied();
                let quoted = of.zip(Some(u.arbitrary()?));
                let quoted = quoted.map(|(of, begins)| Quoted { id: RpcId(of.id.0 ^ 1), begins });
                host.endpoint.unreachable(now, PEER, what, quoted);
            }
            9 | 10 => self.send(which, u.arbitrary()?),
            13 => {
                let packet = damaged(u, &host.arriving, host.proves)?;
                packet.iter().for_each(|packet| host.receive(now, packet));
            }
            14 => {
                let packet = damaged(u, &host.arriving, host.proves)?;
                let from = |packet: &Packet| Packet { peer: STRANGER, ..*packet };
                packet.iter().for_each(|packet| host.receive(now, &from(packet)));
            }
            15 => {
                let packet = damaged(u, &host.arriving, host.proves)?;
                let many = u.arbitrary::<u16>()? % 2_000;
                packet.iter().for_each(|packet| host.flood(now, packet, many));
            }
            11 => self.advance(Duration::micros(u.arbitrary::<u16>()?.into())),
            _ => self.step(),
        }
        self.hosts.iter_mut().for_each(Host::drain);
        self.hosts.iter().for_each(Host::check);
        Ok(())
    }

    fn send(&mut self, from: usize, most: u8) {
        for _ in 0..most {
            let Some(packet) = self.hosts[from].transmit(self.now) else { return };
            self.hosts[1 - from].arriving.push(packet);
        }
    }

    fn advance(&mut self, time: Duration) {
        self.now = self.now + time;
        for host in &mut self.hosts {
            host.endpoint.expire(self.now);
            host.drain();
        }
    }

    /// A network that loses nothing: all that can be sent arrives, 10 us later.
    fn step(&mut self) {
        for from in [0, 1] {
            self.send(from, u8::MAX);
        }
        self.advance(Duration::micros(10));
        for host in &mut self.hosts {
            for packet in std::mem::take(&mut host.arriving) {
                host.receive(self.now, &packet);
            }
        }
    }

    /// Lets the network get well and every application answer, until every call has ended.
    fn recover(&mut self) {
        let last = self.now + DEADLINE + Duration::millis(10);
        for host in &mut self.hosts {
            host.endpoint.limit_memory(self.now, u64::MAX);
        }
        for _ in 0..MOST_ROUNDS {
            self.step();
            for host in &mut self.hosts {
                while !host.requests.is_empty() {
                    host.reply(self.now, 100);
                }
            }
            if self.hosts.iter().any(|host| host.endpoint.has_packet()) && self.now < last {
                continue;
            }
            let due = self.hosts.iter().filter_map(|host| host.endpoint.deadline()).min();
            if self.now >= last {
                break;
            }
            self.advance(due.unwrap_or(last).min(last).since(self.now));
        }
        for host in &self.hosts {
            let open = host.calls.iter().filter(|call| matches!(call, Call::Open(_)));
            assert_eq!(open.count(), 0, "calls go on after their deadline");
        }
    }
}

/// A packet's bytes: in a datagram, or as IP's payload. Those of a message are zeros.
fn encoded(packet: &Packet, datagrams: bool) -> Vec<u8> {
    let mut bytes = vec![0; 1600];
    let header = match datagrams {
        true => datagram::encode(packet, 1, &mut bytes),
        false => wire::encode(packet, &mut bytes),
    };
    let payload = match packet.body {
        Body::Data(data) => data.span.len as usize,
        _ => 0,
    };
    bytes.truncate(header.expect("a packet fits in a frame") + payload);
    bytes
}

/// The first packet in these bytes.
fn decoded(bytes: &[u8], datagrams: bool) -> Option<Packet> {
    let decoded = match datagrams {
        true => datagram::decode(bytes).ok()?.packets(PEER, 7).next()?,
        false => wire::decode(bytes, PEER, 7),
    };
    decoded.ok().map(|decoded| decoded.packet)
}

/// One of the packets in flight, with some of its bytes changed. A host that can write proofs of
/// address is on the path, and may have had requests executed.
fn damaged(
    u: &mut Unstructured<'_>,
    packets: &[Packet],
    datagrams: bool,
) -> Result<Option<Packet>> {
    let Some(at) = u.arbitrary::<u8>()?.checked_rem(packets.len() as u8) else {
        return Ok(None);
    };
    let seen = packets[usize::from(at)];
    if matches!(seen.body, Body::Proof(_)) {
        return Ok(None);
    }
    let sent = Packet { local_port: seen.remote_port, remote_port: seen.local_port, ..seen };
    let mut bytes = encoded(&sent, datagrams);
    let header = bytes.len().min(100);
    for _ in 0..u.int_in_range(0..=4)? {
        let at = u.int_in_range(0..=header - 1)?;
        bytes[at] = u.arbitrary()?;
    }
    if u.ratio(1, 8)? {
        bytes.truncate(usize::from(u.arbitrary::<u16>()?));
    }
    Ok(decoded(&bytes, datagrams))
}

/// The whole host, or a port.
fn unreachable(u: &mut Unstructured<'_>) -> Result<Unreachable> {
    let port: Option<u16> = u.arbitrary()?;
    Ok(port.map_or(Unreachable::Host, Unreachable::Port))
}

/// Short messages mostly, long ones sometimes; empty and refused ones, too.
fn length(u: &mut Unstructured<'_>) -> Result<u32> {
    let length: u32 = u.arbitrary::<u16>()?.into();
    Ok(match u.int_in_range(0..=7)? {
        0 => length,
        _ => length % 3000,
    })
}

fuzz_target!(|bytes: &[u8]| {
    let mut u = Unstructured::new(bytes);
    let Ok([left, right]) = u.arbitrary::<[u8; 2]>() else { return };
    // Both, or neither: datagrams carry what the exchange needs.
    let right = if left & 0x40 == 0 || left % 3 > 0 { right & !0x40 } else { left };
    let mut world = World { now: Time::ZERO, hosts: [Host::new(left, 1), Host::new(right, 2)] };
    while !u.is_empty() && world.operate(&mut u).is_ok() {}
    world.recover();
});
