//! One transport on one rack: set up, warm up, idle round trips, load, drain, report.
//!
//! All hosts pass through the same stages together; a host that has finished a stage serves the
//! others until all have. Latency counts from the scheduled arrival, so that a client that falls
//! behind shows it. Nothing waits without a bound: an RPC that has not ended a grace time after the
//! last arrival is lost.

mod closed;
mod group;
mod idle;
mod open;
mod stages;

use std::io;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use homa_workload::arrivals::Arrival;
use homa_workload::quantile::{Percentile, Sorted};

pub use idle::IdleTimes;

use crate::check::{self, ProcessorTime, Shown, Verdict};
use crate::sys;
use crate::transport::{ListeningHost, Transport, TransportOptions};
use crate::{Memory, Pauses, Rack, SwitchInterval, TestbedError};
use closed::ClosedLoop;
use group::{Client, HostGroup};
use open::HostLoad;
use stages::{Stage, Stages};

/// The load on the hosts.
#[derive(Clone, Copy, Debug)]
pub enum Pattern<'a> {
    /// Echo RPCs at given times, independent of completions: one list per host, by time.
    Open {
        /// Client, server, size and time of each RPC.
        arrivals: &'a [Vec<Arrival>],
        /// Bytes of each request; the arrival then gives the length of the response. `None`:
        /// requests are as long as responses.
        request_bytes: Option<u32>,
        /// Length of the schedule.
        duration: Duration,
    },
    /// Host 0 asks all others in turn and keeps a number of RPCs outstanding (Homa §5.3, incast).
    Incast {
        /// RPCs outstanding.
        outstanding: usize,
        /// Bytes of each request.
        request_bytes: u32,
        /// Bytes of each response.
        response_bytes: u32,
        /// Time during which new RPCs are started.
        duration: Duration,
    },
}

/// The plan of a run.
#[derive(Clone, Debug)]
pub struct RunPlan<'a> {
    /// The transport.
    pub transport: Transport,
    /// The kernel's name of TCP's congestion control.
    pub congestion_control: &'a str,
    /// Homa's incast control (Homa §3.6); on for users.
    pub homa_incast_control: bool,
    /// The load.
    pub pattern: Pattern<'a>,
    /// Sizes whose round trip is measured on the idle rack, bytes, ascending.
    pub idle_sizes: &'a [u32],
    /// Longest wait for stragglers after the last arrival.
    pub grace: Duration,
    /// The program `homa`, for [`Transport::GrpcProxy`].
    pub program: Option<PathBuf>,
}

/// An RPC that completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Bytes of the arrival (open loop) or of the response (incast).
    pub bytes: u32,
    /// The scheduled arrival, nanoseconds of CLOCK_MONOTONIC.
    pub due_ns: u64,
    /// From the scheduled arrival to the last byte of the response, nanoseconds.
    pub latency_ns: u64,
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct RunReport {
    /// The transport.
    pub transport: Transport,
    /// RPCs of the plan.
    pub offered: usize,
    /// RPCs that the transport gave up.
    pub failed: usize,
    /// RPCs that had not ended when the grace time was over.
    pub lost: usize,
    /// RPCs ever started, those before the load included.
    pub started: u64,
    /// Requests that servers executed. If every RPC completed, a number above `started` means that
    /// some were executed twice.
    pub executed: u64,
    /// One record per completed RPC, by host and start.
    pub records: Vec<Record>,
    /// Round trips on the idle rack.
    pub idle: IdleTimes,
    /// Memory of this process under an open-loop load, if the kernel reports it.
    pub memory: Option<Memory>,
    /// User and system time of the hosts' threads and proxies per completed RPC, client and server
    /// side together, microseconds. The kernel's receive processing in interrupt context is not
    /// included, because it runs on the switch's thread ([`SwitchInterval::cpu`]).
    pub cpu_us_per_rpc: f64,
    /// From the first arrival until the last host had finished, seconds.
    pub elapsed_s: f64,
    /// The switch's observations under load.
    pub switch: SwitchInterval,
    /// Pauses of the rack's threads under load.
    pub pauses: Pauses,
    /// Whether the run counts.
    pub verdict: Verdict,
}

impl RunReport {
    /// Bytes of the recorded messages per second, all hosts together, from the first start to the
    /// last completion. The wait for RPCs that never ended is left out because it carries nothing.
    pub fn goodput_bytes_per_s(&self) -> f64 {
        goodput(&self.records)
    }
}

fn goodput(records: &[Record]) -> f64 {
    let bytes: u64 = records.iter().map(|record| u64::from(record.bytes)).sum();
    let first = records.iter().map(|record| record.due_ns).min().unwrap_or(0);
    let last = records.iter().map(|record| record.due_ns + record.latency_ns).max();
    let lasted_ns = last.unwrap_or(0).saturating_sub(first);
    bytes as f64 / (lasted_ns as f64 / 1e9).max(1e-9)
}

