//! Reassembly of the handshake bytes of one level.
//!
//! Fragments arrive in any order, repeated and overlapping. Invariants: bytes come out once and in
//! order, and the bytes that arrived first count. Memory is that of the bytes that wait for a gap,
//! at most [`LENGTH_MAX`] bytes in about [`PIECES_MAX`] pieces, whatever the offsets.

use std::collections::BTreeMap;

/// Most handshake bytes of one level. A chain of X.509 certificates has 2 to 8 KB.
pub(super) const LENGTH_MAX: u32 = 16_384;

/// Most pieces that wait for a gap to be filled.
const PIECES_MAX: usize = 64;

/// Bytes of a peer that are not read yet.
#[derive(Default)]
pub(super) struct HandshakeStream {
    /// Pieces beyond `read`, which do not overlap, by offset.
    waiting: BTreeMap<u32, Vec<u8>>,
    /// Bytes that were taken.
    read: u32,
}

impl HandshakeStream {
    /// Bytes that were taken.
    pub(super) fn read(&self) -> u32 {
        self.read
    }

    /// Adds a fragment. An error says why it was dropped.
    pub(super) fn insert(&mut self, offset: u32, bytes: &[u8]) -> Result<(), &'static str> {
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let end = offset.checked_add(length).filter(|&end| end <= LENGTH_MAX);
        let end = end.ok_or("it ends beyond 16,384 bytes")?;
        let mut from = offset.max(self.read);
        while from < end {
            let before = self.waiting.range(..=from).next_back();
            if let Some((&start, piece)) = before
                && start + piece.len() as u32 > from
            {
                from = start + piece.len() as u32;
                continue;
            }
            let next = self.waiting.range(from..).next().map_or(end, |(&start, _)| start);
            let to = next.min(end);
            // Bytes that can be read at once are always taken: junk cannot block a handshake.
            if self.waiting.len() >= PIECES_MAX && from != self.read {
                return Err("too many pieces wait for a gap");
            }
            let part = &bytes[(from - offset) as usize..(to - offset) as usize];
            self.waiting.insert(from, part.to_vec());
            from = to;
        }
        Ok(())
    }

    /// The next bytes in order.
    pub(super) fn next(&mut self) -> Option<Vec<u8>> {
        let piece = self.waiting.remove(&self.read)?;
        self.read += piece.len() as u32;
        Some(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(stream: &mut HandshakeStream) -> Vec<u8> {
        std::iter::from_fn(|| stream.next()).flatten().collect()
    }

    #[test]
    fn any_cut_and_order_of_fragments_gives_the_bytes() {
        let sent: Vec<u8> = (0..2_000_u32).map(|byte| (byte % 251) as u8).collect();
        arbtest::arbtest(|input| {
            let (mut stream, mut got) = (HandshakeStream::default(), Vec::new());
            for _ in 0..40 {
                let from = input.int_in_range(0..=sent.len() - 1)?;
                let to = input.int_in_range(from..=sent.len())?;
                stream.insert(from as u32, &sent[from..to]).unwrap();
                got.extend(read(&mut stream));
            }
            stream.insert(0, &sent).unwrap();
            got.extend(read(&mut stream));
            assert_eq!(got, sent);
            assert!(stream.waiting.is_empty());
            Ok(())
        });
    }

    #[test]
    fn absurd_offsets_take_no_memory() {
        let mut stream = HandshakeStream::default();
        for offset in [LENGTH_MAX, u32::MAX - 5, u32::MAX] {
            assert!(stream.insert(offset, b"x").is_err(), "{offset}");
        }
        for offset in (1..LENGTH_MAX).step_by(2) {
            let _ = stream.insert(offset, b"x");
        }
        assert_eq!(stream.waiting.len(), PIECES_MAX);
        assert_eq!(stream.next(), None);
    }

    #[test]
    fn a_full_stream_still_takes_the_bytes_in_order() {
        let mut stream = HandshakeStream::default();
        for offset in (1..LENGTH_MAX).step_by(2) {
            let _ = stream.insert(offset, b"x");
        }
        // Each repetition of the flight gets one gap further.
        for _ in 0..=PIECES_MAX {
            let _ = stream.insert(0, &[b'y'; 200]);
            let _ = read(&mut stream);
        }
        assert!(stream.read() >= 200);
    }
}
