//! A hostile host among the hosts of the swarm, beside the path of all others: it sends what it
//! likes, from its own address and in the name of others, and sees only what is sent to itself.
//!
//! It knows what anybody may know: addresses, ports, the wire's format, and what servers told it
//! when it asked. It opens requests and lets them lie, announces what never comes, speaks about
//! RPCs that it opened, guessed or heard of, asks hosts in the name of their servers who they are,
//! repeats what it got, and may answer for its own address. Everything is drawn from the
//! scenario's seed and bounded in number.
//!
//! Its packets say in [`Packet::peer`] which host they claim to be from; their label says where
//! they go. The hosts of a scenario are numbered first, then its own address, then those of
//! nobody, in whose name it asks: what is sent there takes the way to its link and is not seen.
//!
//! Left out: what somebody on the path can do, and servers that turn on the clients which call
//! them.

use std::collections::VecDeque;

use homa_proto::{
    AckEntry, Acks, Body, Config, Data, Duration, Limits, MessageId, Packet, PeerId, Proof,
    ResendLength, RpcId, Span, Time,
};
use homa_workload::rng::Rng;

use crate::headers::Headers;
use crate::time::{SimDuration, SimTime};
use crate::topology::HostId;
use crate::traffic::SERVER_PORT;
use crate::transport::{Label, as_received};

use super::draw::Draw;
use super::scenario::WARM_UP;

/// Packets that it keeps to send them again, and requests that it may go on with.
const KEPT: usize = 64;

/// A hostile host. See the module's description.
#[derive(Clone, Copy, Debug)]
pub struct Hostile {
    /// Its own address: the first number that no host of the scenario has.
    pub address: HostId,
    /// The numbers behind it, so many, are addresses where nobody is.
    pub silent: u32,
    /// It sends at most so many packets.
    pub packets: u32,
    /// Not before, but for answers.
    pub from: SimTime,
    /// And nothing later, but what waits for its link.
    pub until: SimTime,
    /// It answers for its own address when a server asks who it is.
    pub answers: bool,
    /// It makes up requests no longer than this, and some that are longer.
    pub max_message: u32,
}

impl Hostile {
    /// Addresses that no host of the scenario has.
    pub const fn addresses(&self) -> u32 {
        1 + self.silent
    }
}

/// A request that it opened in some name.
#[derive(Clone, Copy, Debug)]
struct Opened {
    at: HostId,
    name: HostId,
    /// Its first packet.
    first: Packet,
}

/// What the hostile host does.
#[derive(Debug)]
pub struct Attacker {
    plan: Hostile,
    rng: Rng,
    /// Message bytes in a full packet.
    payload: u32,
    /// When it thinks of something again.
    next: Time,
    /// Packets that it may still think of.
    left: u32,
    ready: VecDeque<(HostId, Packet)>,
    /// Where the packet goes that was sent last.
    to: HostId,
    opened: Vec<Opened>,
    /// As they came, and from whom.
    heard: Vec<Packet>,
}

