//! Metrics as OpenMetrics text over HTTP, for Prometheus, and whether the engines are healthy:
//! feature `metrics-http`.
//!
//! Each connection has a short-lived thread, about 16 at a time. A client that sends nothing, or
//! too slowly, is disconnected after 2 s, and earlier if its place is needed: clients that do
//! nothing keep no other one from the page (`places`). Left out: TLS, authentication, compression,
//! and persistent connections.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use self::places::{Doing, PageClient, Places};
use super::Metrics;
use super::text::{self, Text};
use crate::engine::Engine;

mod places;

/// Time limit for a client's request, and again for the response.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Longest head of a request, bytes.
const LONGEST: usize = 8 * 1024;
/// Pause after the system returned no connection, for example because no descriptor was left.
const REST: Duration = Duration::from_millis(100);

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PLAIN: &str = "text/plain; charset=utf-8";

/// The help of the metric that `/healthz` answers from, too.
const UNHEALTHY: &str = "Engines that do not do their work: ended, or blocked for a second.";

/// The engines, and what the application adds to their metrics.
struct Page {
    engines: Vec<Engine>,
    more: Box<dyn Fn() -> String + Send + Sync>,
}

impl Page {
    /// All metrics; those of engines with the same name are added up.
    fn text(&self) -> String {
        let mut all: Vec<(Metrics, usize)> = Vec::new();
        for engine in &self.engines {
            let (metrics, unhealthy) = (engine.metrics(), usize::from(!engine.healthy()));
            match all.iter_mut().find(|(other, _)| other.name == metrics.name) {
                Some((other, sum)) => {
                    other.add(metrics);
                    *sum += unhealthy;
                }
                None => all.push((metrics, unhealthy)),
            }
        }
        let mut health = Text::default();
        health.family("engine_unhealthy", "gauge", UNHEALTHY);
        for (metrics, unhealthy) in &all {
            health.engine(metrics.name.as_deref());
            health.sample("engine_unhealthy", &[], unhealthy);
        }
        let all: Vec<Metrics> = all.into_iter().map(|(metrics, _)| metrics).collect();
        let ours = text::joined(&Metrics::openmetrics_of(&all), &health.finish());
        text::joined(&ours, &(self.more)())
    }
}

/// Status, content type, and text of a response.
type Answer = (&'static str, &'static str, String);

/// Answers HTTP `GET /metrics` with an engine's metrics until it is dropped, and `GET /healthz`
/// with status 200 or 503: whether the engine is [healthy](Engine::healthy). It keeps the engine
/// open, as any other handle does.
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
    /// Listens at a TCP port (0: any) that only programs of this host can reach.
    pub fn loopback(engine: &Engine, port: u16) -> io::Result<Self> {
        Self::bind(engine, (Ipv4Addr::LOCALHOST, port).into())
    }

    /// Listens at a TCP address. Any client that can reach it can read the metrics, so choose one
    /// of an internal network.
    pub fn bind(engine: &Engine, at: SocketAddr) -> io::Result<Self> {
        Self::on(engine, TcpListener::bind(at)?)
    }

    /// Uses a listener that is already bound.
    pub fn on(engine: &Engine, listener: TcpListener) -> io::Result<Self> {
        Self::of_all(std::slice::from_ref(engine), listener)
    }

    /// The same for several engines of this host: those with the same
    /// [name](method@crate::Config::name), or without one, are added up.
    pub fn of_all(engines: &[Engine], listener: TcpListener) -> io::Result<Self> {
        Self::with(engines, listener, String::new)
    }

    /// The same beside the application's own metrics: `more` returns them as OpenMetrics text, with
    /// or without `# EOF`, for example from the crate `prometheus-client`. It is called for each
    /// scrape, in a thread of the exporter. Names that begin with `homa_` are ours.
    ///
    /// ```
    /// use std::net::TcpListener;
    ///
    /// use homa::metrics::http::Exporter;
    ///
    /// let engine = homa::Client::new()?.engine().clone();
    /// let users = || "# TYPE users gauge\nusers 7\n".to_owned();
    /// let exporter = Exporter::with(&[engine], TcpListener::bind("127.0.0.1:0")?, users)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with(
        engines: &[Engine],
        listener: TcpListener,
        more: impl Fn() -> String + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let source = Arc::new(Page { engines: engines.to_vec(), more: Box::new(more) });
        let (at, ends) = (listener.local_addr()?, Arc::new(AtomicBool::new(false)));
        let until = Arc::clone(&ends);
        let builder = thread::Builder::new().name("homa metrics".into());
        let thread = builder.spawn(move || answer(&listener, &source, &until))?;
        Ok(Self { at, ends, thread: Some(thread) })
    }

    /// The address that it listens at.
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
        // A connection wakes the thread so that it sees the flag. If none is possible, it ends with
        // the next one.
        if TcpStream::connect_timeout(&at, TIMEOUT).is_ok()
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
    }
}

