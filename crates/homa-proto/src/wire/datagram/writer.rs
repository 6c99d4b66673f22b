//! Fills one datagram with packets.

use super::extension::Extensions;
use super::request_extensions::{self, RequestExtensions};
use super::{AGGREGATE, DATAGRAM_MAX, FLAGS, HEADER_LEN, LENGTH_LEN};
use super::{set_extension_length, write_header};
use crate::packet::{Body, Limits, Packet, Proof, RefusalReason};
use crate::units::Duration;
use crate::wire::{self, DATA_LEN, EncodeError};

/// Appends packets to a datagram in a buffer.
///
/// After every call the buffer's first [`Self::len`] bytes are a well-formed datagram, once a
/// packet is in it. With one packet they are equal to the output of [`super::encode`]; the second
/// packet turns the datagram into an aggregate.
///
/// All packets of a datagram travel at one priority level, so append packets of one level only.
#[derive(Debug)]
pub struct Writer<'a> {
    out: &'a mut [u8],
    draft: Draft,
}

/// The state of a datagram that is partly written, so that several can be filled in turns. It
/// belongs to one buffer.
#[derive(Clone, Copy, Debug)]
pub struct Draft {
    /// End of the extensions and start of the packets.
    packets: u16,
    count: u16,
    /// Requests that begin in the datagram, and which extensions they have: in front of all others.
    requests: u16,
    lists: request_extensions::ExtensionSet,
    end: usize,
    /// The limits in the CUTOFFS of the datagram; `None` while it has no CUTOFFS.
    limits: Option<Option<Limits>>,
    /// The extensions of its RPC_UNKNOWNs; `None` while it has none.
    unknown: Option<(Option<Duration>, bool, Option<RefusalReason>)>,
    /// The time to come back after in its BUSYs; `None` while it has none.
    busy: Option<Option<Duration>>,
    /// The challenge in its NEED_ACKs; `None` while it has none.
    need_ack: Option<Option<(u64, Duration)>>,
    /// The proof in its ACKs; `None` while it has none.
    ack: Option<Option<Proof>>,
}

impl<'a> Writer<'a> {
    /// Begins a datagram that will be at most as long as the buffer.
    pub fn new(out: &'a mut [u8], number: u64) -> Result<Self, EncodeError> {
        let max = out.len().min(DATAGRAM_MAX);
        let out = &mut out[..max];
        write_header(out, number)?;
        let draft = Draft {
            packets: HEADER_LEN as u16,
            end: HEADER_LEN,
            count: 0,
            requests: 0,
            lists: request_extensions::ExtensionSet::default(),
            limits: None,
            unknown: None,
            busy: None,
            need_ack: None,
            ack: None,
        };
        Ok(Self { out, draft })
    }

    /// Continues a datagram in its buffer, as [`Self::pause`] left it.
    pub fn resume(out: &'a mut [u8], draft: Draft) -> Self {
        let max = out.len().min(DATAGRAM_MAX);
        Self { out: &mut out[..max], draft }
    }

    /// Stops for now. The datagram is well-formed and may also be sent as it is.
    pub fn pause(self) -> Draft {
        self.draft
    }

    /// Appends a packet; returns the place for its payload, which is empty except for DATA. On an
    /// error the datagram is unchanged.
    pub fn push(&mut self, packet: &Packet) -> Result<&mut [u8], EncodeError> {
        self.push_request(packet, &RequestExtensions::NONE)
    }

    /// Like [`Self::push`], for a packet that may begin a request: then with the request's
    /// extensions.
    pub fn push_request(
        &mut self,
        packet: &Packet,
        request_extensions: &RequestExtensions,
    ) -> Result<&mut [u8], EncodeError> {
        let extensions = self.extensions_for(&packet.body)?;
        let begins = packet.begins_request();
        let lists = if begins { self.lists_grow(request_extensions)? } else { 0 };
        let payload = match &packet.body {
            Body::Data(data) => data.span.len as usize,
            _ => 0,
        };
        let framing = match self.draft.count {
            0 => 0,
            // The first packet gets its length now, too.
            1 => 2 * LENGTH_LEN,
            _ => LENGTH_LEN,
        };
        let length = wire::encoded_len(&packet.body).saturating_add(payload);
        let extended = lists + extensions.encoded_len();
        let needed = (self.draft.end + framing + extended).saturating_add(length);
        if needed > self.out.len() {
            return Err(EncodeError::BufferTooSmall { needed });
        }
        self.insert_extensions(&extensions)?;
        if begins {
            self.append_lists(request_extensions)?;
        }
        if self.draft.count == 1 {
            self.become_aggregate();
        }
        if self.draft.count > 0 {
            self.put_length(self.draft.end, length);
            self.draft.end += LENGTH_LEN;
        }
        let payload_at = self.draft.end + wire::encode(packet, &mut self.out[self.draft.end..])?;
        self.draft.end += length;
        self.draft.count += 1;
        match packet.body {
            Body::Cutoffs { limits, .. } => self.draft.limits = Some(limits),
            Body::RpcUnknown { remembered, no_server, reason } => {
                self.draft.unknown = Some((remembered, no_server, reason));
            }
            Body::Busy { come_back } => self.draft.busy = Some(come_back),
            Body::NeedAck => self.draft.need_ack = Some(None),
            Body::Challenge { boot, remembered } => {
                self.draft.need_ack = Some(Some((boot, remembered)));
            }
            Body::Ack(_) => self.draft.ack = Some(None),
            Body::Proof(proof) => self.draft.ack = Some(Some(proof)),
            _ => {}
        }
        Ok(&mut self.out[payload_at..payload_at + payload])
    }

