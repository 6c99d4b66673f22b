//! Extensions of the requests that begin in a datagram: how long their clients will wait, and which
//! distributed traces they belong to.
//!
//! Each of the two is an extension of the datagram whose value is a list. It has an entry for every
//! packet that holds the first byte of a request, in the order of the packets, so that requests
//! with different values share a datagram. If a request is sent again, so are its extensions.
//!
//! Invariants: the lists are the first extensions of a datagram that we write; reading allocates
//! nothing.

use super::extension::{HEAD_LEN, kind};
use super::trace::TraceContext;
use crate::event::DropReason;
use crate::units::Duration;
use core::fmt;

/// Bytes of a time.
const DEADLINE_LEN: usize = 4;
/// Bytes of a trace's context.
const TRACE_LEN: usize = TraceContext::LEN;
/// The value for a time that is not specified.
const NOT_SAID: u32 = u32::MAX;
const NANOS_PER_MICRO: u64 = 1_000;

/// The extensions of one request (UDP only).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestExtensions {
    /// How long its client will wait for the response from when the datagram leaves. On the wire:
    /// whole microseconds, rounded down; more than 71 minutes cannot be specified.
    pub left: Option<Duration>,
    /// The distributed trace that it belongs to.
    pub trace: Option<TraceContext>,
    /// Its client allows that it is executed more than once. That is a mark of its packet
    /// ([`Decoded::idempotent`](crate::wire::Decoded::idempotent)).
    pub idempotent: bool,
}

/// Which of the extensions are present.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ExtensionSet {
    left: bool,
    trace: bool,
}

impl ExtensionSet {
    /// Bytes of the lists for `requests` requests.
    pub(super) const fn lists_len(self, requests: usize) -> usize {
        if requests == 0 {
            return 0;
        }
        let heads = HEAD_LEN * (self.left as usize + self.trace as usize);
        heads + requests * self.entries_len()
    }

    /// Bytes by which another request makes the lists longer.
    pub(super) const fn entries_len(self) -> usize {
        DEADLINE_LEN * self.left as usize + TRACE_LEN * self.trace as usize
    }
}

impl RequestExtensions {
    /// Nothing.
    pub const NONE: Self = Self { left: None, trace: None, idempotent: false };
    /// Most bytes that they take in a datagram of one request.
    pub const MAX_LEN: usize = ExtensionSet { left: true, trace: true }.lists_len(1);

    pub(super) const fn set(&self) -> ExtensionSet {
        ExtensionSet { left: self.left.is_some(), trace: self.trace.is_some() }
    }

    /// Bytes that they take in a datagram of one request: the first packet has as much less room
    /// for the message.
    pub const fn encoded_len(&self) -> usize {
        self.set().lists_len(1)
    }

    /// Writes the lists for one request; returns their length. There must be room.
    #[inline]
    pub(super) fn write(&self, out: &mut [u8]) -> usize {
        // Nearly always: a deadline and no trace, written as one integer.
        if let Self { left: Some(left), trace: None, .. } = *self
            && let Some(list) = out.first_chunk_mut::<{ HEAD_LEN + DEADLINE_LEN }>()
        {
            let head = (kind::DEADLINE as u64) << 48 | (DEADLINE_LEN as u64) << 32;
            *list = (head | u64::from(micros(left))).to_be_bytes();
            return HEAD_LEN + DEADLINE_LEN;
        }
        let length = self.encoded_len();
        if let Some(lists) = out.get_mut(..length).filter(|lists| !lists.is_empty()) {
            self.append(0, lists);
        }
        length
    }

    /// Extends the lists of `before` requests by one more. They are at the start of `lists`, which
    /// has its final length.
    pub(super) fn append(&self, before: usize, lists: &mut [u8]) {
        let set = self.set();
        let trace_at = if set.left { HEAD_LEN + (before + 1) * DEADLINE_LEN } else { 0 };
        if let Some(trace) = &self.trace {
            // The list of times in front of it grows, too.
            let old_at = if set.left && before > 0 { trace_at - DEADLINE_LEN } else { trace_at };
            let old = if before > 0 { HEAD_LEN + before * TRACE_LEN } else { 0 };
            lists.copy_within(old_at..old_at + old, trace_at);
            head(&mut lists[trace_at..], kind::TRACE_CONTEXT, (before + 1) * TRACE_LEN);
            lists[trace_at + HEAD_LEN + before * TRACE_LEN..][..TRACE_LEN]
                .copy_from_slice(trace.as_bytes());
        }
        if let Some(left) = self.left {
            head(lists, kind::DEADLINE, (before + 1) * DEADLINE_LEN);
            lists[HEAD_LEN + before * DEADLINE_LEN..][..DEADLINE_LEN]
                .copy_from_slice(&micros(left).to_be_bytes());
        }
    }
}

