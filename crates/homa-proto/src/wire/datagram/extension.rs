//! Extensions of the datagram header: type (2 bytes), length of the value (2 bytes), value.
//!
//! They hold values that the kernel module's packets have no room for, and apply to every packet of
//! the datagram that can carry them. Types that are not known are skipped. A value shorter than its
//! type demands is an error; of a longer one the known part is read, so that values can grow. If a
//! type occurs twice, the first counts.
//!
//! Extensions of single requests are in [`super::request_extensions`].

use crate::event::DropReason;
use crate::packet::{Body, Limits, Proof, RefusalReason};
use crate::units::Duration;
use crate::wire::datagram::request_extensions::Lists;
use crate::wire::field::Be16;
use crate::wire::fixed;

/// Types of extensions.
pub mod kind {
    /// Limits of a receiver: longest message (4 bytes), most unscheduled bytes of a message (4
    /// bytes). For CUTOFFS.
    pub const LIMITS: u16 = 1;
    /// Nanoseconds (8 bytes) for which the sender has remembered all of our packets. For
    /// RPC_UNKNOWN.
    pub const REMEMBERED: u16 = 2;
    /// No server listens at the port (no value). For RPC_UNKNOWN.
    pub const NO_SERVER: u16 = 5;
    /// The sender's boot id, and nanoseconds for which it has forgotten nothing (8 bytes each). For
    /// the NEED_ACK that validates an address.
    pub const CHALLENGE: u16 = 6;
    /// Token (8 bytes), epoch, first and next counter (4 bytes each). For the ACK that answers it.
    pub const PROOF: u16 = 7;
    /// Why the server gave the request up: a code (1 byte: 1 overloaded, 2 abandoned, 3 response
    /// too long, 4 deadline passed), after code 3 the response's length and the limit that it
    /// exceeds (4 bytes each). For RPC_UNKNOWN.
    pub const REASON: u16 = 8;
    /// Microseconds (4 bytes) before which a server without room should not be asked again. For
    /// BUSY.
    pub const COME_BACK: u16 = 9;
    /// How long clients will wait from when the datagram leaves, microseconds (4 bytes each, all
    /// ones: not specified): one for each request that begins in the datagram, in their order.
    pub const DEADLINE: u16 = 3;
    /// The distributed traces that requests belong to (26 bytes each, all zeroes: none): as
    /// [`DEADLINE`].
    pub const TRACE_CONTEXT: u16 = 4;
}

/// Bytes of an extension before its value.
pub(super) const HEAD_LEN: usize = 4;
/// Bytes of the usual values: one integer, or two halves of one.
const VALUE_LEN: usize = 8;
/// Bytes of an extension with such a value.
const KNOWN_LEN: usize = HEAD_LEN + VALUE_LEN;
/// Bytes of the value of a challenge.
const CHALLENGE_LEN: usize = 16;
/// Bytes of the value of a proof.
const PROOF_LEN: usize = 20;

/// Bytes of the two lengths of a reason.
const LENGTHS_LEN: usize = 8;
/// Bytes of the value of the time to come back after.
const COME_BACK_LEN: usize = 4;

const KIND: Be16<0> = Be16;
const LENGTH: Be16<2> = Be16;

/// The codes of [`kind::REASON`].
const OVERLOADED: u8 = 1;
const ABANDONED: u8 = 2;
const RESPONSE_TOO_LONG: u8 = 3;
const DEADLINE_PASSED: u8 = 4;

const fn code_of(reason: RefusalReason) -> u8 {
    match reason {
        RefusalReason::Overloaded => OVERLOADED,
        RefusalReason::Abandoned => ABANDONED,
        RefusalReason::ResponseTooLong { .. } => RESPONSE_TOO_LONG,
        RefusalReason::DeadlinePassed => DEADLINE_PASSED,
    }
}

/// The lengths that follow a reason's code.
const fn lengths_of(reason: RefusalReason) -> Option<(u32, u32)> {
    match reason {
        RefusalReason::ResponseTooLong { length, max } => Some((length, max)),
        _ => None,
    }
}