/// The results of the hosts of one thread.
struct GroupResult {
    loads: Vec<HostLoad>,
    cpu: Duration,
    pauses: Pauses,
    elapsed_s: f64,
    started_and_served: (u64, u64),
    /// Share of the load phase in which the thread's processor was free.
    free: Option<f64>,
    /// Of the group with host 0: idle times and the switch under load.
    seen: Option<(IdleTimes, SwitchInterval)>,
    memory: Option<Memory>,
}

/// Makes a run. Takes the duration of the pattern and some seconds.
pub fn run(rack: &Rack, plan: &RunPlan<'_>) -> Result<RunReport, TestbedError> {
    let hosts = rack.config().hosts;
    if let Pattern::Open { arrivals, .. } = plan.pattern
        && arrivals.len() != hosts
    {
        let text = "the schedule has another number of hosts than the rack: build both alike";
        return Err(TestbedError::Config(text.into()));
    }
    // An earlier run may have left them degraded.
    rack.mend_links();
    let stages = Stages::new(hosts);
    let threads = rack.placement().threads();
    let results = thread::scope(|scope| {
        let start = |index: usize| {
            let members: Vec<usize> = (index..hosts).step_by(threads).collect();
            let stages = &stages;
            let name = thread::Builder::new().name(format!("hosts{index}"));
            name.spawn_scoped(scope, move || {
                let result = run_group(rack, &members, plan, stages);
                if result.is_err() {
                    // The others must not wait for hosts that have failed.
                    stages.abandon();
                }
                result
            })
        };
        let workers: Vec<_> = (0..threads).map(start).collect();
        let joined = workers.into_iter().map(|worker| {
            let worker = worker.map_err(|e| TestbedError::setup("start a thread", e))?;
            worker.join().map_err(|_| TestbedError::Panicked("hosts"))?
        });
        joined.collect::<Vec<Result<GroupResult, TestbedError>>>()
    });
    let groups = first_failure(results)?;
    report(rack, plan.transport, groups)
}

/// The results, or the failure that caused the others.
fn first_failure(
    results: Vec<Result<GroupResult, TestbedError>>,
) -> Result<Vec<GroupResult>, TestbedError> {
    let follows = |error: &TestbedError| {
        matches!(error, TestbedError::Transport { source, .. }
            if source.kind() == io::ErrorKind::Interrupted)
    };
    let (mut groups, mut errors) = (Vec::new(), Vec::new());
    for result in results {
        match result {
            Ok(group) => groups.push(group),
            Err(error) => errors.push(error),
        }
    }
    errors.sort_by_key(follows);
    errors.into_iter().next().map_or(Ok(groups), Err)
}

fn report(
    rack: &Rack,
    transport: Transport,
    mut groups: Vec<GroupResult>,
) -> Result<RunReport, TestbedError> {
    let seen = groups.iter_mut().find_map(|group| group.seen.take());
    let (idle, mut switch) = seen.ok_or(TestbedError::Panicked("host 0"))?;
    let free = groups.iter().filter_map(|group| group.free).reduce(f64::min);
    let hosts = groups.iter_mut().map(|group| std::mem::take(&mut group.pauses));
    let pauses = Pauses::merged(hosts.chain([std::mem::take(&mut switch.pauses)]));
    let cpu: Duration = groups.iter().map(|group| group.cpu).sum();
    let elapsed_s = groups.iter().map(|group| group.elapsed_s).fold(0.0, f64::max);
    let memory = Memory::merged(groups.iter().filter_map(|group| group.memory));
    let started = groups.iter().map(|group| group.started_and_served.0).sum();
    let executed = groups.iter().map(|group| group.started_and_served.1).sum();
    let loads: Vec<HostLoad> = groups.into_iter().flat_map(|group| group.loads).collect();
    let records: Vec<Record> = loads.iter().flat_map(|load| load.records.iter().copied()).collect();
    let short = records.iter().filter(|r| r.bytes <= check::SHORT_BYTES).map(|r| r.latency_ns);
    let shown = Shown {
        hosts_free: free,
        short_p99_ns: Sorted::new(short.collect()).percentile(Percentile::P99),
    };
    let completed: usize = loads.iter().map(|load| load.records.len()).sum();
    Ok(RunReport {
        transport,
        offered: loads.iter().map(|load| load.offered).sum(),
        failed: loads.iter().map(|load| load.failed).sum(),
        lost: loads.iter().map(|load| load.lost).sum(),
        started,
        executed,
        records,
        idle,
        memory,
        cpu_us_per_rpc: cpu.as_secs_f64() * 1e6 / completed.max(1) as f64,
        elapsed_s,
        pauses,
        verdict: check::judge(rack.config(), &switch, shown),
        switch,
    })
}

