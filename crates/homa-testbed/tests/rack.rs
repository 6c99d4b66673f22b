//! Claims about the real rack: kernel namespaces, kernel links, the switch in real time, kernel
//! TCP.
//!
//! Not under the usual harness, because an ordinary user's namespaces can only be entered before
//! the process has threads. An ordinary user runs every claim. Root lets an ordinary user run them
//! first, and then runs those whose code depends on privileges, or all of them if an ordinary user
//! may not make namespaces here. If the kernel refuses namespaces to this user, the claims are
//! counted as ignored, and the reason is printed.

use std::collections::BTreeSet;
use std::io;
use std::net::UdpSocket;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use homa::inline::{Completion, Engine, Wait};
use homa::{CallOptions, Config};
use homa_proto::Rate;
use homa_sim::fabric::queue::PhantomConfig;
use homa_sim::fabric::{Alb, Forwarding};
use homa_testbed::{
    Degraded, Faults, Host, Isolation, Marking, Pattern, Rack, RackConfig, RunPlan, RunReport,
    TestbedError, Topology, Transport, check, isolate, link, run,
};
use homa_workload::arrivals::Arrival;
use homa_workload::framing::Framing;
use nix::errno::Errno;
use nix::sys::prctl::set_dumpable;
use nix::unistd::geteuid;

#[path = "rack/below.rs"]
mod below;
#[path = "rack/held.rs"]
mod held;
#[path = "rack/one_processor.rs"]
mod one_processor;

use below::homa_keeps_two_packets_below_it;
use held::tcp_is_held_near_a_drain_rate;
use one_processor::OneProcessor;

type Outcome = Result<(), Box<dyn std::error::Error>>;
/// A claim about the rack.
struct Claim {
    name: &'static str,
    holds: fn(&Isolation) -> Outcome,
    /// Whether privileges change what the rack does for it.
    privileged: bool,
}

/// A claim whose code is the same for root and for an ordinary user.
const fn claim(name: &'static str, holds: fn(&Isolation) -> Outcome) -> Claim {
    Claim { name, holds, privileged: false }
}

/// A claim that root and an ordinary user reach by different system calls.
const fn privileged(name: &'static str, holds: fn(&Isolation) -> Outcome) -> Claim {
    Claim { name, holds, privileged: true }
}

const CLAIMS: &[Claim] = &[
    privileged("every_host_has_a_network_of_its_own", every_host_has_a_network_of_its_own),
    privileged("tcp_has_the_timer_that_the_rack_says", tcp_has_the_timer_that_the_rack_says),
    claim("no_frame_is_lost_or_early_on_idle_links", no_frame_is_lost_or_early_on_idle_links),
    claim(
        "faults_on_request_do_not_fail_the_check_beforehand",
        faults_on_request_do_not_fail_the_check_beforehand,
    ),
    claim("a_socket_sees_its_own_queue_fall_frame_by_frame", a_socket_sees_its_own_queue),
    claim("homa_keeps_two_full_packets_below_it_at_most", homa_keeps_two_packets_below_it),
    claim("every_rpc_completes_over_every_transport", every_rpc_completes_over_every_transport),
    claim("rpcs_survive_loss_and_duplication", rpcs_survive_loss_and_duplication),
    claim("incast_completes_what_it_starts", incast_completes_what_it_starts),
    claim("tcp_heeds_the_marks_of_the_switch_if_it_asked_for_them", tcp_heeds_marks),
    privileged("a_phantom_queue_on_a_host_holds_tcp_near_its_rate", tcp_is_held_near_a_drain_rate),
    claim("an_incast_without_bound_ends", an_incast_without_bound_ends),
    claim("rpcs_survive_a_link_that_fails_in_a_small_fabric", rpcs_survive_a_link_that_fails),
    privileged("a_failing_host_ends_the_run_with_its_reason", a_failing_host_ends_the_run),
    privileged("a_rack_leaves_no_descriptor_behind", a_rack_leaves_no_descriptor_behind),
];

const NOBODY: u32 = 65_534;
const HOMA_PORT: u16 = 7_200;