/// Reads a reason; `None` if its code is not known here.
fn read_reason(value: &[u8]) -> Result<Option<RefusalReason>, DropReason> {
    let (&code, lengths) = value.split_first().ok_or(DropReason::Truncated)?;
    Ok(match code {
        OVERLOADED => Some(RefusalReason::Overloaded),
        ABANDONED => Some(RefusalReason::Abandoned),
        RESPONSE_TOO_LONG => {
            let (length, max) = halves(u64::from_be_bytes(*fixed(lengths)?));
            Some(RefusalReason::ResponseTooLong { length, max })
        }
        DEADLINE_PASSED => Some(RefusalReason::DeadlinePassed),
        // A reason of a later version: `remembered` still says whether it was executed.
        _ => None,
    })
}

/// Two integers as they follow each other.
const fn pair(first: u32, second: u32) -> [u8; 8] {
    ((first as u64) << 32 | second as u64).to_be_bytes()
}

const fn halves(pair: u64) -> (u32, u32) {
    ((pair >> 32) as u32, pair as u32)
}

/// Microseconds, as many as fit.
fn micros(time: Duration) -> u32 {
    u32::try_from(time.0 / 1_000).unwrap_or(u32::MAX)
}

/// The values in the extensions of a datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::wire) struct Extensions {
    pub(in crate::wire) limits: Option<Limits>,
    pub(in crate::wire) remembered: Option<Duration>,
    pub(in crate::wire) no_server: bool,
    pub(in crate::wire) challenge: Option<(u64, Duration)>,
    pub(in crate::wire) proof: Option<Proof>,
    pub(in crate::wire) reason: Option<RefusalReason>,
    pub(in crate::wire) come_back: Option<Duration>,
}

impl Extensions {
    /// The extensions that a packet needs.
    #[inline(always)]
    pub(super) fn of(body: &Body) -> Self {
        match *body {
            Body::Cutoffs { limits, .. } => Self { limits, ..Self::default() },
            Body::RpcUnknown { remembered, no_server, reason } => {
                Self { remembered, no_server, reason, ..Self::default() }
            }
            Body::Busy { come_back } => Self { come_back, ..Self::default() },
            Body::Challenge { boot, remembered } => {
                Self { challenge: Some((boot, remembered)), ..Self::default() }
            }
            Body::Proof(proof) => Self { proof: Some(proof), ..Self::default() },
            _ => Self::default(),
        }
    }

    /// Those of a datagram that apply to packets of the same type as this one.
    pub(super) fn for_type_of(self, body: &Body) -> Self {
        let none = Self::default();
        let Self { limits, remembered, no_server, challenge, proof, reason, come_back } = self;
        match body {
            Body::Cutoffs { .. } => Self { limits, ..none },
            Body::RpcUnknown { .. } => Self { remembered, no_server, reason, ..none },
            Body::Busy { .. } => Self { come_back, ..none },
            Body::NeedAck | Body::Challenge { .. } => Self { challenge, ..none },
            Body::Ack(_) | Body::Proof(_) => Self { proof, ..none },
            _ => none,
        }
    }

    /// The values as a receiver reads them.
    pub(super) fn as_read(self) -> Self {
        let rounded = |time| Duration::micros(micros(time).into());
        Self { come_back: self.come_back.map(rounded), ..self }
    }

    /// Bytes that [`Self::write`] writes.
    #[inline(always)]
    pub(super) fn encoded_len(&self) -> usize {
        KNOWN_LEN * (usize::from(self.limits.is_some()) + usize::from(self.remembered.is_some()))
            + HEAD_LEN * usize::from(self.no_server)
            + (HEAD_LEN + CHALLENGE_LEN) * usize::from(self.challenge.is_some())
            + (HEAD_LEN + PROOF_LEN) * usize::from(self.proof.is_some())
            + self.reason.map_or(0, |reason| {
                HEAD_LEN + 1 + LENGTHS_LEN * usize::from(lengths_of(reason).is_some())
            })
            + (HEAD_LEN + COME_BACK_LEN) * usize::from(self.come_back.is_some())
    }

