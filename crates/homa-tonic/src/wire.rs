//! The format of gRPC, and of HTTP, in messages of Homa, version 1, as `docs/wire-grpc.md`
//! specifies it. All integers are big-endian.
//!
//! A request opens a call, pushes a part of its request body, pulls a part of its response body, or
//! resets it. The response to an open or a pull carries what the server has: the head once, then
//! bytes of the body, and the trailers with the last ones. Bodies are the bytes that gRPC would put
//! into HTTP/2's DATA frames: messages, each behind a prefix of five bytes.
//!
//! Invariant: decoding never panics, and bodies share the memory of the message they came in.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, StatusCode};

use crate::metadata;

/// The version of the format. A server answers other versions with [`Answer::Refused`].
pub const VERSION: u8 = 1;

const OPEN: u8 = 1;
const PUSH: u8 = 2;
const PULL: u8 = 3;
const RESET: u8 = 4;

const COMPLETE: u8 = 1;
const METHOD: u8 = 2;

const HEAD: u8 = 1;
const END: u8 = 2;
const UNKNOWN: u8 = 4;
const CLOSED: u8 = 8;
const REFUSED: u8 = 16;
const LATER: u8 = 32;

/// Why a message cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// It ends too early.
    #[error("the message ends too early")]
    Short,
    /// It has another version of the format.
    #[error("version {0} of the format, where {VERSION} is known: update the older end")]
    Version(u8),
    /// Its kind is unknown.
    #[error("unknown kind of message {0}")]
    Kind(u8),
    /// The path of the method is not a path.
    #[error("the path of the method is not valid")]
    Path,
    /// The method of HTTP is none.
    #[error("the HTTP method is not valid")]
    Method,
    /// The name of a header is not valid.
    #[error("the name of a header is not valid")]
    Name,
    /// The value of a header is not valid.
    #[error("the value of a header is not valid")]
    Value,
    /// There are too many headers.
    #[error("too many headers")]
    Count,
    /// The status of HTTP is none.
    #[error("the HTTP status is not valid")]
    Status,
}

/// The number of a call, which its client draws at random. With the client's host it names a call
/// that takes several RPCs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallNumber(pub u128);

/// The first message of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open {
    /// The number of the call.
    pub number: CallNumber,
    /// Whether `body` is the whole request body.
    pub complete: bool,
    /// Bytes of the response body for which the client has room.
    pub window: u32,
    /// The method of HTTP: POST for gRPC.
    pub method: Method,
    /// `/package.Service/Method`, or any path of HTTP with its query.
    pub path: PathAndQuery,
    /// Headers of the request.
    pub headers: HeaderMap,
    /// The request body, or its beginning.
    pub body: Vec<Bytes>,
}

/// The head of a message that belongs to a call in progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientMessage {
    /// Begins a call.
    Open(Box<Open>),
    /// Brings a part of the request body.
    Push {
        /// The call.
        number: CallNumber,
        /// Counts the pushes of a call, from 0.
        sequence: u32,
        /// Whether `body` is the last part.
        complete: bool,
        /// The part.
        body: Vec<Bytes>,
    },
    /// Asks for a part of the response.
    Pull {
        /// The call.
        number: CallNumber,
        /// Counts the pulls of a call, from 0.
        sequence: u32,
        /// Bytes of the response body for which the client has room.
        window: u32,
    },
    /// Ends a call whose result the client no longer wants.
    Reset {
        /// The call.
        number: CallNumber,
    },
}

/// A part of a response: the answer to an open or a pull.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Status and headers, in the first part that has something to say.
    pub head: Option<(StatusCode, HeaderMap)>,
    /// Trailers, in the last part.
    pub end: Option<HeaderMap>,
    /// Bytes of the response body.
    pub body: Vec<Bytes>,
}

/// The answer to a request. Nearly all are parts, so that a box for those would cost an allocation.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To an open or a pull. A part without head, end and body means that there is nothing yet; to
    /// a push, that it was taken.
    Part(Part),
    /// No call of this number is in progress: it has not arrived yet, or it has ended.
    Unknown,
    /// To a push: the service has not read the pushes before it; push it again.
    Later,
    /// To a push: the service no longer reads the request.
    Closed,
    /// The request could not be decoded; a peer of another version sends this.
    Refused,
}