fn main() -> ExitCode {
    // An ordinary user's program may have been given capabilities (setcap), which is harder: the
    // kernel then keeps its files in /proc from it.
    if !geteuid().is_root() && set_dumpable(false).is_err() {
        println!("rack, as an ordinary user: not as a program with capabilities");
    }
    let filter = std::env::args().nth(1).filter(|word| !word.starts_with('-'));
    let by_user = geteuid().is_root().then(|| as_an_ordinary_user(filter.as_deref()));
    let inside = match isolate() {
        Ok(inside) => inside,
        Err(error) => {
            println!("the rack's claims cannot be tried here: {error}");
            skip::test("namespaces (see `homa doctor`)");
            let failed = usize::from(ours(&error));
            return result(0, failed, CLAIMS.len() - failed);
        }
    };
    let who = if inside.by_user_namespace() { "an ordinary user" } else { "root" };
    let all = matches!(by_user, None | Some(ByUser::NotTried));
    let (mut passed, mut failed) = (0, 0);
    for Claim { name, holds, privileged } in CLAIMS {
        let wanted = filter.as_ref().is_none_or(|filter| name.contains(filter.as_str()));
        if !wanted || !(all || *privileged) {
            continue;
        }
        let begun = Instant::now();
        let outcome = holds(&inside);
        let seconds = begun.elapsed().as_secs_f64();
        match outcome {
            Ok(()) => {
                passed += 1;
                println!("rack, as {who}: {name} ... ok ({seconds:.1} s)");
            }
            Err(error) => {
                failed += 1;
                println!("rack, as {who}: {name} ... FAILED: {error}");
            }
        }
    }
    let here = result(passed, failed, 0);
    if by_user == Some(ByUser::Failed) { ExitCode::FAILURE } else { here }
}

/// The last line of a test program as the usual harness prints it, by which tests are counted, and
/// the program's exit.
fn result(passed: usize, failed: usize, ignored: usize) -> ExitCode {
    let filtered = CLAIMS.len() - passed - failed - ignored;
    let (word, exit) = match failed {
        0 => ("ok", ExitCode::SUCCESS),
        _ => ("FAILED", ExitCode::FAILURE),
    };
    println!(
        "test result: {word}. {passed} passed; {failed} failed; {ignored} ignored; 0 measured; \
         {filtered} filtered out"
    );
    exit
}

/// A file in /proc that could not be opened is no refusal of namespaces.
fn ours(error: &TestbedError) -> bool {
    match error {
        TestbedError::NamespacesRefused { source, .. } => {
            source.raw_os_error() == Some(Errno::EACCES as i32)
        }
        _ => false,
    }
}

/// What an ordinary user's run of all claims came to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ByUser {
    Held,
    Failed,
    /// An ordinary user may not make namespaces here.
    NotTried,
}

/// Runs this program again without root's rights. That run prints its result itself.
fn as_an_ordinary_user(filter: Option<&str>) -> ByUser {
    let Ok(program) = std::env::current_exe() else { return ByUser::NotTried };
    // In a process that ends at once, because namespaces are entered for good.
    let mut tries = Command::new("unshare");
    let tries = tries.args(["-Urn", "true"]).uid(NOBODY).gid(NOBODY).current_dir("/");
    if !tries.status().is_ok_and(|status| status.success()) {
        println!("rack, as an ordinary user: cannot be tried, because `unshare -Urn` fails");
        return ByUser::NotTried;
    }
    let mut again = Command::new(program);
    again.args(filter).uid(NOBODY).gid(NOBODY).current_dir("/");
    match again.status() {
        Ok(status) if status.success() => ByUser::Held,
        Ok(_) => ByUser::Failed,
        Err(error) => {
            println!("rack, as an ordinary user: cannot be tried, {error}");
            ByUser::NotTried
        }
    }
}

/// Slow links, so that the claims hold on a busy machine too.
fn small_rack(hosts: usize) -> RackConfig {
    RackConfig { hosts, link: Rate::mbps(20), ..RackConfig::default() }
}

fn ensure(holds: bool, otherwise: impl Into<String>) -> Outcome {
    if holds { Ok(()) } else { Err(otherwise.into().into()) }
}

fn every_host_has_a_network_of_its_own(inside: &Isolation) -> Outcome {
    let rack = Rack::build(small_rack(4), inside)?;
    let seen = rack.on_every_host(|host| {
        let failed =
            |source| TestbedError::Transport { host: host.index, what: "looking around", source };
        let network = std::fs::read_link("/proc/thread-self/ns/net").map_err(failed)?;
        let routes = std::fs::read_to_string("/proc/thread-self/net/route").map_err(failed)?;
        Ok((network, routes.lines().skip(1).all(|line| line.starts_with("eth0"))))
    })?;
    let networks: BTreeSet<_> = seen.iter().map(|(network, _)| network).collect();
    ensure(networks.len() == 4, format!("networks are shared: {networks:?}"))?;
    ensure(seen.iter().all(|(_, routes)| *routes), "a host has a way out beside its link")
}

