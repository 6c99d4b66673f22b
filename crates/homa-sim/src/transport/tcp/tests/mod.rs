//! Hosts connected by a small test network. No message is lost, duplicated, reordered or left over.

use std::collections::BTreeMap;

use homa_proto::{Duration, RpcHandle};

use super::config::{Algorithm, Recovery, RtoConfig};
use super::priorities::Priorities;
use super::*;
use crate::transport::stream::{ConnectionPolicy, Pick};

mod paths;
mod properties;

/// The effect of the network on a segment: the delay of each copy that arrives.
type Path<'a> = dyn FnMut(&Segment) -> Vec<Duration> + 'a;

/// A few hosts, the segments between them, and what the applications saw.
struct World<'a> {
    hosts: Vec<Tcp>,
    path: &'a mut Path<'a>,
    now: Time,
    /// By time of arrival and order of sending.
    wire: BTreeMap<(Time, u64), (HostId, Segment)>,
    sent: Vec<(Time, HostId, Segment)>,
    /// At which host, the message, and when.
    delivered: Vec<(HostId, Delivered, Time)>,
    failed: Vec<(HostId, u64, RpcError)>,
    released: usize,
    /// Servers answer a request with a response of the same length.
    answers: bool,
}

impl<'a> World<'a> {
    fn new(config: &TcpConfig, hosts: u32, path: &'a mut Path<'a>) -> Self {
        let config = Arc::new(config.clone());
        let host = |id| Tcp::new(config.clone(), HostId(id), (0, 1));
        Self {
            hosts: (0..hosts).map(host).collect(),
            path,
            now: Time(1_000),
            wire: BTreeMap::new(),
            sent: Vec::new(),
            delivered: Vec::new(),
            failed: Vec::new(),
            released: 0,
            answers: true,
        }
    }

    fn submit(&mut self, host: u32, what: Submit) -> RpcHandle {
        let submitted = self.hosts[host as usize].submit(self.now, what).unwrap();
        self.settle(host);
        submitted.rpc
    }

    fn one_way(&mut self, from: u32, to: u32, length: u32) {
        self.submit(from, Submit::OneWay { peer: PeerId(to), length, cookie: 0 });
    }

    fn call(&mut self, from: u32, to: u32, length: u32) -> RpcHandle {
        self.call_until(from, (to, length), Time::MAX)
    }

    fn call_until(&mut self, from: u32, (to, length): (u32, u32), deadline: Time) -> RpcHandle {
        let request = homa_proto::Request {
            peer: PeerId(to),
            local_port: 7,
            remote_port: 2,
            length,
            deadline,
            idempotent: false,
            head: 0,
            cookie: u64::from(length),
        };
        self.submit(from, Submit::Request(request))
    }

    /// Handles all events and segments of a host; the link has no rate limit.
    fn settle(&mut self, id: u32) {
        loop {
            let host = &mut self.hosts[id as usize];
            if let Some(event) = host.event() {
                self.on_event(HostId(id), event);
            } else if let Some(segment) = host.transmit(self.now) {
                self.sent.push((self.now, HostId(id), segment));
                let number = self.sent.len() as u64 * 4;
                for (copy, delay) in (0..).zip((self.path)(&segment)) {
                    let at = (self.now + delay, number + copy);
                    self.wire.insert(at, (HostId(id), segment));
                }
            } else {
                assert!(!host.has_packet(), "has_packet is true, and there is none");
                return;
            }
        }
    }

    fn on_event(&mut self, host: HostId, event: Event) {
        match event {
            Event::Delivered(message) => {
                self.delivered.push((host, message, self.now));
                if message.kind == MessageKind::Request && self.answers {
                    let answer = Submit::Response { rpc: message.rpc, length: message.length };
                    self.hosts[host.0 as usize].submit(self.now, answer).unwrap();
                }
            }
            Event::Failed { cookie, error, .. } => self.failed.push((host, cookie, error)),
            Event::Release { .. } => self.released += 1,
            _ => {}
        }
    }

    /// Handles the next arrival or timer; false if there is none, or none before `until`.
    fn step(&mut self, until: Time) -> bool {
        let arrival = self.wire.keys().next().map(|(at, _)| *at);
        let timer = |host: &Tcp| host.deadline();
        let timer = self.hosts.iter().filter_map(timer).min();
        let next = arrival.into_iter().chain(timer).min();
        let Some(next) = next.filter(|next| *next <= until) else { return false };
        self.now = self.now.max(next);
        if arrival == Some(next) {
            let Some((_, (from, segment))) = self.wire.pop_first() else { return false };
            let to = segment.to;
            let arrival = PacketMeta::new(from, segment.priority);
            let _ = self.hosts[to.0 as usize].receive(self.now, &segment, arrival);
            self.settle(to.0);
        } else {
            for id in 0..self.hosts.len() as u32 {
                self.hosts[id as usize].expire(self.now);
                self.settle(id);
            }
        }
        true
    }

    fn run_until(&mut self, until: Time) {
        while self.step(until) {}
    }

    /// Runs until nothing is scheduled.
    fn run(&mut self) {
        for _ in 0..2_000_000 {
            if !self.step(Time::MAX) {
                return;
            }
        }
        panic!("still running after two million steps: {:?}", self.now);
    }

    /// Segments with payload that a host sent.
    fn payloads(&self, host: u32) -> impl Iterator<Item = &Segment> {
        let own = self.sent.iter().filter(move |(_, from, _)| from.0 == host);
        own.map(|(_, _, segment)| segment).filter(|segment| segment.len > 0)
    }
}

/// Short timers; the tests choose small segments.
fn quick(config: TcpConfig) -> TcpConfig {
    let rto = RtoConfig {
        initial: Duration::millis(3),
        min: Duration::millis(1),
        max: Duration::millis(100),
        granularity: Duration::micros(10),
    };
    let delayed_ack = config.delayed_ack.map(|_| Duration::micros(500));
    TcpConfig { rto, delayed_ack, ..config }
}