impl Open {
    /// The message, or `None` if the headers or the path are too long.
    pub fn encode(&self) -> Option<Vec<Bytes>> {
        let mut head = BytesMut::with_capacity(64 + self.path.as_str().len());
        head.put_u8(VERSION);
        head.put_u8(OPEN);
        let method = self.method.as_str();
        let other = self.method != Method::POST;
        let complete = if self.complete { COMPLETE } else { 0 };
        head.put_u8(complete | if other { METHOD } else { 0 });
        head.put_u128(self.number.0);
        head.put_u32(self.window);
        let path = self.path.as_str();
        head.put_u16(path.len().try_into().ok()?);
        head.put_slice(path.as_bytes());
        if other {
            head.put_u8(method.len().try_into().ok()?);
            head.put_slice(method.as_bytes());
        }
        if !metadata::write(&self.headers, &mut head) {
            return None;
        }
        Some(message(head, self.body.iter().cloned()))
    }

    fn decode(mut from: Bytes) -> Result<Self, Malformed> {
        let flags = from.try_get_u8().map_err(short)?;
        if flags & !(COMPLETE | METHOD) != 0 {
            return Err(Malformed::Kind(flags));
        }
        let complete = flags & COMPLETE != 0;
        let number = CallNumber(from.try_get_u128().map_err(short)?);
        let window = from.try_get_u32().map_err(short)?;
        let length = usize::from(from.try_get_u16().map_err(short)?);
        let path = split(&mut from, length)?;
        // `PathAndQuery` takes a query alone, too.
        if !matches!(&path[..], [b'/', ..] | b"*") {
            return Err(Malformed::Path);
        }
        let path = PathAndQuery::from_maybe_shared(path).map_err(|_| Malformed::Path)?;
        let mut method = Method::POST;
        if flags & METHOD != 0 {
            let length = usize::from(from.try_get_u8().map_err(short)?);
            let name = split(&mut from, length)?;
            method = Method::from_bytes(&name).map_err(|_| Malformed::Method)?;
        }
        let headers = metadata::read(&mut from)?;
        Ok(Self { number, complete, window, method, path, headers, body: parts(from) })
    }
}

impl ClientMessage {
    /// The message, or `None` if the headers or the path are too long.
    pub fn encode(&self) -> Option<Vec<Bytes>> {
        let mut head = BytesMut::with_capacity(32);
        head.put_u8(VERSION);
        let (kind, number) = match self {
            Self::Open(open) => return open.encode(),
            Self::Push { number, .. } => (PUSH, number),
            Self::Pull { number, .. } => (PULL, number),
            Self::Reset { number } => (RESET, number),
        };
        head.put_u8(kind);
        head.put_u128(number.0);
        match self {
            Self::Push { sequence, complete, body, .. } => {
                head.put_u32(*sequence);
                head.put_u8(if *complete { COMPLETE } else { 0 });
                return Some(message(head, body.iter().cloned()));
            }
            Self::Pull { sequence, window, .. } => {
                head.put_u32(*sequence);
                head.put_u32(*window);
            }
            _ => {}
        }
        Some(vec![head.freeze()])
    }

    /// Decodes a message of a client.
    pub fn decode(mut from: Bytes) -> Result<Self, Malformed> {
        let kind = version(&mut from)?;
        if kind == OPEN {
            return Open::decode(from).map(|open| Self::Open(Box::new(open)));
        }
        let number = CallNumber(from.try_get_u128().map_err(short)?);
        match kind {
            PUSH => {
                let sequence = from.try_get_u32().map_err(short)?;
                let complete = from.try_get_u8().map_err(short)? & COMPLETE != 0;
                Ok(Self::Push { number, sequence, complete, body: parts(from) })
            }
            PULL => {
                let sequence = from.try_get_u32().map_err(short)?;
                Ok(Self::Pull { number, sequence, window: from.try_get_u32().map_err(short)? })
            }
            RESET => Ok(Self::Reset { number }),
            kind => Err(Malformed::Kind(kind)),
        }
    }
}

