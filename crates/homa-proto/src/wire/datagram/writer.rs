//! Fills one datagram with packets.

use super::extension::Extensions;
use super::request_extensions::{self, RequestExtensions};
use super::{AGGREGATE, DATAGRAM_MAX, FLAGS, HEADER_LEN, LENGTH_LEN};
use super::{set_extension_length, write_header};
use crate::packet::{Body, Packet};
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

impl<'a> Writer<'a> {
    /// Begins a datagram that will be at most as long as the buffer.
    pub fn new(out: &'a mut [u8], number: u64) -> Result<Self, EncodeError> {
        let draft = Draft::new(out, number)?;
        Ok(Self { out, draft })
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
        self.draft.push(self.out, packet, request_extensions)
    }

    /// Bytes in the datagram so far.
    pub fn len(&self) -> usize {
        self.draft.len()
    }

    /// True before the first packet.
    pub fn is_empty(&self) -> bool {
        self.draft.is_empty()
    }
}

/// A datagram that is partly written. It belongs to one buffer, which every call must be given; a
/// sender has several of them, and fills them in turns.
#[derive(Clone, Copy, Debug)]
pub struct Draft {
    /// End of the extensions and start of the packets.
    packets: u16,
    count: u16,
    /// Requests that begin in the datagram, and which extensions they have: in front of all others.
    requests: u16,
    lists: request_extensions::ExtensionSet,
    /// Types of its packets that can have an extension: a set of [`extensible`].
    types: u8,
    end: usize,
}

/// A bit for each type of packets that an extension can apply to; 0 for the others.
const fn extensible(body: &Body) -> u8 {
    match body {
        Body::Cutoffs { .. } => 1,
        Body::RpcUnknown { .. } => 2,
        Body::Busy { .. } => 4,
        Body::NeedAck | Body::Challenge { .. } => 8,
        Body::Ack(_) | Body::Proof(_) => 16,
        Body::Data(_)
        | Body::StartMsg { .. }
        | Body::Grant { .. }
        | Body::Resend { .. }
        | Body::Freeze => 0,
    }
}

impl Draft {
    /// Begins a datagram that will be at most as long as its buffer.
    pub fn new(out: &mut [u8], number: u64) -> Result<Self, EncodeError> {
        write_header(out, number)?;
        Ok(Self {
            packets: HEADER_LEN as u16,
            end: HEADER_LEN,
            count: 0,
            requests: 0,
            lists: request_extensions::ExtensionSet::default(),
            types: 0,
        })
    }

