//! Flow files of HPCC's ns-3 (`mix/flow.txt`): the number of flows, then as many rows of `src dst
//! level port bytes seconds`.
//!
//! As in its simulator, rows behind that number do not count: published files have hundreds of
//! them. Level and port are read and not used. Times usually begin at 2 s; here they count from the
//! first flow.

use homa_workload::text::rows;

use crate::traffic::flows::FlowError;
use crate::traffic::open_loop::ScheduledMessage;

use super::{FlowFile, between, bytes, number, time, wrong};

pub(super) fn read(text: &str) -> Result<FlowFile, FlowError> {
    let mut rows = rows(text);
    let Some(head) = rows.next() else {
        return Err(FlowError { line: 1, expected: "expected the number of flows".to_owned() });
    };
    let [count] = head.fields[..] else {
        let expected = "expected the number of flows alone, and then rows of `src dst level port \
                        bytes seconds`";
        return wrong(&head, expected);
    };
    let count = number(&head, "number of flows", count)?;
    let mut list = Vec::new();
    for row in rows.by_ref().take(count as usize) {
        let [src, dst, _level, _port, size, start] = row.fields[..] else {
            let found = row.fields.len();
            let expected =
                format!("expected the 6 fields `src dst level port bytes seconds`, found {found}");
            return wrong(&row, expected);
        };
        let (src, dst) = (number(&row, "src", src)?, number(&row, "dst", dst)?);
        let (src, dst) = between(&row, src, dst)?;
        let bytes = bytes(&row, "bytes", size, 1)?;
        let at = time(&row, "start in seconds", (start, 1e12))?;
        list.push(ScheduledMessage { at, src, dst, bytes });
    }
    if list.len() < count as usize {
        let expected = format!(
            "{count} flows are announced, and {} rows follow: write the number of rows (the \
             generator of HPCC may leave a digit of its estimate behind)",
            list.len()
        );
        return wrong(&head, expected);
    }
    let behind = rows.filter(|row| row.fields.len() == 6).count();
    let unused = (behind > 0).then(|| {
        format!(
            "the first line announces {count} flows, so {behind} rows behind them are not \
             simulated, as in HPCC's simulator"
        )
    });
    let file = FlowFile::from_first(list, unused.into_iter().collect());
    Ok(FlowFile { names_nodes: true, ..file })
}

#[cfg(test)]
mod tests {
    use super::super::FileMessages;
    use super::*;
    use crate::time::SimTime;

    #[test]
    fn flows_count_from_the_first_one() {
        let text = "2 \n0 1 3 100 1000 2.000000500\n2 1 3 100 20 2\n3 1 3 100 5 2\n\nFirst line: \
                    # of flows\n";
        let file = read(text).unwrap();
        let message = |at, src, bytes| ScheduledMessage { at: SimTime(at), src, dst: 1, bytes };
        let expected = [message(0, 2, 20), message(500_000, 0, 1_000)];
        assert_eq!(file.messages, FileMessages::List(expected.to_vec()));
        assert_eq!(file.begins, SimTime(2_000_000_000_000));
        assert_eq!(file.warnings.len(), 1);
        assert!(file.warnings[0].contains("1 rows behind"), "{:?}", file.warnings);
    }

    #[test]
    fn mistakes_name_their_line() {
        let cases = [
            ("", "line 1: expected the number of flows"),
            ("3 4\n", "line 1: expected the number of flows alone"),
            ("2\n0 1 3 100 10 2\n", "line 1: 2 flows are announced, and 1 rows follow"),
            ("1\n0 1 3 100 10\n", "line 2: expected the 6 fields"),
            ("1\n0 0 3 100 10 2\n", "line 2: a message needs two hosts"),
            ("1\n0 1 3 100 0 2\n", "line 2: bytes: expected a whole number from 1 to"),
            ("1\n0 1 3 100 10 -2\n", "line 2: start in seconds: expected a time"),
            ("4000000000\n0 1 3 100 10 2\n", "line 1: 4000000000 flows are announced"),
        ];
        for (text, said) in cases {
            let error = read(text).unwrap_err().to_string();
            assert!(error.starts_with(said), "{error}");
        }
    }
}
