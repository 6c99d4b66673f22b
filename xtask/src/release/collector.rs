//! Spans in a real collector: one of OpenTelemetry, built from its Go modules, receives those of
//! `contrib/opentelemetry`, a call through two servers, and has to show them as one trace.
//!
//! Left out: what displays traces, since every product reads them from a collector.

use std::fs::{self, File};
use std::io::{self, Error};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::{Outcome, user};
use crate::process::{cargo, output, succeed, works};

const PROGRAM: &str = include_str!("collector.go");
/// All of one release of the collector.
const MODULES: &str = "module collector

go 1.25.0

require (
\tgo.opentelemetry.io/collector/component v1.67.0
\tgo.opentelemetry.io/collector/confmap v1.67.0
\tgo.opentelemetry.io/collector/confmap/provider/fileprovider v1.67.0
\tgo.opentelemetry.io/collector/exporter v1.67.0
\tgo.opentelemetry.io/collector/exporter/debugexporter v0.161.0
\tgo.opentelemetry.io/collector/otelcol v0.161.0
\tgo.opentelemetry.io/collector/receiver v1.67.0
\tgo.opentelemetry.io/collector/receiver/otlpreceiver v0.161.0
\tgo.opentelemetry.io/collector/service v0.161.0
)
";

/// How long the collector may take to start, and then to show the spans.
const TIMEOUT: Duration = Duration::from_secs(30);

