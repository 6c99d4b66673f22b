//! The expressions of `contrib/monitoring`, run by a real Prometheus on a real scrape: a part of
//! `cargo xtask release --check`, because it takes programs that few machines have, and seconds.
//!
//! A client calls a server with a certificate, and an address without a server. Prometheus scrapes
//! the metrics of both each second. Each expression of the dashboard and of the alert rules must be
//! accepted, and must have a number as result. Then the server ends, and the alert about it fires.
//! Whether each alert fires when it should, and then alone, promtool computes from made-up series
//! (`alerts_test.yml`). Left out: how Grafana draws them, and who is told of an alert.

use std::fs;
use std::io::{Error, Read, Result, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::program::RunningProgram;
use super::{Outcome, user};
use crate::process::{cargo, output, remove_folder};
use crate::target;

/// What a rate is taken over, in place of Grafana's `$__rate_interval`.
const RATE_INTERVAL: &str = "5s";
/// Prometheus needs a few scrapes until a rate has a value.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Made-up series, and the alerts that fire on them.
const SERIES: &str = include_str!("alerts_test.yml");

/// Calls a server, and an address where none is, until it is ended.
const CALLER: &str = r#"
use std::{env, thread, time::Duration};
use homa::{Client, Config, Keys, metrics::http::Exporter};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let [_, server, cert, key, ca] = &env::args().collect::<Vec<_>>()[..] else {
        return Err("usage: caller SERVER CERT KEY CA".into());
    };
    let keys = Keys::from_certificates(cert, key, ca)?;
    let client = Client::with(Config::default().keys(keys))?;
    let page = Exporter::loopback(client.engine(), 0)?;
    println!("metrics at http://{}/metrics", page.local_addr());
    loop {
        for to in [server.as_str(), "127.0.0.1:1"] {
            let _ = client.call(to.parse()?, "hello");
        }
        thread::sleep(Duration::from_millis(20));
    }
}
"#;

/// Runs the check.
pub(super) fn check(repository: &Path) -> Result<Vec<Outcome>> {
    for (program, version, package) in [
        ("promtool", "--version", "prometheus"),
        ("prometheus", "--version", "prometheus"),
        ("openssl", "version", "openssl"),
    ] {
        if Command::new(program).arg(version).output().is_err() {
            let missing = format!("there is no {program} (apt-get install {package})");
            return Ok(vec![Outcome::Skipped(missing)]);
        }
    }
    let monitoring = repository.join("contrib/monitoring");
    let rules = monitoring.join("alerts.yml");
    output(Command::new("promtool").args(["check", "rules"]).arg(&rules))?;
    let dashboard = fs::read_to_string(monitoring.join("dashboard.json"))?;
    let mut expressions = of_dashboard(&dashboard);
    let alerts = fs::read_to_string(&rules)?;
    expressions.extend(of_rules(&alerts));
    let folder = target(repository).join("prometheus");
    remove_folder(&folder)?;
    fs::create_dir_all(&folder)?;
    let series = folder.join("series.yml");
    fs::write(&series, SERIES.replace("ALERTS_FILE", &rules.to_string_lossy()))?;
    output(Command::new("promtool").args(["test", "rules"]).arg(series))?;
    fs::write(folder.join("alerts.yml"), impatient(&alerts))?;
    output(cargo(repository).args(["build", "--bin", "homa"]))?;
    let program = target(repository).join("debug/homa");
    let caller = user::build(repository, "caller", CALLER)?;
    let mut observed = Observed::start(&program, &caller, &folder)?;
    for expression in &expressions {
        observed.accepts(expression)?;
    }
    observed.server = None;
    observed.accepts("ALERTS{alertname=\"HomaDown\",alertstate=\"firing\"}")?;
    drop(observed);
    fs::remove_dir_all(folder)?;
    let accepted = format!("Prometheus accepts {} expressions", expressions.len());
    let fired = "each alert fires on series that it is for, and HomaDown on a server that ended";
    Ok(vec![Outcome::Passed(accepted), Outcome::Passed(fired.to_owned())])
}

/// Rules whose alerts fire after a second.
fn impatient(rules: &str) -> String {
    let line = |line: &str| match line.split_once("for: ") {
        Some((indent, _)) => format!("{indent}for: 1s\n"),
        None => format!("{line}\n"),
    };
    rules.lines().map(line).collect()
}

