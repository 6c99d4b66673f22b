//! `homa sim`: one simulation, from a plan or from the command line.

mod print;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use homa_lab::changes::Changes;
use homa_lab::document::Document;
use homa_lab::error::LabError;
use homa_lab::plan::Plan;
use homa_lab::report::Choice;
use homa_lab::settings::assignment;
use homa_lab::store::Store;
use homa_lab::sweep::keep;
use homa_sim::experiment::limit::{self, Range};
use homa_sim::experiment::{Observers, Physics, RunProgress, Trace, run_watched};
use homa_sim::scenario::{Scenario, ScenarioOutcome as Simulated};
use homa_sim::trace::Checked;
use serde::Serialize;
use toml::Value;

use print::{Bins, percent, print};

use super::sweep::warn;
use super::work::{Work, write_page};
use crate::failure::{Failure, Hint, Outcome, Verdict};
use crate::output::{Format, json, line};
use crate::values;

/// What to do about a plan that is not understood.
const PLAN_HINT: &str = "docs/simulator.md has every key of a plan, `homa sim --help` an example; \
                         a key is set on the command line by --set, such as --set \
                         load.fraction=0.5";

/// A plan that cannot be read, or is not understood.
pub fn plan_failure(error: LabError) -> Failure {
    match &error {
        LabError::File { .. } => Failure::new(error, "give the path of a plan (PLAN.toml)"),
        _ => Failure::new(error, PLAN_HINT),
    }
}

/// What to do about a scenario that cannot be run.
const HINT: &str = "docs/simulator.md has every key with its unit and what is allowed";

