//! The main job: the same RPCs over each transport on one rack, rows as they finish.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use homa_proto::Rate;
use homa_testbed::check::Probes;
use homa_testbed::{
    Faults, Isolation, Pattern, Rack, RackConfig, RunPlan, RunReport, TestbedError,
};
use homa_testbed::{Transport, check};
use homa_workload::arrivals::{Offer, schedule};
use homa_workload::bins::SizeBins;
use homa_workload::framing::Framing;
use homa_workload::load::{Basis, Load};
use homa_workload::sizes::SizeDistribution;

use super::config::{Config, Network};
use super::marking::Planned;
use super::report::{Report, TransportResult, kept};
use super::screen::Screen;
use super::{Args, LINK, Switch, chart, in_memory, incast, trial, twin, workflow};
use crate::commands::driver::Driver;
use crate::failure::{Failure, Hint, Outcome, Verdict};
use crate::output::{Format, Progress, json};

/// Larger messages are cut to this size, as in the measurements of Homa/Linux (ATC 2021).
pub const LARGEST: u32 = 1_000_000;
/// How long stragglers may take after the last arrival. At 80 % load SRPT lets the longest messages
/// wait for half a minute; a row that has lost nothing ends as soon as they are through.
const GRACE: Duration = Duration::from_secs(60);
/// What a row takes beside the time in which RPCs arrive: set-up, idle round trips, stragglers. On
/// slower links than the default more, in proportion.
const ROW_OVERHEAD: Duration = Duration::from_millis(2_500);

/// What to do when RPCs cannot be offered.
pub const OFFER_HINT: &str = "see `homa bench --help` for what can be offered";

/// What to do when there can be no rack, or a row on it fails.
const LACKS: &str = "`homa doctor` shows what this machine lacks for a rack";

const CHART_HINT: &str = "choose another --chart file";

/// Most checks of an idle rack before its rows.
const PROBES: usize = 3;

/// Builds the rack and runs every row on it.
pub fn run(args: &Args) -> Outcome {
    args.check_congestion_control()?;
    args.check_fabric()?;
    rack_config(args).validate().hint("`homa bench --help` has units and defaults")?;
    if args.twin {
        twin::check(args)?;
    }
    match (args.incast, args.fan_out) {
        (None, None) => offer(args).map(drop)?,
        (None, Some(parts)) => workflow::check(args, parts)?,
        (Some(_), _) => {}
    }
    if let Some(path) = &args.chart {
        // An hour later would be late to find out.
        check_writable(path).with_context(|| cannot_write(path)).hint(CHART_HINT)?;
    }
    let inside = match homa_testbed::isolate() {
        Ok(inside) => inside,
        Err(error @ TestbedError::NamespacesRefused { .. })
            if args.incast.is_none() && args.fan_out.is_none() =>
        {
            return in_memory::run(args, &error);
        }
        Err(error) => return Err(Failure::new(error, "`homa doctor` names the setting")),
    };
    let args = &trial::affordable(args, &inside)?;
    let racks = Racks::new(args, &inside);
    match (args.incast, args.fan_out) {
        (Some(outstanding), _) => incast::run(args, racks, outstanding),
        (None, Some(parts)) => workflow::run(args, racks, parts),
        (None, None) => loaded(args, racks),
    }
}

/// The rack under the row that is measured: one at a time, built anew where its switch marks
/// otherwise than before.
pub struct Racks<'a> {
    args: &'a Args,
    inside: &'a Isolation,
    rack: Option<Rack>,
}

impl<'a> Racks<'a> {
    /// None yet.
    fn new(args: &'a Args, inside: &'a Isolation) -> Self {
        Self { args, inside, rack: None }
    }

