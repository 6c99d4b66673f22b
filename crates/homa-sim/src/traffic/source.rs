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
pub struct Ended {
    /// As it was started with.
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
pub struct Asked {
    /// To be started now, in this order.
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
    fn begin(&mut self, now: SimTime, asked: &mut Asked);

    /// A time that was asked for has come. Not called any more after the end of traffic, unless the
    /// load is to last.
    fn due(&mut self, now: SimTime, token: u32, asked: &mut Asked);

    /// A message or RPC ended: it arrived, or its sender gave it up. Called after the end of
    /// traffic, too, when only a source that [sees through](Self::sees_through) what it began may
    /// start anything more.
    fn ended(&mut self, _now: SimTime, _ended: Ended, _asked: &mut Asked) {}

    /// Traffic has ended; with `goes_on`, unmeasured messages keep the load up.
    fn over(&mut self, _goes_on: bool) {}

    /// What it began goes on after the end of traffic, with further messages if need be.
    fn sees_through(&self) -> bool {
        false
    }

    /// Nothing that counts is under way beyond the messages that the generator knows of.
    fn is_through(&self) -> bool {
        true
    }

    /// The workflows that its messages belong to.
    fn workflows(&self) -> Option<&Workflows> {
        None
    }
}