impl Attacker {
    /// The host of a plan, with packets of so many message bytes.
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
            heard: Vec::new(),
        }
    }

    /// What it sends next.
    pub(super) fn send(&mut self) -> Option<Packet> {
        let (to, packet) = self.ready.pop_front()?;
        self.to = to;
        Some(packet)
    }

    /// What the network needs to know of what it sent last.
    pub(super) fn label(&self, packet: &Packet) -> Label {
        let priority = packet.priority;
        Label { priority, ..Label::new(self.to, Headers::Udp.wire_bytes(packet)) }
    }

    /// A packet arrived; those to addresses of nobody are not seen.
    pub(super) fn hear(&mut self, packet: &Packet, from: HostId) {
        if packet.peer.0 != self.plan.address.0 {
            return;
        }
        let heard = as_received(from, packet);
        if let Body::Challenge { .. } = packet.body
            && self.plan.answers
            && self.left > 0
            && self.rng.chance(0.8)
        {
            let proof = self.proof();
            let ports = (heard.local_port, heard.remote_port);
            let (own, id) = (self.plan.address, heard.id.client());
            self.queue((from, own), ports, id, Body::Proof(proof));
        }
        if self.heard.len() == KEPT {
            let place = self.rng.uniform_below(KEPT as u32) as usize;
            self.heard.swap_remove(place);
        }
        self.heard.push(heard);
    }

    /// When it thinks of something next.
    pub(super) fn deadline(&self) -> Option<Time> {
        Some(self.next).filter(|&at| at != Time::MAX)
    }

    /// Something is to be sent.
    pub(super) fn has_packet(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Thinks of something, if it is time.
    pub(super) fn act(&mut self, now: Time) {
        while self.next <= now && self.left > 0 {
            let burst = if self.rng.chance(0.2) { self.rng.between(2, 16) } else { 1 };
            let kind = self.rng.between(0, 19);
            let pair = self.pair();
            for _ in 0..burst {
                self.think(kind, pair);
            }
            let time = (self.plan.until.0 - self.plan.from.0) / 1_000;
            let gap = 2 * time / u64::from(self.plan.packets) + 2;
            self.next += Duration::nanos(self.rng.between(1, gap * burst));
        }
        if self.left == 0 || self.next >= self.plan.until.protocol() {
            self.next = Time::MAX;
        }
    }

    /// A host, and an address to speak in the name of.
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
        // No host takes a packet that claims to be its own.
        let name = if name == to { self.plan.address } else { name };
        let (local_port, remote_port) = (ports.0.max(1), ports.1.max(1));
        let (peer, priority) = (PeerId(name.0), self.rng.between(0, 7) as u8);
        self.ready.push_back((to, Packet { peer, priority, local_port, remote_port, id, body }));
    }

    /// One packet of a kind.
    fn think(&mut self, kind: u64, pair: (HostId, HostId)) {
        match kind {
            0..=4 => self.open(pair),
            5..=7 => self.go_on(pair),
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

    /// A request, or the first packet of one.
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

    /// More of a request that it opened, in that name or another.
    fn go_on(&mut self, (_, other): (HostId, HostId)) {
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

    /// Anything but DATA, about something.
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
            3 => Body::RpcUnknown { remembered: self.duration(), no_server: self.rng.chance(0.2) },
            4 => Body::Busy,
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

    /// Asks a host, in the name of another, who it is: with that one's boot id, if it is known.
    fn ask(&mut self, (to, name): (HostId, HostId)) {
        let mut boots = self.heard.iter().filter_map(|packet| match packet.body {
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

    /// Who it says it is.
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
            // Few, so that it comes again under the same name.
            false => self.rng.between(1, 3),
        };
        let first = if self.rng.chance(0.7) { 0 } else { counter };
        let next = if self.rng.chance(0.7) { counter.saturating_add(1) } else { 0 };
        Proof { token, epoch, first, next }
    }

    /// What it got once, to anybody, in any name.
    fn repeat(&mut self, (to, name): (HostId, HostId)) {
        if self.heard.is_empty() {
            return;
        }
        let heard = *self.rng.one_of(&self.heard);
        let to = if self.rng.chance(0.5) { HostId(heard.peer.0) } else { to };
        let ports = match self.rng.chance(0.5) {
            true => (heard.local_port, heard.remote_port),
            false => (heard.remote_port, heard.local_port),
        };
        self.queue((to, name), ports, heard.id, heard.body);
    }

    /// The id of something: heard of, near what it opened, or guessed.
    fn id(&mut self) -> RpcId {
        match self.rng.between(0, 9) {
            0..=3 if !self.heard.is_empty() => self.rng.one_of(&self.heard).id,
            4..=7 if !self.opened.is_empty() => self.rng.one_of(&self.opened).first.id,
            _ => RpcId(self.rng.next_u64()),
        }
    }

    /// Ports, its own side's first.
    fn ports(&mut self, id: RpcId) -> (u16, u16) {
        let client = 1_000 + self.rng.uniform_below(80) as u16;
        let client = if self.rng.chance(0.1) { self.rng.next_u64() as u16 } else { client };
        if id.from_server() { (SERVER_PORT, client) } else { (client, SERVER_PORT) }
    }
}

/// A hostile host, in half of the scenarios where hosts have to prove their addresses.
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