fn run_group(
    rack: &Rack,
    members: &[usize],
    plan: &RunPlan<'_>,
    stages: &Stages,
) -> Result<GroupResult, TestbedError> {
    sys::exact_timers();
    if let Some(processor) = rack.placement().of_host(members[0]) {
        sys::stay_on(processor);
        sys::run_promptly();
    }
    let failed = |what| {
        let host = members[0];
        move |source| TestbedError::Transport { host, what, source }
    };
    let mut group = assemble(rack, members, plan, stages)?;
    group.finish(Stage::Connected).map_err(failed("setting up"))?;
    // A server can only vouch for the time since it began. If its answer on a busy machine is
    // delayed for longer than the server had existed when the call was made, the client cannot tell
    // whether the call was executed.
    group.serve_for(Duration::from_millis(250)).map_err(failed("warming up"))?;
    group.warm_up().map_err(failed("warming up"))?;
    group.finish(Stage::Warm).map_err(failed("warming up"))?;
    let first = group.client_of(0);
    let mut idle = IdleTimes::default();
    if let Some(client) = first {
        idle = group.idle_times(client, plan.idle_sizes).map_err(failed("measuring idle times"))?;
        rack.take_interval()?;
        stages.start_in(Duration::from_millis(50));
        rack.degrade_links(stages.start_ns());
    }
    group.finish(Stage::Idle).map_err(failed("serving idle probes"))?;

    let meter = Meter::start(&mut group);
    let loads = match plan.pattern {
        Pattern::Open { arrivals, request_bytes, duration } => {
            group.open_loop((arrivals, request_bytes), duration, plan.grace)
        }
        Pattern::Incast { outstanding, request_bytes, response_bytes, duration } => {
            let load = ClosedLoop { outstanding, request_bytes, response_bytes, duration };
            group.closed_loop(&load, plan.grace)
        }
    };
    let loads = loads.map_err(failed("under load"))?;
    group.finish(Stage::Loaded).map_err(failed("serving the others"))?;
    let (cpu, free) = meter.read(&group);
    let elapsed_s = stages.seconds_since_start();
    let pauses = std::mem::take(&mut group.pauses);
    let seen = if first.is_some() { Some((idle, rack.take_interval()?)) } else { None };
    members.iter().for_each(|_| stages.arrive(Stage::Through));
    stages.wait(Stage::Through).map_err(failed("closing"))?;
    let started_and_served = group.started_and_served();
    let memory = group.memory;
    Ok(GroupResult { loads, cpu, pauses, elapsed_s, started_and_served, free, seen, memory })
}

/// Measures the processor time of a group's thread during a load phase.
struct Meter {
    processors: Option<ProcessorTime>,
    cpu: Duration,
    began: Instant,
}

impl Meter {
    fn start(group: &mut HostGroup<'_>) -> Self {
        group.begin();
        let cpu = sys::thread_cpu() + group.cpu_elsewhere();
        Self { processors: ProcessorTime::now(), cpu, began: Instant::now() }
    }

    /// Processor time without empty polls, and the share of time in which the thread's processor
    /// was free (if the thread sleeps: all processors).
    fn read(self, group: &HostGroup<'_>) -> (Duration, Option<f64>) {
        let cpu = (sys::thread_cpu() + group.cpu_elsewhere()).saturating_sub(self.cpu);
        let cpu = cpu.saturating_sub(group.spun);
        let free = if group.spins() {
            Some(group.spun.as_secs_f64() / self.began.elapsed().as_secs_f64())
        } else {
            self.processors.and_then(|then| ProcessorTime::now()?.idle_since(then))
        };
        (cpu, free)
    }
}

/// Opens and connects the hosts of a group, each in its own network.
fn assemble<'a>(
    rack: &'a Rack,
    members: &[usize],
    plan: &RunPlan<'_>,
    stages: &'a Stages,
) -> Result<HostGroup<'a>, TestbedError> {
    let failed = |host: usize, what| move |source| TestbedError::Transport { host, what, source };
    let options = TransportOptions {
        congestion_control: plan.congestion_control,
        homa_incast_control: plan.homa_incast_control,
        program: plan.program.as_deref(),
    };
    let mut listening = Vec::new();
    for &host in members {
        rack.enter(host)?;
        let open = ListeningHost::open(plan.transport, rack.host(host), options);
        listening.push(open.map_err(failed(host, "opening its sockets"))?);
        stages.arrive(Stage::Listening);
    }
    stages.wait(Stage::Listening).map_err(failed(members[0], "waiting for the others"))?;
    let mut clients = Vec::new();
    for (&host, listening) in members.iter().zip(listening) {
        rack.enter(host)?;
        let transport = listening.connect().map_err(failed(host, "connecting to the others"))?;
        clients.push(Client::new(rack.host(host), transport));
    }
    // Otherwise gRPC's threads on this processor would wait for the time that it spends looking.
    let spins = rack.placement().switch.is_some() && !plan.transport.is_grpc();
    Ok(HostGroup::new(clients, stages, (rack, spins)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goodput_lasts_from_the_first_start_to_the_last_end() {
        let record = |due_ns, latency_ns| Record { bytes: 1_000, due_ns, latency_ns };
        let two = [record(7_000_000_000, 250_000_000), record(7_100_000_000, 400_000_000)];
        assert_eq!(goodput(&two), 4_000.0);
        assert_eq!(goodput(&[]), 0.0);
    }
}