/// Arguments of `homa sim`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A plan is TOML; every key has a default, and an unknown key is refused with the allowed ones. All
keys, columns and the JSON: docs/simulator.md. Most of the keys:

  [scenario]
  scheme = \"homa\"                                  # see `homa schemes`
  traffic = { pattern = \"all-to-all\", workload = \"w4\" }
  load = { fraction = 0.8, basis = \"paper\" }       # or \"wire\", \"payload\"
  stop = { messages = 1_000_000 }
  fabric = { host_link = \"10Gbps\", fabric_link = \"40Gbps\" }

Networks:   fabric.shape = { kind = \"single-switch\", hosts = 16 }
            { kind = \"leaf-spine\", racks = 9, hosts_per_rack = 16, spines = 4 }
            { kind = \"fat-tree\", k = 8, oversubscription = 1 }
            { kind = \"graph\", file = \"links.csv\" } # from,to,gbps,delay_ns; slowdown = \"idle\"
Switches:   fabric.routing = \"spray\" or \"ecmp\"; fabric.cut_through, fabric.preemption = true
            fabric.buffer = { kind = \"unlimited\" }, { kind = \"per-port\", bytes = 200_000 }
            or { kind = \"shared\", bytes = 4_000_000, alpha_percent = 100 }
Faults:     fabric.loss_ppm, duplicate_ppm, reorder_ppm; hosts that stall:
            fabric.paused = [{ host = \"h3\", at = \"1ms\", until = \"2ms\" }]
Bad links:  by name (h0, tor0, spine0, aggr0, core0, names in the graph), down unless rate or
            loss_ppm is given:
            fabric.impaired = [{ from = \"tor0\", to = \"spine1\", at = \"1ms\", until = \"2ms\" },
                               { from = \"h3\", to = \"tor0\", rate = \"1Gbps\", one_way = true }]
Traffic:    { pattern = \"all-to-all\", workload = \"w4\", exchange = \"echo\" }  # or \"one-way\"
            { pattern = \"clients-servers\", workload = \"w4\", clients = 8, servers = 8 }
            { pattern = \"incast\", servers = 15, concurrent = 300, response_bytes = 10_000 }
            { pattern = \"permutation\", bytes = 2_000_000 }
            { pattern = \"flows\", file = \"flows.csv\" }   # id,src,dst,bytes,start_ns, or a
                                         # file of htsim, HPCC, YAPS or LogGOPSim
            { pattern = \"collective\", operation = \"ring-all-reduce\", bytes = 64_000_000 }
Packets:    options.mtu = 4000                 # bytes of an IP packet, 1500 to 9000 (default: 1500)
Measures:   measures = { queues, priorities, wasted_bandwidth, tail_delay, ledger = true }

--out writes the plan with all defaults written out, tables and a page. `examples/` in the
repository has plans to start from.")]
pub struct Args {
    /// The plan, which the options below change. [default: scheme homa on the 144 hosts of the Homa
    /// paper, W1 at 80 % load, 300,000 messages]
    #[arg(value_name = "PLAN.toml")]
    plan: Option<PathBuf>,
    #[command(flatten)]
    changes: Options,
    /// Search for the highest sustainable load (at which the backlog stays bounded) between two
    /// loads, to within 1 %. If the stop rule is too short to tell, the error names one that is
    /// long enough.
    #[arg(long, value_name = "LOW..HIGH", value_parser = load_range)]
    #[arg(conflicts_with_all = ["out", "trace", "fct", "verify", "load", "flows", "threads"])]
    max_load: Option<Range>,
    /// Threads that simulate the partitions of the network; they change no result. [default: one
    /// per core, at most one per partition]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Folder for the result: resolved plan, tables (CSV, Parquet), HTML page.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Write packets as hosts send them to a capture for Wireshark and `homa pcap`: headers without
    /// payload, with simulated times and lengths.
    #[arg(long, value_name = "FILE.pcapng")]
    trace: Option<PathBuf>,
    /// Stop the trace, not the simulation, after this many packets.
    #[arg(long, value_name = "N", default_value_t = 1_000_000, requires = "trace")]
    #[arg(value_parser = values::count)]
    trace_packets: u64,
    /// Write a line for every measured message, as HPCC's simulator writes its fct.txt: sip dip
    /// sport dport bytes start_ns fct_ns ideal_ns; the last is the time that `slowdown` divides by.
    #[arg(long, value_name = "FILE")]
    fct: Option<PathBuf>,
    /// Check every packet's events against physics (no byte from nowhere, link rates and delays,
    /// order within and between priorities) and report what was checked; a violation means exit
    /// code 1. The run takes two to three times as long; memory grows by some 100 bytes for each
    /// port and each packet in the network, not with the length of the run. With JSON, the report
    /// goes to stderr.
    #[arg(long)]
    verify: bool,
    /// Bins of sizes in the table.
    #[arg(long, value_enum, default_value_t)]
    bins: Bins,
    /// Output format on stdout.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

/// What the command line changes in a plan.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// A scheme that `homa schemes` lists.
    #[arg(long)]
    scheme: Option<String>,
    /// Message sizes: w1 to w5, one size in bytes, or a table of sizes and cumulative shares (FILE,
    /// or `steps:FILE` and others: see `homa workloads --help`).
    #[arg(long)]
    workload: Option<String>,
    /// Share of every host's link that the traffic fills, in the plan's load basis.
    #[arg(long, value_parser = values::offered)]
    load: Option<f64>,
    /// Messages to measure.
    #[arg(long, value_name = "N", value_parser = values::count)]
    messages: Option<u64>,
    /// Seed of everything random.
    #[arg(long, value_name = "S", value_parser = seed)]
    seed: Option<u64>,
    /// Divide the network into partitions, which several threads simulate side by side.
    #[arg(long, value_name = "N")]
    partitions: Option<u32>,
    /// Messages from a list instead: rows of id,src,dst,bytes,start_ns, or of columns in another
    /// order under these names; or a connection matrix of htsim (.cm), a flow file of HPCC's ns-3,
    /// a trace of YAPS or a program in GOAL, which are recognised by their first row.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["workload", "load"])]
    flows: Option<String>,
    /// Any key of the scenario, such as fabric.host_link=25Gbps; may be repeated.
    #[arg(long, value_name = "KEY=VALUE", value_parser = assignment)]
    set: Vec<(String, Value)>,
}

/// A seed that a plan, which is TOML, can hold.
fn seed(text: &str) -> Result<u64, String> {
    let number = text.parse().ok().filter(|&seed: &u64| i64::try_from(seed).is_ok());
    number.ok_or_else(|| format!("a seed is a number from 0 to {}", i64::MAX))
}

/// A file that is made, or emptied, when the first byte is written to it.
struct LateFile<'a> {
    path: &'a Path,
    file: Option<BufWriter<File>>,
    /// It could not be written.
    failed: bool,
}

impl<'a> LateFile<'a> {
    fn new(path: &'a Path) -> Self {
        Self { path, file: None, failed: false }
    }

    fn open(&mut self) -> io::Result<&mut BufWriter<File>> {
        if self.file.is_none() {
            let file = File::create(self.path).map_err(|error| {
                io::Error::new(error.kind(), format!("{}: {error}", self.path.display()))
            })?;
            self.file = Some(BufWriter::new(file));
        }
        self.file.as_mut().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Write for LateFile<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.open().and_then(|file| file.write(bytes));
        self.failed |= written.is_err();
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = self.file.as_mut().map_or(Ok(()), Write::flush);
        self.failed |= flushed.is_err();
        flushed
    }
}

impl Options {
    /// A mistake in the value of an option, with the option's name.
    fn named(&self, error: LabError) -> LabError {
        let LabError::Plan(mut fault) = error else { return error };
        let option = match &*fault.key {
            "scheme" => self.scheme.as_ref().map(|_| "--scheme"),
            "traffic.workload" => self.workload.as_ref().map(|_| "--workload"),
            "load.fraction" => self.load.map(|_| "--load"),
            "stop.messages" => self.messages.map(|_| "--messages"),
            "seed" => self.seed.map(|_| "--seed"),
            "partitions" => self.partitions.map(|_| "--partitions"),
            "traffic.file" => self.flows.as_ref().map(|_| "--flows"),
            _ => None,
        };
        // What --set says of a key comes last and counts.
        let set = self.set.iter().any(|(key, _)| *key == fault.key);
        if let Some(option) = option.filter(|_| fault.file == "--set" && !set) {
            fault.file = option.to_owned();
        }
        LabError::Plan(fault)
    }
}

impl From<&Options> for Changes {
    fn from(given: &Options) -> Self {
        let Options { scheme, workload, load, messages, seed, partitions, flows, set } =
            given.clone();
        let number = |partitions| Value::Integer(i64::from(partitions));
        let partitions = partitions.map(|given| ("partitions".to_owned(), number(given)));
        let set = partitions.into_iter().chain(set).collect();
        Self { scheme, workload, load, messages, seed, flows, set }
    }
}

/// The only simulation of the plan, or of none, with what the command line changes.
fn plan(args: &Args) -> Result<Plan, Failure> {
    let document = args.plan.as_deref().map(Document::read).transpose().map_err(plan_failure)?;
    Changes::from(&args.changes).single(document.as_ref()).map_err(|error| match error {
        LabError::Several { .. } => {
            Failure::new(error, "`homa sweep` runs a plan with axes or several seeds")
        }
        error => plan_failure(args.changes.named(error)),
    })
}

/// Runs the command.
pub fn run(args: &Args) -> Outcome {
    let plan = plan(args)?;
    let cell = &plan.cells[0];
    let mut work = Work::new();
    if let Some(range) = args.max_load {
        return max_load(&cell.scenario, range, args, work);
    }
    if let Some(folder) = &args.out {
        Store::create(folder).hint("choose another --out")?;
    }
    warn(&plan);
    let outcome = simulate(args, &cell.scenario, &mut |progress| {
        let waits = if progress.done < 1.0 { "" } else { ", waiting for the last" };
        work.show(progress.done, &format!("{} messages{waits}", progress.delivered));
    });
    work.finish();
    let (outcome, physics) = outcome?;
    if let Some(folder) = &args.out {
        let kept = Store::create(folder).and_then(|store| keep(&plan, &outcome, &store));
        kept.hint("choose another --out")?;
        write_page(folder, &Choice::default())?;
    }
    match args.format {
        Format::Json => json(&outcome)?,
        Format::Table => print(&outcome, args.bins),
    }
    Ok(physics.map_or(Verdict::Passed, |physics| judged(&physics, args.format)))
}

/// Prints the verdict on physics; stdout has only the document if that is JSON.
fn judged(physics: &Physics, format: Format) -> Verdict {
    let say = |text: String| match format {
        Format::Json => eprintln!("{text}"),
        Format::Table => line(text),
    };
    match physics {
        Ok(Checked { events, sent, copied, received, lost, in_flight }) => {
            say(format!(
                "physics holds: {events} events of {} frames, {} B sent, {} B duplicated, {} B \
                 received, {} B lost, {} B in flight",
                sent.frames + copied.frames,
                sent.bytes,
                copied.bytes,
                received.bytes,
                lost.bytes,
                in_flight.bytes
            ));
            Verdict::Passed
        }
        Err(violations) => {
            violations.iter().for_each(|violation| say(format!("physics is broken: {violation}")));
            Verdict::CheckFailed
        }
    }
}

/// Runs the scenario, with its trace, completion times and a verdict on its physics if they are
/// wanted.
fn simulate(
    args: &Args,
    scenario: &Scenario,
    progress: &mut dyn FnMut(RunProgress),
) -> Result<(Simulated, Option<Physics>), Failure> {
    let named = |path: &Path, error| anyhow::anyhow!("{}: {error}", path.display());
    let others = [args.trace.as_deref(), args.changes.flows.as_deref().map(Path::new)];
    if let Some(path) = args.fct.as_deref().filter(|fct| others.contains(&Some(*fct))) {
        let error = anyhow::anyhow!("--fct {} is also another file of this run", path.display());
        return Err(Failure::new(error, "choose another --fct"));
    }
    // A scenario that is refused leaves the file of an earlier one alone.
    let mut trace = args.trace.as_deref().map(LateFile::new);
    let mut fct = args.fct.as_deref().map(LateFile::new);
    let observers = Observers {
        trace: trace.as_mut().map(|out| Trace { out, packets: args.trace_packets }),
        fct: fct.as_mut().map(|out| out as &mut dyn Write),
        verify: args.verify,
        threads: args.threads.map(usize::from),
        stop: None,
    };
    let ran = run_watched(scenario, observers, progress);
    let failed = |out: &Option<LateFile<'_>>| out.as_ref().is_some_and(|out| out.failed);
    let watched = ran.map_err(|error| match (failed(&trace), failed(&fct)) {
        (true, _) => Failure::new(error, "choose another --trace"),
        (false, true) => Failure::new(error, "choose another --fct"),
        (false, false) => Failure::new(error, HINT),
    })?;
    if let Some(mut out) = fct {
        // Of no message: an earlier file must not pass for the one of this run.
        let written = out.write(&[]).and_then(|_| out.flush());
        written.map_err(|error| named(out.path, error)).hint("choose another --fct")?;
    }
    if let Some(mut out) = trace {
        let flushed = out.flush().map_err(|error| named(out.path, error));
        flushed.hint("choose another --trace, or fewer --trace-packets")?;
    }
    Ok(watched)
}

/// What `--max-load --format json` prints.
#[derive(Debug, Serialize)]
struct Highest {
    /// The highest load tried whose backlog is bounded; absent: not even the lowest.
    sustained: Option<f64>,
    /// The lowest load tried whose backlog diverges; absent: not even the highest.
    diverging: Option<f64>,
    /// The run at the sustained load, as without `--max-load`.
    outcome: Option<Simulated>,
}

fn load_range(text: &str) -> Result<Range, String> {
    let ends = text.split_once("..").ok_or("write it as 0.5..0.95")?;
    let load = |text: &str| match values::offered(text.trim())? {
        load if (0.001..=2.0).contains(&load) => Ok(load),
        _ => Err("loads to search are from 0.001 to 2".to_owned()),
    };
    let (low, high) = (load(ends.0)?, load(ends.1)?);
    if low >= high {
        return Err("the first load must be the lower one".into());
    }
    Ok(Range { low, high, resolution: 0.01 })
}

fn max_load(scenario: &Scenario, range: Range, args: &Args, mut work: Work) -> Outcome {
    let found = limit::max_load(scenario, range, &mut |load, progress| {
        work.show(progress.done, &format!("load {load:.3}: {} messages", progress.delivered));
    });
    work.finish();
    let found = found.hint(HINT)?;
    let sustained = found.sustained.as_ref().map(|outcome| outcome.load);
    match args.format {
        Format::Json => {
            json(&Highest { sustained, diverging: found.diverging, outcome: found.sustained })?;
        }
        Format::Table => {
            let shown = |load: Option<f64>| load.map_or_else(|| "none".into(), percent);
            line(format!(
                "highest load sustained: {}; lowest that is not: {}",
                shown(sustained),
                shown(found.diverging)
            ));
            found.sustained.iter().for_each(|outcome| print(outcome, args.bins));
        }
    }
    Ok(Verdict::Passed)
}