/// A time as it is on the wire.
fn micros(left: Duration) -> u32 {
    u32::try_from(left.0 / NANOS_PER_MICRO).unwrap_or(NOT_SAID)
}

impl fmt::Display for RequestExtensions {
    /// The end of a packet's line; empty if there are no extensions.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(left) = self.left {
            write!(f, " deadline {} us", left.0 / NANOS_PER_MICRO)?;
        }
        if let Some(trace) = self.trace {
            write!(f, " trace {trace}")?;
        }
        if self.idempotent {
            f.write_str(" idempotent")?;
        }
        Ok(())
    }
}

/// Writes an extension's type and its value's length, which a datagram keeps within 16 bits.
fn head(out: &mut [u8], kind: u16, length: usize) {
    out[..2].copy_from_slice(&kind.to_be_bytes());
    out[2..HEAD_LEN].copy_from_slice(&(length as u16).to_be_bytes());
}

/// The lists of a datagram that are not read yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Lists<'a> {
    deadlines: &'a [[u8; DEADLINE_LEN]],
    traces: &'a [[u8; TRACE_LEN]],
}

impl<'a> Lists<'a> {
    /// True if both are empty.
    #[inline]
    pub(super) const fn are_empty(&self) -> bool {
        self.deadlines.is_empty() && self.traces.is_empty()
    }

    /// Takes the value of a list of times, unless there was one before.
    pub(super) fn read_deadlines(&mut self, value: &'a [u8]) -> Result<(), DropReason> {
        read(&mut self.deadlines, value)
    }

    /// The same for traces.
    pub(super) fn read_traces(&mut self, value: &'a [u8]) -> Result<(), DropReason> {
        read(&mut self.traces, value)
    }

    /// The lists, if the extensions are one list of times and nothing else, which is the usual
    /// case.
    #[inline]
    pub(super) fn only_deadlines(extensions: &'a [u8]) -> Option<Self> {
        let (head, value) = extensions.split_first_chunk::<HEAD_LEN>()?;
        let expected = (kind::DEADLINE as u32) << 16 | value.len() as u32;
        let found = u32::from_be_bytes(*head) == expected && value.len() >= DEADLINE_LEN;
        found.then_some(Self { deadlines: value.as_chunks().0, traces: &[] })
    }

    /// The extensions of the next request.
    #[inline]
    pub(super) fn next(&mut self) -> EncodedExtensions<'a> {
        let micros = take(&mut self.deadlines).map(|micros| u32::from_be_bytes(*micros));
        EncodedExtensions { micros: micros.unwrap_or(NOT_SAID), trace: take(&mut self.traces) }
    }
}

/// The extensions of a request as they are in the datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EncodedExtensions<'a> {
    micros: u32,
    trace: Option<&'a [u8; TRACE_LEN]>,
}

impl EncodedExtensions<'_> {
    /// Nothing.
    pub(super) const NONE: Self = Self { micros: NOT_SAID, trace: None };

    /// Decodes them.
    #[inline]
    pub(super) fn request_extensions(&self) -> RequestExtensions {
        let left = Some(self.micros).filter(|&micros| micros != NOT_SAID);
        RequestExtensions {
            left: left.map(|micros| Duration::micros(micros.into())),
            trace: self.trace.and_then(TraceContext::from_bytes),
            idempotent: false,
        }
    }
}

fn read<'a, const N: usize>(list: &mut &'a [[u8; N]], value: &'a [u8]) -> Result<(), DropReason> {
    // Further bytes belong to a later version.
    let entries = value.as_chunks::<N>().0;
    if entries.is_empty() {
        return Err(DropReason::Truncated);
    }
    // If a type occurs twice, the first counts.
    if list.is_empty() {
        *list = entries;
    }
    Ok(())
}

fn take<'a, T>(list: &mut &'a [T]) -> Option<&'a T> {
    let (first, rest) = list.split_first()?;
    *list = rest;
    Some(first)
}
