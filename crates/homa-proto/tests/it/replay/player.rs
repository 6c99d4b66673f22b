//! A capture with one host replaced by our endpoint. It receives the packets that the others sent,
//! when they sent them, and its application does what that host's did.
//!
//! The replay differs from the capture:
//! * Our RPC ids: packets of others that name the captured host's calls are rewritten to ours.
//! * Our packets leave at once (an infinitely fast link), timers at our ticks. So packets that
//!   others sent in answer to the captured host may come too early or too late: a RESEND of unsent
//!   bytes is answered by BUSY, an RPC_UNKNOWN repeats the request although we did not ask, GRANTs
//!   for the past change nothing, and an ACK ends an RPC in any state. Then, and only then, a
//!   response may remain unfinished.
//! * A call is made when its first DATA packet appears. A response is ready when its first packet
//!   was captured, or with the request if that comes later.
//! * After the last packet the other hosts are silent: calls end by timeout, and no state is left.

use super::conversation::{CapturedFrame, Conversation, FrameContent};
use super::judge::InBook;
use super::packet::{CapturedData, CapturedPacket, PacketKind};
use super::stage::{PartialBytes, Stage};
use homa_proto::{Config, RpcHandle};
use std::collections::{BTreeMap, BTreeSet};

/// Time after the capture, in which everything ends.
const AFTER: u64 = 15_000_000;

/// Client, server, id in its client's form, is the response.
type PlannedMessage = (usize, usize, u64, bool);

fn message(frame: &CapturedFrame, pkt: &CapturedPacket) -> PlannedMessage {
    let response = pkt.by_server();
    let (client, server) = if response { (frame.to, frame.from) } else { (frame.from, frame.to) };
    (client, server, pkt.rpc(), response)
}

/// The messages of a capture.
struct Script {
    /// First packet: time, ports of its sender and receiver, length.
    begins: BTreeMap<PlannedMessage, (u64, (u16, u16), u32)>,
    content: BTreeMap<PlannedMessage, PartialBytes>,
}

impl Script {
    fn of(conversation: &Conversation) -> Self {
        let mut script = Self { begins: BTreeMap::new(), content: BTreeMap::new() };
        for (frame, pkt, data) in conversation.frames.iter().filter_map(data_of) {
            let key = message(frame, &pkt);
            let first = (frame.time, (pkt.sport, pkt.dport), data.length);
            script.begins.entry(key).or_insert(first);
            let content = script.content.entry(key).or_default();
            content.resize(data.length as usize, None);
            let (start, bytes) = frame.payload();
            for (i, &byte) in (start as usize..).zip(bytes) {
                content[i] = Some(byte);
            }
        }
        script
    }
}

fn data_of(frame: &CapturedFrame) -> Option<(&CapturedFrame, CapturedPacket, CapturedData)> {
    let pkt = frame.packet()?;
    let PacketKind::Data(data) = pkt.kind.clone() else { return None };
    Some((frame, pkt, data))
}

/// The next step of the replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum NextStep {
    Timer,
    Call(PlannedMessage),
    Reply(usize),
    CapturedFrame,
}

pub struct Replay<'a> {
    conversation: &'a Conversation,
    me: usize,
    script: Script,
    stage: Stage,
    calls: Vec<(u64, PlannedMessage)>,
    replies: BTreeMap<(u64, usize), (RpcHandle, u32)>,
    /// Of calls made: the captured message, by cookie.
    made: Vec<PlannedMessage>,
    seen: usize,
    /// Requests that the captured server never answered.
    unanswered: Vec<RpcHandle>,
    /// Messages that were fed completely.
    whole: BTreeMap<PlannedMessage, InBook>,
    pub delivered: BTreeSet<PlannedMessage>,
    /// Responses that were acknowledged before we had sent them whole.
    pub cut_short: BTreeSet<PlannedMessage>,
}

impl<'a> Replay<'a> {
    pub fn new(conversation: &'a Conversation, me: usize) -> Self {
        let script = Script::of(conversation);
        let hosts = conversation.hosts();
        let mut stage = Stage::new(conversation.payload, hosts, Config::linux());
        for frame in &conversation.frames {
            match (&frame.what, frame.packet()) {
                (FrameContent::Unreachable(Some(port)), _) if frame.from == me => {
                    stage.judge.closed.push(*port);
                }
                (_, Some(pkt)) if frame.to == me && !pkt.by_server() => {
                    stage.endpoint.listen(pkt.dport);
                }
                _ => {}
            }
        }
        stage.judge.closed.iter().for_each(|&port| stage.endpoint.unlisten(port));
        let mut calls: Vec<(u64, PlannedMessage)> = script
            .begins
            .iter()
            .filter(|(key, _)| key.0 == me && !key.3)
            .map(|(key, begin)| (begin.0, *key))
            .collect();
        calls.sort_unstable();
        calls.reverse();
        Self {
            conversation,
            me,
            script,
            stage,
            calls,
            replies: BTreeMap::new(),
            made: Vec::new(),
            seen: 0,
            unanswered: Vec::new(),
            whole: BTreeMap::new(),
            delivered: BTreeSet::new(),
            cut_short: BTreeSet::new(),
        }
    }

