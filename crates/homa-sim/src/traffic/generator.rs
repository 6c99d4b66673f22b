//! The application on all hosts: submits what the pattern says, answers requests, and notes when
//! messages arrive.
//!
//! Invariant: every message is submitted once and struck from the [`Book`] once, when it is
//! delivered or fails. The end of traffic stops the run, so that the caller can read counters at
//! that moment and decide how to go on.

use homa_proto::{Event, MessageKind, PeerId, Request, RpcId, Submit, Time};

use crate::engine::{Application, Context};
use crate::measure::backlog::BacklogSeries;
use crate::measure::latency::{Latencies, Sample};
use crate::scenario::{Ending, Exchange};
use crate::time::{SimDuration, SimTime};
use crate::topology::HostId;

use super::book::{Book, Message};
use super::open_loop::{Arrival, OpenLoop};
use super::ways::Ways;

/// What is submitted when.
#[derive(Debug)]
pub enum Pattern {
    /// Poisson arrivals, for ever.
    Open {
        /// Their source.
        arrivals: OpenLoop,
        /// What each starts.
        exchange: Exchange,
    },
    /// A list.
    List {
        /// By time.
        arrivals: Vec<Arrival>,
        /// What each starts.
        exchange: Exchange,
        /// Bytes of a response; `None`: as many as its request has.
        response_bytes: Option<u32>,
    },
    /// Host 0 keeps RPCs outstanding with hosts 1, 2, ... in turn.
    Closed {
        /// Number of servers.
        servers: u32,
        /// RPCs outstanding.
        concurrent: u32,
        /// Bytes of a request.
        request_bytes: u32,
        /// Bytes of a response.
        response_bytes: u32,
    },
}

/// When traffic starts to count and when it ends.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Messages that start before are not measured.
    pub warm_up: SimTime,
    /// Traffic ends after this many measured messages.
    pub messages: u64,
    /// Traffic ends here.
    pub time: SimTime,
    /// What becomes of messages under way then.
    pub ending: Ending,
    /// Between samples of the backlog.
    pub sample_every: SimDuration,
}

/// What the generator counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Messages or RPCs submitted.
    pub submitted: u64,
    /// Those that count.
    pub measured: u64,
    /// Those that count and arrived.
    pub delivered: u64,
    /// Messages or RPCs that their senders gave up.
    pub failed: u64,
    /// Those of them that count.
    pub measured_failed: u64,
    /// Submissions that a transport refused.
    pub refused: u64,
    /// Those of them that would count, and the responses among them of RPCs that count.
    pub measured_refused: u64,
    /// Message bytes submitted before the end of traffic, responses included.
    pub offered_bytes: u64,
    /// Those of them that the backlog counts: of messages and requests.
    pub entered_bytes: u64,
    /// The same as `offered_bytes` in the wire bytes of the authors' framing.
    pub offered_paper_bytes: u64,
    /// Message bytes delivered before the end of traffic and after the warm-up.
    pub delivered_bytes: u64,
    /// Message bytes submitted, at any time.
    pub all_offered_bytes: u64,
    /// Message bytes delivered, at any time.
    pub all_delivered_bytes: u64,
}

/// See the module's description.
#[derive(Debug)]
pub struct Generator {
    pattern: Pattern,
    limits: Limits,
    ways: Ways,
    pending: Vec<Option<Arrival>>,
    next: usize,
    turn: u32,
    /// Messages under way.
    pub book: Book,
    /// Measured messages that arrived.
    pub latencies: Latencies,
    /// Samples of the backlog.
    pub backlog: BacklogSeries,
    /// What was counted.
    pub tally: Tally,
    /// When traffic ended.
    pub ended: Option<SimTime>,
}

/// Tokens above the numbers of hosts.
const SAMPLE: u64 = 1 << 32;
const LISTED: u64 = 2 << 32;
const BEGIN: u64 = 3 << 32;
const END: u64 = 4 << 32;

/// Ports that mean nothing here; not 0, which marks one-way messages.
const CLIENT_PORT: u16 = 1;
/// The port at which servers listen.
pub const SERVER_PORT: u16 = 2;

/// The number that a sender's transport gave a message: the low half of its id counts submissions
/// in steps of two.
pub fn number(id: RpcId) -> u32 {
    id.0 as u32 >> 1
}

