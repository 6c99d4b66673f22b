//! The bytes of a message to send.

use std::sync::Arc;

use bytes::Bytes;

use crate::message::Message;

/// The bytes of a message to send, created with `into()`. Vectors, strings, received [`Message`]s
/// and [`Bytes`] are moved without a copy; slices and arrays are copied. To send the same bytes
/// more than once, keep them in [`Bytes`].
///
/// A list of [`Bytes`] is one message, and is sent from where its parts lie. Only packets with many
/// small parts, and packets of at most 600 bytes, are copied together.
///
/// If the memory has an owner ([`Bytes::from_owner`]), its destructor runs when the message is
/// released, in any thread that uses the engine or in the engine's helper thread. The destructor
/// may use the engine.
///
/// ```
/// # use homa::{Client, Server};
/// # let server = Server::bind("127.0.0.1:0".parse()?)?;
/// # let address = server.local_addr();
/// # std::thread::spawn(move || while let Some(request) = server.accept() {
/// #     let _ = request.reply("done");
/// # });
/// use bytes::Bytes;
///
/// let client = Client::new()?;
/// let picture = Bytes::from(vec![7; 1_000_000]);
/// for name in ["one", "two", "three"] {
///     client.call(address, [Bytes::from(name), picture.clone()])?;
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Payload(Storage);

// Two nested enumerations, because then neither needs a tag.
#[derive(Clone, Debug)]
enum Storage {
    Owned(Owned),
    Shared(Bytes),
}

#[derive(Clone, Debug)]
enum Owned {
    Vector(Vec<u8>),
    List(Arc<[PayloadPart]>),
    Writing(Box<WrittenPayload>),
}

/// A message that is written while it is sent.
#[derive(Clone, Debug)]
struct WrittenPayload {
    /// The bytes so far.
    bytes: Vec<u8>,
    /// Bytes in the whole message.
    length: usize,
}

const _: () = assert!(size_of::<Payload>() == size_of::<Bytes>(), "calls move it");

/// A part of a list; never empty.
#[derive(Debug)]
struct PayloadPart {
    /// Offset of its end in the message.
    end: usize,
    bytes: Bytes,
}

impl Payload {
    /// Number of bytes.
    pub fn len(&self) -> usize {
        match &self.0 {
            Storage::Owned(Owned::Vector(bytes)) => bytes.len(),
            Storage::Shared(bytes) => bytes.len(),
            Storage::Owned(Owned::List(parts)) => parts.last().map_or(0, |part| part.end),
            Storage::Owned(Owned::Writing(written)) => written.length,
        }
    }

    /// True if there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes in order, part by part. A payload that was not created from a list has one part.
    pub fn parts(&self) -> impl Iterator<Item = &[u8]> {
        self.slices(0, self.len())
    }

    /// A message of `length` bytes that will be [written](Self::write).
    pub(crate) fn to_be_written(length: usize) -> Self {
        if length == 0 {
            return Bytes::new().into();
        }
        let bytes = Vec::new();
        Self(Storage::Owned(Owned::Writing(Box::new(WrittenPayload { bytes, length }))))
    }

    /// True for a message of [`Self::to_be_written`].
    #[inline]
    pub(crate) fn is_to_be_written(&self) -> bool {
        matches!(self.0, Storage::Owned(Owned::Writing(_)))
    }

    /// Appends to a message that is being written, up to its length; returns how many bytes of it
    /// exist.
    pub(crate) fn write(&mut self, more: &[u8]) -> usize {
        let Storage::Owned(Owned::Writing(written)) = &mut self.0 else { return self.len() };
        let room = written.length - written.bytes.len();
        // Once, because memory that is not written to costs nothing.
        written.bytes.reserve_exact(room);
        written.bytes.extend_from_slice(&more[..more.len().min(room)]);
        written.bytes.len()
    }

    /// The same bytes, so that clones share them.
    pub(crate) fn shared(self) -> Self {
        match self.into_memory() {
            Ok(vector) => Self(Storage::Shared(vector.into())),
            Err(shared) => shared,
        }
    }

    /// `len` bytes from `start` on, if they exist and are contiguous.
    #[inline]
    pub(crate) fn get(&self, start: usize, len: usize) -> Option<&[u8]> {
        match &self.0 {
            Storage::Owned(Owned::Vector(bytes)) => bytes.get(start..start + len),
            Storage::Shared(bytes) => bytes.get(start..start + len),
            Storage::Owned(Owned::Writing(written)) => written.bytes.get(start..start + len),
            Storage::Owned(Owned::List(_)) => self.get_of_list(start, len),
        }
    }

    #[cold]
    fn get_of_list(&self, start: usize, len: usize) -> Option<&[u8]> {
        self.slices(start, len).next().filter(|slice| slice.len() == len)
    }

    /// Up to `len` bytes from `start` on, in contiguous slices.
    pub(crate) fn slices(&self, start: usize, len: usize) -> impl Iterator<Item = &[u8]> {
        let end = start.saturating_add(len);
        let (whole, list): (&[u8], &[PayloadPart]) = match &self.0 {
            Storage::Owned(Owned::Vector(bytes)) => (bytes, &[]),
            Storage::Shared(bytes) => (bytes, &[]),
            Storage::Owned(Owned::Writing(written)) => (&written.bytes, &[]),
            Storage::Owned(Owned::List(parts)) => (&[], parts),
        };
        let whole = whole.get(start..end.min(whole.len())).filter(|slice| !slice.is_empty());
        let first = list.partition_point(|part| part.end <= start);
        let parts = list[first..].iter().map_while(move |part| {
            let begins = part.end - part.bytes.len();
            let from = start.max(begins);
            (from < end).then(|| &part.bytes[from - begins..end.min(part.end) - begins])
        });
        whole.into_iter().chain(parts)
    }