fn tcp_has_the_timer_that_the_rack_says(inside: &Isolation) -> Outcome {
    let rack = Rack::build(small_rack(2), inside)?;
    let said = rack.tcp_rto_min().as_micros();
    let timers = rack.on_every_host(|_| {
        let timer = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_rto_min_us");
        // A kernel without the setting has this one.
        Ok(timer.unwrap_or_else(|_| "200000".into()).trim().to_owned())
    })?;
    let all = timers.iter().all(|timer| *timer == said.to_string());
    ensure(all, format!("the rack says {said} us, its hosts {timers:?}"))
}

fn no_frame_is_lost_or_early_on_idle_links(inside: &Isolation) -> Outcome {
    let rack = Rack::build(small_rack(4), inside)?;
    let probes = check::probe(&rack)?;
    // The bounds on lateness depend on what else the machine does; earliness and loss do not.
    ensure(probes.timing_error_us[0] >= -1.0, format!("a frame was early: {probes:?}"))?;
    ensure(probes.background_load > 0.8, format!("the load was no load: {probes:?}"))?;
    let seen = rack.take_interval()?;
    ensure(seen.overflow + seen.undeliverable == 0, format!("frames were missed: {seen:?}"))?;
    // Two loaders into one link: about half must go for want of buffer.
    ensure(seen.dropped > seen.delivered / 10, format!("an overloaded port kept all: {seen:?}"))
}

fn faults_on_request_do_not_fail_the_check_beforehand(inside: &Isolation) -> Outcome {
    let faults = Faults { loss: 0.2, duplication: 0.2, seed: 1 };
    let rack = Rack::build(RackConfig { faults, ..small_rack(2) }, inside)?;
    let probes = check::probe(&rack)?;
    let timing = &probes.verdict.findings[0];
    // Only this depends on lost frames; lateness depends on other work of the machine.
    ensure(!timing.detail.contains("frames arrived"), format!("a fault is no defect: {timing:?}"))
}

/// Unsent bytes of a socket as it was seen to send twenty frames.
fn levels_of_a_queue(host: Host<'_>) -> Result<BTreeSet<u32>, TestbedError> {
    let failed = |source| TestbedError::Transport { host: 0, what: "sending", source };
    let socket = UdpSocket::bind((host.address(), 0)).map_err(failed)?;
    for _ in 0..20 {
        socket.send_to(&[0; 1_472], (host.address_of(1), 9)).map_err(failed)?;
    }
    let mut levels = BTreeSet::new();
    loop {
        let unsent = link::unsent_bytes(&socket).map_err(failed)?;
        levels.insert(unsent);
        if unsent == 0 {
            return Ok(levels);
        }
    }
}

fn a_socket_sees_its_own_queue(inside: &Isolation) -> Outcome {
    let rack = Rack::build(small_rack(2), inside)?;
    // Twenty frames last 12 ms here; a queue that empties in lumps shows three or four levels, and
    // so does a machine that looks away for that long, but not every time.
    let levels = rack.on_every_host(|host| {
        let mut most = BTreeSet::new();
        let tries = if host.index == 0 { 50 } else { 0 };
        for _ in 0..tries {
            let levels = levels_of_a_queue(host)?;
            if levels.len() > most.len() {
                most = levels;
            }
            if most.len() >= 12 {
                break;
            }
        }
        Ok(most)
    })?;
    ensure(levels[0].len() >= 12, format!("the queue fell in lumps: {:?}", levels[0]))
}

/// Every host asks its neighbours, from one byte to a hundred frames.
fn arrivals(hosts: usize, per_host: u64) -> Vec<Vec<Arrival>> {
    let sizes = [1, 100, 1_448, 1_449, 4_096, 4_097, 20_000, 150_000];
    let of_host = |src: usize| {
        let each = |n: u64| Arrival {
            at_ns: n * 8_000_000 + src as u64 * 1_000_000,
            src: src as u16,
            dst: ((src + 1 + n as usize % (hosts - 1)) % hosts) as u16,
            bytes: sizes[(n as usize + src) % sizes.len()],
        };
        (0..per_host).map(each).collect()
    };
    (0..hosts).map(of_host).collect()
}