    /// Writes all extensions, as far as they fit; returns their length.
    pub(super) fn write(&self, out: &mut [u8]) -> usize {
        let mut length = 0;
        let mut put = |kind, value: &[u8]| {
            let slot = out.get_mut(length..length + HEAD_LEN + value.len());
            let Some((head, rest)) = slot.and_then(<[u8]>::split_first_chunk_mut) else { return };
            KIND.set::<HEAD_LEN>(head, kind);
            LENGTH.set::<HEAD_LEN>(head, value.len() as u16);
            rest.copy_from_slice(value);
            length += HEAD_LEN + value.len();
        };
        if let Some(Limits { max_message, max_unscheduled }) = self.limits {
            put(kind::LIMITS, &pair(max_message, max_unscheduled));
        }
        if let Some(time) = self.remembered {
            put(kind::REMEMBERED, &time.0.to_be_bytes());
        }
        if self.no_server {
            put(kind::NO_SERVER, &[]);
        }
        if let Some((boot, remembered)) = self.challenge {
            let mut value = [0; CHALLENGE_LEN];
            value[..8].copy_from_slice(&boot.to_be_bytes());
            value[8..].copy_from_slice(&remembered.0.to_be_bytes());
            put(kind::CHALLENGE, &value);
        }
        if let Some(Proof { token, epoch, first, next }) = self.proof {
            let mut value = [0; PROOF_LEN];
            value[..8].copy_from_slice(&token.to_be_bytes());
            value[8..12].copy_from_slice(&epoch.to_be_bytes());
            value[12..].copy_from_slice(&pair(first, next));
            put(kind::PROOF, &value);
        }
        if let Some(reason) = self.reason {
            let mut value = [code_of(reason); 1 + LENGTHS_LEN];
            let lengths = lengths_of(reason);
            if let Some((length, max)) = lengths {
                value[1..].copy_from_slice(&pair(length, max));
            }
            put(kind::REASON, &value[..1 + lengths.map_or(0, |_| LENGTHS_LEN)]);
        }
        if let Some(time) = self.come_back {
            put(kind::COME_BACK, &micros(time).to_be_bytes());
        }
        length
    }

    /// The values in the extensions of a datagram.
    pub(in crate::wire) fn values(bytes: &[u8]) -> Result<Self, DropReason> {
        Self::read(bytes).map(|(values, ..)| values)
    }

    /// Reads the extensions of a datagram. Also returns the lists of request extensions, and how
    /// many extensions were skipped.
    pub(super) fn read(mut bytes: &[u8]) -> Result<(Self, Lists<'_>, u16), DropReason> {
        let mut found = Self::default();
        let mut lists = Lists::default();
        let mut unknown: u16 = 0;
        while !bytes.is_empty() {
            let (head, rest) =
                bytes.split_first_chunk::<HEAD_LEN>().ok_or(DropReason::Truncated)?;
            let (value, rest) =
                rest.split_at_checked(LENGTH.get(head).into()).ok_or(DropReason::Truncated)?;
            match KIND.get(head) {
                kind::LIMITS => {
                    let (max_message, max_unscheduled) = halves(u64::from_be_bytes(*fixed(value)?));
                    // If a type occurs twice, the first counts.
                    found.limits.get_or_insert(Limits { max_message, max_unscheduled });
                }
                kind::REMEMBERED => {
                    let value = u64::from_be_bytes(*fixed(value)?);
                    found.remembered.get_or_insert(Duration(value));
                }
                kind::NO_SERVER => found.no_server = true,
                kind::CHALLENGE => {
                    let value: &[u8; CHALLENGE_LEN] = fixed(value)?;
                    let [boot, remembered] = [&value[..8], &value[8..]];
                    let boot = u64::from_be_bytes(*fixed(boot)?);
                    let remembered = Duration(u64::from_be_bytes(*fixed(remembered)?));
                    found.challenge.get_or_insert((boot, remembered));
                }
                kind::PROOF => {
                    let value: &[u8; PROOF_LEN] = fixed(value)?;
                    let [token, calls] = [&value[..8], &value[8..]];
                    let token = u64::from_be_bytes(*fixed(token)?);
                    let part =
                        |at: usize| fixed(&calls[at..]).map(|part| u32::from_be_bytes(*part));
                    let (epoch, first, next) = (part(0)?, part(4)?, part(8)?);
                    found.proof.get_or_insert(Proof { token, epoch, first, next });
                }
                kind::REASON => found.reason = found.reason.or(read_reason(value)?),
                kind::COME_BACK => {
                    let micros = u32::from_be_bytes(*fixed(value)?);
                    found.come_back.get_or_insert(Duration::micros(micros.into()));
                }
                kind::DEADLINE => lists.read_deadlines(value)?,
                kind::TRACE_CONTEXT => lists.read_traces(value)?,
                // At least 4 bytes each in at most 65,535: the count fits.
                _ => unknown += 1,
            }
            bytes = rest;
        }
        Ok((found, lists, unknown))
    }
}
