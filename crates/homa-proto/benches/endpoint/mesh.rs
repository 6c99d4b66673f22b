//! Endpoints joined by a network that neither queues nor loses. A round is one full packet's time:
//! every host puts at most one DATA packet and any control packets before it on the wire, and
//! receives the packets that others sent some rounds before.

use homa_proto::{
    Body, Config, Endpoint, Event, MessageKind, Packet, PeerId, PeerInfo, Request, Submit, Time,
};

/// Rounds that a packet travels: 5 us.
const DELAY: usize = 4;
const ROUND: u64 = 1_231;
/// Most packets of a host per round.
const BURST: usize = 4;

pub struct Mesh {
    ends: Vec<Endpoint>,
    now: Time,
    round: usize,
    wire: [Vec<(u32, Packet)>; DELAY],
    random: u64,
    pub data: u64,
    pub delivered: u64,
}

impl Mesh {
    pub fn new(config: &Config, hosts: u32) -> Self {
        let mut ends: Vec<Endpoint> = (0..hosts)
            .map(|seed| {
                let config = config.clone().seed(u64::from(seed));
                Endpoint::new(config.validate().expect("a valid configuration"))
            })
            .collect();
        for end in &mut ends {
            for host in 0..hosts {
                end.open_peer(PeerId(host), PeerInfo { host, max_payload: 1_442 });
            }
            end.listen(1);
            end.expire(Time(0));
        }
        let wire = [const { Vec::new() }; DELAY];
        Self { ends, now: Time(0), round: 0, wire, random: 1, data: 0, delivered: 0 }
    }

    pub fn random(&mut self) -> u32 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
        (self.random >> 32) as u32
    }

    /// A one-way message of `length` bytes from host `from` to any other.
    pub fn send(&mut self, from: usize, length: u32) {
        let hosts = self.ends.len() as u32;
        let to = (from as u32 + 1 + self.random() % (hosts - 1)) % hosts;
        let message = Submit::OneWay { peer: PeerId(to), length, cookie: 0 };
        self.ends[from].submit(self.now, message).expect("accepted");
    }

    /// A call of host 0 to host 1.
    pub fn call(&mut self, length: u32) {
        let request = Request {
            peer: PeerId(1),
            local_port: 2,
            remote_port: 1,
            length,
            deadline: Time(self.now.0 + 1_000_000_000),
            idempotent: false,
            head: 0,
            cookie: 0,
        };
        self.ends[0].submit(self.now, Submit::Request(request)).expect("accepted");
    }

    /// One round.
    pub fn step(&mut self, burst: usize) {
        self.now.0 += ROUND;
        let slot = self.round % DELAY;
        self.round += 1;
        let mut arrived = core::mem::take(&mut self.wire[slot]);
        for (to, packet) in arrived.drain(..) {
            self.deliver(to as usize, &packet);
        }
        for from in 0..self.ends.len() {
            let end = &mut self.ends[from];
            if end.deadline().is_some_and(|at| at <= self.now) {
                end.expire(self.now);
            }
            let mut data = 0;
            for _ in 0..burst * BURST {
                let Some(mut packet) = end.transmit(self.now) else { break };
                let to = packet.peer.0;
                packet.peer = PeerId(from as u32);
                core::mem::swap(&mut packet.local_port, &mut packet.remote_port);
                data += usize::from(matches!(packet.body, Body::Data(_)));
                arrived.push((to, packet));
                if data == burst {
                    break;
                }
            }
            self.data += data as u64;
        }
        self.wire[slot] = arrived;
    }

    fn deliver(&mut self, to: usize, packet: &Packet) {
        let end = &mut self.ends[to];
        let _ = end.receive(self.now, packet);
        while let Some(event) = end.event() {
            let Event::Delivered(message) = event else { continue };
            if message.kind == MessageKind::Request {
                let answer = Submit::Response { rpc: message.rpc, length: message.length };
                end.submit(self.now, answer).expect("accepted");
            } else {
                self.delivered += 1;
            }
        }
    }

    pub fn acks_sent(&self) -> u64 {
        self.ends.iter().map(|end| end.counters().acks_sent).sum()
    }
}
