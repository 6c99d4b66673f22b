//! RPCs on a byte stream: a header of 16 bytes, then the body.
//!
//! | bytes | field |
//! |---|---|
//! | 0-7 | id, chosen by the client |
//! | 8-11 | length of the body |
//! | 12-15 | length of the wanted response; all ones: this is a response |
//!
//! Numbers are little-endian. Bodies are filler that no application reads, because the time of
//! applications is not measured for the rivals either.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Write};

/// Length of the header.
pub(crate) const HEADER: usize = 16;
const RESPONSE: u32 = u32::MAX;
/// The bytes of bodies.
static FILL: [u8; 65_536] = [0x5a; 65_536];
/// Slices per system call.
const SLICES: usize = 32;

/// The fields of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// Which RPC.
    pub(crate) id: u64,
    /// Length of the body that follows.
    pub(crate) bytes: u32,
    /// `Some`: a request that wants this many bytes; `None`: a response.
    pub(crate) wanted: Option<u32>,
}

impl Header {
    fn encode(self) -> [u8; HEADER] {
        let mut out = [0; HEADER];
        out[..8].copy_from_slice(&self.id.to_le_bytes());
        out[8..12].copy_from_slice(&self.bytes.to_le_bytes());
        out[12..].copy_from_slice(&self.wanted.unwrap_or(RESPONSE).to_le_bytes());
        out
    }

    fn decode(bytes: &[u8; HEADER]) -> Self {
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let id = u64::from(word(0)) | u64::from(word(4)) << 32;
        let wanted = Some(word(12)).filter(|&wanted| wanted != RESPONSE);
        Self { id, bytes: word(8), wanted }
    }
}

/// The receiving end of a stream: turns bytes into messages.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    header: [u8; HEADER],
    header_bytes: usize,
    body_left: usize,
}

impl Reader {
    /// Takes the next bytes of the stream and reports every message whose last byte is among them.
    pub(crate) fn take(&mut self, mut bytes: &[u8], mut message: impl FnMut(Header)) {
        while !bytes.is_empty() {
            if self.header_bytes < HEADER {
                let n = bytes.len().min(HEADER - self.header_bytes);
                self.header[self.header_bytes..][..n].copy_from_slice(&bytes[..n]);
                self.header_bytes += n;
                bytes = &bytes[n..];
                if self.header_bytes == HEADER {
                    self.body_left = Header::decode(&self.header).bytes as usize;
                }
            } else {
                let n = bytes.len().min(self.body_left);
                self.body_left -= n;
                bytes = &bytes[n..];
            }
            if self.header_bytes == HEADER && self.body_left == 0 {
                self.header_bytes = 0;
                message(Header::decode(&self.header));
            }
        }
    }
}

/// The sending end of a stream: messages that wait for room.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    waiting: VecDeque<([u8; HEADER], usize)>,
    /// Bytes of the front message, header included, already written.
    written: usize,
}

impl Writer {
    /// Appends a message.
    pub(crate) fn push(&mut self, header: Header) {
        self.waiting.push_back((header.encode(), header.bytes as usize));
    }

    /// True when everything was written.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Writes until nothing waits (true) or `stream` has no room (false).
    pub(crate) fn flush(&mut self, stream: &mut impl Write) -> io::Result<bool> {
        while !self.waiting.is_empty() {
            let slices = self.slices();
            match stream.write_vectored(&slices) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => self.advance(n),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(true)
    }

    fn slices(&self) -> Vec<IoSlice<'_>> {
        let mut slices = Vec::with_capacity(SLICES);
        let mut skip = self.written;
        for (header, body) in &self.waiting {
            if skip < HEADER {
                slices.push(IoSlice::new(&header[skip..]));
            }
            let mut left = body - skip.saturating_sub(HEADER);
            skip = 0;
            while left > 0 && slices.len() < SLICES {
                let n = left.min(FILL.len());
                slices.push(IoSlice::new(&FILL[..n]));
                left -= n;
            }
            if slices.len() >= SLICES {
                break;
            }
        }
        slices
    }

    fn advance(&mut self, n: usize) {
        self.written += n;
        while let Some((_, body)) = self.waiting.front().filter(|m| self.written >= HEADER + m.1) {
            self.written -= HEADER + body;
            self.waiting.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes at most `room` bytes per call, and none on every third call.
    struct Narrow {
        taken: Vec<u8>,
        room: usize,
        calls: usize,
    }

    impl Write for Narrow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.calls += 1;
            if self.calls.is_multiple_of(3) {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let n = bytes.len().min(self.room);
            self.taken.extend(&bytes[..n]);
            Ok(n)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_is_written_is_read_whatever_the_pieces() {
        let request = |id, bytes| Header { id, bytes, wanted: Some(bytes) };
        let sent = [
            request(u64::MAX - 1, 1),
            request(7, 200_000),
            Header { id: 7, bytes: 100, wanted: None },
            Header { id: 8, bytes: 0, wanted: None },
            request(9, 65_536),
        ];
        for room in [1, 15, 16, 17, 1_000, 65_552, 1_000_000] {
            let mut writer = Writer::default();
            sent.into_iter().for_each(|header| writer.push(header));
            let mut stream = Narrow { taken: Vec::new(), room, calls: 0 };
            while !writer.flush(&mut stream).unwrap() {}
            let expected: usize = sent.iter().map(|h| HEADER + h.bytes as usize).sum();
            assert_eq!(stream.taken.len(), expected);
            let (mut reader, mut received) = (Reader::default(), Vec::new());
            stream.taken.chunks(room).for_each(|c| reader.take(c, |h| received.push(h)));
            assert_eq!(received, sent, "pieces of {room}");
        }
    }
}
