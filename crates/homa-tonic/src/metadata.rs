//! Headers and trailers: a count, then for each entry the lengths of name and value, the name and
//! the value. Values of names that end with `-bin` stay in base64, as tonic holds them.
//!
//! Invariant: [`read`] accepts everything that [`write`] produces, and never panics.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::wire::Malformed;

/// Most bytes of one block, with lengths. gRPC implementations allow 8 kB by default.
pub(crate) const MOST: usize = 256 << 10;

/// Whether a request or response is of gRPC, by its content type (gRPC over HTTP/2, Requests).
/// `application/grpc-web` is another format.
pub fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    let rest = kind.strip_prefix(b"application/grpc");
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';' | b' ')))
}

/// Adds a block. Returns false, and adds nothing, if it would be longer than [`MOST`].
pub(crate) fn write(headers: &HeaderMap, to: &mut BytesMut) -> bool {
    let bytes: usize =
        headers.iter().map(|(name, value)| 3 + name.as_str().len() + value.len()).sum();
    let long = |(name, value): (&HeaderName, &HeaderValue)| {
        name.as_str().len() > usize::from(u8::MAX) || value.len() > usize::from(u16::MAX)
    };
    let (Ok(count), false) =
        (u16::try_from(headers.len()), bytes > MOST || headers.iter().any(long))
    else {
        return false;
    };
    to.reserve(2 + bytes);
    to.put_u16(count);
    for (name, value) in headers {
        to.put_u8(name.as_str().len() as u8);
        to.put_u16(value.len() as u16);
        to.put_slice(name.as_str().as_bytes());
        to.put_slice(value.as_bytes());
    }
    true
}

/// Takes a block off the front of a message. Values share the message's memory.
pub(crate) fn read(from: &mut Bytes) -> Result<HeaderMap, Malformed> {
    let count = from.try_get_u16().map_err(|_| Malformed::Short)?;
    let mut headers = HeaderMap::new();
    for _ in 0..count {
        let name = usize::from(from.try_get_u8().map_err(|_| Malformed::Short)?);
        let value = usize::from(from.try_get_u16().map_err(|_| Malformed::Short)?);
        if from.len() < name + value {
            return Err(Malformed::Short);
        }
        let name = HeaderName::from_bytes(&from.split_to(name)).map_err(|_| Malformed::Name)?;
        let value = HeaderValue::from_maybe_shared(from.split_to(value));
        // Refused if there are more than a header map can hold.
        let added = headers.try_append(name, value.map_err(|_| Malformed::Value)?);
        added.map_err(|_| Malformed::Count)?;
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers() -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.append("x-id", HeaderValue::from_static("7"));
        headers.append("x-id", HeaderValue::from_static("8"));
        headers.append("key-bin", HeaderValue::from_static("q6ur"));
        headers
    }

    #[test]
    fn grpc_is_told_from_other_content() {
        let is_grpc = |kind: &'static str| {
            is_grpc(&HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(kind))]))
        };
        for kind in ["application/grpc", "application/grpc+proto", "application/grpc; a=b"] {
            assert!(is_grpc(kind), "{kind}");
        }
        for kind in ["application/grpc-web", "application/grpcs", "text/plain", ""] {
            assert!(!is_grpc(kind), "{kind}");
        }
        assert!(!super::is_grpc(&HeaderMap::new()));
    }

    #[test]
    fn repeated_names_keep_their_values_in_order() {
        let mut block = BytesMut::new();
        assert!(write(&headers(), &mut block));
        block.put_slice(b"body");
        let mut block = block.freeze();
        assert_eq!(read(&mut block), Ok(headers()));
        assert_eq!(&block[..], b"body");
    }

    #[test]
    fn every_cut_of_a_block_is_refused() {
        let mut block = BytesMut::new();
        assert!(write(&headers(), &mut block));
        for length in 0..block.len() {
            let mut cut = Bytes::copy_from_slice(&block[..length]);
            assert_eq!(read(&mut cut), Err(Malformed::Short), "{length} bytes");
        }
    }

    #[test]
    fn headers_beyond_the_limit_are_not_written() {
        let mut headers = HeaderMap::new();
        headers.insert("x", HeaderValue::from_bytes(&vec![b'x'; 65_536]).unwrap());
        let mut block = BytesMut::new();
        assert!(!write(&headers, &mut block));
        assert!(block.is_empty());
    }
}
