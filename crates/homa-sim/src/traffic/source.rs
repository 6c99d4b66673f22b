//! Where messages come from: one [`Source`] per pattern of traffic. A source decides what starts
//! when; what becomes of it is the generator's business, which tells the source when something
//! ended. Called per message, through a pointer.

use crate::time::{SimDuration, SimTime};

/// A message to be started now, or the request of an RPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// Sending host.
    pub src: u32,
    /// Receiving host.
    pub dst: u32,
    /// Message bytes.
    pub bytes: u32,
    /// Which of the source's kinds of message it is, from 0; most have one.
    pub class: u8,
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
    /// traffic, too, when nothing that is asked for starts any more.
    fn ended(&mut self, _now: SimTime, _asked: &mut Asked) {}
}