    /// The rack for a row; what its checks found, where it is new.
    pub fn of_row(&mut self, row: Planned) -> Result<(&Rack, Option<Probes>), Failure> {
        let config = RackConfig { marking: row.marking(self.args), ..rack_config(self.args) };
        if let Some(rack) = self.rack.take_if(|rack| *rack.config() == config) {
            return Ok((self.rack.insert(rack), None));
        }
        // The last one's threads spin: it goes first.
        self.rack = None;
        let rack = Rack::build(config, self.inside).hint(LACKS)?;
        let probes = probe(&rack, self.args.anyway)?;
        Ok((self.rack.insert(rack), Some(probes)))
    }
}

/// The rack that was asked for.
pub fn rack_config(args: &Args) -> RackConfig {
    RackConfig {
        hosts: args.hosts(),
        topology: args.topology(),
        forwarding: args.forwarding(),
        degraded: args.degraded(),
        link: Rate(args.link()),
        buffer_bytes: args.buffer,
        marking: args.marking(),
        faults: Faults { loss: args.loss, duplication: args.duplicate, seed: args.seed },
        ..RackConfig::default()
    }
}

pub fn build(args: &Args, inside: &Isolation) -> Result<Rack, Failure> {
    Rack::build(rack_config(args), inside).hint(LACKS)
}

/// The RPCs of every host, and the sizes they are drawn from.
pub fn offer(args: &Args) -> Result<(Offer, SizeDistribution), Failure> {
    let sizes = args.workload.sizes().hint("`homa workloads` lists what is built in")?;
    let load = Load {
        fraction: args.load,
        basis: Basis::Wire,
        link_bps: args.link(),
        framing: match args.driver {
            Driver::Udp | Driver::Xdp | Driver::Auto => Framing::Udp,
            Driver::RawIp => Framing::Ip146,
        },
    };
    let hosts = u16::try_from(args.hosts()).hint("a rack has 2 to 250 hosts")?;
    let duration_ns = args.duration().as_nanos() as u64;
    Ok((Offer { hosts, load, duration_ns, seed: args.seed }, sizes.truncated(LARGEST)))
}

/// Sizes whose idle round trip is measured: between them it is nearly linear in the bytes.
pub fn idle_sizes(sizes: &SizeDistribution) -> Vec<u32> {
    let within = |bytes: &u32| (sizes.min_bytes()..=sizes.max_bytes()).contains(bytes);
    let mut chosen = vec![sizes.min_bytes(), sizes.max_bytes()];
    let tenths = SizeBins::tenths(sizes);
    chosen.extend(tenths.bins().iter().map(|bin| bin.max_bytes));
    chosen.extend([100, 1_000, 1_400, 1_500, 3_000, 10_000, 30_000, 150_000, 500_000]);
    chosen.retain(within);
    chosen.sort_unstable();
    chosen.dedup();
    chosen
}

