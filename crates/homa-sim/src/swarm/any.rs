//! Random scenarios for any scheme of the table: a network, options of the scheme, messages and
//! faults, all drawn from one seed, with the checker that sees only messages.
//!
//! Faults end; after that, every message without an earlier deadline must arrive. If a scheme
//! cannot recover what a network loses ([`Scheme::resends_one_way`]), its messages are RPCs or
//! nothing is lost. Left out: hosts that lose their state, because the papers of other schemes do
//! not cover them.

use homa_proto::Duration;
use homa_workload::rng::Rng;

use crate::draw::Draw;
use crate::experiment::{Times, rehearse, validate};
use crate::fabric::{CioqConfig, PfcConfig};
use crate::scenario::{
    Bandwidth, Buffer, Exchange, Fabric, Impaired, Paused, Routing, Scenario, SchemeOptions, Shape,
    SlowdownBy, Span, SwitchKind, SwitchOptions, Traffic,
};
use crate::scheme::{Scheme, SwitchQueue, shares_memory};
use crate::time::{SimDuration, SimTime};
use crate::topology::HostId;
use crate::traffic::PlannedCall;

use super::SwarmOutcome;
use super::scenario::WARM_UP;

/// See the module's description.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The scheme, its options, the network and its faults.
    pub scenario: Scenario,
    /// The messages, by cookie.
    pub calls: Vec<PlannedCall>,
    /// When the network has healed, and when it should be at rest.
    pub times: Times,
}

/// Time after the last fault or message: longer than any timeout after backoff.
const LONG_ENOUGH: SimDuration = SimDuration::millis(300_000);

impl Trial {
    /// The trial of `seed` for a scheme of the table.
    pub fn draw(scheme: &Scheme, seed: u64) -> Self {
        let stream = |what| Rng::stream(seed, what);
        let network = network(&mut stream("trial/network"));
        let hosts = network.shape.hosts().unwrap_or(2);
        let span_ns = (network.host_link.rate().time_for(300_000).0).clamp(200_000, 20_000_000);
        let calls = calls(&mut stream("trial/messages"), scheme, (hosts, span_ns));
        let network = with_faults(&mut stream("trial/faults"), scheme, network, span_ns);
        let options = options(&mut stream("trial/options"), scheme);
        let last_call = calls.iter().map(|call| call.at).max().unwrap_or_default();
        let calm = faults_end(&network).max(last_call);
        let times = Times {
            healthy_from: calm + LONG_ENOUGH,
            rest_by: calm + SimDuration(10 * LONG_ENOUGH.0),
        };
        Self { scenario: scenario(scheme, seed, (network, options)), calls, times }
    }
}

/// The scenario as drawn, or as much of it as this scheme supports.
fn scenario(scheme: &Scheme, seed: u64, (fabric, options): (Fabric, SchemeOptions)) -> Scenario {
    let exchange = if scheme.one_way_only { Exchange::OneWay } else { Exchange::Echo };
    let whole = Scenario {
        scheme: scheme.name.to_owned(),
        options,
        fabric,
        traffic: Traffic::AllToAll { workload: "w3".to_owned(), exchange, max_bytes: None },
        slowdown: SlowdownBy::Idle,
        seed,
        ..Scenario::default()
    };
    let without_options = Scenario { options: SchemeOptions::default(), ..whole.clone() };
    let known = Scenario { fabric: gentle(&whole.fabric), ..without_options.clone() };
    let mut candidates = [whole, without_options].into_iter();
    candidates.find(|candidate| validate(candidate).is_ok()).unwrap_or(known)
}

/// A network of the same shape that every scheme supports, with the same faults.
fn gentle(fabric: &Fabric) -> Fabric {
    let Fabric { host_link, fabric_link, send_delay, switch_delay, propagation, .. } =
        Fabric::default();
    let mut impaired = fabric.impaired.clone();
    for link in &mut impaired {
        if let Some(rate) = &mut link.rate {
            *rate = Bandwidth(rate.0.min(host_link.0));
            // Slow both ways, because lossless switches need more memory if only PAUSE frames are
            // slow.
            link.one_way = false;
        }
    }
    Fabric {
        host_link,
        fabric_link,
        send_delay,
        switch_delay,
        propagation,
        routing: None,
        buffer: Buffer::Unlimited,
        cut_through: false,
        preemption: false,
        impaired,
        ..fabric.clone()
    }
}

