//! Where messages come from: one [`Source`] per pattern of traffic. A source decides what starts
//! when; what becomes of it is the generator's business, which tells the source when something
//! ended. Called per message, through a pointer.

use crate::time::{SimDuration, SimTime};

use super::workflows::Workflows;

/// A message to be started now, or the request of an RPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// Sending host.
    pub src: u32,
    /// Receiving host.
    pub dst: u32,
    /// Message bytes.
    pub bytes: u32,
    /// Bytes of the response; `None`: as the pattern says.
    pub response: Option<u32>,
    /// Which of the source's kinds of message it is, from 0; most have one.
    pub class: u8,
    /// The priority level that the application asks for, of the request and of its response.
    pub level: Option<u8>,
    /// Comes back with [`Ended`].
    pub token: u32,
}

impl Start {
    /// A message of kind 0 that asks for nothing.
    pub const fn new(src: u32, dst: u32, bytes: u32) -> Self {
        Self { src, dst, bytes, response: None, class: 0, level: None, token: 0 }
    }
}

/// A message or RPC that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndedMessage {
    /// The token with which it was started.
    pub token: u32,
    /// Its sender gave it up.
    pub failed: bool,
}

/// Messages that began together and have all ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Round {
    /// When.
    pub began: SimTime,
    /// Until the last one ended.
    pub took: SimDuration,
}

/// The kind of messages that are in no number but those of probes.
pub const PROBE: u8 = u8::MAX;

/// What a source asks for.
#[derive(Debug, Default)]
pub struct SourceActions {
    /// Messages to start now, in this order.
    pub starts: Vec<Start>,
    /// When to call [`Source::due`], and with which token, below 2^32.
    pub wakes: Vec<(SimTime, u32)>,
    /// Rounds that are over: to be measured.
    pub rounds: Vec<Round>,
    /// Nothing more will come: the end of traffic.
    pub is_exhausted: bool,
}

/// See the module's description.
pub trait Source: std::fmt::Debug {
    /// Traffic begins.
    fn begin(&mut self, now: SimTime, actions: &mut SourceActions);

    /// A requested time has come. It is not called after the end of traffic, unless the load lasts.
    fn due(&mut self, now: SimTime, token: u32, actions: &mut SourceActions);

    /// A message or RPC ended, because it arrived or its sender aborted it. It is also called after
    /// the end of traffic; only a source that [runs past it](Self::runs_past_end) may then start
    /// messages.
    fn ended(&mut self, _now: SimTime, _ended: EndedMessage, _asked: &mut SourceActions) {}

    /// Traffic has ended; if `keeps_load`, unmeasured messages keep the load up.
    fn traffic_ended(&mut self, _keeps_load: bool) {}

    /// True if the source may start further messages after the end of traffic, to finish its work.
    fn runs_past_end(&self) -> bool {
        false
    }

    /// True if nothing measured is in flight besides the messages in the generator's book.
    fn is_finished(&self) -> bool {
        true
    }

    /// The workflows that its messages belong to.
    fn workflows(&self) -> Option<&Workflows> {
        None
    }
}