/// The expressions of a dashboard, with values in place of Grafana's variables.
fn of_dashboard(json: &str) -> Vec<String> {
    let written = json.split("\"expr\": \"").skip(1).map(|rest| {
        let (mut text, mut escaped) = (String::new(), false);
        for character in rest.chars() {
            match character {
                '\\' if !escaped => escaped = true,
                '"' if !escaped => break,
                other => {
                    text.push(other);
                    escaped = false;
                }
            }
        }
        text
    });
    let filled =
        |text: String| text.replace("$__rate_interval", RATE_INTERVAL).replace("$instance", ".*");
    written.map(filled).collect()
}

/// The expressions of alert rules, without the limits, and of what must not be absent: they have a
/// result although nothing is wrong.
fn of_rules(yaml: &str) -> Vec<String> {
    let rules = yaml.split("expr: |\n").skip(1).map(|rest| {
        let indent = rest.len() - rest.trim_start().len();
        let lines = rest.lines().take_while(|line| line.len() - line.trim_start().len() >= indent);
        lines.map(str::trim).collect::<Vec<_>>().join(" ")
    });
    let plain = |rule: String| {
        let limit = [" > ", " < ", " == "].into_iter().find_map(|limit| rule.rsplit_once(limit));
        let rule = limit.map_or(rule.as_str(), |(value, _)| value);
        let absent = rule.strip_prefix("absent(").and_then(|rest| rest.strip_suffix(')'));
        absent.unwrap_or(rule).replace("[5m]", &format!("[{RATE_INTERVAL}]"))
    };
    rules.map(plain).collect()
}

/// Writes an authority, and a certificate for 127.0.0.1 that it vouches for. Returns the paths of
/// the certificate, its key and the authority.
fn certificates(folder: &Path) -> Result<[PathBuf; 3]> {
    let request = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30";
    for rest in [
        "-subj /CN=root -keyout ca.key -out ca.crt",
        "-subj /CN=host -keyout host.key -out host.crt -CA ca.crt -CAkey ca.key \
         -addext subjectAltName=IP:127.0.0.1 -addext basicConstraints=critical,CA:FALSE",
    ] {
        let mut openssl = Command::new("openssl");
        openssl.args(request.split(' ').chain(rest.split_whitespace()));
        output(openssl.current_dir(folder))?;
    }
    Ok(["host.crt", "host.key", "ca.crt"].map(|name| folder.join(name)))
}

/// A server, its client, and a Prometheus that scrapes both; all end with this.
struct Observed {
    prometheus: Child,
    /// Until it is ended.
    server: Option<RunningProgram>,
    _client: RunningProgram,
    api: (Ipv4Addr, u16),
}

impl Drop for Observed {
    fn drop(&mut self) {
        let _ = self.prometheus.kill();
        let _ = self.prometheus.wait();
    }
}

