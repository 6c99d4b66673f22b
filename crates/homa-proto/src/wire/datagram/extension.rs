//! Extensions of the datagram header: type (2 bytes), length of the value (2 bytes), value.
//!
//! They hold values that the kernel module's packets have no room for, and apply to every packet of
//! the datagram that can carry them. Types that are not known are skipped. A value shorter than its
//! type demands is an error; of a longer one the known part is read, so that values can grow. If a
//! type occurs twice, the first counts.
//!
//! Extensions of single requests are in [`super::request_extensions`].

use crate::event::DropReason;
use crate::packet::{Body, Limits, Proof};
use crate::units::Duration;
use crate::wire::datagram::request_extensions::Lists;
use crate::wire::field::{Be16, Be32, Be64};
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

const KIND: Be16<0> = Be16;
const LENGTH: Be16<2> = Be16;
const VALUE: Be64<HEAD_LEN> = Be64;
const SECOND: Be64<{ HEAD_LEN + 8 }> = Be64;
const EPOCH: Be32<{ HEAD_LEN + 8 }> = Be32;
const FIRST: Be32<{ HEAD_LEN + 12 }> = Be32;
const NEXT: Be32<{ HEAD_LEN + 16 }> = Be32;

/// The values in the extensions of a datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::wire) struct Extensions {
    pub(in crate::wire) limits: Option<Limits>,
    pub(in crate::wire) remembered: Option<Duration>,
    pub(in crate::wire) no_server: bool,
    pub(in crate::wire) challenge: Option<(u64, Duration)>,
    pub(in crate::wire) proof: Option<Proof>,
}

impl Extensions {
    /// The extensions that a packet needs.
    #[inline(always)]
    pub(super) fn of(body: &Body) -> Self {
        match *body {
            Body::Cutoffs { limits, .. } => Self { limits, ..Self::default() },
            Body::RpcUnknown { remembered, no_server } => {
                Self { remembered, no_server, ..Self::default() }
            }
            Body::Challenge { boot, remembered } => {
                Self { challenge: Some((boot, remembered)), ..Self::default() }
            }
            Body::Proof(proof) => Self { proof: Some(proof), ..Self::default() },
            _ => Self::default(),
        }
    }

    /// Bytes that [`Self::write`] writes.
    #[inline(always)]
    pub(super) fn encoded_len(&self) -> usize {
        KNOWN_LEN * (usize::from(self.limits.is_some()) + usize::from(self.remembered.is_some()))
            + HEAD_LEN * usize::from(self.no_server)
            + (HEAD_LEN + CHALLENGE_LEN) * usize::from(self.challenge.is_some())
            + (HEAD_LEN + PROOF_LEN) * usize::from(self.proof.is_some())
    }

    /// Writes all extensions, as far as they fit; returns their length.
    pub(super) fn write(&self, out: &mut [u8]) -> usize {
        let limits = self.limits.map(|limits| {
            let max_message = u64::from(limits.max_message) << 32;
            (kind::LIMITS, max_message | u64::from(limits.max_unscheduled))
        });
        let remembered = self.remembered.map(|time| (kind::REMEMBERED, time.0));
        let mut length = 0;
        let slots = out.as_chunks_mut::<KNOWN_LEN>().0;
        for (slot, (kind, value)) in
            slots.iter_mut().zip([limits, remembered].into_iter().flatten())
        {
            KIND.set(slot, kind);
            LENGTH.set(slot, VALUE_LEN as u16);
            VALUE.set(slot, value);
            length += KNOWN_LEN;
        }
        let rest = out.get_mut(length..).and_then(<[u8]>::first_chunk_mut::<HEAD_LEN>);
        if let (true, Some(slot)) = (self.no_server, rest) {
            KIND.set(slot, kind::NO_SERVER);
            LENGTH.set(slot, 0);
            length += HEAD_LEN;
        }
        let rest = out.get_mut(length..);
        let rest = rest.and_then(<[u8]>::first_chunk_mut::<{ HEAD_LEN + CHALLENGE_LEN }>);
        if let (Some((boot, remembered)), Some(slot)) = (self.challenge, rest) {
            KIND.set(slot, kind::CHALLENGE);
            LENGTH.set(slot, CHALLENGE_LEN as u16);
            VALUE.set(slot, boot);
            SECOND.set(slot, remembered.0);
            length += HEAD_LEN + CHALLENGE_LEN;
        }
        let rest = out.get_mut(length..);
        let rest = rest.and_then(<[u8]>::first_chunk_mut::<{ HEAD_LEN + PROOF_LEN }>);
        if let (Some(proof), Some(slot)) = (self.proof, rest) {
            KIND.set(slot, kind::PROOF);
            LENGTH.set(slot, PROOF_LEN as u16);
            VALUE.set(slot, proof.token);
            EPOCH.set(slot, proof.epoch);
            FIRST.set(slot, proof.first);
            NEXT.set(slot, proof.next);
            length += HEAD_LEN + PROOF_LEN;
        }
        length
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
                    let value = u64::from_be_bytes(*fixed(value)?);
                    found.limits.get_or_insert(Limits {
                        max_message: (value >> 32) as u32,
                        max_unscheduled: value as u32,
                    });
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