    /// Marks the DATA packet that was appended last, which has one byte: its message has no bytes.
    pub fn mark_empty(&mut self) {
        let packet = self.draft.end.checked_sub(DATA_LEN + 1);
        let packet = packet.and_then(|at| self.out.get_mut(at..self.draft.end));
        let marked = packet.map(wire::mark_empty);
        debug_assert!(matches!(marked, Some(Ok(()))), "the last packet is such a DATA packet");
    }

    /// Bytes in the datagram so far.
    pub fn len(&self) -> usize {
        self.draft.end
    }

    /// True before the first packet.
    pub fn is_empty(&self) -> bool {
        self.draft.count == 0
    }

    /// The extensions that the datagram lacks for a packet. An extension applies to all packets
    /// that can carry it, so two of them may not differ, and all of them or none must have it.
    fn extensions_for(&self, body: &Body) -> Result<Extensions, EncodeError> {
        let said = match body {
            Body::Cutoffs { limits, .. } => self.draft.limits.map(|said| said == *limits),
            Body::RpcUnknown { remembered, no_server, reason } => {
                self.draft.unknown.map(|said| said == (*remembered, *no_server, *reason))
            }
            Body::Busy { come_back } => self.draft.busy.map(|said| said == *come_back),
            Body::NeedAck => self.draft.need_ack.map(|said| said.is_none()),
            Body::Challenge { boot, remembered } => {
                self.draft.need_ack.map(|said| said == Some((*boot, *remembered)))
            }
            Body::Ack(_) => self.draft.ack.map(|said| said.is_none()),
            Body::Proof(proof) => self.draft.ack.map(|said| said == Some(*proof)),
            _ => None,
        };
        match said {
            None => Ok(Extensions::of(body)),
            Some(true) => Ok(Extensions::default()),
            Some(false) => Err(EncodeError::OtherExtensions),
        }
    }

    /// Moves the packets back and puts extensions in front of them.
    fn insert_extensions(&mut self, extensions: &Extensions) -> Result<(), EncodeError> {
        let length = extensions.encoded_len();
        if length > 0 {
            let at = usize::from(self.draft.packets);
            self.widen(at, length)?;
            extensions.write(&mut self.out[at..at + length]);
        }
        Ok(())
    }

    /// Bytes by which the lists of request extensions grow for one more request. All requests of a
    /// datagram have the same kinds.
    fn lists_grow(&self, request_extensions: &RequestExtensions) -> Result<usize, EncodeError> {
        match self.draft.requests {
            0 => Ok(request_extensions.encoded_len()),
            _ if request_extensions.set() != self.draft.lists => Err(EncodeError::OtherExtensions),
            _ => Ok(request_extensions.set().entries_len()),
        }
    }

    /// Appends an entry for one more request to each list.
    fn append_lists(&mut self, request_extensions: &RequestExtensions) -> Result<(), EncodeError> {
        let (set, before) = (request_extensions.set(), usize::from(self.draft.requests));
        self.draft.requests += 1;
        if set == request_extensions::ExtensionSet::default() {
            return Ok(());
        }
        self.draft.lists = set;
        let old = set.lists_len(before);
        let more = set.lists_len(before + 1) - old;
        self.widen(HEADER_LEN + old, more)?;
        let lists = &mut self.out[HEADER_LEN..HEADER_LEN + old + more];
        match before {
            0 => drop(request_extensions.write(lists)),
            _ => request_extensions.append(before, lists),
        }
        Ok(())
    }

    /// Makes room for `more` bytes of extensions at a place.
    fn widen(&mut self, at: usize, more: usize) -> Result<(), EncodeError> {
        self.out.copy_within(at..self.draft.end, at + more);
        self.draft.packets += more as u16;
        self.draft.end += more;
        set_extension_length(self.out, usize::from(self.draft.packets) - HEADER_LEN)
    }

    /// Puts the length of the only packet in front of it.
    fn become_aggregate(&mut self) {
        let at = usize::from(self.draft.packets);
        self.out.copy_within(at..self.draft.end, at + LENGTH_LEN);
        self.put_length(at, self.draft.end - at);
        self.draft.end += LENGTH_LEN;
        if let Some(header) = self.out.first_chunk_mut::<HEADER_LEN>() {
            FLAGS.set(header, AGGREGATE);
        }
    }

    /// Writes a packet's length, which fits in 16 bits because a buffer has at most
    /// [`DATAGRAM_MAX`] bytes.
    fn put_length(&mut self, at: usize, length: usize) {
        self.out[at..at + LENGTH_LEN].copy_from_slice(&(length as u16).to_be_bytes());
    }
}

impl Draft {
    /// Bytes in the datagram so far.
    pub fn len(&self) -> usize {
        self.end
    }

    /// True before the first packet.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}
