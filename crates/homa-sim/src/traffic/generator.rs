//! The application on all hosts: submits what the pattern says, answers requests, and notes when
//! messages arrive.
//!
//! Invariant: every message is submitted once and struck from the [`Book`] once, when it is
//! delivered or fails. The end of traffic stops the run, so that the caller can read counters at
//! that moment and decide how to go on.

use homa_proto::{Event, MessageKind, PeerId, Request, Submit, Time};

use crate::engine::{Application, Context};
use crate::measure::backlog::BacklogSeries;
use crate::measure::latency::{Latencies, Sample};
use crate::scenario::outcome::FlowTime;
use crate::scenario::{Exchange, TrafficEnding};
use crate::time::{SimDuration, SimTime};
use crate::topology::HostId;
use crate::transport::message_number;

use super::book::{Book, Message};
use super::paths::Paths;
use super::source::{Asked, Ended, PROBE, Round, Source, Start};
use super::workflows::Workflows;

/// What is submitted when, and what is answered.
#[derive(Debug)]
pub struct Pattern {
    /// Where messages come from.
    pub source: Box<dyn Source>,
    /// What each starts.
    pub exchange: Exchange,
    /// Bytes of a response; `None`: as many as its request has.
    pub response_bytes: Option<u32>,
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
    pub ending: TrafficEnding,
    /// Between samples of the backlog.
    pub sample_every: SimDuration,
    /// Larger messages than this are kept one by one.
    pub keep_above: u32,
    /// Probes that take longer are taken for lost.
    pub probe_lost_after: SimDuration,
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
    paths: Paths,
    /// What the source asks for, while it is asked.
    asked: Asked,
    /// Messages under way.
    pub book: Book,
    /// Measured messages that arrived.
    pub latencies: Latencies,
    /// Samples of the backlog.
    pub backlog: BacklogSeries,
    /// What was counted.
    pub tally: Tally,
    /// Large messages that arrived.
    pub kept: Vec<FlowTime>,
    /// What probes took.
    pub probed: Vec<SimDuration>,
    /// What rounds took, in the order of their ends.
    pub rounds: Vec<SimDuration>,
    /// Probes that took so long that they, or others before them, were lost: not in `probed`.
    pub probes_lost: u64,
    /// When traffic ended.
    pub ended: Option<SimTime>,
}

/// Tokens above those of sources.
const SAMPLE: u64 = 1 << 32;
const BEGIN: u64 = 2 << 32;
const END: u64 = 3 << 32;

/// Ports that mean nothing here; not 0, which marks one-way messages.
const CLIENT_PORT: u16 = 1;
/// The port at which servers listen.
pub const SERVER_PORT: u16 = 2;

