//! Traces of YAPS, the simulator of dcPIM: rows of `id start 0 0 packets 0 0 src dst`,
//! with starts in seconds and packets of 1460 bytes. Its generator begins at 1 s; here times count
//! from the first flow.

use homa_workload::sizes::PACKET_BYTES;
use homa_workload::text::rows;

use crate::traffic::flows::FlowError;
use crate::traffic::open_loop::ScheduledMessage;

use super::{FlowFile, between, bytes, number, time, wrong};

pub(super) fn read(text: &str) -> Result<FlowFile, FlowError> {
    let mut list = Vec::new();
    for row in rows(text) {
        let [_id, start, _, _, packets, _, _, src, dst] = row.fields[..] else {
            let found = row.fields.len();
            let expected = format!(
                "expected the 9 fields `id seconds 0 0 packets 0 0 src dst`, found {found}"
            );
            return wrong(&row, expected);
        };
        let (src, dst) = (number(&row, "src", src)?, number(&row, "dst", dst)?);
        let (src, dst) = between(&row, src, dst)?;
        let bytes = bytes(&row, "packets", packets, PACKET_BYTES)?;
        let at = time(&row, "start in seconds", (start, 1e12))?;
        list.push(ScheduledMessage { at, src, dst, bytes });
    }
    Ok(FlowFile::from_first(list, Vec::new()))
}

#[cfg(test)]
mod tests {
    use super::super::FileMessages;
    use super::*;
    use crate::time::SimTime;

    #[test]
    fn packets_are_1460_bytes_and_times_count_from_the_first_flow() {
        let file = read("7 1.000001 0 0 3 0 0 4 5\n8 1.0 0 0 1 0 0 5 4\n").unwrap();
        let message = |at, (src, dst), bytes| ScheduledMessage { at: SimTime(at), src, dst, bytes };
        let expected = [message(0, (5, 4), 1_460), message(1_000_000, (4, 5), 4_380)];
        assert_eq!(file.messages, FileMessages::List(expected.to_vec()));
        assert_eq!(file.begins, SimTime(1_000_000_000_000));
    }

    #[test]
    fn mistakes_name_their_line() {
        let cases = [
            ("0 1.0 0 0 3 0 0 1\n", "line 1: expected the 9 fields"),
            ("0 1.0 0 0 0 0 0 1 2\n", "line 1: packets: expected a whole number from 1 to"),
            ("\n0 x 0 0 1 0 0 1 2\n", "line 2: start in seconds"),
            ("0 1.0 0 0 1 0 0 2 2\n", "line 1: a message needs two hosts"),
        ];
        for (text, said) in cases {
            let error = read(text).unwrap_err().to_string();
            assert!(error.starts_with(said), "{error}");
        }
    }
}
