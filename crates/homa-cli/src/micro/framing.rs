//! The framing of the TCP rivals: a length, an RPC number, the bytes. As lean as a careful
//! engineer's own.

/// Bytes before each message: length (u32) and RPC number (u64), little-endian.
pub const HEADER: usize = 12;

/// Appends a message of `length` bytes to a buffer that is written in one piece.
pub fn push(buffer: &mut Vec<u8>, rpc: u64, payload: &[u8]) {
    buffer.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    buffer.extend_from_slice(&rpc.to_le_bytes());
    buffer.extend_from_slice(payload);
}

/// The length and number of a message whose header is complete.
pub fn header(bytes: &[u8]) -> Option<(usize, u64)> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let (rpc, _) = rest.split_first_chunk::<8>()?;
    Some((u32::from_le_bytes(*length) as usize, u64::from_le_bytes(*rpc)))
}

/// Hands every complete message in `buffer` to `each` and keeps the unfinished rest.
pub fn drain(buffer: &mut Vec<u8>, mut each: impl FnMut(u64, &[u8])) {
    let mut start = 0;
    while let Some((length, rpc)) = header(&buffer[start..]) {
        let payload = start + HEADER;
        let Some(message) = buffer.get(payload..payload.saturating_add(length)) else { break };
        each(rpc, message);
        start = payload + length;
    }
    if start == buffer.len() {
        buffer.clear();
    } else if start > 0 {
        buffer.drain(..start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_any_cut_of_the_stream() {
        let mut stream = Vec::new();
        for rpc in 0..5u64 {
            push(&mut stream, rpc, &vec![rpc as u8; rpc as usize * 9]);
        }
        for cut in 0..stream.len() {
            let (mut buffer, mut seen) = (stream[..cut].to_vec(), Vec::new());
            drain(&mut buffer, |rpc, payload| seen.push((rpc, payload.to_vec())));
            buffer.extend_from_slice(&stream[cut..]);
            drain(&mut buffer, |rpc, payload| seen.push((rpc, payload.to_vec())));
            let whole: Vec<_> = (0..5).map(|r| (r, vec![r as u8; r as usize * 9])).collect();
            assert_eq!(seen, whole, "cut at {cut}");
            assert!(buffer.is_empty());
        }
    }
}
