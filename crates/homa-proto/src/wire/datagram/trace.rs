//! The context of a distributed trace (W3C Trace Context, level 1): which trace a request belongs
//! to, so that the work of servers can be joined with the call that caused it.
//!
//! Homa carries the context and does not interpret it.

use core::fmt;
use core::str::FromStr;

/// A `traceparent`: the trace that a request belongs to, and the span that made the request. Its
/// text is that of the HTTP header, `00-` trace id `-` parent id `-` flags:
/// ```
/// use homa_proto::wire::datagram::TraceContext;
///
/// let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
/// let context: TraceContext = text.parse()?;
/// assert_eq!((context.parent_id(), context.flags()), (0x00f0_67aa_0ba9_02b7, 1));
/// assert_eq!(context.to_string(), text);
/// # Ok::<(), Box<dyn core::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceContext([u8; Self::LEN]);

/// A text that is not a `traceparent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParseError;

impl fmt::Display for TraceParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "not a traceparent: write 00-TRACE-PARENT-FLAGS in lower case hexadecimal digits, 32, \
             16 and 2 of them, neither id all zeroes",
        )
    }
}

impl core::error::Error for TraceParseError {}

/// The version that is invalid by definition.
const INVALID: u8 = 0xff;

impl TraceContext {
    /// Bytes in a datagram: version, trace id, parent id, flags.
    pub const LEN: usize = 26;

    /// A context of version 0; `None` if an id is 0, which is invalid.
    pub fn new(trace_id: u128, parent_id: u64, flags: u8) -> Option<Self> {
        let mut bytes = [0; Self::LEN];
        bytes[1..17].copy_from_slice(&trace_id.to_be_bytes());
        bytes[17..25].copy_from_slice(&parent_id.to_be_bytes());
        bytes[25] = flags;
        Self::from_bytes(&bytes)
    }

    /// The trace.
    pub fn trace_id(&self) -> u128 {
        self.0[1..].first_chunk().map_or(0, |id| u128::from_be_bytes(*id))
    }

    /// The span that made the request.
    pub fn parent_id(&self) -> u64 {
        self.0[17..].first_chunk().map_or(0, |id| u64::from_be_bytes(*id))
    }

    /// Bit 0: the caller may have recorded the trace.
    pub const fn flags(&self) -> u8 {
        self.0[25]
    }

    /// The same trace with another parent span; unchanged if the id is 0.
    pub fn child(mut self, parent_id: u64) -> Self {
        if parent_id != 0 {
            self.0[17..25].copy_from_slice(&parent_id.to_be_bytes());
        }
        self
    }

    pub(super) const fn as_bytes(&self) -> &[u8; Self::LEN] {
        &self.0
    }

    /// `None` if the bytes name no trace.
    pub(super) fn from_bytes(bytes: &[u8; Self::LEN]) -> Option<Self> {
        let context = Self(*bytes);
        let names = bytes[0] != INVALID && context.trace_id() != 0 && context.parent_id() != 0;
        names.then_some(context)
    }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (version, flags) = (self.0[0], self.flags());
        write!(f, "{version:02x}-{:032x}-{:016x}-{flags:02x}", self.trace_id(), self.parent_id())
    }
}

impl FromStr for TraceContext {
    type Err = TraceParseError;

    /// Reads the value of a `traceparent` header. Fields that versions above 0 append are ignored.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parts = text.split('-');
        let mut part = |digits: usize| {
            let part = parts.next().filter(|part| part.len() == digits).ok_or(TraceParseError)?;
            // W3C Trace Context: the digits are in lower case.
            let lower = part.bytes().all(|c| c.is_ascii_digit() || (b'a'..=b'f').contains(&c));
            u128::from_str_radix(part, 16).ok().filter(|_| lower).ok_or(TraceParseError)
        };
        let version = part(2)? as u8;
        let (trace_id, parent_id, flags) = (part(32)?, part(16)? as u64, part(2)? as u8);
        let more = parts.next().is_some();
        let mut context = Self::new(trace_id, parent_id, flags).ok_or(TraceParseError)?;
        // Only later versions may append fields.
        if version == INVALID || version == 0 && more {
            return Err(TraceParseError);
        }
        context.0[0] = version;
        Ok(context)
    }
}
