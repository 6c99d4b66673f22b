//! The message header of `cp_node`, the load generator that comes with the Linux kernel module
//! (HomaModule, `util/`), so that either end can be a kernel host's.
//!
//! | bytes | field, in the byte order of the machine |
//! |---|---|
//! | 0..4 | length of the message, this header included |
//! | 4..8 | client's port, client, server's port, server: indexes, echoed |
//! | 8..10 | number of the request, echoed |
//! | 10..12 | bit 0 freeze, bit 1 short response, bit 2 response |
//!
//! A server sends the message back with bit 2 set; at most 100 bytes of it when the response is to
//! be short. Left out: `freeze`, which stops the tool's own tracing.

/// Bytes of the header, and of the shortest message.
pub const HEADER: usize = 12;
/// Longest response to a request for a short one, bytes.
pub const SHORT_RESPONSE: usize = 100;

const AT_SERVER_PORT: usize = 6;
const AT_NUMBER: usize = 8;
const AT_FLAGS: usize = 10;
const SHORT: u16 = 1 << 1;
const RESPONSE: u16 = 1 << 2;

/// A request of `length` bytes, at least a header, to the server's port of the given index.
pub fn request(length: usize, number: u16, port: u8, short_response: bool) -> Vec<u8> {
    let mut bytes = vec![7; length.max(HEADER)];
    bytes[4..AT_NUMBER].fill(0);
    bytes[AT_SERVER_PORT] = port;
    bytes[AT_NUMBER..AT_FLAGS].copy_from_slice(&number.to_ne_bytes());
    let flags = if short_response { SHORT } else { 0 };
    bytes[AT_FLAGS..HEADER].copy_from_slice(&flags.to_ne_bytes());
    set_length(&mut bytes);
    bytes
}

/// Turns a request into its response; one without a header is echoed as it is.
pub fn respond(mut bytes: Vec<u8>) -> Vec<u8> {
    let Some(flags) = field(&bytes, AT_FLAGS) else { return bytes };
    if flags & SHORT != 0 {
        bytes.truncate(SHORT_RESPONSE);
    }
    bytes[AT_FLAGS..HEADER].copy_from_slice(&(flags | RESPONSE).to_ne_bytes());
    set_length(&mut bytes);
    bytes
}

/// The number of the request that this is the response to; `None` when it is no response.
pub fn answered(bytes: &[u8]) -> Option<u16> {
    let response = field(bytes, AT_FLAGS)? & RESPONSE != 0;
    response.then(|| field(bytes, AT_NUMBER))?
}

fn field(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(..HEADER)?[at..].first_chunk().map(|two| u16::from_ne_bytes(*two))
}

fn set_length(bytes: &mut [u8]) {
    let length = bytes.len() as u32;
    bytes[..4].copy_from_slice(&length.to_ne_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_is_the_request_marked_and_cut_if_short() {
        let long = respond(request(5000, 0x1234, 3, false));
        assert_eq!((long.len(), answered(&long)), (5000, Some(0x1234)));
        assert_eq!(long[..4], 5000i32.to_ne_bytes());
        assert_eq!((long[6], long[10..12].to_vec()), (3, 4u16.to_ne_bytes().to_vec()));
        let short = respond(request(5000, 1, 0, true));
        assert_eq!((short.len(), &short[..4]), (100, &100i32.to_ne_bytes()[..]));
        assert_eq!(respond(request(20, 1, 0, true)).len(), 20, "never longer than the request");
    }

    #[test]
    fn what_has_no_header_is_echoed_and_answers_nothing() {
        assert_eq!(respond(b"hello".to_vec()), b"hello");
        assert_eq!(answered(&[0xff; 11]), None);
        assert_eq!(answered(&request(1, 9, 0, false)), None, "a request is no response");
    }
}
