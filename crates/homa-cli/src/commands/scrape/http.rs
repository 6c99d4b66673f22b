//! One `GET /metrics` of an endpoint that is not trusted.
//!
//! Invariants: it takes no longer than [`PATIENCE`] and no more than [`LONGEST`] bytes, however the
//! endpoint behaves, and what it returns is whole. HTTP/1.0 is spoken, so that no answer comes in
//! chunks. Left out: redirections, TLS, compression.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::output::printable;

/// Time limit for all of it.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// Longest answer, bytes. An engine's is about 20 KB.
const LONGEST: usize = 4 << 20;
/// The beginning of every answer.
const HTTP: &[u8] = b"HTTP/";
/// The end of the head.
const EMPTY_LINE: &[u8] = b"\r\n\r\n";

/// The body of the answer.
pub fn get(endpoint: SocketAddr) -> io::Result<String> {
    let until = Instant::now() + PATIENCE;
    let mut page = TcpStream::connect_timeout(&endpoint, PATIENCE).map_err(unconnected)?;
    page.set_write_timeout(Some(PATIENCE))?;
    let ask = format!("GET /metrics HTTP/1.0\r\nHost: {endpoint}\r\nConnection: close\r\n\r\n");
    page.write_all(ask.as_bytes())?;
    body(&read(&mut page, until)?).map_err(wrong)
}

pub fn wrong(what: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}

fn unconnected(error: io::Error) -> io::Error {
    match error.kind() {
        ErrorKind::TimedOut => {
            let seconds = PATIENCE.as_secs();
            io::Error::new(ErrorKind::TimedOut, format!("no connection within {seconds} s"))
        }
        _ => error,
    }
}

/// Reads until the end of the answer, which is where it says or where the endpoint closes.
fn read(page: &mut TcpStream, until: Instant) -> io::Result<Vec<u8>> {
    let (mut answer, mut chunk) = (Vec::new(), vec![0; 64 << 10]);
    let mut wanted = None;
    while wanted.is_none_or(|wanted| answer.len() < wanted) {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(late(answer.len()));
        }
        page.set_read_timeout(Some(left))?;
        match page.read(&mut chunk) {
            Ok(0) => break,
            Ok(more) => answer.extend_from_slice(&chunk[..more]),
            Err(error) => match error.kind() {
                ErrorKind::Interrupted => {}
                ErrorKind::WouldBlock | ErrorKind::TimedOut => return Err(late(answer.len())),
                ErrorKind::ConnectionReset => return Err(reset(answer.len())),
                _ => return Err(error),
            },
        }
        if answer.len() > LONGEST {
            return Err(wrong(format!("the answer has more than {} MiB", LONGEST >> 20)));
        }
        let start = &answer[..answer.len().min(HTTP.len())];
        if !HTTP.starts_with(start) {
            return Err(wrong(NOT_HTTP.into()));
        }
        if wanted.is_none()
            && let Some((head, _)) = split(&answer)
            && let Ok(Some(length)) = length(&head)
        {
            wanted = Some(head.len() + EMPTY_LINE.len() + length);
        }
    }
    Ok(answer)
}

const NOT_HTTP: &str = "the answer is not HTTP: is this the port of the RPCs?";

fn late(bytes: usize) -> io::Error {
    let seconds = PATIENCE.as_secs();
    let what = match bytes {
        0 => format!("no answer within {seconds} s: is this the metrics address?"),
        _ => format!("after {seconds} s the answer was not complete: {bytes} bytes had come"),
    };
    io::Error::new(ErrorKind::TimedOut, what)
}

fn reset(bytes: usize) -> io::Error {
    let what = format!("the connection was reset after {bytes} bytes of the answer");
    io::Error::new(ErrorKind::ConnectionReset, what)
}

/// The head and the body.
fn split(answer: &[u8]) -> Option<(String, &[u8])> {
    let end = answer.windows(EMPTY_LINE.len()).position(|four| four == EMPTY_LINE)?;
    let head = str::from_utf8(&answer[..end]).ok()?;
    Some((head.to_owned(), &answer[end + EMPTY_LINE.len()..]))
}

/// The value of a header, if it is there.
fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let lines = head.lines().skip(1).filter_map(|line| line.split_once(':'));
    let mut values = lines.filter(|(header, _)| header.eq_ignore_ascii_case(name));
    values.next().map(|(_, value)| value.trim())
}

