//! One random scenario: a network, a configuration, calls and faults, all drawn from one seed.
//!
//! Sizes are small on purpose: rare interleavings come from many short runs, not from long ones.
//! Bounds that the protocol's promises rest on are kept: a crashed host stays down longer than any
//! packet of its old life can live.

use homa_proto::{Completion, Config, Duration, IncastConfig, Overcommitment, Profile, Rate};
use homa_workload::rng::Rng;

use crate::checker::Promises;
use crate::engine::RandomFaults;
use crate::fabric::{Buffers, FabricConfig};
use crate::framing::Framing;
use crate::time::{LinkRate, SimDuration, SimTime};
use crate::topology::{HostId, Physics, SingleSwitch, Wiring};

use super::draw::Draw;

/// Hosts run this long before the first call: longer than any packet lives, so that a server may
/// say of every call that it never heard of it.
const WARM_UP: SimTime = SimTime(1_000_000_000_000);

/// Timers of the protocol may be this coarse.
const TICK: SimDuration = SimDuration::millis(2);

/// Headers, control packets and the like of a call, and a turn of the longest RESEND timer.
const CALL_OVERHEAD: SimDuration = SimDuration::millis(5);

/// More than the messages of any scenario take together.
const AMPLE_MEMORY: u64 = 100_000_000;

/// The physics of hosts around one switch.
#[derive(Clone, Copy, Debug)]
pub struct Rack {
    /// Rate of every link.
    pub rate: LinkRate,
    /// Propagation delay of every cable.
    pub propagation: SimDuration,
    /// From a packet's last bit at a host to the transport's having it.
    pub software_delay: SimDuration,
    /// Buffer of each output port in wire bytes, shared by all priorities.
    pub buffer_bytes: u64,
    /// The headers around packets.
    pub framing: Framing,
}

impl Rack {
    pub(super) fn wire(&self, hosts: u32) -> Wiring {
        let rate = self.rate.rate();
        let uniform = Physics::uniform(rate, rate, self.propagation);
        let physics = Physics { receiver_delay: self.software_delay, ..uniform };
        SingleSwitch { hosts, physics }.wire()
    }

    pub(super) fn fabric(&self) -> FabricConfig {
        FabricConfig { buffers: Buffers::PerPort(self.buffer_bytes), ..FabricConfig::default() }
    }
}

/// See the module's description.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Everything else follows from it.
    pub seed: u64,
    /// Number of hosts.
    pub hosts: u32,
    /// The physics.
    pub network: Rack,
    /// The protocol; each life of each host gets its own seed.
    pub config: Config,
    /// Faults of every link.
    pub links: RandomFaults,
    /// Faults of hosts.
    pub host_faults: Vec<HostFault>,
    /// The calls, by cookie.
    pub calls: Vec<PlannedCall>,
    /// What the checker demands.
    pub promises: Promises,
}

/// A host that misbehaves.
#[derive(Clone, Copy, Debug)]
pub enum HostFault {
    /// Frozen for a while.
    Pause(HostId, SimTime, SimDuration),
    /// State lost; back after the downtime, or never.
    Crash(HostId, SimTime, Option<SimDuration>),
}

/// One call.
#[derive(Clone, Copy, Debug)]
pub struct PlannedCall {
    /// When.
    pub at: SimTime,
    /// Who asks.
    pub client: HostId,
    /// Who answers.
    pub server: HostId,
    /// Bytes of the request.
    pub request_bytes: u32,
    /// Bytes of the response.
    pub response_bytes: u32,
    /// Between the request's delivery and its answer.
    pub service: SimDuration,
    /// The server refuses instead of answering.
    pub refused: bool,
    /// The client gives up after this long.
    pub cancel_after: Option<SimDuration>,
    /// Time allowed.
    pub allowed: Duration,
    /// May run again.
    pub idempotent: bool,
}

impl Scenario {
    /// The scenario of `seed`.
    pub fn draw(seed: u64) -> Self {
        let mut rng = Rng::stream(seed, "scenario");
        let rng = &mut rng;
        let hosts = rng.between(2, 8) as u32;
        let rate = Rate(*rng.one_of(&[100, 1_000, 10_000, 25_000, 100_000]) * 1_000_000);
        let network = network(rng, rate);
        let config = protocol(rng, rate);
        // Time for some tens of full messages at this rate.
        let span_ns = (rate.time_for(300_000).0).clamp(200_000, 20_000_000);
        let calls = calls(rng, hosts, span_ns, &config);
        let links = links(rng, seed, span_ns);
        let host_faults = host_faults(rng, hosts, span_ns, (&network, &links));
        let promises = promises(&config, &network, (&links, &host_faults, &calls));
        let dead = host_faults.iter().any(|fault| matches!(fault, HostFault::Crash(_, _, None)));
        // What a dead host began to send may fill a small memory until it is forgotten.
        let promises = if dead && config.memory_budget < AMPLE_MEMORY {
            promises
        } else {
            let healthy_from = healthy_from(&calls, &network, (&links, &host_faults));
            Promises { healthy_from, ..promises }
        };
        Self { seed, hosts, network, config, links, host_faults, calls, promises }
    }