impl Observed {
    fn start(program: &Path, caller: &Path, folder: &Path) -> Result<Self> {
        let [cert, key, ca] = certificates(folder)?;
        let mut serve = Command::new(program);
        serve.args(["serve", "--bind", "127.0.0.1:0", "--echo", "--metrics", "127.0.0.1:0"]);
        serve.arg("--cert").arg(&cert).arg("--cert-key").arg(&key).arg("--ca").arg(&ca);
        let (mut server, address) = RunningProgram::serve(&mut serve)?;
        let mut client =
            RunningProgram::start(Command::new(caller).arg(address).args([cert, key, ca]))?;
        let mut pages = Vec::new();
        for program in [&mut server, &mut client] {
            let page = program.line("metrics at http://")?;
            pages.push(format!("\"{}\"", page.trim_end_matches("/metrics")));
        }
        let config = folder.join("prometheus.yml");
        let scrape = format!(
            "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\n\
             rule_files: [alerts.yml]\nscrape_configs:\n  - job_name: homa\n    \
             static_configs: [{{ targets: [{}] }}]\n",
            pages.join(", ")
        );
        fs::write(&config, scrape)?;
        // The port is free again when Prometheus binds it.
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let prometheus = Command::new("prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", folder.join("data").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .stdout(Stdio::null())
            .stderr(fs::File::create(folder.join("log"))?)
            .spawn()?;
        let api = (Ipv4Addr::LOCALHOST, port);
        Ok(Self { prometheus, server: Some(server), _client: client, api })
    }

    /// Waits until an expression has a number as result; an error if Prometheus refuses it.
    fn accepts(&self, expression: &str) -> Result<()> {
        let end = Instant::now() + TIMEOUT;
        loop {
            match self.query(expression) {
                Ok(answer) if answer.contains("\"status\":\"error\"") => {
                    return Err(Error::other(format!("{expression}: {answer}")));
                }
                Ok(answer) if has_number(&answer) => return Ok(()),
                _ => {}
            }
            if Instant::now() > end {
                return Err(Error::other(format!("{expression}: no number as result")));
            }
            thread::sleep(Duration::from_millis(500));
        }
    }

    fn query(&self, expression: &str) -> Result<String> {
        let encoded: String = expression.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let mut api = TcpStream::connect(self.api)?;
        let ask = format!(
            "GET /api/v1/query?query={encoded} HTTP/1.1\r\nHost: prometheus\r\n\
             Connection: close\r\n\r\n"
        );
        api.write_all(ask.as_bytes())?;
        let mut answer = String::new();
        api.read_to_string(&mut answer)?;
        Ok(answer)
    }
}

/// Whether a series of an answer has a number. It is NaN if, for example, a histogram is empty.
fn has_number(answer: &str) -> bool {
    let values = answer.split("\"value\":[").skip(1);
    let values = values.filter_map(|value| value.split('"').nth(1));
    values.filter_map(|value| value.parse::<f64>().ok()).any(f64::is_finite)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_a_number() {
        let answer = |series: &str| format!("{{\"resultType\":\"vector\",\"result\":[{series}]}}");
        let series = |value| format!("{{\"metric\":{{\"a\":\"1\"}},\"value\":[17.5,\"{value}\"]}}");
        for (result, expected) in [
            (String::new(), false),
            (series("NaN"), false),
            (series("+Inf"), false),
            (series("0.25"), true),
            (format!("{},{}", series("NaN"), series("1e+06")), true),
        ] {
            assert_eq!(has_number(&answer(&result)), expected, "{result}");
        }
    }

    #[test]
    fn every_expression_of_the_dashboard_and_the_rules_is_read() {
        let monitoring = crate::repository().join("contrib/monitoring");
        let read = |name: &str| fs::read_to_string(monitoring.join(name)).expect(name);
        let (dashboard, rules) = (read("dashboard.json"), read("alerts.yml"));
        let panels = of_dashboard(&dashboard);
        assert!(panels.len() > 5 && panels.len() == dashboard.matches("\"expr\"").count());
        let alerts = of_rules(&rules);
        assert_eq!(alerts.len(), rules.matches("- alert:").count());
        for expression in panels.iter().chain(&alerts) {
            assert!(expression.contains("homa") && !expression.contains('$'), "{expression}");
            let (open, close) = (expression.matches('(').count(), expression.matches(')').count());
            assert_eq!(open, close, "{expression}");
            assert!(!expression.contains("annotations"), "{expression}");
        }
    }

    #[test]
    fn each_alert_has_a_row_of_the_page_and_made_up_series() {
        let root = crate::repository();
        let read = |path: &str| fs::read_to_string(root.join(path)).expect(path);
        let page = read("docs/operating/metrics.md");
        let rules = read("contrib/monitoring/alerts.yml");
        for alert in rules.split("- alert: ").skip(1).filter_map(|rule| rule.lines().next()) {
            assert!(page.contains(&format!("\n| {alert} | ")), "no row for {alert}");
            assert!(SERIES.contains(&format!("alertname=\"{alert}\"")), "no series for {alert}");
        }
    }

    #[test]
    fn rules_and_what_they_need_to_have_a_result() {
        let rules = "expr: |\n  up{job=\"a\"} == 0\nfor: 5m\nexpr: |\n  absent(up{job=\"a\"})\nx";
        assert_eq!(of_rules(rules), ["up{job=\"a\"}"; 2]);
        assert_eq!(impatient("  for: 5m\n  labels: {}\n"), "  for: 1s\n  labels: {}\n");
    }
}