impl Generator {
    /// A generator for `hosts` hosts. Wake it once with `start`.
    pub fn new(
        hosts: u32,
        pattern: Pattern,
        limits: Limits,
        (ways, latencies): (impl Into<Ways>, Latencies),
    ) -> Self {
        Self {
            pending: vec![None; hosts as usize],
            next: 0,
            turn: 0,
            book: Book::new(hosts),
            backlog: BacklogSeries::default(),
            tally: Tally::default(),
            ended: None,
            pattern,
            limits,
            ways: ways.into(),
            latencies,
        }
    }

    /// The token of the first wake-up.
    pub const START: u64 = BEGIN;

    fn begin<C: Context>(&mut self, net: &mut C) {
        net.wake_at(net.now() + self.limits.sample_every, SAMPLE);
        if self.limits.time < SimTime::MAX {
            net.wake_at(self.limits.time, END);
        }
        match &mut self.pattern {
            Pattern::Open { arrivals, .. } => {
                for src in 0..arrivals.senders() {
                    let arrival = arrivals.next(src);
                    self.pending[src as usize] = Some(arrival);
                    net.wake_at(arrival.at, u64::from(src));
                }
            }
            Pattern::List { arrivals, .. } => match arrivals.first() {
                Some(first) => net.wake_at(first.at, LISTED),
                None => self.end_traffic(net),
            },
            Pattern::Closed { concurrent, .. } => {
                for _ in 0..*concurrent {
                    self.call_next(net);
                }
            }
        }
    }

    /// The next message of an open loop is due.
    fn on_arrival<C: Context>(&mut self, net: &mut C, src: u32) {
        let Some(arrival) = self.pending[src as usize].take() else { return };
        let Pattern::Open { arrivals, exchange } = &mut self.pattern else { return };
        if self.ended.is_some() && self.limits.ending != Ending::Loaded {
            return;
        }
        let next = arrivals.next(src);
        self.pending[src as usize] = Some(next);
        net.wake_at(next.at, u64::from(src));
        let exchange = *exchange;
        self.start(net, arrival, exchange);
    }

    fn on_listed<C: Context>(&mut self, net: &mut C) {
        loop {
            let Pattern::List { arrivals, exchange, .. } = &self.pattern else { return };
            let exchange = *exchange;
            let Some(&arrival) = arrivals.get(self.next) else { return self.end_traffic(net) };
            if arrival.at > net.now() {
                return net.wake_at(arrival.at, LISTED);
            }
            self.next += 1;
            if self.ended.is_none() {
                self.start(net, arrival, exchange);
            }
        }
    }

    /// Host 0 calls the next server in turn.
    fn call_next<C: Context>(&mut self, net: &mut C) {
        let Pattern::Closed { servers, request_bytes, .. } = self.pattern else { return };
        let dst = 1 + self.turn % servers;
        self.turn = self.turn.wrapping_add(1);
        let arrival = Arrival { at: net.now(), src: 0, dst, bytes: request_bytes };
        self.start(net, arrival, Exchange::Echo);
    }

    fn start<C: Context>(&mut self, net: &mut C, arrival: Arrival, exchange: Exchange) {
        let Arrival { src, dst, bytes, .. } = arrival;
        let now = net.now();
        let measured = now >= self.limits.warm_up
            && self.ended.is_none()
            && self.tally.measured < self.limits.messages;
        // In step with the transport, which numbers the messages that it accepts.
        let cookie = u64::from(self.book.next_number(src));
        let peer = PeerId(dst);
        let what = match exchange {
            Exchange::OneWay => Submit::OneWay { peer, length: bytes, cookie },
            Exchange::Echo => Submit::Request(Request {
                peer,
                local_port: CLIENT_PORT,
                remote_port: SERVER_PORT,
                length: bytes,
                deadline: Time::MAX,
                // A call that goes on under another id would end the numbers' step.
                idempotent: false,
                cookie,
            }),
        };
        self.count_offered(bytes);
        if net.submit(HostId(src), what).is_err() {
            self.tally.refused += 1;
            self.tally.measured_refused += u64::from(measured);
            return;
        }
        self.book.begin(src, Message::new(now, dst, bytes, measured));
        if self.ended.is_none() {
            self.tally.entered_bytes += u64::from(bytes);
        }
        self.tally.submitted += 1;
        self.tally.measured += u64::from(measured);
        if measured && self.tally.measured == self.limits.messages {
            self.end_traffic(net);
        }
    }

