//! A hostile host among the hosts of the swarm. It is not on the path of others: it sends any
//! packet, from its real address or with a forged one, but it sees only packets sent to itself.
//!
//! It has public knowledge: addresses, ports, the wire format, and what servers answered when it
//! asked. It opens requests and abandons them, announces bytes that never come, sends control
//! packets about RPCs that it opened, guessed or learned, challenges hosts in the name of their
//! servers, replays packets it received, and may answer challenges to its real address. Everything
//! is drawn from the scenario's seed and limited in number.
//!
//! Its packets claim in [`Packet::peer`] which host they are from; their label says where they go.
//! The hosts of a scenario are numbered first, then its real address, then unused addresses that it
//! forges. Packets to the unused addresses take the path to its link, but it does not see them.
//!
//! Left out: attackers on the path, and servers that attack their clients.

use std::collections::VecDeque;

use homa_proto::{
    AckEntry, Acks, Body, Config, Data, Duration, Limits, MessageId, Packet, PeerId, Proof,
    ResendLength, RpcId, Span, Time,
};
use homa_workload::rng::Rng;

use crate::draw::Draw;
use crate::headers::Headers;
use crate::time::{SimDuration, SimTime};
use crate::topology::HostId;
use crate::traffic::SERVER_PORT;
use crate::transport::{Label, as_received};

use super::scenario::WARM_UP;

/// Packets that it keeps to replay, and requests that it may continue.
const KEPT: usize = 64;

/// The plan of a hostile host; see the module's description.
#[derive(Clone, Copy, Debug)]
pub struct Hostile {
    /// Its real address: the first number that no host of the scenario has.
    pub address: HostId,
    /// How many unused addresses follow; packets to them are never answered.
    pub silent: u32,
    /// It sends at most this many packets.
    pub packets: u32,
    /// It sends nothing earlier, except answers to challenges.
    pub from: SimTime,
    /// It sends nothing later, except packets that wait for its link.
    pub until: SimTime,
    /// It answers challenges of servers that validate its real address.
    pub answers: bool,
    /// Most requests that it invents are no longer than this; some are longer.
    pub max_message: u32,
}

impl Hostile {
    /// Addresses that no host of the scenario has.
    pub const fn addresses(&self) -> u32 {
        1 + self.silent
    }
}

/// A request that it opened, under its real address or a forged one.
#[derive(Clone, Copy, Debug)]
struct Opened {
    at: HostId,
    name: HostId,
    /// Its first packet.
    first: Packet,
}

/// The state of the hostile host.
#[derive(Debug)]
pub struct Attacker {
    plan: Hostile,
    rng: Rng,
    /// Message bytes in a full packet.
    payload: u32,
    /// When it acts next.
    next: Time,
    /// Packets that it may still send.
    left: u32,
    ready: VecDeque<(HostId, Packet)>,
    /// Destination of the packet that was sent last.
    to: HostId,
    opened: Vec<Opened>,
    /// Packets it received, as it sees them.
    received: Vec<Packet>,
}

impl Attacker {
    /// The attacker of a plan, with packets of `payload` message bytes.
    pub(super) fn new(plan: Hostile, seed: u64, payload: u32) -> Self {
        Self {
            plan,
            rng: Rng::stream(seed, "hostile/acts"),
            payload,
            next: plan.from.protocol(),
            left: plan.packets,
            ready: VecDeque::new(),
            to: plan.address,
            opened: Vec::new(),
            received: Vec::new(),
        }
    }

    /// The next packet to send.
    pub(super) fn send(&mut self) -> Option<Packet> {
        let (to, packet) = self.ready.pop_front()?;
        self.to = to;
        Some(packet)
    }

    /// The label of the packet that it sent last.
    pub(super) fn label(&self, packet: &Packet) -> Label {
        let priority = packet.priority;
        Label { priority, ..Label::new(self.to, Headers::Udp.wire_bytes(packet)) }
    }