/// Answers with what `source` has until the exporter is dropped.
fn answer(listener: &TcpListener, source: &Arc<Page>, ends: &AtomicBool) {
    let mut places = Places::default();
    loop {
        let accepted = listener.accept();
        if ends.load(Ordering::Acquire) {
            return;
        }
        let Ok((stream, _)) = accepted else {
            thread::sleep(REST);
            continue;
        };
        let Some(client) = places.take(stream) else { continue };
        let source = Arc::clone(source);
        // If no thread can be started, the connection is closed. It is not an error if the client
        // disconnects.
        let _ = thread::Builder::new().spawn(move || {
            let _ = exchange(&client, &source);
        });
    }
}

/// Handles one request.
fn exchange(client: &PageClient, source: &Page) -> io::Result<()> {
    let until = Instant::now() + TIMEOUT;
    let mut stream = client.stream();
    let head = head(stream, until);
    client.does(Doing::Compose);
    let head_only = head.as_ref().is_ok_and(|head| head.starts_with(b"HEAD "));
    let (status, kind, text) = match head {
        Ok(head) => respond(&head, source),
        Err(error) => refused(error)?,
    };
    let length = text.len();
    let allow = if status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{allow}\
         Connection: close\r\n\r\n"
    );
    client.does(Doing::Write);
    stream.set_write_timeout(Some(TIMEOUT))?;
    let text = if head_only { "" } else { &text };
    stream.write_all((head + text).as_bytes())?;
    stream.shutdown(Shutdown::Write)?;
    // If unread bytes were left, closing the socket would discard the response.
    while read_until(stream, &mut [0; 1024], until)? > 0 {}
    Ok(())
}

/// Reads some bytes; fails after `until`.
fn read_until(mut stream: &TcpStream, into: &mut [u8], until: Instant) -> io::Result<usize> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(into) {
            // A signal arrived, for example because the server is being stopped.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}

/// Reads the head of a request, up to its empty line.
fn head(stream: &TcpStream, until: Instant) -> io::Result<Vec<u8>> {
    let (mut buffer, mut length) = (vec![0; LONGEST], 0);
    while length < LONGEST {
        // The end of the head may begin in an earlier read.
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

/// The response to a request that is incomplete; an error if the client has disconnected.
fn refused(error: io::Error) -> io::Result<Answer> {
    let (status, text) = match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
            ("408 Request Timeout", format!("no request within {} s\n", TIMEOUT.as_secs()))
        }
        io::ErrorKind::InvalidInput => (
            "431 Request Header Fields Too Large",
            format!("a request has at most {LONGEST} bytes\n"),
        ),
        _ => return Err(error),
    };
    Ok((status, PLAIN, text))
}

/// The response to a request.
fn respond(head: &[u8], source: &Page) -> Answer {
    let line = head.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let [method, target, version] = words[..] else {
        return ("400 Bad Request", PLAIN, "this is no HTTP request\n".into());
    };
    if !version.starts_with("HTTP/1.") {
        return ("400 Bad Request", PLAIN, "only HTTP/1.0 and HTTP/1.1\n".into());
    }
    // A client that uses a proxy sends an absolute URL.
    let path = match target.strip_prefix("http://").map(|rest| rest.find('/').map(|at| &rest[at..]))
    {
        Some(path) => path.unwrap_or("/"),
        None => target,
    };
    let what = path.split('?').next().unwrap_or_default();
    match (what, method) {
        ("/metrics", "GET" | "HEAD") => ("200 OK", OPEN_METRICS, source.text()),
        ("/healthz", "GET" | "HEAD") => match source.engines.iter().all(Engine::healthy) {
            true => ("200 OK", PLAIN, "healthy\n".into()),
            false => ("503 Service Unavailable", PLAIN, "an engine does not do its work\n".into()),
        },
        ("/metrics" | "/healthz", _) => {
            ("405 Method Not Allowed", PLAIN, "only GET and HEAD\n".into())
        }
        _ => ("404 Not Found", PLAIN, "the counters are at /metrics\n".into()),
    }
}