    fn count_offered(&mut self, bytes: u32) {
        self.tally.all_offered_bytes += u64::from(bytes);
        if self.ended.is_some() {
            return;
        }
        self.tally.offered_bytes += u64::from(bytes);
        let framing = homa_workload::framing::Framing::Paper;
        self.tally.offered_paper_bytes += framing.wire_bytes(bytes);
    }

    fn end_traffic<C: Context>(&mut self, net: &mut C) {
        if self.ended.is_none() {
            self.ended = Some(net.now());
            net.stop();
        }
    }

    fn on_sample<C: Context>(&mut self, net: &mut C) {
        if self.ended.is_none() {
            self.backlog.record(self.book.bytes(), self.book.len());
            net.wake_at(net.now() + self.limits.sample_every, SAMPLE);
        }
    }

    /// Answers a request; with as many bytes unless the pattern knows better.
    fn on_request<C: Context>(
        &mut self,
        net: &mut C,
        host: HostId,
        request: &homa_proto::Delivered,
    ) {
        let length = match self.pattern {
            Pattern::Closed { response_bytes, .. } => response_bytes,
            Pattern::List { response_bytes, .. } => response_bytes.unwrap_or(request.length),
            Pattern::Open { .. } => request.length,
        };
        self.count_offered(length);
        self.count_delivered(net.now(), request.length);
        if net.submit(host, Submit::Response { rpc: request.rpc, length }).is_err() {
            self.tally.refused += 1;
            let (client, number) = (request.peer.0, number(request.id.client()));
            let measured = self.book.is_measured(client, number);
            self.tally.measured_refused += u64::from(measured);
        }
    }

    fn count_delivered(&mut self, now: SimTime, bytes: u32) {
        self.tally.all_delivered_bytes += u64::from(bytes);
        if self.ended.is_none() && now >= self.limits.warm_up {
            self.tally.delivered_bytes += u64::from(bytes);
        }
    }

    /// A message arrived at its end: at the receiver for one-way, back at the client for an RPC.
    fn on_end<C: Context>(&mut self, net: &mut C, src: u32, (number, bytes): (u32, u32)) {
        let now = net.now();
        self.count_delivered(now, bytes);
        let Some(message) = self.book.end(src, number) else { return };
        if message.measured {
            self.tally.delivered += 1;
            self.latencies.record(Sample {
                latency: now.since(message.submitted),
                bytes: message.bytes,
                switches: self.ways.number(src, message.dst),
                receiver: message.dst,
            });
        }
        self.after_end(net);
    }

    /// The sender gave a message up.
    fn on_failure<C: Context>(&mut self, net: &mut C, src: u32, number: u32) {
        self.tally.failed += 1;
        if self.book.end(src, number).is_some_and(|message| message.measured) {
            self.tally.measured_failed += 1;
        }
        self.after_end(net);
    }

    /// A closed loop starts the next call when one ended; the load lasts until all that counts has.
    fn after_end<C: Context>(&mut self, net: &mut C) {
        let through = self.tally.delivered + self.tally.measured_failed == self.tally.measured;
        if through && self.ended.is_some() && self.limits.ending == Ending::Loaded {
            net.stop();
        }
        if matches!(self.pattern, Pattern::Closed { .. }) && self.ended.is_none() {
            self.call_next(net);
        }
    }
}

impl Application for Generator {
    fn wake<C: Context>(&mut self, net: &mut C, token: u64) {
        match token {
            SAMPLE => self.on_sample(net),
            LISTED => self.on_listed(net),
            BEGIN => self.begin(net),
            END => self.end_traffic(net),
            src => self.on_arrival(net, src as u32),
        }
    }

    fn event<C: Context>(&mut self, net: &mut C, host: HostId, event: &Event) {
        match event {
            Event::Delivered(message) => {
                let number = number(message.id.client());
                match message.kind {
                    MessageKind::Request => self.on_request(net, host, message),
                    MessageKind::Response => self.on_end(net, host.0, (number, message.length)),
                    MessageKind::OneWay => {
                        self.on_end(net, message.peer.0, (number, message.length))
                    }
                }
            }
            Event::Failed { cookie, .. } => self.on_failure(net, host.0, *cookie as u32),
            _ => {}
        }
    }
}