    /// Hosts that never come back.
    pub fn is_dead(&self, host: HostId) -> bool {
        let dead = |fault: &HostFault| matches!(fault, HostFault::Crash(h, _, None) if *h == host);
        self.host_faults.iter().any(dead)
    }
}

fn network(rng: &mut Rng, rate: Rate) -> Rack {
    Rack {
        rate: LinkRate::new(rate),
        propagation: SimDuration::nanos(rng.between(10, 5_000)),
        software_delay: SimDuration::nanos(rng.between(0, 5_000)),
        buffer_bytes: rng.log_between(8_000, 1_000_000),
        framing: *rng.one_of(&[Framing::Ip146, Framing::Udp]),
    }
}

fn protocol(rng: &mut Rng, rate: Rate) -> Config {
    let mut config = match rng.between(0, 9) {
        0 | 1 => Config::sigcomm18(rate),
        2 | 3 => Config { link_rate: rate, ..Config::linux() },
        _ => Config::for_users(rate),
    };
    config.readable_events = rng.chance(0.5);
    config.max_message = rng.log_between(20_000, 400_000) as u32;
    if config.profile == Profile::Linux {
        return config;
    }
    config.levels = rng.between(1, 8) as u8;
    config.rtt_bytes = rng.log_between(1_500, 60_000) as u32;
    config.rtt_bytes_max = config.rtt_bytes_max.max(config.rtt_bytes);
    config.one_message_per_sender = rng.chance(0.5);
    if rng.chance(0.5) {
        config.overcommitment = Overcommitment::Fixed(rng.between(1, 8) as u8);
    }
    config.fifo_permille = *rng.one_of(&[0, 50, 500]) as u16;
    if rng.chance(0.2) {
        config.max_rpcs = rng.between(1, 8) as u32;
    }
    if rng.chance(0.3) {
        config.memory_budget = rng.log_between(u64::from(config.max_message), 2_000_000);
    }
    if config.incast.is_some() && rng.chance(0.5) {
        let threshold = rng.between(1, 10) as u32;
        config.incast =
            Some(IncastConfig { threshold, max_unscheduled: 400, budget: 4_000, burst: 20_000 });
    }
    config
}

fn calls(rng: &mut Rng, hosts: u32, span_ns: u64, config: &Config) -> Vec<PlannedCall> {
    let count = rng.log_between(1, 80);
    // Some scenarios are incasts: one server, or one client.
    let (one_server, one_client) = (rng.chance(0.15), rng.chance(0.15));
    let largest = *rng.one_of(&[100, 1_400, 10_000, 100_000, u64::from(config.max_message) + 5]);
    let (cancels, short_deadlines) = (rng.chance(0.3), rng.chance(0.3));
    let burst = rng.chance(0.2);
    let mut call = || {
        let client = if one_client { 0 } else { rng.between(0, u64::from(hosts) - 1) as u32 };
        let other = rng.between(1, u64::from(hosts) - 1) as u32;
        let server = if one_server && client != 1 { 1 } else { (client + other) % hosts };
        let at = if burst { 0 } else { rng.between(0, span_ns) };
        PlannedCall {
            at: WARM_UP + SimDuration::nanos(at),
            client: HostId(client),
            server: HostId(server),
            request_bytes: rng.log_between(1, largest) as u32,
            response_bytes: rng.log_between(1, largest) as u32,
            service: if rng.chance(0.7) {
                SimDuration::ZERO
            } else {
                SimDuration::nanos(rng.log_between(100, 50_000_000))
            },
            refused: cancels && rng.chance(0.1),
            cancel_after: (cancels && rng.chance(0.2))
                .then(|| SimDuration::nanos(rng.log_between(1, 4 * span_ns))),
            allowed: if short_deadlines && rng.chance(0.3) {
                Duration::nanos(rng.log_between(1_000, 100_000_000))
            } else {
                Duration::secs(3)
            },
            idempotent: rng.chance(0.3),
        }
    };
    (0..count).map(|_| call()).collect()
}

fn links(rng: &mut Rng, seed: u64, span_ns: u64) -> RandomFaults {
    let mut ppm = |p| if rng.chance(p) { rng.log_between(1_000, 300_000) as u32 } else { 0 };
    let (loss_ppm, duplicate_ppm, delay_ppm) = (ppm(0.5), ppm(0.3), ppm(0.3));
    RandomFaults {
        rng: Rng::stream(seed, "faults"),
        loss_ppm,
        duplicate_ppm,
        delay_ppm,
        max_delay_ns: rng.log_between(100, 20_000_000) as u32,
        heals_at: WARM_UP + SimDuration::nanos(span_ns * rng.between(1, 50)),
    }
}