    /// Plays everything; returns the faults.
    pub fn run(&mut self) -> Vec<String> {
        let conversation = self.conversation;
        let me = self.me;
        let mut frames = conversation.frames.iter().filter(|f| f.to == me).peekable();
        let last = conversation.frames.last().map_or(0, |f| f.time) + AFTER;
        loop {
            let timer = self.stage.deadline().unwrap_or(u64::MAX);
            let (at, next) = [
                Some((timer, NextStep::Timer)),
                self.calls.last().map(|call| (call.0, NextStep::Call(call.1))),
                self.replies.keys().next().map(|reply| (reply.0, NextStep::Reply(reply.1))),
                frames.peek().map(|frame| (frame.time, NextStep::CapturedFrame)),
            ]
            .into_iter()
            .flatten()
            .min()
            .expect("the timer at least");
            if at > last {
                break;
            }
            match next {
                NextStep::Timer => self.stage.expire(at),
                NextStep::Call(key) => self.call(at, key),
                NextStep::Reply(_) => self.reply(at),
                NextStep::CapturedFrame => {
                    let frame = frames.next().expect("peeked");
                    self.feed(frame);
                }
            }
            self.settle(at);
        }
        self.stage.judge.tick(last);
        self.verdict()
    }

    fn call(&mut self, now: u64, key: PlannedMessage) {
        self.calls.pop();
        let (_, ports, length) = self.script.begins[&key];
        let cookie = self.made.len() as u64;
        self.made.push(key);
        self.stage.call(now, key.1, ports, length, cookie);
    }

    fn reply(&mut self, now: u64) {
        if let Some((_, (rpc, length))) = self.replies.pop_first() {
            self.stage.reply(now, rpc, length);
        }
    }

    fn feed(&mut self, frame: &CapturedFrame) {
        let (level, length, bytes) = match &frame.what {
            FrameContent::Unreachable(port) => {
                return self.stage.unreachable(frame.time, frame.from, *port);
            }
            FrameContent::Homa { level, length, bytes } => (*level, *length, bytes),
        };
        let pkt = frame.packet().expect("it is one");
        let mut bytes = bytes.clone();
        if pkt.by_server() {
            let called = |key: &PlannedMessage| (key.1, key.2) == (frame.from, pkt.rpc());
            let cookie = self.made.iter().position(called).map(|at| at as u64);
            if let Some((_, id)) = cookie.and_then(|cookie| self.stage.calls.get(&cookie)) {
                bytes[20..28].copy_from_slice(&(id | 1).to_be_bytes());
            }
        }
        let key = message(frame, &pkt);
        if let PacketKind::Data(data) = &pkt.kind {
            let fresh = || InBook::new(data.length, data.length, 0);
            self.whole.entry(key).or_insert_with(fresh).insert(data.start, data.end);
            if let Some((id, _)) = data.ack {
                self.cut(frame.from, id);
            }
        }
        if let PacketKind::Ack(entries) = &pkt.kind {
            self.cut(frame.from, pkt.rpc());
            entries.iter().for_each(|&(id, _)| self.cut(frame.from, id));
        }
        self.stage.feed(frame.time, frame.from, level, (&bytes, length));
    }

    /// The client acknowledges, perhaps before our response was finished.
    fn cut(&mut self, client: usize, id: u64) {
        let key = (client, id & !1);
        let out = self.stage.judge.rpcs.get(&key).and_then(|books| books.out.as_ref());
        if out.is_none_or(|out| out.sent < out.length) {
            self.cut_short.insert((client, self.me, id & !1, true));
        }
    }

    /// Everything that may leave leaves, and applications hear what arrived.
    fn settle(&mut self, now: u64) {
        while let Some(sent) = self.stage.pull(now) {
            assert!(sent.to != self.me);
        }
        for message in std::mem::take(&mut self.stage.arrived) {
            let key = if message.is_request {
                (message.peer, self.me, message.id, false)
            } else {
                self.made[message.cookie as usize]
            };
            let key = (key.0, key.1, key.2, !message.is_request);
            let known = &self.script.content[&key];
            assert_eq!(known.len(), message.content.len(), "length of {key:?}");
            let same = known.iter().zip(&message.content).all(|(a, b)| b.is_none() || a == b);
            assert!(same, "the bytes of {key:?}");
            assert!(self.delivered.insert(key), "{key:?} twice");
            let response = self.script.begins.get(&(key.0, key.1, key.2, true));
            match (message.is_request, response) {
                (true, Some(&(at, _, length))) => {
                    self.seen += 1;
                    self.replies.insert((at.max(now), self.seen), (message.rpc, length));
                }
                (true, None) => self.unanswered.push(message.rpc),
                (false, _) => {}
            }
        }
    }

    /// Checks the outcome.
    fn verdict(&mut self) -> Vec<String> {
        let mut faults = std::mem::take(&mut self.stage.judge.faults);
        let closed = &self.stage.judge.closed;
        for (key, _) in self.whole.iter().filter(|(_, fed)| fed.is_complete()) {
            let mine = if key.3 { self.made.contains(&(key.0, key.1, key.2, false)) } else { true };
            let dead = !key.3 && closed.contains(&self.script.begins[key].1.1);
            if mine && !dead && !self.delivered.contains(key) {
                faults.push(format!("{key:?} arrived, but was not delivered"));
            }
        }
        self.stage.cancel(&self.unanswered);
        if self.stage.endpoint.rpcs() != (0, 0) {
            faults.push(format!("RPCs remain: {:?}", self.stage.endpoint.rpcs()));
        }
        faults
    }
}