fn network(rng: &mut Rng) -> Fabric {
    let shape = match rng.between(0, 9) {
        0..=3 => Shape::SingleSwitch { hosts: rng.between(2, 8) as u32 },
        4..=8 => Shape::LeafSpine {
            racks: rng.between(2, 3) as u32,
            hosts_per_rack: rng.between(1, 4) as u32,
            spines: rng.between(1, 3) as u32,
        },
        _ => Shape::FatTree { k: 4, oversubscription: 1 },
    };
    let gbps = *rng.one_of(&[1, 10, 10, 25, 100]);
    let host_link = if rng.chance(0.1) { Bandwidth::mbps(100) } else { Bandwidth::gbps(gbps) };
    let fabric_link = if rng.chance(0.5) { Bandwidth::gbps(4 * gbps) } else { host_link };
    let mut delay = |most| Span::nanos(rng.between(0, most));
    let delays = [delay(2_000), delay(2_000), delay(2_000), delay(1_000), delay(2_000)];
    let [send_delay, nic_delay, receive_delay, switch_delay, propagation] = delays;
    let buffer = match rng.between(0, 5) {
        0..=2 => Buffer::Unlimited,
        3 | 4 => Buffer::PerPort { bytes: rng.log_between(10_000, 500_000) },
        _ => Buffer::Shared {
            bytes: rng.log_between(50_000, 2_000_000),
            alpha_percent: *rng.one_of(&[50, 100, 400]) as u32,
        },
    };
    let routing = [None, None, Some(Routing::Spray), Some(Routing::Ecmp), Some(Routing::Adaptive)];
    Fabric {
        shape,
        host_link,
        fabric_link,
        send_delay,
        nic_delay,
        receive_delay,
        switch_delay,
        propagation,
        cut_through: rng.chance(0.15),
        preemption: rng.chance(0.1),
        routing: *rng.one_of(&routing),
        buffer,
        ..Fabric::default()
    }
}

fn with_faults(rng: &mut Rng, scheme: &Scheme, network: Fabric, span_ns: u64) -> Fabric {
    let mut ppm = |p| if rng.chance(p) { rng.log_between(1_000, 300_000) as u32 } else { 0 };
    let (loss_ppm, duplicate_ppm, reorder_ppm) = (ppm(0.5), ppm(0.3), ppm(0.3));
    let reorder_by = Span::nanos(rng.log_between(100, 20_000_000));
    let faults_until = Some(after_warm_up(span_ns * rng.between(1, 50)));
    let links = if rng.chance(0.3) { rng.between(1, 3) } else { 0 };
    let impaired: Vec<Impaired> = (0..links).map(|_| impaired(rng, &network, span_ns)).collect();
    let pauses = if rng.chance(0.3) { rng.between(1, 3) } else { 0 };
    let paused = (0..pauses).map(|_| paused(rng, &network, span_ns)).collect();
    let faulty = Fabric {
        loss_ppm,
        duplicate_ppm,
        reorder_ppm,
        reorder_by,
        faults_until,
        impaired,
        paused,
        ..network
    };
    if scheme.one_way_only && !scheme.resends_one_way() {
        return without_loss(faulty);
    }
    faulty
}

/// A network that delivers every packet once: only pauses and slow links remain.
fn without_loss(mut fabric: Fabric) -> Fabric {
    fabric.impaired.retain(|link| link.rate.is_some());
    let (loss_ppm, duplicate_ppm, reorder_ppm) = (0, 0, 0);
    Fabric { loss_ppm, duplicate_ppm, reorder_ppm, buffer: Buffer::Unlimited, ..fabric }
}

fn after_warm_up(nanos: u64) -> Span {
    Span(WARM_UP.0 + Span::nanos(nanos).0)
}

fn window(rng: &mut Rng, span_ns: u64) -> (Span, Span) {
    let at = rng.between(0, 2 * span_ns);
    (after_warm_up(at), after_warm_up(at + rng.log_between(1_000, 50_000_000)))
}

/// A link that is down, slow or lossy for a while.
fn impaired(rng: &mut Rng, network: &Fabric, span_ns: u64) -> Impaired {
    let host = rng.between(0, u64::from(network.shape.hosts().unwrap_or(2)) - 1) as u32;
    let (from, to) = match network.shape {
        Shape::LeafSpine { racks, spines, .. } if rng.chance(0.5) => {
            let tor = rng.between(0, u64::from(racks) - 1);
            (format!("tor{tor}"), format!("spine{}", rng.between(0, u64::from(spines) - 1)))
        }
        Shape::LeafSpine { hosts_per_rack, .. } | Shape::Pods { hosts_per_rack, .. } => {
            (format!("h{host}"), format!("tor{}", host / hosts_per_rack))
        }
        Shape::FatTree { .. } => (format!("h{host}"), format!("tor{}", host / 2)),
        Shape::SingleSwitch { .. } | Shape::Graph { .. } => (format!("h{host}"), "tor0".to_owned()),
    };
    let (at, until) = window(rng, span_ns);
    let whole = network.host_link.rate().0 / 1_000_000;
    let mbps = rng.log_between(20, whole);
    let kind = rng.between(0, 2);
    Impaired {
        from,
        to,
        one_way: rng.chance(0.3),
        at,
        until: Some(until),
        rate: (kind == 0).then(|| Bandwidth::mbps(mbps)),
        loss_ppm: (kind == 1).then(|| rng.log_between(1_000, 500_000) as u32),
    }
}