impl Answer {
    /// The message, or `None` if the headers or the trailers are too long.
    pub fn encode(self) -> Option<Vec<Bytes>> {
        let mut head = BytesMut::with_capacity(64);
        head.put_u8(VERSION);
        let part = match self {
            Self::Part(part) => part,
            Self::Unknown => return Some(flags(head, UNKNOWN)),
            Self::Closed => return Some(flags(head, CLOSED)),
            Self::Later => return Some(flags(head, LATER)),
            Self::Refused => return Some(flags(head, REFUSED)),
        };
        let Part { head: first, end, body } = part;
        head.put_u8(first.as_ref().map_or(0, |_| HEAD) | end.as_ref().map_or(0, |_| END));
        if let Some((status, headers)) = first {
            head.put_u16(status.as_u16());
            if !metadata::write(&headers, &mut head) {
                return None;
            }
        }
        if let Some(trailers) = end
            && !metadata::write(&trailers, &mut head)
        {
            return None;
        }
        Some(message(head, body))
    }

    /// Decodes a message of a server.
    pub fn decode(mut from: Bytes) -> Result<Self, Malformed> {
        let flags = version(&mut from)?;
        match flags {
            UNKNOWN => return Ok(Self::Unknown),
            CLOSED => return Ok(Self::Closed),
            LATER => return Ok(Self::Later),
            REFUSED => return Ok(Self::Refused),
            flags if flags & !(HEAD | END) != 0 => return Err(Malformed::Kind(flags)),
            _ => {}
        }
        let mut part = Part::default();
        if flags & HEAD != 0 {
            let status = from.try_get_u16().map_err(short)?;
            let status = StatusCode::from_u16(status).map_err(|_| Malformed::Status)?;
            part.head = Some((status, metadata::read(&mut from)?));
        }
        if flags & END != 0 {
            part.end = Some(metadata::read(&mut from)?);
        }
        part.body = parts(from);
        Ok(Self::Part(part))
    }
}

/// A message of a head and the parts of a body, which are not copied.
fn message(head: BytesMut, body: impl IntoIterator<Item = Bytes>) -> Vec<Bytes> {
    std::iter::once(head.freeze()).chain(body).collect()
}

/// Takes `length` bytes off the front.
fn split(from: &mut Bytes, length: usize) -> Result<Bytes, Malformed> {
    if from.len() < length {
        return Err(Malformed::Short);
    }
    Ok(from.split_to(length))
}

/// The rest of a message as a body.
fn parts(rest: Bytes) -> Vec<Bytes> {
    if rest.is_empty() { Vec::new() } else { vec![rest] }
}

fn flags(mut head: BytesMut, flags: u8) -> Vec<Bytes> {
    head.put_u8(flags);
    vec![head.freeze()]
}

/// Checks the version and returns the byte after it.
fn version(from: &mut Bytes) -> Result<u8, Malformed> {
    match from.try_get_u8().map_err(short)? {
        VERSION => from.try_get_u8().map_err(short),
        version => Err(Malformed::Version(version)),
    }
}