    /// A packet arrived. It does not see packets to unused addresses.
    pub(super) fn on_packet(&mut self, packet: &Packet, from: HostId) {
        if packet.peer.0 != self.plan.address.0 {
            return;
        }
        let received = as_received(from, packet);
        if let Body::Challenge { .. } = packet.body
            && self.plan.answers
            && self.left > 0
            && self.rng.chance(0.8)
        {
            let proof = self.proof();
            let ports = (received.local_port, received.remote_port);
            let (own, id) = (self.plan.address, received.id.client());
            self.queue((from, own), ports, id, Body::Proof(proof));
        }
        if self.received.len() == KEPT {
            let place = self.rng.uniform_below(KEPT as u32) as usize;
            self.received.swap_remove(place);
        }
        self.received.push(received);
    }

    /// When it acts next.
    pub(super) fn deadline(&self) -> Option<Time> {
        Some(self.next).filter(|&at| at != Time::MAX)
    }

    /// It has a packet to send.
    pub(super) fn has_packet(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Acts, if it is time.
    pub(super) fn act(&mut self, now: Time) {
        while self.next <= now && self.left > 0 {
            let burst = if self.rng.chance(0.2) { self.rng.between(2, 16) } else { 1 };
            let kind = self.rng.between(0, 19);
            let pair = self.pair();
            for _ in 0..burst {
                self.act_once(kind, pair);
            }
            let time = (self.plan.until.0 - self.plan.from.0) / 1_000;
            let gap = 2 * time / u64::from(self.plan.packets) + 2;
            self.next += Duration::nanos(self.rng.between(1, gap * burst));
        }
        if self.left == 0 || self.next >= self.plan.until.protocol() {
            self.next = Time::MAX;
        }
    }

    /// A host to attack, and the address to claim.
    fn pair(&mut self) -> (HostId, HostId) {
        let hosts = self.plan.address.0;
        let to = self.rng.uniform_below(hosts);
        let name = match self.rng.between(0, 9) {
            0..=2 => hosts,
            3..=5 if self.plan.silent > 0 => hosts + 1 + self.rng.uniform_below(self.plan.silent),
            _ => (to + 1 + self.rng.uniform_below(hosts - 1)) % hosts,
        };
        (HostId(to), HostId(name))
    }

    fn queue(&mut self, (to, name): (HostId, HostId), ports: (u16, u16), id: RpcId, body: Body) {
        if self.left == 0 {
            return;
        }
        self.left -= 1;
        // Hosts discard packets that claim to come from themselves.
        let name = if name == to { self.plan.address } else { name };
        let (local_port, remote_port) = (ports.0.max(1), ports.1.max(1));
        let (peer, priority) = (PeerId(name.0), self.rng.between(0, 7) as u8);
        self.ready.push_back((to, Packet { peer, priority, local_port, remote_port, id, body }));
    }

    /// Queues one packet of a kind.
    fn act_once(&mut self, kind: u64, pair: (HostId, HostId)) {
        match kind {
            0..=4 => self.open(pair),
            5..=7 => self.continue_request(pair),
            8..=13 => self.control(pair),
            14 | 15 => self.ask(pair),
            16 => {
                let (id, body) = (self.id(), Body::Proof(self.proof()));
                let ports = self.ports(id);
                self.queue(pair, ports, id.client(), body);
            }
            _ => self.repeat(pair),
        }
    }

    /// Opens a request, with all of it or its first packet.
    fn open(&mut self, pair: (HostId, HostId)) {
        let most = u64::from(self.plan.max_message);
        let length = match self.rng.between(0, 9) {
            0..=3 => self.rng.between(1, u64::from(self.payload)),
            4..=8 => self.rng.log_between(1, most),
            _ => self.rng.log_between(most, u64::from(u32::MAX)),
        } as u32;
        let id = match self.opened.last() {
            Some(last) if self.rng.chance(0.6) => {
                let step = if self.rng.chance(0.1) { 1 << 20 } else { 2 };
                RpcId(last.first.id.0.wrapping_add(step))
            }
            _ => RpcId(self.rng.next_u64()).client(),
        };
        let len = match self.rng.chance(0.3) {
            true => 1,
            false => length.min(self.payload),
        };
        let ports = self.ports(id);
        let body = self.data((0, len, length), id);
        self.queue(pair, ports, id, body);
        let (at, name) = pair;
        let (local_port, remote_port) = (ports.0.max(1), ports.1.max(1));
        let peer = PeerId(name.0);
        let opened = Opened {
            at,
            name,
            first: Packet { peer, priority: 0, local_port, remote_port, id, body },
        };
        if self.opened.len() == KEPT {
            let place = self.rng.uniform_below(KEPT as u32) as usize;
            self.opened.swap_remove(place);
        }
        self.opened.push(opened);
    }

    /// Sends more of a request that it opened, in the same name or another.
    fn continue_request(&mut self, (_, other): (HostId, HostId)) {
        if self.opened.is_empty() {
            return;
        }
        let Opened { at, name, first } = *self.rng.one_of(&self.opened);
        let Body::Data(data) = first.body else { return };
        let name = if self.rng.chance(0.2) { other } else { name };
        let total = data.message_length;
        let offset = match self.rng.chance(0.5) {
            true => data.span.len.min(total - 1),
            false => self.rng.between(0, u64::from(total) - 1) as u32,
        };
        let len = (total - offset).min(self.payload);
        let body = self.data((offset, len, total), first.id);
        self.queue((at, name), (first.local_port, first.remote_port), first.id, body);
    }

    fn data(&mut self, (offset, len, total): (u32, u32, u32), id: RpcId) -> Body {
        let ack = self.rng.chance(0.1).then(|| AckEntry {
            id: RpcId(id.0.wrapping_sub(2)).client(),
            server_port: SERVER_PORT,
        });
        Body::Data(Data {
            span: Span { message: MessageId(0), offset, len },
            message_length: total,
            incoming: *self.rng.one_of(&[len, offset.saturating_add(len), total, u32::MAX]),
            ack,
            cutoff_version: *self.rng.one_of(&[0, 1, u16::MAX]),
            retransmit: self.rng.chance(0.2),
            incast: self.rng.chance(0.1).then_some(1_000),
        })
    }

    /// Sends any packet but DATA, about any RPC.
    fn control(&mut self, pair: (HostId, HostId)) {
        let known = self.rng.chance(0.6) && !self.opened.is_empty();
        let (pair, id, ports) = if known {
            let Opened { at, name, first } = *self.rng.one_of(&self.opened);
            ((at, name), first.id, (first.local_port, first.remote_port))
        } else {
            let id = self.id();
            (pair, id, self.ports(id))
        };
        let id = if self.rng.chance(0.3) { id.server() } else { id };
        let most = self.plan.max_message;
        let offset = self.rng.between(0, u64::from(most)) as u32;
        let priority = self.rng.between(0, 7) as u8;
        let body = match self.rng.between(0, 7) {
            0 => Body::Grant { offset: *self.rng.one_of(&[offset, u32::MAX]), priority },
            1 | 2 => {
                let part = ResendLength::Bytes(self.rng.between(1, u64::from(most)) as u32);
                let length = if self.rng.chance(0.5) { ResendLength::All } else { part };
                let offset = if length == ResendLength::All { 0 } else { offset };
                Body::Resend { offset, length, priority }
            }
            3 => Body::RpcUnknown {
                remembered: self.duration(),
                no_server: self.rng.chance(0.2),
                reason: None,
            },
            4 => Body::Busy { come_back: None },
            5 => self.cutoffs(),
            6 => Body::NeedAck,
            _ => self.acks(id),
        };
        self.queue(pair, ports, id, body);
    }

    fn duration(&mut self) -> Option<Duration> {
        let choices = [None, Some(Duration::ZERO), Some(Duration::secs(1)), Some(Duration::MAX)];
        *self.rng.one_of(&choices)
    }

    fn cutoffs(&mut self) -> Body {
        let few = *self.rng.one_of(&[0, 1, 1_000, u32::MAX]);
        let limits = Limits { max_message: few, max_unscheduled: few };
        Body::Cutoffs {
            cutoffs: [few; 8],
            version: self.rng.between(0, 3) as u16,
            limits: self.rng.chance(0.7).then_some(limits),
        }
    }

    fn acks(&mut self, id: RpcId) -> Body {
        let mut acks = Acks::default();
        for n in 0..self.rng.between(0, 5) {
            let id = RpcId(id.0.wrapping_sub(2 * n)).client();
            let _ = acks.push(AckEntry { id, server_port: SERVER_PORT });
        }
        Body::Ack(acks)
    }

    /// Challenges a host in the name of another, with that one's boot id if it knows it.
    fn ask(&mut self, (to, name): (HostId, HostId)) {
        let mut boots = self.received.iter().filter_map(|packet| match packet.body {
            Body::Challenge { boot, .. } if packet.peer.0 == name.0 => Some(boot),
            _ => None,
        });
        let boot = boots.next_back().filter(|_| self.rng.chance(0.6));
        let boot = boot.unwrap_or_else(|| self.rng.next_u64() | 1);
        let remembered = self.duration().unwrap_or(Duration::millis(1));
        let id = self.id().server();
        let ports = (SERVER_PORT, self.ports(id).0);
        self.queue((to, name), ports, id, Body::Challenge { boot, remembered });
    }

    /// An answer to a challenge.
    fn proof(&mut self) -> Proof {
        let (epoch, counter) = match self.opened.last() {
            Some(last) if self.rng.chance(0.8) => {
                let id = last.first.id.0;
                ((id >> 32) as u32, id as u32 >> 1)
            }
            _ => (self.rng.next_u64() as u32, self.rng.next_u64() as u32 >> 1),
        };
        let token = match self.rng.chance(0.2) {
            true => 0,
            // Few values, so that a token occurs again under the same name.
            false => self.rng.between(1, 3),
        };
        let first = if self.rng.chance(0.7) { 0 } else { counter };
        let next = if self.rng.chance(0.7) { counter.saturating_add(1) } else { 0 };
        Proof { token, epoch, first, next }
    }

    /// Replays a packet that it received, to any host and in any name.
    fn repeat(&mut self, (to, name): (HostId, HostId)) {
        if self.received.is_empty() {
            return;
        }
        let old = *self.rng.one_of(&self.received);
        let to = if self.rng.chance(0.5) { HostId(old.peer.0) } else { to };
        let ports = match self.rng.chance(0.5) {
            true => (old.local_port, old.remote_port),
            false => (old.remote_port, old.local_port),
        };
        self.queue((to, name), ports, old.id, old.body);
    }

    /// An RPC id: received, equal to that of a request it opened, or guessed.
    fn id(&mut self) -> RpcId {
        match self.rng.between(0, 9) {
            0..=3 if !self.received.is_empty() => self.rng.one_of(&self.received).id,
            4..=7 if !self.opened.is_empty() => self.rng.one_of(&self.opened).first.id,
            _ => RpcId(self.rng.next_u64()),
        }
    }

    /// Local and remote port, as the attacker sees them.
    fn ports(&mut self, id: RpcId) -> (u16, u16) {
        let client = 1_000 + self.rng.uniform_below(80) as u16;
        let client = if self.rng.chance(0.1) { self.rng.next_u64() as u16 } else { client };
        if id.from_server() { (SERVER_PORT, client) } else { (client, SERVER_PORT) }
    }
}

/// A hostile host, in half of the scenarios in which hosts validate addresses.
pub(super) fn hostile(
    rng: &mut Rng,
    (hosts, span_ns): (u32, u64),
    config: &Config,
) -> Option<Hostile> {
    if !config.validate_addresses || !rng.chance(0.5) {
        return None;
    }
    let early = rng.chance(0.3);
    let from = match early {
        true => SimTime(WARM_UP.0 - SimDuration::nanos(rng.between(0, 200_000_000)).0),
        false => WARM_UP + SimDuration::nanos(rng.between(0, span_ns)),
    };
    let length = match rng.chance(0.2) {
        true => 2_000_000_000,
        false => span_ns * rng.between(1, 4),
    };
    Some(Hostile {
        address: HostId(hosts),
        silent: rng.between(0, 8) as u32,
        packets: rng.log_between(10, 2_000) as u32,
        from,
        until: WARM_UP.max(from) + SimDuration::nanos(length),
        answers: rng.chance(0.5),
        max_message: config.max_message,
    })
}