    /// Appends a packet, as [`Writer::push_request`] does.
    pub fn push<'a>(
        &mut self,
        out: &'a mut [u8],
        packet: &Packet,
        request_extensions: &RequestExtensions,
    ) -> Result<&'a mut [u8], EncodeError> {
        let max = out.len().min(DATAGRAM_MAX);
        let out = &mut out[..max];
        let extensions = self.extensions_for(out, &packet.body)?;
        let begins = packet.begins_request();
        let lists = if begins { self.lists_grow(request_extensions)? } else { 0 };
        let payload = match &packet.body {
            Body::Data(data) => data.span.len as usize,
            _ => 0,
        };
        let framing = match self.count {
            0 => 0,
            // The first packet gets its length now, too.
            1 => 2 * LENGTH_LEN,
            _ => LENGTH_LEN,
        };
        let length = wire::encoded_len(&packet.body).saturating_add(payload);
        let extended = lists + extensions.map_or(0, |extensions| extensions.encoded_len());
        let needed = (self.end + framing + extended).saturating_add(length);
        if needed > out.len() {
            return Err(EncodeError::BufferTooSmall { needed });
        }
        if let Some(extensions) = extensions {
            self.insert_extensions(out, &extensions)?;
        }
        if begins {
            self.append_lists(out, request_extensions)?;
        }
        if self.count == 1 {
            self.become_aggregate(out);
        }
        if self.count > 0 {
            put_length(out, self.end, length);
            self.end += LENGTH_LEN;
        }
        let payload_at = self.end + wire::encode(packet, &mut out[self.end..])?;
        if begins && request_extensions.idempotent {
            wire::mark_idempotent(&mut out[self.end..])?;
        }
        self.end += length;
        self.count += 1;
        self.types |= extensible(&packet.body);
        Ok(&mut out[payload_at..payload_at + payload])
    }

    /// Marks the DATA packet that was appended last, which has one byte: its message has no bytes.
    pub fn mark_empty(&self, out: &mut [u8]) {
        let packet = self.end.checked_sub(DATA_LEN + 1);
        let packet = packet.and_then(|at| out.get_mut(at..self.end));
        let marked = packet.map(wire::mark_empty);
        debug_assert!(matches!(marked, Some(Ok(()))), "the last packet is such a DATA packet");
    }

    /// Fewest bytes by which [`Self::pad`] extends the datagram.
    pub fn least_padding(&self) -> usize {
        let framing = if self.count == 1 { 2 * LENGTH_LEN } else { LENGTH_LEN };
        framing + wire::encoded_len(&Body::Freeze)
    }

    /// Extends the datagram, which is not empty, to `len` bytes: with a packet that all receivers
    /// ignore (FREEZE), and zeros behind it, which belong to it.
    ///
    /// # Errors
    /// The buffer is shorter, or the datagram lacks fewer than [`Self::least_padding`] bytes.
    pub fn pad(&mut self, out: &mut [u8], freeze: &Packet, len: usize) -> Result<(), EncodeError> {
        let needed = len.max(self.end + self.least_padding());
        if self.count == 0 || needed > len || len > out.len() {
            return Err(EncodeError::BufferTooSmall { needed });
        }
        let freeze = Packet { body: Body::Freeze, ..*freeze };
        self.push(&mut out[..len], &freeze, &RequestExtensions::NONE)?;
        let start = self.end - wire::encoded_len(&freeze.body);
        out[self.end..len].fill(0);
        put_length(out, start - LENGTH_LEN, len - start);
        self.end = len;
        Ok(())
    }

    /// Bytes in the datagram so far.
    pub fn len(&self) -> usize {
        self.end
    }

    /// True before the first packet.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The extensions that the datagram lacks for a packet. An extension applies to all packets
    /// that can carry it, so two of them may not differ, and all of them or none must have it.
    #[inline]
    fn extensions_for(&self, out: &[u8], body: &Body) -> Result<Option<Extensions>, EncodeError> {
        // Nearly always DATA, which can have none of these.
        match extensible(body) {
            0 => Ok(None),
            one if self.types & one == 0 => Ok(Some(Extensions::of(body))),
            _ => {
                let written = out.get(HEADER_LEN..self.packets.into()).unwrap_or_default();
                let written =
                    Extensions::values(written).map_err(|_| EncodeError::OtherExtensions)?;
                match written.for_type_of(body) == Extensions::of(body).as_read() {
                    true => Ok(None),
                    false => Err(EncodeError::OtherExtensions),
                }
            }
        }
    }

    /// Moves the packets back and puts extensions in front of them.
    fn insert_extensions(
        &mut self,
        out: &mut [u8],
        extensions: &Extensions,
    ) -> Result<(), EncodeError> {
        let length = extensions.encoded_len();
        if length > 0 {
            let at = usize::from(self.packets);
            self.widen(out, at, length)?;
            extensions.write(&mut out[at..at + length]);
        }
        Ok(())
    }

    /// Bytes by which the lists of request extensions grow for one more request. All requests of a
    /// datagram have the same kinds.
    fn lists_grow(&self, request_extensions: &RequestExtensions) -> Result<usize, EncodeError> {
        match self.requests {
            0 => Ok(request_extensions.encoded_len()),
            _ if request_extensions.set() != self.lists => Err(EncodeError::OtherExtensions),
            _ => Ok(request_extensions.set().entries_len()),
        }
    }

    /// Appends an entry for one more request to each list.
    fn append_lists(
        &mut self,
        out: &mut [u8],
        request_extensions: &RequestExtensions,
    ) -> Result<(), EncodeError> {
        let (set, before) = (request_extensions.set(), usize::from(self.requests));
        self.requests += 1;
        if set == request_extensions::ExtensionSet::default() {
            return Ok(());
        }
        self.lists = set;
        let old = set.lists_len(before);
        let more = set.lists_len(before + 1) - old;
        self.widen(out, HEADER_LEN + old, more)?;
        let lists = &mut out[HEADER_LEN..HEADER_LEN + old + more];
        match before {
            0 => drop(request_extensions.write(lists)),
            _ => request_extensions.append(before, lists),
        }
        Ok(())
    }

    /// Makes room for `more` bytes of extensions at a place.
    fn widen(&mut self, out: &mut [u8], at: usize, more: usize) -> Result<(), EncodeError> {
        out.copy_within(at..self.end, at + more);
        self.packets += more as u16;
        self.end += more;
        set_extension_length(out, usize::from(self.packets) - HEADER_LEN)
    }

    /// Puts the length of the only packet in front of it.
    fn become_aggregate(&mut self, out: &mut [u8]) {
        let at = usize::from(self.packets);
        out.copy_within(at..self.end, at + LENGTH_LEN);
        put_length(out, at, self.end - at);
        self.end += LENGTH_LEN;
        if let Some(header) = out.first_chunk_mut::<HEADER_LEN>() {
            FLAGS.set(header, AGGREGATE);
        }
    }
}

/// Writes a packet's length, which fits in 16 bits because a buffer has at most [`DATAGRAM_MAX`]
/// bytes.
fn put_length(out: &mut [u8], at: usize, length: usize) {
    out[at..at + LENGTH_LEN].copy_from_slice(&(length as u16).to_be_bytes());
}
