//! `homa serve --metrics ADDR`: what was counted, as OpenMetrics text over HTTP, for Prometheus.
//!
//! One thread answers one request at a time. Whoever sends nothing, or slowly, is dropped after
//! [`PATIENCE`], so nobody waits longer for each of those before. Left out: TLS, compression,
//! connections that are kept.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use homa::Engine;

use crate::failure::{Failure, Hint};

/// How long a client may take for its request, and again for the answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Longest head of a request, bytes.
const LONGEST: usize = 8 * 1024;
/// How long to wait after the system gave no connection, as when there are no descriptors left.
const REST: Duration = Duration::from_millis(100);

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PLAIN: &str = "text/plain; charset=utf-8";

/// What is answered: status, type and text.
type Answer = (&'static str, &'static str, String);

/// Takes a TCP address, which is refused where another program has it.
pub fn listen(at: SocketAddr) -> Result<(TcpListener, SocketAddr), Failure> {
    let hint = "choose a free TCP address of this machine for --metrics, such as 127.0.0.1:9100, \
                or port 0 for any";
    let listener = TcpListener::bind(at);
    let listener = listener.with_context(|| format!("no metrics at {at}")).hint(hint)?;
    let local = listener.local_addr().hint(hint)?;
    Ok((listener, local))
}

/// Answers with the counters of `engine` until the process ends.
pub fn answer(listener: &TcpListener, engine: &Engine) {
    loop {
        match listener.accept() {
            // A client that went away is its own affair.
            Ok((stream, _)) => _ = exchange(stream, engine),
            Err(_) => thread::sleep(REST),
        }
    }
}

/// One request and its answer.
fn exchange(mut stream: TcpStream, engine: &Engine) -> io::Result<()> {
    let until = Instant::now() + PATIENCE;
    let (status, kind, text) = match head(&mut stream, until) {
        Ok(head) => respond(&head, || engine.metrics().to_openmetrics()),
        Err(error) => refused(error)?,
    };
    let length = text.len();
    let allow = if status.starts_with("405") { "Allow: GET\r\n" } else { "" };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{allow}\
         Connection: close\r\n\r\n"
    );
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all((head + &text).as_bytes())?;
    stream.shutdown(Shutdown::Write)?;
    // What a client still sends would make the system take the answer back.
    while read_until(&mut stream, &mut [0; 1024], until)? > 0 {}
    Ok(())
}

/// Reads some bytes; fails once it is later than `until`.
fn read_until(stream: &mut TcpStream, into: &mut [u8], until: Instant) -> io::Result<usize> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    stream.set_read_timeout(Some(left))?;
    stream.read(into)
}

/// A request's head, to its empty line.
fn head(stream: &mut TcpStream, until: Instant) -> io::Result<Vec<u8>> {
    let (mut buffer, mut length) = (vec![0; LONGEST], 0);
    while length < LONGEST {
        match read_until(stream, &mut buffer[length..], until)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            more => length += more,
        }
        let seen = &buffer[..length];
        if seen.windows(4).any(|end| end == b"\r\n\r\n")
            || seen.windows(2).any(|end| end == b"\n\n")
        {
            buffer.truncate(length);
            return Ok(buffer);
        }
    }
    Err(io::ErrorKind::InvalidInput.into())
}

/// What to say to a request without an end; an error where nobody is there to hear it.
fn refused(error: io::Error) -> io::Result<Answer> {
    let (status, text) = match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
            ("408 Request Timeout", format!("no request within {} s\n", PATIENCE.as_secs()))
        }
        io::ErrorKind::InvalidInput => (
            "431 Request Header Fields Too Large",
            format!("a request has at most {LONGEST} bytes\n"),
        ),
        _ => return Err(error),
    };
    Ok((status, PLAIN, text))
}

/// What to say to a request.
fn respond(head: &[u8], metrics: impl FnOnce() -> String) -> Answer {
    let line = head.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let [method, target, version] = words[..] else {
        return ("400 Bad Request", PLAIN, "this is no HTTP request\n".into());
    };
    if !version.starts_with("HTTP/1.") {
        return ("400 Bad Request", PLAIN, "only HTTP/1.0 and HTTP/1.1\n".into());
    }
    if target.split('?').next() != Some("/metrics") {
        return ("404 Not Found", PLAIN, "the counters are at /metrics\n".into());
    }
    match method {
        "GET" => ("200 OK", OPEN_METRICS, metrics()),
        _ => ("405 Method Not Allowed", PLAIN, "only GET\n".into()),
    }
}
