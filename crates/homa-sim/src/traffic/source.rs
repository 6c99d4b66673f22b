//! The interface of sources of messages, one [`Source`] per pattern of traffic. A source decides
//! which messages start and when. The generator submits them and reports their ends to the source.
//! It is called per message, through a pointer.

use crate::time::{SimDuration, SimTime};

use super::tasks::TaskSource;
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
    /// Bytes of the response; if `None`, the pattern sets them.
    pub response: Option<u32>,
    /// Class of the message, as numbered by the source from 0; most sources have one.
    pub class: u8,
    /// The priority level that the application requests for the message and its response.
    pub level: Option<u8>,
    /// Returned in [`EndedMessage`].
    pub token: u32,
}

impl Start {
    /// A message of class 0 without further options.
    pub const fn new(src: u32, dst: u32, bytes: u32) -> Self {
        Self { src, dst, bytes, response: None, class: 0, level: None, token: 0 }
    }
}

/// A message or RPC that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndedMessage {
    /// The token with which it was started.
    pub token: u32,
    /// Its sender aborted it.
    pub failed: bool,
}

/// Messages that began together and have all ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Round {
    /// Start of the round.
    pub began: SimTime,
    /// Time until the last message ended.
    pub took: SimDuration,
}

/// The class of probes, which are in no count but their own.
pub const PROBE: u8 = u8::MAX;

/// Actions that a source requests.
#[derive(Debug, Default)]
pub struct SourceActions {
    /// Messages to start now, in this order.
    pub starts: Vec<Start>,
    /// Times at which to call [`Source::due`], and the tokens to pass, below 2^32.
    pub wakes: Vec<(SimTime, u32)>,
    /// Rounds that have ended and should be measured.
    pub rounds: Vec<Round>,
    /// No more messages will come, so that traffic ends.
    pub is_exhausted: bool,
}

/// A source of messages.
pub trait Source: std::fmt::Debug + Send {
    /// Traffic begins.
    fn begin(&mut self, now: SimTime, actions: &mut SourceActions);

    /// A requested time has come. It is not called after the end of traffic, unless the load lasts.
    fn due(&mut self, now: SimTime, token: u32, actions: &mut SourceActions);

    /// A message or RPC ended, because it arrived or its sender aborted it. It is also called after
    /// the end of traffic; only a source that [runs past it](Self::runs_past_end) may then start
    /// messages.
    fn ended(&mut self, _now: SimTime, _ended: EndedMessage, _asked: &mut SourceActions) {}

    /// The backlog is sampled, which happens at regular times until the end of traffic.
    fn sampled(&mut self, _now: SimTime, _actions: &mut SourceActions) {}

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

    /// The tasks that its messages belong to.
    fn tasks(&self) -> Option<&TaskSource> {
        None
    }
}