fn loaded(args: &Args, mut racks: Racks<'_>) -> Outcome {
    let (offer, sizes) = offer(args)?;
    let arrivals = schedule(&offer, &sizes).hint(OFFER_HINT)?;
    let idle_sizes = idle_sizes(&sizes);
    let planned = args.rows();
    let slow = (LINK as f64 / args.link() as f64).max(1.0);
    let expected = (args.duration() + ROW_OVERHEAD.mul_f64(slow)) * planned.len() as u32;
    let progress = Progress::ticking(expected + Duration::from_secs(2));
    progress.step("checking the rack: wire timing and strict priority");
    let screen = Screen::new(args, &arrivals);
    let table = args.format == Format::Table;
    let bins = SizeBins::percent(&sizes);
    let (mut rows, mut verdict) = (Vec::new(), check::Verdict::default());
    let mut config = Config::new(args, Network::Rack);
    for (index, &row) in planned.iter().enumerate() {
        let (rack, probes) = racks.of_row(row)?;
        if index == 0 {
            config = Config::of_rack(args, rack);
        }
        if let Some(probes) = probes {
            if table && index == 0 {
                progress.suspend(|| screen.rack(rack, &probes.verdict));
            }
            verdict.extend(probes.verdict);
        }
        let label = row.label();
        progress.step(&format!("{label}: {} of {}", index + 1, planned.len()));
        let pattern =
            Pattern::Open { arrivals: &arrivals, request_bytes: None, duration: args.duration() };
        let plan = RunPlan { idle_sizes: &idle_sizes, ..plan(args, row.transport, pattern) };
        let run = undisturbed(rack, &plan, (&progress, &verdict))?;
        let mut result = TransportResult::of_run(&run, row.marks, rack.config(), &bins);
        if args.twin {
            let measured = (Some(&run.idle), rack.tcp_rto_min());
            let forecast = twin::forecast(args, row, &arrivals, measured)?;
            result.twin = forecast.map(|twin| twin.beside(&result.short));
        }
        progress.suspend(|| {
            eprintln!("{label}: {}", run.verdict);
            if table {
                screen.row(&result, &run.idle, run.verdict.valid());
            }
        });
        verdict.extend(run.verdict);
        rows.push(result);
        progress.revise(rows.len(), planned.len());
    }
    progress.finish();
    let valid = verdict.valid();
    draw(args, &rows)?;
    let kept = match args.format {
        Format::Json => {
            let broken: Vec<String> = rows.iter().flat_map(TransportResult::broken).collect();
            let kept = kept(&broken, args.format);
            json(&Report { config, valid, transports: &rows })?;
            kept
        }
        Format::Table => screen.foot(&rows, &verdict),
    };
    Ok(if valid && kept { Verdict::Passed } else { Verdict::CheckFailed })
}

/// Checks the rack, again while something else disturbs the machine; if that does not end, neither
/// would any row be valid.
pub fn probe(rack: &Rack, anyway: bool) -> Result<Probes, Failure> {
    let mut probes = check::probe(rack);
    for _ in 1..PROBES {
        if probes.as_ref().is_ok_and(|probes| probes.verdict.valid()) {
            break;
        }
        probes = check::probe(rack);
    }
    let probes = probes.hint("run it again when the machine is idle")?;
    if !anyway {
        check_idle(&probes.verdict)?;
    }
    Ok(probes)
}

/// Nothing is measured on a machine that is busy with something else.
fn check_idle(verdict: &check::Verdict) -> Result<(), Failure> {
    if verdict.valid() {
        return Ok(());
    }
    let wrong = verdict.findings.iter().filter(|finding| !finding.ok);
    let wrong: Vec<String> = wrong.map(|f| format!("{} {}", f.name, f.detail)).collect();
    let error =
        anyhow::anyhow!("the rack does not keep time before any load: {}", wrong.join(", "));
    Err(Failure::new(
        error,
        "end what else runs (`top` shows it) and run it again, choose a slower --link, or measure \
         --anyway, which gives INVALID rows",
    ))
}

/// Makes a run, once more if the machine disturbed it: whether it counts is decided by the rack's
/// checks, never by its result. Nothing is repeated in a run that is invalid already.
pub fn undisturbed(
    rack: &Rack,
    plan: &RunPlan<'_>,
    (progress, so_far): (&Progress, &check::Verdict),
) -> Result<RunReport, Failure> {
    let first = measure(rack, plan)?;
    if first.verdict.valid() || !so_far.valid() {
        return Ok(first);
    }
    progress.suspend(|| eprintln!("{}, measured again: {}", plan.transport, first.verdict));
    progress.step(&format!("{} once more: the machine disturbed it", plan.transport));
    measure(rack, plan)
}

/// Writes the figure that was asked for.
fn draw(args: &Args, rows: &[TransportResult]) -> Result<(), Failure> {
    let Some(path) = &args.chart else { return Ok(()) };
    let subtitle = format!(
        "{} echo RPCs, {} % load, {} hosts x {} Mbit/s, {} B of buffer a port, {:.0} s a row, \
         seed {}",
        args.workload.to_string().to_uppercase(),
        (args.load * 100.0).round(),
        args.hosts(),
        args.link() / 1_000_000,
        args.buffer,
        args.duration().as_secs_f64(),
        args.seed
    );
    let written = fs::write(path, chart::svg(rows, &subtitle));
    written.with_context(|| cannot_write(path)).hint(CHART_HINT)
}