fn echo(
    rack: &Rack,
    transport: Transport,
    (arrivals, idle_sizes): (&[Vec<Arrival>], &[u32]),
) -> Result<RunReport, TestbedError> {
    run(
        rack,
        &RunPlan {
            transport,
            congestion_control: "cubic",
            homa_incast_control: true,
            pattern: Pattern::Open {
                arrivals,
                request_bytes: None,
                duration: Duration::from_millis(400),
            },
            idle_sizes,
            grace: Duration::from_secs(60),
            program: None,
        },
    )
}

fn every_rpc_completes_over_every_transport(inside: &Isolation) -> Outcome {
    let (arrivals, mut cpu) = (arrivals(3, 32), 0.0);
    for transport in
        Transport::COMPARED.into_iter().chain([Transport::HomaSharded, Transport::TcpEcn])
    {
        let rack = Rack::build(small_rack(3), inside)?;
        let report = echo(&rack, transport, (&arrivals, &[20_000]))?;
        let ends = (report.offered, report.records.len(), report.failed, report.lost);
        ensure(ends == (96, 96, 0, 0), format!("{transport}: {ends:?}"))?;
        for record in &report.records {
            // Bytes cannot be faster than the wire, whatever the framing.
            let least = 4 * rack.config().link.time_for(u64::from(record.bytes.min(1_400))).0;
            let fast = record.latency_ns < least;
            ensure(!fast, format!("{transport}: {record:?} beats the wire's {least} ns"))?;
        }
        let wire = rack.config().wire_round_trip_ns(Framing::Tcp, 20_000) as f64;
        let idle = report.idle.at(20_000).unwrap_or(0.0);
        ensure(idle >= wire * 0.99, format!("{transport}: idle {idle} ns, wire {wire} ns"))?;
        cpu += report.cpu_us_per_rpc;
    }
    // Of one transport there may be none where others take the processors from those who wait.
    ensure(cpu > 0.0, "no processor time was counted")
}

fn rpcs_survive_loss_and_duplication(inside: &Isolation) -> Outcome {
    let _one = OneProcessor::take()?;
    let faults = Faults { loss: 0.02, duplication: 0.02, seed: 1 };
    let arrivals = arrivals(3, 32);
    // One of each kind: opening a connection takes seconds if its first packet is lost.
    for transport in [Transport::Homa, Transport::TcpPool] {
        let rack = Rack::build(RackConfig { faults, ..small_rack(3) }, inside)?;
        let report = echo(&rack, transport, (&arrivals, &[]))?;
        let ends = (report.records.len(), report.failed, report.lost);
        ensure(ends == (96, 0, 0), format!("{transport}: {ends:?}"))?;
        let struck = report.switch.lost > 0 && report.switch.duplicated > 0;
        ensure(struck, format!("no faults: {:?}", report.switch))?;
    }
    Ok(())
}

fn incast(
    rack: &Rack,
    (transport, outstanding): (Transport, usize),
    (duration, grace): (Duration, Duration),
) -> Result<RunReport, TestbedError> {
    let (request_bytes, response_bytes) = (100, 5_000);
    let plan = RunPlan {
        transport,
        congestion_control: "reno",
        homa_incast_control: true,
        pattern: Pattern::Incast { outstanding, request_bytes, response_bytes, duration },
        idle_sizes: &[],
        grace,
        program: None,
    };
    run(rack, &plan)
}

fn an_incast_without_bound_ends(inside: &Isolation) -> Outcome {
    let _one = OneProcessor::take()?;
    let rack = Rack::build(small_rack(2), inside)?;
    let times = (Duration::from_millis(50), Duration::from_millis(50));
    let report = incast(&rack, (Transport::TcpPool, usize::MAX), times)?;
    let ends = (report.records.len(), report.failed, report.lost);
    ensure(ends.0 + ends.1 + ends.2 == report.offered, format!("{ends:?} of {}", report.offered))
}

fn incast_completes_what_it_starts(inside: &Isolation) -> Outcome {
    let _one = OneProcessor::take()?;
    let rack = Rack::build(small_rack(4), inside)?;
    let times = (Duration::from_millis(300), Duration::from_secs(60));
    let report = incast(&rack, (Transport::TcpPool, 16), times)?;
    let ends = (report.records.len(), report.failed, report.lost);
    ensure(ends == (report.offered, 0, 0), format!("{ends:?} of {}", report.offered))?;
    ensure(report.offered > 16, "nothing was started after the first round")?;
    let link = rack.config().link.0 as f64 / 8.0;
    let goodput = report.goodput_bytes_per_s();
    ensure(goodput < link, format!("{goodput} B/s over a link of {link} B/s"))
}

