//! The application on all hosts: it submits the messages of a pattern, answers requests, and
//! records when messages arrive.
//!
//! Invariant: every message is submitted once and removed from the [`Book`] once, when it is
//! delivered or fails. The end of traffic stops the run, so that the caller can read counters then
//! and decide how to continue.

use homa_proto::{Event, MessageKind, PeerId, Request, Submit, Time};

use crate::engine::{Application, Context};
use crate::measure::backlog::BacklogSeries;
use crate::measure::latency::{Latencies, Sample};
use crate::scenario::outcome::FlowTime;
use crate::scenario::{Exchange, TrafficEnding};
use crate::time::{SimDuration, SimTime};
use crate::topology::HostId;
use crate::transport::message_number;

use super::book::{Book, OpenMessage};
use super::paths::HostPaths;
use super::share::{Share, TrafficNote};
use super::source::{EndedMessage, PROBE, Round, Source, SourceActions, Start};
use super::tasks::TaskSource;
use super::workflows::Workflows;

/// The messages of a run and their answers.
#[derive(Debug)]
pub struct Pattern {
    /// The source of messages.
    pub source: Box<dyn Source>,
    /// The kind of exchange that each message starts.
    pub exchange: Exchange,
    /// Bytes of a response; if `None`, those of its request.
    pub response_bytes: Option<u32>,
}

/// Start and end of measured traffic.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Messages that start before this are not measured.
    pub warm_up: SimTime,
    /// Traffic ends after this many measured messages.
    pub messages: u64,
    /// Traffic ends at this time.
    pub time: SimTime,
    /// Treatment of messages in flight at the end of traffic.
    pub ending: TrafficEnding,
    /// Interval between samples of the backlog.
    pub sample_every: SimDuration,
    /// Larger messages than this are recorded one by one.
    pub keep_above: u32,
    /// Probes that take longer count as lost.
    pub probe_lost_after: SimDuration,
}

/// Counts of the generator.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Messages or RPCs submitted.
    pub submitted: u64,
    /// Measured ones among them.
    pub measured: u64,
    /// Submitted ones at a level above 0 that the source chose.
    pub raised: u64,
    /// Measured ones that were delivered.
    pub delivered: u64,
    /// Messages or RPCs that their senders aborted.
    pub failed: u64,
    /// Measured ones among the failed.
    pub measured_failed: u64,
    /// Submissions that a transport refused.
    pub refused: u64,
    /// Refused ones that would have been measured, and refused responses of measured RPCs.
    pub measured_refused: u64,
    /// Message bytes submitted before the end of traffic, including responses.
    pub offered_bytes: u64,
    /// Message bytes that joined the backlog: those of messages and requests.
    pub entered_bytes: u64,
    /// Like `offered_bytes`, in wire bytes of the authors' headers.
    pub offered_paper_bytes: u64,
    /// Message bytes delivered before the end of traffic and after the warm-up.
    pub delivered_bytes: u64,
    /// Message bytes submitted, at any time.
    pub all_offered_bytes: u64,
    /// Message bytes delivered, at any time.
    pub all_delivered_bytes: u64,
}

/// The application of a run; see the module header.
#[derive(Debug)]
pub struct Generator {
    pub(super) pattern: Pattern,
    pub(super) limits: Limits,
    paths: HostPaths,
    /// Buffer for the source's actions.
    actions: SourceActions,
    /// Messages in flight.
    pub book: Book,
    /// Measured messages that were delivered.
    pub latencies: Latencies,
    /// Samples of the backlog.
    pub backlog: BacklogSeries,
    /// The counts.
    pub tally: Tally,
    /// Large messages that were delivered, and the bytes under which their latencies count.
    pub kept: Vec<(FlowTime, u32)>,
    /// Latencies of probes.
    pub probed: Vec<SimDuration>,
    /// Times of rounds, in the order of their ends.
    pub rounds: Vec<SimDuration>,
    /// Probes that are not in `probed`, because they took so long that they or earlier ones were
    /// lost.
    pub probes_lost: u64,
    /// When traffic ended.
    pub ended: Option<SimTime>,
    /// Traffic ended before the limits.
    pub ended_early: bool,
    /// The hosts that it serves, if the network is in partitions.
    pub(super) share: Option<Box<Share>>,
}