/// Whether a file can be written, without making it: a run that fails leaves none behind.
fn check_writable(path: &Path) -> io::Result<()> {
    match OpenOptions::new().append(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        opened => return opened.map(drop),
    }
    // Its folder takes a file: one beside it is made and removed.
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}", std::process::id()));
    OpenOptions::new().write(true).create_new(true).open(&beside)?;
    fs::remove_file(&beside)
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write {}", path.display())
}

/// How a transport's messages become frames on the rack.
pub fn framing(transport: Transport) -> Framing {
    match transport.is_homa() {
        true => Framing::Udp,
        false => Framing::Tcp,
    }
}

/// What every row of a command has in common.
pub fn plan<'a>(args: &'a Args, transport: Transport, pattern: Pattern<'a>) -> RunPlan<'a> {
    let queued = match pattern {
        Pattern::Open { .. } => 0,
        // All of it has still to come over the client's link when the last RPC starts.
        Pattern::Incast { outstanding, response_bytes, .. } => {
            outstanding as u64 * framing(transport).data_wire_bytes(response_bytes)
        }
    };
    RunPlan {
        transport,
        congestion_control: &args.cc,
        homa_incast_control: args.incast_control == Switch::On,
        pattern,
        idle_sizes: &[],
        grace: GRACE + Duration::from_nanos(Rate(args.link()).time_for(queued).0),
    }
}

/// Makes a run.
pub fn measure(rack: &Rack, plan: &RunPlan<'_>) -> Result<RunReport, Failure> {
    homa_testbed::run(rack, plan).hint(LACKS)
}

#[cfg(test)]
mod tests {
    use super::super::asked;
    use super::*;

    #[test]
    fn an_incast_is_waited_for_as_long_as_its_responses_need() {
        let args = asked(&["--incast", "100000", "--link", "25Mbps"]);
        for transport in Transport::ALL {
            let grace = plan(&args, transport, incast::pattern(&args, 100_000)).grace;
            // A billion bytes without headers: 320 s.
            assert!(grace > GRACE + Duration::from_secs(320), "{transport}: {grace:?}");
        }
        let pattern =
            Pattern::Open { arrivals: &[], request_bytes: None, duration: args.duration() };
        assert_eq!(plan(&args, Transport::Homa, pattern).grace, GRACE);
    }

    #[test]
    fn a_rack_that_fails_its_check_without_load_is_refused_with_what_to_do() {
        let finding = |ok| check::Finding {
            name: "wire timing",
            detail: "90 % of frames within 150 us".into(),
            ok,
            percent: None,
        };
        let verdict = |findings: &[check::Finding]| {
            let mut verdict = check::Verdict::default();
            verdict.findings.extend(findings.iter().cloned());
            verdict
        };
        assert!(check_idle(&verdict(&[finding(true)])).is_ok());
        let refusal = check_idle(&verdict(&[finding(true), finding(false)])).unwrap_err();
        let said = refusal.to_string();
        assert!(said.contains("any load: wire timing 90 % of frames"), "{said}");
        assert!(said.contains("--anyway") && said.contains("slower --link"), "{said}");
    }

    #[test]
    fn a_file_is_tried_without_being_made_or_changed() {
        let folder = std::env::temp_dir().join(format!("homa-chart-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let (new, old) = (folder.join("new.svg"), folder.join("old.svg"));
        check_writable(&new).unwrap();
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "something was left behind");
        fs::write(&old, "kept").unwrap();
        check_writable(&old).unwrap();
        assert_eq!(fs::read_to_string(&old).unwrap(), "kept");
        for never in [folder.clone(), folder.join("none/new.svg"), folder.join("new.svg/")] {
            assert!(check_writable(&never).is_err(), "{}", never.display());
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
