//! `homa doctor`: what this machine and its loopback path can do, what follows, and the remedy.
//!
//! Everything is tried, nothing is guessed from version numbers. Invariant: nothing outside this
//! process changes; namespaces and sockets made here end with it. Left out: the path to another
//! machine (`homa ping` times it).

mod keys;
mod links;
mod machine;
mod sockets;

use std::net::IpAddr;
use std::path::PathBuf;

use serde::Serialize;

use super::protection::Certificates;
use crate::failure::{Outcome, Verdict};
use crate::output::{Align, Format, TextTable, json, line};
use links::DoctorLink;

/// Arguments of `homa doctor`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Output format.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// Show only the link that packets to this address leave by.
    #[arg(long, value_name = "ADDRESS")]
    peer: Option<IpAddr>,
    /// Also check this key file (`homa key new`).
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    #[command(flatten)]
    certificates: Certificates,
}

/// The result of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Status {
    /// As good as Homa can use.
    Ok,
    /// Works, with a disadvantage.
    Limited,
    /// Not there; something else is done instead.
    Missing,
    /// Not there and nothing works without it.
    Fatal,
}

impl Status {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Limited => "limited",
            Self::Missing => "missing",
            Self::Fatal => "FATAL",
        }
    }
}

/// One probe's result.
#[derive(Clone, Debug, Serialize)]
struct DoctorCheck {
    name: &'static str,
    status: Status,
    /// The finding, with units.
    found: String,
    /// The consequence for Homa.
    consequence: String,
    /// The setting to change; absent if there is nothing to gain.
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

impl DoctorCheck {
    fn new(
        name: &'static str,
        status: Status,
        found: impl Into<String>,
        consequence: impl Into<String>,
    ) -> Self {
        Self { name, status, found: found.into(), consequence: consequence.into(), remedy: None }
    }

    fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }
}

#[derive(Serialize)]
struct DoctorReport {
    checks: Vec<DoctorCheck>,
    links: Vec<DoctorLink>,
}

/// Runs the command; the verdict fails only when Homa cannot run here at all, or not with the key
/// file or the certificates that were given.
pub fn run(args: &Args) -> Outcome {
    let mut checks = vec![machine::cores(), machine::clock(), machine::timers()];
    checks.extend(sockets::all());
    checks.push(keys::cipher());
    checks.extend(args.key.as_deref().map(keys::file));
    checks.extend(args.certificates.read().map(keys::certificates));
    let links = links::all(args.peer);
    // Last, because it moves the process into another network.
    checks.extend(machine::namespaces());
    checks.push(machine::wake_up());
    let report = DoctorReport { checks, links };
    match args.format {
        Format::Json => json(&report)?,
        Format::Table => print(&report),
    }
    match report.checks.iter().any(|check| check.status == Status::Fatal) {
        true => Ok(Verdict::CheckFailed),
        false => Ok(Verdict::Passed),
    }
}

fn print(report: &DoctorReport) {
    let table = TextTable::new(&[
        ("check", Align::Left, 20),
        ("status", Align::Left, 8),
        ("found", Align::Left, 1),
    ]);
    line(table.head());
    for check in &report.checks {
        let cells = [check.name.into(), check.status.word().into(), check.found.clone()];
        line(table.row(&cells));
        line(table.row(&[String::new(), String::new(), format!("=> {}", check.consequence)]));
        if let Some(remedy) = &check.remedy {
            line(table.row(&[String::new(), String::new(), format!("remedy: {remedy}")]));
        }
    }
    line("");
    print_links(&report.links);
}

fn print_links(links: &[DoctorLink]) {
    if links.is_empty() {
        return line("links: the kernel does not say which there are, or no route leads there");
    }
    let table = TextTable::new(&[
        ("link", Align::Left, 15),
        ("kind", Align::Left, 10),
        ("rate", Align::Right, 12),
        ("certainty", Align::Left, 9),
        ("because", Align::Left, 1),
    ]);
    line(table.head());
    links.iter().for_each(|link| line(table.row(&link.cells())));
    if links.iter().any(DoctorLink::is_uncertain) {
        line("=> unknown link rate: Homa estimates it from queue drain and arrivals");
        line("remedy: set `Config::link_rate` (or --link-rate) if all peers are behind one link");
    }
}

/// A setting of the kernel as it stands in /proc or /sys.
fn setting(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim().to_string())
}
