//! Inputs that are compressed: gzip and zstd, recognised by their first bytes and unpacked as they
//! are read.
//!
//! Memory is bounded by the formats: gzip looks back 32 KiB, and of zstd at most 100 MiB are
//! accepted (RFC 8878 §3.1.1.1.2; its tools write 8 MiB or less unless they are told otherwise). So
//! a small file that unpacks to an endless one takes time, not memory. A file may consist of
//! several packed parts, as programs that append to it leave it.

use std::io::{self, BufRead, BufReader, Chain, Cursor, Read};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// The bytes of a file or pipe.
pub type Input = Box<dyn Read>;

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// Behind a first byte from 0x50 to 0x5f: a frame of zstd that has no content.
const SKIPPED: [u8; 3] = [0x2a, 0x4d, 0x18];
/// A frame of zstd that is empty.
const EMPTY: [u8; 9] = [0x28, 0xb5, 0x2f, 0xfd, 0x20, 0, 1, 0, 0];
/// Bytes taken from the file at a time.
const BUFFER: usize = 1 << 16;

/// The input without its compression, if it has one.
pub fn unpacked(mut input: Input) -> io::Result<Input> {
    let mut magic = Vec::new();
    (&mut input).take(ZSTD.len() as u64).read_to_end(&mut magic)?;
    let is_gzip = magic.starts_with(&GZIP);
    let is_skipped = magic.first().is_some_and(|byte| byte >> 4 == 5) && magic[1..] == SKIPPED;
    let is_zstd = magic == ZSTD || is_skipped;
    let bytes = BufReader::with_capacity(BUFFER, Cursor::new(magic).chain(input));
    Ok(match (is_gzip, is_zstd) {
        (true, _) => Box::new(MultiGzDecoder::new(bytes)),
        (_, true) => {
            let mut decoder = FrameDecoder::new();
            // The decoder limits windows from its second frame on.
            decoder.init(&EMPTY[..]).map_err(|error| damaged(&error.to_string()))?;
            Box::new(Zstd { bytes, decoder, inside: false })
        }
        _ => Box::new(bytes),
    })
}

/// The content of a zstd file, frame by frame.
struct Zstd {
    bytes: BufReader<Chain<Cursor<Vec<u8>>, Input>>,
    decoder: FrameDecoder,
    /// Whether the decoder is in a frame.
    inside: bool,
}

impl Zstd {
    /// Begins the next frame with content; `false` at the end of the file.
    fn begin(&mut self) -> io::Result<bool> {
        while !self.bytes.fill_buf()?.is_empty() {
            match self.decoder.init(&mut self.bytes) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let mut skipped = (&mut self.bytes).take(length.into());
                    io::copy(&mut skipped, &mut io::sink())?;
                }
                Err(error) => return Err(damaged(&error.to_string())),
            }
        }
        Ok(false)
    }

    /// Checks the frame that ended.
    fn end(&mut self) -> io::Result<()> {
        self.inside = false;
        let stated = self.decoder.get_checksum_from_data();
        let differs = stated.is_some() && stated != self.decoder.get_calculated_checksum();
        if differs { Err(damaged("the checksum of a frame differs")) } else { Ok(()) }
    }
}

impl Read for Zstd {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        loop {
            if !self.inside {
                if !self.begin()? {
                    return Ok(0);
                }
                self.inside = true;
            }
            // What is within the window of the frame cannot be taken yet.
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                let some = BlockDecodingStrategy::UptoBytes(into.len());
                let decoded = self.decoder.decode_blocks(&mut self.bytes, some);
                decoded.map_err(|error| damaged(&error.to_string()))?;
            }
            match self.decoder.read(into)? {
                0 => self.end()?,
                read => return Ok(read),
            }
        }
    }
}

fn damaged(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("damaged zstd: {what}"))
}