/// The bytes that the body has, if the head says so.
fn length(head: &str) -> Result<Option<usize>, String> {
    let Some(text) = header(head, "Content-Length") else { return Ok(None) };
    match text.parse() {
        Ok(length) if length <= LONGEST => Ok(Some(length)),
        Ok(_) => Err(format!("the answer has more than {} MiB", LONGEST >> 20)),
        Err(_) => Err(format!("the answer has Content-Length \"{}\"", printable(text))),
    }
}

/// The body of an answer of status 200 that is whole; otherwise its defect.
fn body(answer: &[u8]) -> Result<String, String> {
    if answer.is_empty() {
        return Err("the endpoint closed the connection without an answer".into());
    }
    let Some((head, body)) = split(answer) else {
        return Err(match answer.starts_with(HTTP) {
            true => format!("the answer was cut in its head, after {} bytes", answer.len()),
            false => NOT_HTTP.into(),
        });
    };
    let length = length(&head)?;
    let body = &body[..body.len().min(length.unwrap_or(LONGEST))];
    let text = String::from_utf8_lossy(body);
    let status = head.lines().next().unwrap_or_default();
    if status.split(' ').nth(1) != Some("200") {
        let says = text.lines().next().map(printable).filter(|line| !line.is_empty());
        let says = says.map_or(String::new(), |line| format!(" and \"{line}\""));
        return Err(format!("the endpoint answered \"{}\"{says}", printable(status)));
    }
    if let Some(coding) = header(&head, "Transfer-Encoding") {
        let coding = printable(coding);
        return Err(format!("the answer has Transfer-Encoding {coding}, which was not asked for"));
    }
    if let Some(length) = length.filter(|&length| body.len() < length) {
        let here = body.len();
        return Err(format!("the answer was cut: {here} of {length} bytes came (Content-Length)"));
    }
    let kind = header(&head, "Content-Type").unwrap_or_default();
    if kind.contains("openmetrics") && text.lines().last() != Some("# EOF") {
        return Err("the answer was cut: OpenMetrics ends with the line \"# EOF\"".into());
    }
    Ok(text.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN: &str = "Content-Type: application/openmetrics-text; version=1.0.0";

    #[test]
    fn only_a_whole_answer_has_a_body() {
        let cut = "the answer was cut: ";
        let table = [
            ("HTTP/1.1 200 OK\r\n\r\nx 1\n", Ok("x 1\n")),
            ("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nx 1\nmore", Ok("x 1\n")),
            (&format!("HTTP/1.1 200 OK\r\n{OPEN}\r\n\r\nx 1\n# EOF\n"), Ok("x 1\n# EOF\n")),
            (&format!("HTTP/1.1 200 OK\r\n{OPEN}\r\n\r\nx 1\n# EOF"), Ok("x 1\n# EOF")),
            (&format!("HTTP/1.1 200 OK\r\n{OPEN}\r\n\r\nx 1\n"), Err(cut)),
            (&format!("HTTP/1.1 200 OK\r\n{OPEN}\r\n\r\n# EOF\nx 1\n"), Err(cut)),
            ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx 1\n", Err("cut: 4 of 9 bytes came")),
            ("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", Err("Content-Length \"-1\"")),
            ("HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n", Err("more than 4 MiB")),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", Err("Encoding chunked")),
            ("HTTP/1.1 200 OK\r\nContent-", Err("cut in its head, after 25 bytes")),
            ("HTTP/1.1 404 Not Found\r\n\r\n", Err("answered \"HTTP/1.1 404 Not Found\"")),
            ("HTTP/1.1 503 \x1b[2J\r\n\r\nbusy\x07\nx", Err(r#"503 \u{1b}[2J" and "busy\u{7}""#)),
            ("", Err("closed the connection without an answer")),
            ("SSH-2.0\r\n", Err("is not HTTP")),
        ];
        for (answer, expected) in table {
            match (body(answer.as_bytes()), expected) {
                (Ok(body), Ok(expected)) => assert_eq!(body, expected),
                (Err(error), Err(part)) => assert!(error.contains(part), "{error}: {part}"),
                (got, expected) => panic!("{answer:?}: {got:?}, not {expected:?}"),
            }
        }
    }
}
