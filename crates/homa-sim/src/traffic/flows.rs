//! A list of messages: lines of `id,src,dst,bytes,start_ns`, with an optional header, in any order.

use std::fmt;

use homa_workload::sizes::MAX_BYTES;

use crate::time::SimTime;

use super::open_loop::ScheduledMessage;

/// The latest start, 104 days, which is half of the range of simulated time.
const LAST_NS: u64 = u64::MAX / 2_000;

/// An error in a list of messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowError {
    /// Line, from 1.
    pub line: usize,
    /// The expected content of the line.
    pub expected: String,
}

impl fmt::Display for FlowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.expected)
    }
}

impl std::error::Error for FlowError {}

/// Reads a list. Messages are sorted by start time, equals in the order of the list. Lines that
/// start with `#` are comments.
pub fn parse(text: &str) -> Result<Vec<ScheduledMessage>, FlowError> {
    let mut arrivals = Vec::new();
    let mut header = true;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if header && line.starts_with(|c: char| c.is_ascii_alphabetic()) {
            header = false;
            continue;
        }
        header = false;
        let wrong = |expected: &str| FlowError { line: index + 1, expected: expected.to_owned() };
        let fields: Vec<u64> = line
            .split(',')
            .map(|field| field.trim().parse())
            .collect::<Result<_, _>>()
            .map_err(|_| wrong("expected whole numbers id,src,dst,bytes,start_ns"))?;
        let [_, src, dst, bytes, start_ns] = fields[..] else {
            return Err(wrong("expected five fields id,src,dst,bytes,start_ns"));
        };
        let (Ok(src), Ok(dst)) = (u32::try_from(src), u32::try_from(dst)) else {
            return Err(wrong("src and dst are numbers of hosts, from 0"));
        };
        if src == dst {
            return Err(wrong("src and dst are the same host: a message needs two"));
        }
        let Some(bytes) = u32::try_from(bytes).ok().filter(|it| (1..=MAX_BYTES).contains(it))
        else {
            return Err(wrong(&format!("bytes must be 1 to {MAX_BYTES}")));
        };
        if start_ns > LAST_NS {
            let from =
                format!("start_ns must be at most {LAST_NS}: count from the list's beginning");
            return Err(wrong(&from));
        }
        arrivals.push(ScheduledMessage { at: SimTime(start_ns * 1_000), src, dst, bytes });
    }
    // The sort is stable, so the list's order decides between equals.
    arrivals.sort_by_key(|arrival| arrival.at);
    Ok(arrivals)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_by_start_time() {
        let text = "id,src,dst,bytes,start_ns\n# later first\n0,107,139,56940,13243\n1,1,2,7,9\n";
        let arrivals = parse(text).unwrap();
        assert_eq!(arrivals[0], ScheduledMessage { at: SimTime(9_000), src: 1, dst: 2, bytes: 7 });
        assert_eq!(arrivals[1].at, SimTime(13_243_000));
        assert_eq!(parse("").unwrap(), []);
    }

    #[test]
    fn errors_name_the_line() {
        for (text, line) in
            [("id,src\n0,1,2,3\n", 2), ("0,1,1,3,4", 1), ("\n0,1,2,x,4", 2), ("0,1,2,0,4", 1)]
        {
            assert_eq!(parse(text).unwrap_err().line, line, "{text}");
        }
        let says = |text: &str| parse(text).unwrap_err().to_string();
        assert!(says("0,1,1,3,4").contains("same host"));
        // Limits of transports and of simulated time.
        assert!(says("0,1,2,2147483648,4").contains("1 to 2147483647"));
        assert!(says("0,1,2,3,1700000000000000000").contains("start_ns"));
        assert_eq!(parse("0,1,2,2147483647,9000000000000000").unwrap()[0].bytes, 2_147_483_647);
    }
}
