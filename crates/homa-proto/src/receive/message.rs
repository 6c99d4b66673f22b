//! An incoming message: which bytes are here and which were granted, and a measurement of RTTbytes.

use super::reassembly::Reassembly;
use crate::grant::state::GrantState;
use crate::units::Time;

/// Most memory per byte that arrived, beyond [`FIRST_MEMORY`].
const GROWTH: u32 = 4;
/// Memory of a message that has just begun to arrive.
const FIRST_MEMORY: u32 = 4_096;
/// A reader's window moves, and memory becomes free, when this part of it was taken: a GRANT for
/// less is not worth its packet.
const STEP: u32 = 4;

/// A measurement of RTTbytes in progress: a GRANT left, and the first byte that it allowed has not
/// arrived yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct RttProbe {
    /// The first byte that the GRANT allowed.
    pub from: u32,
    /// When it left.
    pub sent: Time,
    /// Bytes that were in flight to us at that time.
    pub ahead: u64,
}

/// An incoming message. What each packet of it looks at is one cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct IncomingMessage {
    pub(crate) bytes: Reassembly,
    pub(crate) grant: GrantState,
    pub(super) probe: Option<RttProbe>,
    /// End of the prefix that was announced as readable.
    readable: u32,
    /// The application reads the message while it arrives: bytes that may be granted beyond those
    /// that it took. 0: it takes the message whole.
    window: u32,
    /// Bytes that the application took.
    taken: u32,
}

impl IncomingMessage {
    /// A message of `length` bytes, the `age`th, with its grants as they are at its beginning.
    pub(crate) const fn new(length: u32, grant: GrantState) -> Self {
        Self {
            bytes: Reassembly::new(length),
            grant,
            probe: None,
            readable: 0,
            window: 0,
            taken: 0,
        }
    }

    /// Makes this, a finished message, a new one; what it had allocated is kept.
    pub(crate) fn reuse(&mut self, length: u32, grant: GrantState) {
        let bytes = core::mem::take(&mut self.bytes).reuse(length);
        *self = Self { bytes, grant, probe: None, readable: 0, window: 0, taken: 0 };
    }

    /// Bytes agreed to (granted or unscheduled) and not here yet.
    #[inline]
    pub(crate) const fn outstanding(&self) -> u32 {
        // Bytes may arrive ahead of their grant, so more may be here than was agreed to.
        self.grant.granted().saturating_sub(self.bytes.received())
    }

    /// The bytes before this may be granted: all, or a window beyond those that a reader took.
    #[inline]
    pub(crate) fn limit(&self) -> u32 {
        let length = self.bytes.length();
        match self.window {
            0 => length,
            // A grant is never withdrawn, even if the window is smaller.
            window => length.min(self.taken.saturating_add(window)).max(self.grant.granted()),
        }
    }

    /// The application reads the message while it arrives, and at most `window` bytes are granted
    /// beyond those that it took. 0: it takes the message whole.
    pub(super) fn set_window(&mut self, window: u32) {
        self.window = window;
    }

    /// True if the application reads the message while it arrives.
    pub(crate) const fn has_reader(&self) -> bool {
        self.window > 0
    }

    /// True if that reader knows the message, because its first bytes were announced.
    pub(crate) const fn is_read_early(&self) -> bool {
        self.has_reader() && self.readable > 0
    }

    /// The end of the bytes without a gap, if it is beyond the one that was announced last.
    pub(super) fn announce_prefix(&mut self) -> Option<u32> {
        let prefix = self.bytes.contiguous();
        // Only a longer prefix is news to the application.
        let is_longer = prefix > self.readable;
        self.readable = self.readable.max(prefix);
        is_longer.then_some(prefix)
    }

    /// The application has taken the bytes before `offset`, and `free` bytes of memory are left.
    /// Returns how far the window has to move now; 0 if that can wait.
    pub(super) fn window_step(&self, offset: u32, free: u64) -> u32 {
        // The application cannot have taken bytes that are not here.
        let more = offset.min(self.bytes.contiguous()).saturating_sub(self.taken);
        // If memory is short, the sender may have less than a step to send: then each byte counts.
        let is_short = free < u64::from(self.window);
        if is_short || more.saturating_mul(STEP) >= self.window { more } else { 0 }
    }

    /// The window moves by `more` bytes, which the application took.
    pub(crate) fn move_window(&mut self, more: u32) {
        self.taken += more;
    }

    /// Memory that counts for the message: what is reserved, without the bytes that the application
    /// took.
    pub(crate) const fn memory(&self) -> u32 {
        self.grant.reserved() - self.taken
    }

    /// The missing ranges of the bytes agreed to.
    pub(crate) fn missing(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.bytes.missing_before(self.grant.granted())
    }

    /// Memory that the bytes that arrived take.
    pub(crate) fn held(&self) -> u32 {
        self.held_with(0, 0)
    }

    /// The same when `len` more bytes are here, up to `end`.
    pub(crate) fn held_with(&self, end: u32, len: u32) -> u32 {
        let received = self.bytes.received().saturating_add(len);
        memory_of(end.max(self.bytes.end()), received)
    }

    /// A GRANT leaves that allows the bytes from `from` on, while `ahead` bytes are in flight:
    /// measures RTTbytes, unless a measurement is in progress.
    pub(crate) fn start_rtt_probe(&mut self, from: u32, sent: Time, ahead: impl FnOnce() -> u64) {
        if self.probe.is_none() {
            self.probe = Some(RttProbe { from, sent, ahead: ahead() });
        }
    }

    /// A retransmission was asked for, so the measurement would show the loss.
    pub(crate) fn stop_rtt_probe(&mut self) {
        self.probe = None;
    }

    /// Bytes announced as readable, for prefetching.
    #[inline]
    pub(crate) const fn readable(&self) -> u32 {
        self.readable
    }
}

/// Memory for `received` bytes of a message, all before `end`. A gap in front of them counts if it
/// may soon be filled; a few bytes far ahead take little, so that no sender can occupy much memory
/// by sending little.
pub(crate) fn memory_of(end: u32, received: u32) -> u32 {
    end.min(received.saturating_mul(GROWTH).max(FIRST_MEMORY))
}