/// Tokens above those of sources.
const SAMPLE: u64 = 1 << 32;
const BEGIN: u64 = 2 << 32;
const END: u64 = 3 << 32;

/// Arbitrary client port; not 0, because 0 marks one-way messages.
const CLIENT_PORT: u16 = 1;
/// The port at which servers listen.
pub const SERVER_PORT: u16 = 2;

impl Generator {
    /// A generator for `hosts` hosts. Wake it once with `start`.
    pub fn new(
        hosts: u32,
        pattern: Pattern,
        limits: Limits,
        (paths, latencies): (impl Into<HostPaths>, Latencies),
    ) -> Self {
        Self {
            actions: SourceActions::default(),
            book: Book::new(hosts),
            backlog: BacklogSeries::default(),
            tally: Tally::default(),
            kept: Vec::new(),
            probed: Vec::new(),
            rounds: Vec::new(),
            probes_lost: 0,
            ended: None,
            ended_early: false,
            share: None,
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
        if self.limits.time < SimTime::MAX && self.share.is_none() {
            net.wake_at(self.limits.time, END);
        }
        self.call_source(net, |source, now, actions| source.begin(now, actions));
    }

    fn on_due<C: Context>(&mut self, net: &mut C, token: u32) {
        if self.may_start(net.now()) {
            self.call_source(net, |source, now, actions| source.due(now, token, actions));
        }
    }

    /// Calls the source, and carries out its actions.
    fn call_source<C: Context>(
        &mut self,
        net: &mut C,
        call: impl FnOnce(&mut dyn Source, SimTime, &mut SourceActions),
    ) {
        let mut actions = std::mem::take(&mut self.actions);
        call(&mut *self.pattern.source, net.now(), &mut actions);
        let counts = |round: &Round| round.began >= self.limits.warm_up;
        self.rounds.extend(actions.rounds.drain(..).filter(counts).map(|round| round.took));
        for (at, token) in actions.wakes.drain(..) {
            net.wake_at(at, u64::from(token));
        }
        for start in actions.starts.drain(..) {
            if self.may_start(net.now()) || self.pattern.source.runs_past_end() {
                self.start(net, start);
            }
        }
        if std::mem::take(&mut actions.is_exhausted) {
            self.end_traffic(net);
        }
        self.actions = actions;
    }

    /// True if messages may start.
    fn may_start(&self, now: SimTime) -> bool {
        !self.has_ended(now) || self.limits.ending == TrafficEnding::Loaded
    }

    /// True if traffic has ended. A partition is told so after all events of the last moment.
    fn has_ended(&self, now: SimTime) -> bool {
        self.ended.is_some() || self.share.is_some() && now >= self.limits.time
    }

    fn start<C: Context>(&mut self, net: &mut C, start: Start) {
        let Start { src, dst, bytes, response, class, level, token } = start;
        let now = net.now();
        let measured = now >= self.limits.warm_up
            && !self.has_ended(now)
            && self.tally.measured < self.limits.messages;
        // The book numbers messages as the transport does, which numbers the ones that it accepts.
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
                // A retried call would get another id, and the numbers would no longer match.
                idempotent: false,
                head: 0,
                cookie,
            }),
        };
        if class == PROBE {
            if net.submit(HostId(src), what).is_ok() {
                self.book
                    .begin(src, OpenMessage { class, ..OpenMessage::new(now, dst, bytes, false) });
            }
            return;
        }
        self.count_offered(bytes);
        if net.submit_at(HostId(src), what, level).is_err() {
            self.tally.refused += 1;
            self.tally.measured_refused += u64::from(measured);
            return;
        }
        let message = OpenMessage::new(now, dst, bytes, measured);
        self.enter(src, OpenMessage { class, level, response, token, ..message });
        if self.ended.is_none() {
            self.tally.entered_bytes += u64::from(bytes);
        }
        self.tally.submitted += 1;
        self.tally.raised += u64::from(level > Some(0));
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
        if self.ended.is_none() && self.share.is_none() {
            self.ended = Some(net.now());
            self.pattern.source.traffic_ended(self.limits.ending == TrafficEnding::Loaded);
            net.stop();
        }
    }

    /// Ends traffic at `now`, before its limits. No message starts from then on.
    pub fn end_early(&mut self, now: SimTime) {
        self.ended = Some(now);
        self.ended_early = true;
        if self.limits.ending == TrafficEnding::Loaded {
            self.limits.ending = TrafficEnding::Drain;
        }
        self.pattern.source.traffic_ended(false);
    }

    /// Time between samples of the backlog.
    pub fn sample_every(&self) -> SimDuration {
        self.limits.sample_every
    }

    fn on_sample<C: Context>(&mut self, net: &mut C) {
        if !self.has_ended(net.now()) {
            self.backlog.record(self.book.bytes(), self.book.len());
            net.wake_at(net.now() + self.limits.sample_every, SAMPLE);
            self.call_source(net, |source, now, actions| source.sampled(now, actions));
        }
    }

    /// Answers a request, with as many bytes unless the source or the pattern sets the length.
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
            if call.is_none() {
                self.tell_all(TrafficNote::Refused { src: client, number });
            }
        }
    }

    fn count_delivered(&mut self, now: SimTime, bytes: u32) {
        self.tally.all_delivered_bytes += u64::from(bytes);
        if self.ended.is_none() && now >= self.limits.warm_up {
            self.tally.delivered_bytes += u64::from(bytes);
        }
    }

    /// A message ended: a one-way message at its receiver, or an RPC at its client.
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
            let bytes = message.response.unwrap_or(message.bytes);
            if message.bytes > self.limits.keep_above {
                let kept = FlowTime {
                    src,
                    dst: message.dst,
                    number,
                    bytes: message.bytes,
                    start_us: message.submitted.0 as f64 / 1e6,
                    us: latency.0 as f64 / 1e6,
                    slowdown: None,
                };
                self.kept.push((kept, bytes));
            }
            self.latencies.record(Sample {
                latency,
                bytes,
                switches: self.paths.number(src, message.dst),
                receiver: message.dst,
                class: message.class,
            });
        }
        self.after_end(net, EndedMessage { token: message.token, failed: false });
    }

    fn on_probe(&mut self, now: SimTime, probe: &OpenMessage) {
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

    /// The sender aborted a message.
    fn on_failure<C: Context>(&mut self, net: &mut C, src: u32, number: u32) {
        let ended = self.book.end(src, number);
        if ended.is_some_and(|message| message.class == PROBE) {
            return;
        }
        self.tally.failed += 1;
        if ended.is_some_and(|message| message.measured) {
            self.tally.measured_failed += 1;
        }
        match ended {
            Some(message) => {
                self.after_end(net, EndedMessage { token: message.token, failed: true });
            }
            None => self.tell_all(TrafficNote::Failed { src, number }),
        }
    }

    /// Reports an end to the source; a closed loop then starts the next call. If the load lasts
    /// past the end of traffic, the run stops after all measured messages have ended.
    fn after_end<C: Context>(&mut self, net: &mut C, ended: EndedMessage) {
        self.call_source(net, |source, now, actions| source.ended(now, ended, actions));
        let finished = self.tally.delivered + self.tally.measured_failed == self.tally.measured;
        let all_finished = finished && self.pattern.source.is_finished();
        let waited = self.ended.is_some() && self.limits.ending == TrafficEnding::Loaded;
        if all_finished && waited && self.share.is_none() {
            net.stop();
        }
    }

    /// The tasks that its messages belong to, if it has any.
    pub fn tasks(&self) -> Option<&TaskSource> {
        self.pattern.source.tasks()
    }

    /// The source's workflows, if it has any.
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