fn short(_: bytes::TryGetError) -> Malformed {
    Malformed::Short
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn whole(parts: Vec<Bytes>) -> Bytes {
        parts.concat().into()
    }

    fn headers() -> HeaderMap {
        [("x-id".parse().unwrap(), HeaderValue::from_static("7"))].into_iter().collect()
    }

    fn requests() -> [ClientMessage; 5] {
        let (number, body) = (CallNumber(7 << 100 | 9), vec![Bytes::from_static(b"body")]);
        let open = Open {
            number,
            complete: true,
            window: 65_536,
            method: Method::POST,
            path: PathAndQuery::from_static("/search.Search/Find"),
            headers: headers(),
            body: body.clone(),
        };
        let get = Open {
            method: Method::GET,
            path: PathAndQuery::from_static("/find?q=homa"),
            body: Vec::new(),
            ..open.clone()
        };
        [
            ClientMessage::Open(Box::new(open)),
            ClientMessage::Open(Box::new(get)),
            ClientMessage::Push { number, sequence: 3, complete: true, body },
            ClientMessage::Pull { number, sequence: 4, window: 1 },
            ClientMessage::Reset { number },
        ]
    }

    fn answers() -> [Answer; 6] {
        let part = Part {
            head: Some((StatusCode::OK, headers())),
            end: Some(headers()),
            body: vec![Bytes::from_static(b"body")],
        };
        let codes = [Answer::Unknown, Answer::Closed, Answer::Refused, Answer::Later];
        let [unknown, closed, refused, later] = codes;
        [Answer::Part(part), Answer::Part(Part::default()), unknown, closed, refused, later]
    }

    #[test]
    fn every_message_is_decoded_as_it_was_encoded() {
        for request in requests() {
            assert_eq!(ClientMessage::decode(whole(request.encode().unwrap())), Ok(request));
        }
        for answer in answers() {
            assert_eq!(Answer::decode(whole(answer.clone().encode().unwrap())), Ok(answer));
        }
    }

    #[test]
    fn cut_and_changed_messages_do_not_panic() {
        let requests = requests().map(|request| whole(request.encode().unwrap()));
        let answers = answers().map(|answer| whole(answer.encode().unwrap()));
        for message in requests.into_iter().chain(answers) {
            for at in 0..message.len() {
                let _ = ClientMessage::decode(message.slice(..at));
                let _ = Answer::decode(message.slice(..at));
                for byte in [0, 1, 0x7f, 0xff] {
                    let mut changed = message.to_vec();
                    changed[at] = byte;
                    let _ = ClientMessage::decode(changed.clone().into());
                    let _ = Answer::decode(changed.into());
                }
            }
        }
    }

    #[test]
    fn a_path_that_is_none_is_refused() {
        let [open, ..] = requests();
        let message = whole(open.encode().unwrap());
        // Version, kind, flags, number and window, and the length of the path.
        let (before, path) = (25, "/search.Search/Find");
        assert_eq!(&message[before..before + path.len()], path.as_bytes());
        for bad in ["", "find", "?q", "/a b", "/a\r\nb: c", "/\u{7f}"] {
            let length = (bad.len() as u16).to_be_bytes();
            let parts = [&message[..before - 2], &length, bad.as_bytes(), &message[before..]];
            assert_eq!(
                ClientMessage::decode(parts.concat().into()),
                Err(Malformed::Path),
                "{bad:?}"
            );
        }
    }

    #[test]
    fn another_version_is_named() {
        assert_eq!(ClientMessage::decode(Bytes::from_static(&[2, 1])), Err(Malformed::Version(2)));
        assert_eq!(ClientMessage::decode(Bytes::new()), Err(Malformed::Short));
    }

    /// The test vectors of the page, in its order.
    fn vectors() -> Vec<Bytes> {
        let page = include_str!("../../../docs/wire-grpc.md");
        let digits = |line: &str| line.strip_prefix("    ").map(|line| line.replace(' ', ""));
        let blocks = page
            .split("\n\n")
            .filter_map(|block| block.trim_end().lines().map(digits).collect::<Option<String>>());
        let bytes = |digits: String| {
            let bytes = (0..digits.len() / 2)
                .map(|n| u8::from_str_radix(digits.get(2 * n..2 * n + 2)?, 16).ok());
            bytes.collect::<Option<Vec<u8>>>().map(Bytes::from)
        };
        blocks.filter_map(bytes).filter(|bytes| !bytes.is_empty()).collect()
    }

    #[test]
    fn the_bytes_are_those_of_the_specification() {
        let [open, get, push, _, reset] = requests();
        let pull = ClientMessage::Pull { number: CallNumber(0xab), sequence: 1, window: 256 };
        let requests =
            [open, get, push, pull, reset].map(|request| whole(request.encode().unwrap()));
        let [part, nothing, unknown, _, _, later] = answers();
        let answers = [part, nothing, unknown, later].map(|answer| whole(answer.encode().unwrap()));
        let ours: Vec<Bytes> = requests.into_iter().chain(answers).collect();
        assert_eq!(ours, vectors());
    }
}