fn host_faults(
    rng: &mut Rng,
    hosts: u32,
    span_ns: u64,
    (network, links): (&Rack, &RandomFaults),
) -> Vec<HostFault> {
    let mut faults = Vec::new();
    let mut longest_pause = SimDuration::ZERO;
    let count = if rng.chance(0.3) { rng.between(1, 3) } else { 0 };
    for _ in 0..count {
        let host = HostId(rng.between(0, u64::from(hosts) - 1) as u32);
        let length = SimDuration::nanos(rng.log_between(1_000, 300_000_000));
        longest_pause = SimDuration(longest_pause.0 + length.0);
        let at = WARM_UP + SimDuration::nanos(rng.between(0, 2 * span_ns));
        faults.push(HostFault::Pause(host, at, length));
    }
    if rng.chance(0.3) {
        // The longest a packet can live: a full buffer, every extra delay, and the hosts' pauses.
        let buffer = network.rate.serialisation(network.buffer_bytes as u32);
        let extra = SimDuration::nanos(u64::from(links.max_delay_ns));
        let life = SimDuration(buffer.0 + 4 * extra.0 + longest_pause.0 + 1_000_000_000);
        let host = HostId(rng.between(0, u64::from(hosts) - 1) as u32);
        let at = WARM_UP + SimDuration::nanos(rng.between(0, 2 * span_ns));
        let more = SimDuration::nanos(rng.log_between(1_000, 200_000_000));
        let downtime = (!rng.chance(0.3)).then_some(life + more);
        // A host that is frozen while it crashes would keep its old packets for its new life.
        faults.retain(|fault| !matches!(fault, HostFault::Pause(h, ..) if *h == host));
        faults.push(HostFault::Crash(host, at, downtime));
    }
    faults
}

/// When the last fault is over and everything that was asked for had time to be done, twice, one
/// thing after the other.
fn healthy_from(
    calls: &[PlannedCall],
    network: &Rack,
    (links, host_faults): (&RandomFaults, &[HostFault]),
) -> SimTime {
    let work: u64 = calls
        .iter()
        .map(|call| {
            let bytes = call.request_bytes + call.response_bytes;
            2 * network.rate.serialisation(bytes).0 + call.service.0 + CALL_OVERHEAD.0
        })
        .sum();
    let over = host_faults.iter().map(|fault| match *fault {
        HostFault::Pause(_, at, length) => at + length,
        HostFault::Crash(_, at, downtime) => at + downtime.unwrap_or(SimDuration::ZERO),
    });
    let last_call = calls.iter().map(|call| call.at);
    let calm = over.chain(last_call).max().unwrap_or(WARM_UP).max(links.heals_at);
    calm + SimDuration(work) + SimDuration::millis(500)
}

fn promises(
    config: &Config,
    network: &Rack,
    (links, host_faults, calls): (&RandomFaults, &[HostFault], &[PlannedCall]),
) -> Promises {
    // The kernel module executes again what arrives after it forgot: late copies, packets that a
    // RESEND overtook because a queue held them longer than the resend timer, requests its server
    // refused.
    let late = network.rate.serialisation(network.buffer_bytes as u32) > SimDuration::millis(1);
    let refusals =
        calls.iter().any(|call| call.refused || call.response_bytes > config.max_message);
    let copies = links.duplicate_ppm + links.delay_ppm > 0;
    let calm = host_faults.is_empty() && !copies && !late && !refusals;
    let pauses = host_faults.iter().map(|fault| match fault {
        HostFault::Pause(_, _, length) => length.0,
        HostFault::Crash(..) => 0,
    });
    Promises {
        healthy_from: SimTime::MAX,
        may_repeat: match config.completion {
            Completion::AtLeastOnce => true,
            Completion::Acked { suppress_duplicates, .. } => !suppress_duplicates && !calm,
        },
        unreachable_after: config.loss.timeout,
        indeterminate: config.profile == Profile::Default,
        deadline_slack: SimDuration(pauses.sum::<u64>() + TICK.0),
        max_message: config.max_message,
        max_payload: network.framing.max_payload(),
        max_unscheduled: match config.unscheduled {
            homa_proto::UnscheduledLimit::RttBytes => config.rtt_bytes_max,
            homa_proto::UnscheduledLimit::Fixed(bytes) => bytes,
        },
        // One message may exceed the budget, so that one always becomes whole.
        memory_budget: config.memory_budget + u64::from(config.max_message),
        max_rpcs: config.max_rpcs,
        waits_forever_for_acks: matches!(
            config.completion,
            Completion::Acked { give_up: None, .. }
        ),
    }
}