pub(super) fn check(repository: &Path) -> io::Result<Vec<Outcome>> {
    if !works(Path::new("go"), &["version"]) {
        return Ok(vec![Outcome::Skipped("Go is missing (https://go.dev/dl)".to_owned())]);
    }
    let folder = crate::target(repository).join("collector");
    let Some(collector) = build(&folder)? else {
        let why = "the collector's Go modules could not be fetched (see above)";
        return Ok(vec![Outcome::Skipped(why.to_owned())]);
    };
    let target = user::target(repository);
    let mut example = cargo(repository);
    example.args(["build", "--quiet", "--manifest-path", "contrib/opentelemetry/Cargo.toml"]);
    succeed(example.env("CARGO_TARGET_DIR", &target))?;

    let collector = Collector::start(&collector, &folder)?;
    let mut traced = Command::new(target.join("debug/homa-traced"));
    output(traced.env("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.endpoint))?;
    let log = collector.wait_for("Span #3")?;
    one_trace(&spans(&log)).map_err(|why| Error::other(format!("{why}:\n{log}")))?;
    Ok(vec![Outcome::Passed(
        "a collector shows a call through two servers as one trace".to_owned(),
    )])
}

/// Builds the collector; `None` if its modules are out of reach.
fn build(folder: &Path) -> io::Result<Option<PathBuf>> {
    fs::create_dir_all(folder)?;
    fs::write(folder.join("main.go"), PROGRAM)?;
    fs::write(folder.join("go.mod"), MODULES)?;
    let go = |arguments: &[&str]| {
        let mut go = Command::new("go");
        go.args(arguments).arg(".").current_dir(folder).env("GOFLAGS", "-mod=mod");
        go
    };
    if output(&mut go(&["list", "-deps"])).is_err() {
        return Ok(None);
    }
    succeed(&mut go(&["build", "-o", "collector"]))?;
    Ok(Some(folder.join("collector")))
}

/// A running collector, ended when it is dropped.
struct Collector {
    process: Child,
    log: PathBuf,
    endpoint: String,
}

impl Collector {
    fn start(program: &Path, folder: &Path) -> io::Result<Self> {
        // The port is free again when the collector asks for it.
        let at = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let config = folder.join("config.yaml");
        fs::write(
            &config,
            format!(
                "receivers: {{ otlp: {{ protocols: {{ http: {{ endpoint: \"{at}\" }} }} }} }}\n\
                 exporters: {{ debug: {{ verbosity: detailed }} }}\n\
                 service:\n  telemetry: {{ metrics: {{ level: none }} }}\n  \
                 pipelines: {{ traces: {{ receivers: [otlp], exporters: [debug] }} }}\n"
            ),
        )?;
        let log = folder.join("collector.log");
        let file = File::create(&log)?;
        let mut command = Command::new(program);
        command.arg("--config").arg(config).stdin(Stdio::null());
        let process = command.stdout(file.try_clone()?).stderr(file).spawn()?;
        let collector = Self { process, log, endpoint: format!("http://{at}") };
        collector.wait_for("Everything is ready")?;
        Ok(collector)
    }

    /// Waits until the collector has printed a text; returns all that it printed.
    fn wait_for(&self, text: &str) -> io::Result<String> {
        let start = Instant::now();
        loop {
            let log = fs::read_to_string(&self.log)?;
            if log.contains(text) {
                // It writes a batch of spans at once, but not in one system call.
                sleep(Duration::from_millis(200));
                return fs::read_to_string(&self.log);
            }
            if start.elapsed() > TIMEOUT {
                let seconds = TIMEOUT.as_secs();
                let error = format!("no `{text}` from the collector in {seconds} s:\n{log}");
                return Err(Error::other(error));
            }
            sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A span as the collector prints it.
#[derive(Debug, Default, PartialEq, Eq)]
struct PrintedSpan {
    trace: String,
    parent: String,
    id: String,
    kind: String,
}

/// The spans in what the collector printed.
fn spans(log: &str) -> Vec<PrintedSpan> {
    let mut spans: Vec<PrintedSpan> = Vec::new();
    for line in log.lines() {
        if line.starts_with("Span #") {
            spans.push(PrintedSpan::default());
        }
        let (Some(span), Some((name, value))) = (spans.last_mut(), line.split_once(" : ")) else {
            // An empty value has no blank behind the colon.
            continue;
        };
        let field = match name.trim() {
            "Trace ID" => &mut span.trace,
            "Parent ID" => &mut span.parent,
            "ID" => &mut span.id,
            "Kind" => &mut span.kind,
            _ => continue,
        };
        value.trim().clone_into(field);
    }
    spans
}

/// Whether the spans are those of one call, of its request, of the onward call, and of its request,
/// each the parent of the next.
fn one_trace(spans: &[PrintedSpan]) -> Result<(), String> {
    let mut parent = "";
    for kind in ["Client", "Server", "Client", "Server"] {
        let mut children = spans.iter().filter(|span| span.parent == parent);
        let Some(child) = children.next().filter(|child| child.kind == kind) else {
            return Err(format!("no span of kind {kind} below the span `{parent}`"));
        };
        if children.next().is_some() || child.trace != spans[0].trace {
            return Err(format!("the span `{}` is not the only one in its trace", child.id));
        }
        parent = &child.id;
    }
    match spans.len() {
        4 => Ok(()),
        other => Err(format!("there are {other} spans instead of 4")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(of: [(&str, &str, &str); 4]) -> String {
        let span = |(parent, id, kind): (&str, &str, &str)| {
            format!(
                "Span #0\n    Trace ID       : 7f\n    Parent ID      : {parent}\n    \
                 ID             : {id}\n    Name           : homa\n    Kind           : {kind}\n"
            )
        };
        of.map(span).concat()
    }

    #[test]
    fn a_trace_is_a_chain_of_spans() {
        let chain =
            [("3", "4", "Server"), ("", "1", "Client"), ("2", "3", "Client"), ("1", "2", "Server")];
        assert_eq!(one_trace(&spans(&printed(chain))), Ok(()));
        let mut apart = chain;
        apart[0].0 = "";
        assert!(one_trace(&spans(&printed(apart))).is_err());
        let mut unnamed = chain;
        unnamed[3].2 = "Internal";
        assert!(one_trace(&spans(&printed(unnamed))).is_err());
        assert!(one_trace(&[]).is_err());
    }
}