    /// The vector, so that its memory can be reused. Returns the payload itself if the bytes may be
    /// shared, because dropping them can run a destructor ([`Bytes::from_owner`]).
    pub(crate) fn into_memory(self) -> Result<Vec<u8>, Self> {
        match self.0 {
            Storage::Owned(Owned::Vector(bytes)) => Ok(bytes),
            Storage::Owned(Owned::Writing(written)) => Ok(written.bytes),
            Storage::Shared(_) | Storage::Owned(Owned::List(_)) => Err(self),
        }
    }
}

/// Copies only if the payload was created from a list.
impl From<Payload> for Bytes {
    fn from(payload: Payload) -> Self {
        match payload.0 {
            Storage::Owned(Owned::Vector(bytes)) => bytes.into(),
            Storage::Shared(bytes) => bytes,
            Storage::Owned(Owned::Writing(written)) => written.bytes.into(),
            Storage::Owned(Owned::List(_)) => payload.parts().collect::<Vec<_>>().concat().into(),
        }
    }
}

impl From<Bytes> for Payload {
    fn from(bytes: Bytes) -> Self {
        Self(Storage::Shared(bytes))
    }
}

impl From<Vec<Bytes>> for Payload {
    fn from(parts: Vec<Bytes>) -> Self {
        parts.into_iter().collect()
    }
}

impl From<&[Bytes]> for Payload {
    fn from(parts: &[Bytes]) -> Self {
        parts.iter().cloned().collect()
    }
}

impl<const N: usize> From<[Bytes; N]> for Payload {
    fn from(parts: [Bytes; N]) -> Self {
        parts.into_iter().collect()
    }
}

/// From parts of any kind that converts into [`Bytes`]: vectors, strings, received messages.
impl<B: Into<Bytes>> FromIterator<B> for Payload {
    fn from_iter<I: IntoIterator<Item = B>>(parts: I) -> Self {
        let mut end = 0;
        let parts = parts.into_iter().map(Into::into).filter(|bytes| !bytes.is_empty());
        let mut parts: Vec<PayloadPart> = parts
            .map(|bytes| {
                end += bytes.len();
                PayloadPart { end, bytes }
            })
            .collect();
        match parts.len() {
            0 => Bytes::new().into(),
            1 => parts.remove(0).bytes.into(),
            _ => Self(Storage::Owned(Owned::List(parts.into()))),
        }
    }
}

impl From<Vec<u8>> for Payload {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Storage::Owned(Owned::Vector(bytes)))
    }
}

impl From<Message> for Payload {
    fn from(message: Message) -> Self {
        message.into_vec().into()
    }
}

impl From<String> for Payload {
    fn from(text: String) -> Self {
        text.into_bytes().into()
    }
}

impl From<Box<[u8]>> for Payload {
    fn from(bytes: Box<[u8]>) -> Self {
        bytes.into_vec().into()
    }
}

impl From<&[u8]> for Payload {
    fn from(bytes: &[u8]) -> Self {
        bytes.to_vec().into()
    }
}

impl From<&str> for Payload {
    fn from(text: &str) -> Self {
        text.as_bytes().into()
    }
}

impl<const N: usize> From<[u8; N]> for Payload {
    fn from(bytes: [u8; N]) -> Self {
        bytes.as_slice().into()
    }
}

impl<const N: usize> From<&[u8; N]> for Payload {
    fn from(bytes: &[u8; N]) -> Self {
        bytes.as_slice().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_returns_any_span_in_contiguous_slices() {
        let parts = [Bytes::from("abc"), Bytes::new(), Bytes::from("d"), Bytes::from("efgh")];
        let list = Payload::from(parts.clone());
        assert_eq!(list.len(), 8);
        assert_eq!(list.parts().collect::<Vec<_>>(), [&b"abc"[..], b"d", b"efgh"]);
        for (start, len) in (0..=9).flat_map(|start| (0..=9).map(move |len| (start, len))) {
            let spanned = &b"abcdefgh"[start.min(8)..(start + len).min(8)];
            let slices: Vec<_> = list.slices(start, len).collect();
            assert_eq!(slices.concat(), spanned, "{start} {len}");
            assert!(slices.iter().all(|slice| !slice.is_empty()), "{start} {len}");
            let together = slices.len() == 1 && slices[0].len() == len;
            assert_eq!(list.get(start, len), together.then_some(spanned), "{start} {len}");
        }
        assert_eq!(list.get(5, 2).unwrap().as_ptr(), parts[3][1..].as_ptr(), "not a copy");
    }

    #[test]
    fn nothing_is_copied_but_lists_that_become_one_buffer() {
        let vector = vec![7; 5000];
        let at = vector.as_ptr();
        let bytes = Bytes::from(Payload::from(Message::from(vector)));
        assert_eq!(bytes.as_ptr(), at);
        let one = Payload::from(vec![Bytes::new(), bytes]);
        assert_eq!(one.parts().map(<[u8]>::as_ptr).collect::<Vec<_>>(), [at]);
        assert_eq!(Bytes::from(one).as_ptr(), at);
        let two: Payload = ["ab", "cd"].into_iter().collect();
        assert_eq!(Bytes::from(two), "abcd");
        assert!(Payload::from(Vec::<Bytes>::new()).is_empty());
    }
}