/// One link between switches at a tenth of its rate from the start, another cut half way.
fn rpcs_survive_a_link_that_fails(inside: &Isolation) -> Outcome {
    let _one = OneProcessor::take()?;
    let degraded = |spine, percent, ms| Degraded {
        leaf: spine,
        spine,
        percent,
        after: Duration::from_millis(ms),
    };
    let config = |forwarding| RackConfig {
        topology: Topology::LeafSpine,
        forwarding,
        degraded: vec![degraded(1, 50, 0), degraded(0, 0, 50)],
        ..small_rack(4)
    };
    let arrivals = arrivals(4, 12);
    for (transport, forwarding) in [
        (Transport::Homa, Forwarding::Adaptive(Alb::DETAIL)),
        (Transport::TcpPool, Forwarding::Ecmp),
    ] {
        let rack = Rack::build(config(forwarding), inside)?;
        let report = echo(&rack, transport, (&arrivals, &[100]))?;
        let ends = (report.offered, report.records.len(), report.failed, report.lost);
        ensure(ends == (48, 48, 0, 0), format!("{transport}, {forwarding}: {ends:?}"))?;
        let wire = rack.config().wire_round_trip_ns(Framing::Tcp, 100) as f64;
        let idle = report.idle.at(100).unwrap_or(0.0);
        ensure(idle >= wire * 0.9, format!("{transport}: idle {idle} ns, wire {wire} ns"))?;
    }
    Ok(())
}

/// Frames marked, and the bytes that arriving frames found at the client's port in the mean.
fn under_marks(
    inside: &Isolation,
    (transport, marking): (Transport, Marking),
) -> Result<(u64, f64), Box<dyn std::error::Error>> {
    let rack = Rack::build(RackConfig { marking, ..small_rack(4) }, inside)?;
    let times = (Duration::from_millis(1_500), Duration::from_secs(60));
    let report = incast(&rack, (transport, 24), times)?;
    let ends = (report.records.len(), report.failed, report.lost);
    ensure(ends == (report.offered, 0, 0), format!("{ends:?} of {}", report.offered))?;
    let found = report.switch.queueing[0].mean_bytes().unwrap_or(0.0);
    Ok((report.switch.marked, found))
}

fn tcp_heeds_marks(inside: &Isolation) -> Outcome {
    let _one = OneProcessor::take()?;
    let phantom = Some(PhantomConfig { drain_ppm: 800_000, ..PhantomConfig::PAPER });
    let marking = Marking { phantom, ..Marking::default() };
    let plain = under_marks(inside, (Transport::Tcp, marking))?;
    ensure(plain.0 == 0, format!("marked without a request: {plain:?}"))?;
    let unmarked = under_marks(inside, (Transport::TcpEcn, Marking::default()))?;
    ensure(unmarked.0 == 0, format!("marked by a switch that does not: {unmarked:?}"))?;
    let marked = under_marks(inside, (Transport::TcpEcn, marking))?;
    ensure(marked.0 > 10, format!("hardly marked: {marked:?}"))?;
    let less = marked.1 < unmarked.1 * 0.7;
    ensure(less, format!("queues of {} B with marks, of {} B without", marked.1, unmarked.1))
}

fn a_failing_host_ends_the_run(inside: &Isolation) -> Outcome {
    let rack = Rack::build(small_rack(2), inside)?;
    let arrivals = arrivals(2, 1);
    let plan = RunPlan {
        transport: Transport::Tcp,
        congestion_control: "no-such-algorithm",
        homa_incast_control: true,
        pattern: Pattern::Open {
            arrivals: &arrivals,
            request_bytes: None,
            duration: Duration::from_millis(10),
        },
        idle_sizes: &[],
        grace: Duration::from_secs(1),
        program: None,
    };
    match run(&rack, &plan) {
        Err(TestbedError::Transport { what: "opening its sockets", .. }) => Ok(()),
        other => Err(format!("{:?}", other.map(|report| report.offered)).into()),
    }
}

fn a_rack_leaves_no_descriptor_behind(inside: &Isolation) -> Outcome {
    let open = || std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    let before = open();
    for _ in 0..5 {
        drop(Rack::build(small_rack(3), inside)?);
    }
    ensure(open() == before, format!("{before} descriptors before, {} after", open()))?;
    // The kernel lists a thread until a moment after it was joined.
    let threads = || std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count);
    let deadline = Instant::now() + Duration::from_secs(5);
    while threads() > 1 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    let threads = threads();
    ensure(threads == 1, format!("{threads} threads are left"))
}
