//! Two endpoints joined by two links: virtual time, scripted loss, the exchange as text.

use homa_proto::{
    Body, Config, Credit, Delivered, Duration, Endpoint, Event, MessageKind, Packet, PeerId,
    PeerInfo, Rate, Receipt, Request, RpcHandle, Submit, Time, wire::pretty,
};
use std::collections::BTreeMap;
use std::fmt::Write;

pub const CLIENT: usize = 0;
pub const SERVER: usize = 1;
pub const PORTS: [u16; 2] = [40_000, 4_000];
const PEER: PeerId = PeerId(0);
const DELAY: Duration = Duration::micros(2);
const FRAME_OVERHEAD: u64 = 138;

/// An event at an application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observed {
    Request(RpcHandle, u32),
    /// Bytes before the offset are readable.
    Arriving(RpcHandle, u32),
    Response(u64, u32),
    Failed(u64, homa_proto::RpcError),
    Cancelled,
}

type Fate = Box<dyn FnMut(usize, &Packet, u64) -> bool>;

struct InFlight {
    to: usize,
    packet: Packet,
}

pub struct ClientAndServer {
    pub now: Time,
    pub ends: [Endpoint; 2],
    link_free: [Time; 2],
    wire: BTreeMap<(Time, u64), InFlight>,
    sequence: u64,
    /// Decides the fate of each packet: (sender, packet, its ordinal at that sender) -> lost?
    pub lose: Fate,
    /// Packets sent by each, lost ones too.
    pub sent: [u64; 2],
    pub transcript: String,
    pub seen: [Vec<Observed>; 2],
    /// The server answers requests with this many bytes after this time; `None`: not by itself.
    pub reply: Option<(u32, Duration)>,
    replies: BTreeMap<Time, Vec<(RpcHandle, u32)>>,
    rate: Rate,
    /// Bytes that `Place` put into each message, per end.
    placed: [BTreeMap<u32, u64>; 2],
    pub released: [u64; 2],
}

pub fn config(mut config: Config, seed: u64) -> Endpoint {
    config.seed = seed;
    Endpoint::new(config.validate().expect("the profile is valid"))
}

impl ClientAndServer {
    pub fn new(client: Config, server: Config) -> Self {
        let rate = client.link_rate.unwrap_or(Rate::gbps(10));
        let mut ends = [config(client, 1), config(server, 2)];
        for end in &mut ends {
            end.open_peer(PEER, PeerInfo { host: 0, max_payload: 1400 });
        }
        ends[SERVER].listen(PORTS[SERVER]);
        ends.iter_mut().for_each(|end| end.expire(Time::ZERO));
        Self {
            now: Time::ZERO + Duration::millis(1),
            ends,
            link_free: [Time::ZERO; 2],
            wire: BTreeMap::new(),
            sequence: 0,
            lose: Box::new(|_, _, _| false),
            sent: [0; 2],
            transcript: String::new(),
            seen: [Vec::new(), Vec::new()],
            reply: Some((100, Duration::micros(1))),
            replies: BTreeMap::new(),
            rate,
            placed: [BTreeMap::new(), BTreeMap::new()],
            released: [0; 2],
        }
    }

    pub fn request(&mut self, length: u32, cookie: u64) -> Request {
        Request {
            peer: PEER,
            local_port: PORTS[CLIENT],
            remote_port: PORTS[SERVER],
            length,
            deadline: self.now + Duration::secs(10),
            idempotent: false,
            head: 0,
            cookie,
        }
    }

    pub fn call(&mut self, length: u32, cookie: u64) -> RpcHandle {
        let request = self.request(length, cookie);
        self.submit(CLIENT, Submit::Request(request))
    }

    /// A call that may be executed again.
    pub fn call_idempotent(&mut self, length: u32, cookie: u64) -> RpcHandle {
        let request = Request { idempotent: true, ..self.request(length, cookie) };
        self.submit(CLIENT, Submit::Request(request))
    }

    pub fn submit(&mut self, end: usize, what: Submit) -> RpcHandle {
        let handle = self.ends[end].submit(self.now, what).expect("accepted").rpc;
        self.drain(end);
        handle
    }

    /// Replaces an end by a fresh one: a process that crashed and restarted.
    pub fn restart(&mut self, end: usize, fresh: Config, seed: u64) {
        self.ends[end] = config(fresh, seed);
        self.placed[end].clear();
        self.ends[end].open_peer(PEER, PeerInfo { host: 0, max_payload: 1400 });
        if end == SERVER {
            self.ends[end].listen(PORTS[SERVER]);
        }
        self.ends[end].expire(self.now);
        let _ = writeln!(self.transcript, "{:>10} {} restarts", self.stamp(), name(end));
    }

    fn stamp(&self) -> String {
        format!("{}.{:03}us", self.now.0 / 1000, self.now.0 % 1000)
    }

    /// Runs until nothing is in flight and no timer is due before `until`.
    pub fn run_until(&mut self, until: Time) {
        loop {
            for end in [CLIENT, SERVER] {
                self.pull(end);
            }
            let next = self.next_time();
            if next > until {
                self.now = until.max(self.now);
                return;
            }
            self.now = next.max(self.now);
            self.step();
        }
    }

