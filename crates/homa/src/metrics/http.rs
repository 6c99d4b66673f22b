//! What was counted, as OpenMetrics text over HTTP, for Prometheus: feature `metrics-http`.
//!
//! A short thread per request, at most 16 at a time: connections beyond that are closed.
//! Whoever sends nothing, or slowly, is dropped after 2 s. Left out: TLS, authentication,
//! compression, connections that are kept.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::engine::Engine;

/// How long a client may take for its request, and again for the answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Requests at a time.
const MOST: usize = 16;
/// Longest head of a request, bytes.
const LONGEST: usize = 8 * 1024;
/// How long to wait after the system gave no connection, as when there are no descriptors left.
const REST: Duration = Duration::from_millis(100);

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PLAIN: &str = "text/plain; charset=utf-8";

/// What is answered: status, type and text.
type Answer = (&'static str, &'static str, String);

/// Answers HTTP `GET /metrics` with what an engine counted, until it is dropped. It keeps the
/// engine as any other handle does.
///
/// ```
/// use std::io::{Read, Write};
///
/// let engine = homa::Client::new()?.engine().clone();
/// let exporter = homa::metrics::http::Exporter::loopback(&engine, 0)?;
/// let mut page = std::net::TcpStream::connect(exporter.local_addr())?;
/// page.write_all(b"GET /metrics HTTP/1.1\r\n\r\n")?;
/// let mut text = String::new();
/// page.read_to_string(&mut text)?;
/// assert!(text.contains("homa_rpc_duration_seconds"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Exporter {
    at: SocketAddr,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Exporter {
    /// At a TCP port of this host that only its own programs reach (0: any).
    pub fn loopback(engine: &Engine, port: u16) -> io::Result<Self> {
        Self::bind(engine, (Ipv4Addr::LOCALHOST, port).into())
    }

    /// At a TCP address, for whoever reaches it: choose one of a network of your own.
    pub fn bind(engine: &Engine, at: SocketAddr) -> io::Result<Self> {
        Self::on(engine, TcpListener::bind(at)?)
    }

    /// At an address that was bound before.
    pub fn on(engine: &Engine, listener: TcpListener) -> io::Result<Self> {
        let (at, ends) = (listener.local_addr()?, Arc::new(AtomicBool::new(false)));
        let (engine, until) = (engine.clone(), Arc::clone(&ends));
        let builder = thread::Builder::new().name("homa metrics".into());
        let thread = builder.spawn(move || answer(&listener, &engine, &until))?;
        Ok(Self { at, ends, thread: Some(thread) })
    }

    /// Where it answers.
    pub fn local_addr(&self) -> SocketAddr {
        self.at
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Release);
        let mut at = self.at;
        if at.ip().is_unspecified() {
            let (v4, v6) = (Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into());
            at.set_ip(if at.is_ipv4() { v4 } else { v6 });
        }
        // A connection has its thread look. Where there can be none, it goes on until there is.
        if TcpStream::connect_timeout(&at, PATIENCE).is_ok()
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
    }
}

/// Answers with the counters of `engine` until the exporter ends.
fn answer(listener: &TcpListener, engine: &Engine, ends: &AtomicBool) {
    // One more reference per request in progress.
    let places = Arc::new(());
    loop {
        let accepted = listener.accept();
        if ends.load(Ordering::Acquire) {
            return;
        }
        let Ok((stream, _)) = accepted else {
            thread::sleep(REST);
            continue;
        };
        if Arc::strong_count(&places) > MOST {
            continue;
        }
        let (engine, place) = (engine.clone(), Arc::clone(&places));
        // Without a thread, as without a place, the connection is closed. A client that went away
        // is its own affair.
        let _ = thread::Builder::new().spawn(move || {
            let _ = exchange(stream, &engine);
            drop(place);
        });
    }
}

/// One request and its answer.
fn exchange(mut stream: TcpStream, engine: &Engine) -> io::Result<()> {
    let until = Instant::now() + PATIENCE;
    let head = head(&mut stream, until);
    let head_only = head.as_ref().is_ok_and(|head| head.starts_with(b"HEAD "));
    let (status, kind, text) = match head {
        Ok(head) => respond(&head, || engine.metrics().to_openmetrics()),
        Err(error) => refused(error)?,
    };
    let length = text.len();
    let allow = if status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{allow}\
         Connection: close\r\n\r\n"
    );
    stream.set_write_timeout(Some(PATIENCE))?;
    let text = if head_only { "" } else { &text };
    stream.write_all((head + text).as_bytes())?;
    stream.shutdown(Shutdown::Write)?;
    // What a client still sends would make the system take the answer back.
    while read_until(&mut stream, &mut [0; 1024], until)? > 0 {}
    Ok(())
}

/// Reads some bytes; fails once it is later than `until`.
fn read_until(stream: &mut TcpStream, into: &mut [u8], until: Instant) -> io::Result<usize> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(into) {
            // A signal, as when the server is asked to end.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}

/// A request's head, to its empty line.
fn head(stream: &mut TcpStream, until: Instant) -> io::Result<Vec<u8>> {
    let (mut buffer, mut length) = (vec![0; LONGEST], 0);
    while length < LONGEST {
        // The end of the head may have begun before.
        let from = length.saturating_sub(2);
        match read_until(stream, &mut buffer[length..], until)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            more => length += more,
        }
        let fresh = &buffer[from..length];
        let empty_line = |end: &[u8]| fresh.windows(end.len()).any(|seen| seen == end);
        if empty_line(b"\n\r\n") || empty_line(b"\n\n") {
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
    // Whoever asks as one asks a proxy names the host, too.
    let path = match target.strip_prefix("http://").map(|rest| rest.find('/').map(|at| &rest[at..]))
    {
        Some(path) => path.unwrap_or("/"),
        None => target,
    };
    if path.split('?').next() != Some("/metrics") {
        return ("404 Not Found", PLAIN, "the counters are at /metrics\n".into());
    }
    match method {
        "GET" | "HEAD" => ("200 OK", OPEN_METRICS, metrics()),
        _ => ("405 Method Not Allowed", PLAIN, "only GET and HEAD\n".into()),
    }
}
