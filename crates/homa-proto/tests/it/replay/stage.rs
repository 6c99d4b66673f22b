//! One of our endpoints on a stage: bytes in, bytes out, and every packet that it sends before the
//! judge.

use super::judge::{Judge, Standard};
use super::packet;
use homa_proto::wire;
use homa_proto::{
    Body, Config, Duration, Endpoint, Event, MessageKind, PeerId, PeerInfo, Receipt, Request,
    RpcError, RpcHandle, Submit, Time, Unreachable,
};
use std::collections::BTreeMap;

/// Captures begin then.
const START: Time = Time(1_000_000_000);

/// Bytes of a message; `None`: not in the capture.
pub type PartialBytes = Vec<Option<u8>>;

/// A packet in flight.
pub struct SentPacket {
    pub to: usize,
    pub level: u8,
    pub bytes: Vec<u8>,
}

/// A complete message that arrived.
pub struct ArrivedPacket {
    pub rpc: RpcHandle,
    pub peer: usize,
    pub id: u64,
    pub is_request: bool,
    pub cookie: u64,
    pub content: PartialBytes,
}

pub struct Stage {
    pub endpoint: Endpoint,
    pub judge: Judge,
    placed: BTreeMap<u32, PartialBytes>,
    pub arrived: Vec<ArrivedPacket>,
    pub failed: Vec<(u64, RpcError)>,
    /// Of our calls, by cookie: peer and id.
    pub calls: BTreeMap<u64, (usize, u64)>,
    submitted: Option<u64>,
    handles: BTreeMap<u64, RpcHandle>,
}

fn time(us: u64) -> Time {
    START + Duration::micros(us)
}

impl Stage {
    pub fn new(payload: u32, peers: usize, config: Config) -> Self {
        let mut endpoint = Endpoint::new(config.validate().expect("a valid profile"));
        for peer in 0..peers as u32 {
            endpoint.open_peer(PeerId(peer), PeerInfo { host: peer, max_payload: payload });
        }
        endpoint.expire(Time::ZERO);
        Self {
            endpoint,
            judge: Judge::new(Standard::Ours, payload),
            placed: BTreeMap::new(),
            arrived: Vec::new(),
            failed: Vec::new(),
            calls: BTreeMap::new(),
            submitted: None,
            handles: BTreeMap::new(),
        }
    }

    /// When something is due, in microseconds.
    pub fn deadline(&self) -> Option<u64> {
        self.endpoint.deadline().map(|at| at.since(START).0.div_ceil(1000))
    }

    pub fn expire(&mut self, now: u64) {
        self.endpoint.expire(time(now));
        self.drain(now);
        self.judge.tick(now);
    }

    /// Begins a call. Pull its first packets before the next call, because they show its id.
    pub fn call(&mut self, now: u64, peer: usize, ports: (u16, u16), length: u32, cookie: u64) {
        let request = Request {
            peer: PeerId(peer as u32),
            local_port: ports.0,
            remote_port: ports.1,
            length,
            deadline: time(now) + Duration::secs(60),
            idempotent: false,
            head: 0,
            cookie,
        };
        let submitted = self.endpoint.submit(time(now), Submit::Request(request));
        self.handles.insert(cookie, submitted.expect("a call is accepted").rpc);
        self.submitted = Some(cookie);
    }

    pub fn reply(&mut self, now: u64, rpc: RpcHandle, length: u32) {
        // Refused if the client acknowledged, and thereby cancelled, it before.
        let _ = self.endpoint.submit(time(now), Submit::Response { rpc, length });
    }

    /// The application gives up a call; false if it had ended.
    pub fn give_up(&mut self, now: u64, cookie: u64) -> bool {
        let rpc = self.handles[&cookie];
        let given_up = self.endpoint.submit(time(now), Submit::Cancel { rpc }).is_ok();
        if given_up && let Some(&key) = self.calls.get(&cookie) {
            self.judge.cancelled(key);
        }
        given_up
    }

    /// The application gives up requests that it will not answer.
    pub fn cancel(&mut self, rpcs: &[RpcHandle]) {
        for &rpc in rpcs {
            let _ = self.endpoint.submit(Time::MAX, Submit::Cancel { rpc });
        }
    }

    pub fn unreachable(&mut self, now: u64, peer: usize, port: Option<u16>) {
        self.judge.unreachable(peer, port);
        let what = port.map_or(Unreachable::Host, Unreachable::Port);
        self.endpoint.unreachable(time(now), PeerId(peer as u32), what, None);
        self.drain(now);
    }

    /// A packet arrives; `bytes` may be shorter than the `length` that it had.
    pub fn feed(&mut self, now: u64, peer: usize, level: u8, (bytes, length): (&[u8], usize)) {
        let pkt = packet::read(bytes, length, level).expect("whole packets are fed");
        self.judge.fed(now, peer, &pkt);
        let mut whole = bytes.to_vec();
        whole.resize(length, 0);
        let decoded = wire::decode(&whole, PeerId(peer as u32), level).expect("decodes");
        let receipt = self.endpoint.receive(time(now), &decoded.packet);
        if let Receipt::Place(place) = receipt {
            let content = self.placed.entry(place.message.0).or_default();
            content.resize(place.total as usize, None);
            for i in 0..place.len as usize {
                content[place.offset as usize + i] = bytes.get(56 + i).copied();
            }
        }
        self.drain(now);
    }

    fn drain(&mut self, now: u64) {
        while let Some(event) = self.endpoint.event() {
            match event {
                Event::Delivered(d) => self.arrived.push(ArrivedPacket {
                    rpc: d.rpc,
                    peer: d.peer.0 as usize,
                    id: d.id.0,
                    is_request: d.kind == MessageKind::Request,
                    cookie: d.cookie,
                    content: self.placed.remove(&d.message.0).expect("bytes were placed"),
                }),
                Event::Failed { cookie, error, .. } => {
                    self.failed.push((cookie, error));
                    if let Some(&key) = self.calls.get(&cookie) {
                        self.judge.failed(now, key);
                    }
                }
                Event::Release { message } => drop(self.placed.remove(&message.0)),
                Event::Started { .. } | Event::Readable { .. } | Event::Cancelled { .. } => {}
            }
        }
    }

    /// The next packet it sends.
    pub fn pull(&mut self, now: u64) -> Option<SentPacket> {
        let packet = self.endpoint.transmit(time(now))?;
        let mut bytes = vec![0; 100];
        let header = wire::encode(&packet, &mut bytes).expect("room for a header");
        bytes.truncate(header);
        if let Body::Data(data) = packet.body {
            bytes.resize(header + data.span.len as usize, 0);
        }
        let (to, level) = (packet.peer.0 as usize, packet.priority);
        let pkt = packet::read(&bytes, bytes.len(), level).expect("long enough");
        for fault in packet::faults(&bytes) {
            self.judge.faults.push(format!("{now} us: {fault} of {pkt:?}"));
        }
        if !pkt.by_server()
            && let Some(cookie) = self.submitted.take_if(|_| matches!(packet.body, Body::Data(_)))
        {
            self.calls.insert(cookie, (to, pkt.id));
        }
        self.judge.sent(now, to, &pkt);
        Some(SentPacket { to, level, bytes })
    }
}