fn paused(rng: &mut Rng, network: &Fabric, span_ns: u64) -> Paused {
    let host = rng.between(0, u64::from(network.shape.hosts().unwrap_or(2)) - 1);
    let (at, until) = window(rng, span_ns);
    Paused { host: format!("h{host}"), at, until }
}

/// When the last fault is over.
fn faults_end(fabric: &Fabric) -> SimTime {
    let links = fabric.impaired.iter().filter_map(|link| link.until);
    let hosts = fabric.paused.iter().map(|pause| pause.until);
    let random = fabric.faults_until.into_iter();
    let last = links.chain(hosts).chain(random).map(Span::after_start).max();
    last.unwrap_or_default() + fabric.reorder_by.duration()
}

fn calls(rng: &mut Rng, scheme: &Scheme, (hosts, span_ns): (u32, u64)) -> Vec<PlannedCall> {
    let count = rng.log_between(1, 80);
    // Some scenarios are incasts, with one server or one client.
    let (one_server, one_client) = (rng.chance(0.15), rng.chance(0.15));
    let largest = *rng.one_of(&[100, 1_400, 10_000, 100_000, 400_000]);
    let (cancels, short_deadlines) = (rng.chance(0.3), rng.chance(0.3));
    let burst = rng.chance(0.2);
    let one_way = match (scheme.one_way_only, scheme.resends_one_way()) {
        (true, _) => 1.0,
        (false, true) => *rng.one_of(&[0.0, 0.5, 1.0]),
        (false, false) => 0.0,
    };
    let mut call = || {
        let client = if one_client { 0 } else { rng.between(0, u64::from(hosts) - 1) as u32 };
        let other = rng.between(1, u64::from(hosts) - 1) as u32;
        let server = if one_server && client != 1 { 1 } else { (client + other) % hosts };
        let at = if burst { 0 } else { rng.between(0, span_ns) };
        let delayed = rng.chance(0.3);
        let refused = cancels && rng.chance(0.1);
        // A refused call gets a short deadline because some schemes retry it until then.
        let hurried = refused || short_deadlines && rng.chance(0.3);
        PlannedCall {
            at: WARM_UP + SimDuration::nanos(at),
            client: HostId(client),
            server: HostId(server),
            request_bytes: rng.log_between(1, largest) as u32,
            response_bytes: rng.log_between(1, largest) as u32,
            one_way: rng.chance(one_way),
            service: SimDuration::nanos(if delayed { rng.log_between(100, 50_000_000) } else { 0 }),
            refused,
            cancel_after: (cancels && rng.chance(0.2))
                .then(|| SimDuration::nanos(rng.log_between(1, 4 * span_ns))),
            allowed: match hurried {
                true => Duration::nanos(rng.log_between(1_000, 100_000_000)),
                false => Duration(4 * LONG_ENOUGH.0 / 1_000),
            },
            idempotent: false,
        }
    };
    (0..count).map(|_| call()).collect()
}

/// Options of the scheme, in half of the trials.
fn options(rng: &mut Rng, scheme: &Scheme) -> SchemeOptions {
    let mut options = SchemeOptions::default();
    if rng.chance(0.5) {
        return options;
    }
    scheme.host.draw_options(rng, &mut options);
    // PFC with one priority can pause only one level in time, so use no others.
    if let SwitchQueue::Combined(CioqConfig { pfc: Some(PfcConfig { priorities: 1, .. }), .. }) =
        scheme.queue
        && let Some(tcp) = &mut options.tcp
    {
        (tcp.size_classes, tcp.demotion) = (None, None);
    }
    if matches!(scheme.queue, SwitchQueue::Combined(_)) && rng.chance(0.5) {
        options.switch = Some(SwitchOptions {
            speedup: Some(rng.between(1, 4) as u32),
            virtual_outputs: Some(rng.chance(0.5)),
            ..SwitchOptions::default()
        });
    }
    // Most of the memory is what inputs have to themselves, so that pools are often empty.
    if shares_memory(&scheme.queue) && rng.chance(0.3) {
        options.switch = Some(SwitchOptions {
            kind: Some(SwitchKind::Shared),
            memory: Some(rng.log_between(50_000, 64 << 20)),
            alpha: Some(*rng.one_of(&[0.01, 0.125, 1.0])),
            ..SwitchOptions::default()
        });
    }
    options
}

/// Runs a trial to its end and checks it.
pub fn run_trial(trial: &Trial) -> SwarmOutcome {
    match rehearse(&trial.scenario, trial.calls.clone(), trial.times) {
        Ok(rehearsal) => {
            let checker = &rehearsal.checker;
            SwarmOutcome {
                violations: checker.violations().to_vec(),
                calls: checker.accepted(),
                answered: checker.arrived(),
                failed: checker.failed(),
                packets: checker.packets(),
                trace_hash: rehearsal.trace_hash,
                ..SwarmOutcome::default()
            }
        }
        Err(error) => SwarmOutcome::broken("drawn scenarios are valid", error.to_string()),
    }
}