    pub fn run_for(&mut self, time: Duration) {
        self.run_until(self.now + time);
    }

    fn next_time(&self) -> Time {
        let arrival = self.wire.keys().next().map_or(Time::MAX, |k| k.0);
        let reply = self.replies.keys().next().copied().unwrap_or(Time::MAX);
        let mut next = arrival.min(reply);
        for end in [CLIENT, SERVER] {
            if self.ends[end].has_packet() {
                next = next.min(self.link_free[end]);
            }
            next = next.min(self.ends[end].deadline().unwrap_or(Time::MAX));
        }
        next
    }

    fn step(&mut self) {
        while let Some(entry) = self.wire.first_entry().filter(|e| e.key().0 <= self.now) {
            let InFlight { to, packet } = entry.remove();
            self.deliver(to, &packet);
        }
        while let Some(entry) = self.replies.first_entry().filter(|e| *e.key() <= self.now) {
            for (rpc, length) in entry.remove() {
                let _ = self.ends[SERVER].submit(self.now, Submit::Response { rpc, length });
                self.drain(SERVER);
            }
        }
        for end in [CLIENT, SERVER] {
            if self.ends[end].deadline().is_some_and(|d| d <= self.now) {
                self.ends[end].expire(self.now);
                self.drain(end);
            }
        }
    }

    fn pull(&mut self, end: usize) {
        while self.link_free[end] <= self.now {
            let Some(packet) = self.ends[end].transmit(self.now) else { return };
            let bytes = match packet.body {
                Body::Data(d) => u64::from(d.span.len) + FRAME_OVERHEAD,
                _ => 84,
            };
            let done = self.now + self.rate.time_for(bytes);
            self.link_free[end] = done;
            self.sent[end] += 1;
            let lost = (self.lose)(end, &packet, self.sent[end]);
            let arrow = if end == CLIENT { "--->" } else { "<---" };
            let fate = if lost { " (lost)" } else { "" };
            let text = pretty::sent(&packet).to_string();
            let (_, what) = text.split_once(" P").unwrap_or(("", &text));
            let _ = writeln!(self.transcript, "{:>10} {arrow} P{what}{fate}", self.stamp());
            if !lost {
                self.sequence += 1;
                let flight = InFlight { to: 1 - end, packet };
                self.wire.insert((done + DELAY, self.sequence), flight);
            }
        }
    }

    pub fn deliver(&mut self, to: usize, packet: &Packet) {
        let arrived = Packet {
            peer: PEER,
            local_port: packet.remote_port,
            remote_port: packet.local_port,
            ..*packet
        };
        if let Receipt::Place(place) = self.ends[to].receive(self.now, &arrived) {
            *self.placed[to].entry(place.message.0).or_default() += u64::from(place.len);
        }
        self.drain(to);
    }

    pub fn drain(&mut self, end: usize) {
        while let Some(event) = self.ends[end].event() {
            match event {
                Event::Delivered(d) => self.delivered(end, d),
                Event::Failed { cookie, error, .. } => {
                    self.note(end, &format!("call {cookie} fails: {error:?}"));
                    self.seen[end].push(Observed::Failed(cookie, error));
                }
                Event::Cancelled { .. } => {
                    self.note(end, "request cancelled");
                    self.seen[end].push(Observed::Cancelled);
                }
                Event::Release { message } => {
                    self.released[end] += 1;
                    self.placed[end].remove(&message.0);
                }
                Event::Readable { rpc, offset, .. } => {
                    self.seen[end].push(Observed::Arriving(rpc, offset));
                }
                Event::Started { .. } => {}
            }
        }
    }

    fn delivered(&mut self, end: usize, d: Delivered) {
        let bytes = self.placed[end].remove(&d.message.0).unwrap_or(0);
        assert_eq!(bytes, u64::from(d.length), "every byte was placed exactly once");
        match d.kind {
            MessageKind::Response => {
                self.note(end, &format!("response {} of {} bytes", d.cookie, d.length));
                self.seen[end].push(Observed::Response(d.cookie, d.length));
            }
            _ => {
                self.note(end, &format!("request of {} bytes", d.length));
                self.seen[end].push(Observed::Request(d.rpc, d.length));
                if let Some((length, after)) = self.reply {
                    self.replies.entry(self.now + after).or_default().push((d.rpc, length));
                }
            }
        }
    }

    fn note(&mut self, end: usize, what: &str) {
        let _ = writeln!(self.transcript, "{:>10}   {} has {what}", self.stamp(), name(end));
    }

    /// How many requests the server's application received.
    pub fn executions(&self) -> usize {
        self.seen[SERVER].iter().filter(|s| matches!(s, Observed::Request(..))).count()
    }

    /// Asserts that no state is left at either end.
    pub fn assert_clean(&self) {
        for end in [CLIENT, SERVER] {
            assert_eq!(self.ends[end].rpcs(), (0, 0), "{} keeps RPCs", name(end));
            let credit = self.ends[end].credit();
            assert_eq!(credit, Credit::default(), "{} keeps credit", name(end));
        }
    }
}

fn name(end: usize) -> &'static str {
    ["client", "server"][end]
}