impl Generator {
    /// A generator for `hosts` hosts. Wake it once with `start`.
    pub fn new(
        hosts: u32,
        pattern: Pattern,
        limits: Limits,
        (paths, latencies): (impl Into<Paths>, Latencies),
    ) -> Self {
        Self {
            asked: Asked::default(),
            book: Book::new(hosts),
            backlog: BacklogSeries::default(),
            tally: Tally::default(),
            kept: Vec::new(),
            probed: Vec::new(),
            rounds: Vec::new(),
            probes_lost: 0,
            ended: None,
            pattern,
            limits,
            paths: paths.into(),
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
        self.ask(net, |source, now, asked| source.begin(now, asked));
    }

    fn on_due<C: Context>(&mut self, net: &mut C, token: u32) {
        if self.goes_on() {
            self.ask(net, |source, now, asked| source.due(now, token, asked));
        }
    }

    /// Asks the source, and does what it asks for.
    fn ask<C: Context>(
        &mut self,
        net: &mut C,
        question: impl FnOnce(&mut dyn Source, SimTime, &mut Asked),
    ) {
        let mut asked = std::mem::take(&mut self.asked);
        question(&mut *self.pattern.source, net.now(), &mut asked);
        let counts = |round: &Round| round.began >= self.limits.warm_up;
        self.rounds.extend(asked.rounds.drain(..).filter(counts).map(|round| round.took));
        for (at, token) in asked.wakes.drain(..) {
            net.wake_at(at, u64::from(token));
        }
        for start in asked.starts.drain(..) {
            if self.goes_on() || self.pattern.source.sees_through() {
                self.start(net, start);
            }
        }
        if std::mem::take(&mut asked.is_exhausted) {
            self.end_traffic(net);
        }
        self.asked = asked;
    }

    /// Messages may start.
    fn goes_on(&self) -> bool {
        self.ended.is_none() || self.limits.ending == TrafficEnding::Loaded
    }

    fn start<C: Context>(&mut self, net: &mut C, start: Start) {
        let Start { src, dst, bytes, response, class, level, token } = start;
        let now = net.now();
        let measured = now >= self.limits.warm_up
            && self.ended.is_none()
            && self.tally.measured < self.limits.messages;
        // In step with the transport, which numbers the messages that it accepts.
        let cookie = u64::from(self.book.next_number(src));
        let peer = PeerId(dst);
        let what = match self.pattern.exchange {
            Exchange::OneWay => Submit::OneWay { peer, length: bytes, cookie },
            Exchange::Echo => Submit::Request(Request {
                peer,
                local_port: CLIENT_PORT,
                remote_port: SERVER_PORT,
                length: bytes,
                deadline: Time::MAX,
                // A call that goes on under another id would end the numbers' step.
                idempotent: false,
                head: 0,
                cookie,
            }),
        };
        if class == PROBE {
            if net.submit(HostId(src), what).is_ok() {
                self.book.begin(src, Message { class, ..Message::new(now, dst, bytes, false) });
            }
            return;
        }
        self.count_offered(bytes);
        if net.submit_at(HostId(src), what, level).is_err() {
            self.tally.refused += 1;
            self.tally.measured_refused += u64::from(measured);
            return;
        }
        let message = Message::new(now, dst, bytes, measured);
        self.book.begin(src, Message { class, level, response, token, ..message });
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
            self.pattern.source.over(self.limits.ending == TrafficEnding::Loaded);
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
        let (client, number) = (request.peer.0, message_number(request.id.client()));
        let call = self.book.get(client, number);
        let chosen = call.and_then(|call| call.response).or(self.pattern.response_bytes);
        let length = chosen.unwrap_or(request.length);
        self.count_offered(length);
        self.count_delivered(net.now(), request.length);
        let response = Submit::Response { rpc: request.rpc, length };
        if net.submit_at(host, response, call.and_then(|call| call.level)).is_err() {
            self.tally.refused += 1;
            self.tally.measured_refused += u64::from(call.is_some_and(|call| call.measured));
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
        let ended = self.book.end(src, number);
        if let Some(probe) = ended.filter(|message| message.class == PROBE) {
            return self.on_probe(now, &probe);
        }
        self.count_delivered(now, bytes);
        let Some(message) = ended else { return };
        if message.measured {
            self.tally.delivered += 1;
            let latency = now.since(message.submitted);
            if message.bytes > self.limits.keep_above {
                let us = latency.0 as f64 / 1e6;
                self.kept.push(FlowTime { src, number, bytes: message.bytes, us });
            }
            self.latencies.record(Sample {
                latency,
                bytes: message.response.unwrap_or(message.bytes),
                switches: self.paths.number(src, message.dst),
                receiver: message.dst,
                class: message.class,
            });
        }
        self.after_end(net, Ended { token: message.token, failed: false });
    }

    fn on_probe(&mut self, now: SimTime, probe: &Message) {
        let counts = probe.submitted >= self.limits.warm_up;
        if !counts || self.ended.is_some_and(|end| probe.submitted > end) {
            return;
        }
        let latency = now.since(probe.submitted);
        if latency > self.limits.probe_lost_after {
            self.probes_lost += 1;
        } else {
            self.probed.push(latency);
        }
    }

    /// The sender gave a message up.
    fn on_failure<C: Context>(&mut self, net: &mut C, src: u32, number: u32) {
        let ended = self.book.end(src, number);
        if ended.is_some_and(|message| message.class == PROBE) {
            return;
        }
        self.tally.failed += 1;
        if ended.is_some_and(|message| message.measured) {
            self.tally.measured_failed += 1;
        }
        if let Some(message) = ended {
            self.after_end(net, Ended { token: message.token, failed: true });
        }
    }

    /// A closed loop starts the next call when one ended; the load lasts until all that counts has.
    fn after_end<C: Context>(&mut self, net: &mut C, ended: Ended) {
        self.ask(net, |source, now, asked| source.ended(now, ended, asked));
        let through = self.tally.delivered + self.tally.measured_failed == self.tally.measured;
        let all_through = through && self.pattern.source.is_through();
        if all_through && self.ended.is_some() && self.limits.ending == TrafficEnding::Loaded {
            net.stop();
        }
    }

    /// The workflows that messages belong to, if they do.
    pub fn workflows(&self) -> Option<&Workflows> {
        self.pattern.source.workflows()
    }
}

impl Application for Generator {
    fn wake<C: Context>(&mut self, net: &mut C, token: u64) {
        match token {
            SAMPLE => self.on_sample(net),
            BEGIN => self.begin(net),
            END => self.end_traffic(net),
            token => self.on_due(net, token as u32),
        }
    }

    fn event<C: Context>(&mut self, net: &mut C, host: HostId, event: &Event) {
        match event {
            Event::Delivered(message) => {
                let number = message_number(message.id.client());
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
