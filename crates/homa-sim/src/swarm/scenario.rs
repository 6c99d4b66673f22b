//! A random scenario: a network, a configuration, calls and faults, all drawn from one seed.
//!
//! Sizes are small on purpose, because rare interleavings come from many short runs rather than
//! from long ones. The limits that the protocol's promises depend on are respected: for example, a
//! crashed host stays down longer than any packet of its former life can live.

use homa_proto::{Config, Duration, IncastConfig, Overcommitment, Profile, Rate, UnscheduledLimit};
use homa_workload::rng::Rng;

use crate::checker::Promises;
use crate::draw::Draw;
use crate::engine::{LinkChange, RandomFaults};
use crate::fabric::{Buffers, FabricConfig};
use crate::headers::Headers;
use crate::time::{LinkRate, SimDuration, SimTime};
use crate::topology::{HostId, Physics, SingleSwitch, Wiring};
use crate::traffic::PlannedCall;

use super::hostile::{Hostile, hostile};
use super::promises::{ScenarioFaults, promises};

/// Hosts run this long before the first call. This is longer than any packet lives, so that a
/// server may answer for every call that it never received it.
pub(super) const WARM_UP: SimTime = SimTime(1_000_000_000_000);

/// Links have at least this rate.
const SLOWEST_MBPS: u64 = 20;

/// The physics of hosts around one switch.
#[derive(Clone, Copy, Debug)]
pub struct SwarmNetwork {
    /// Rate of every link.
    pub rate: LinkRate,
    /// Propagation delay of every cable.
    pub propagation: SimDuration,
    /// Time from a packet's last bit at a host until the transport has it.
    pub software_delay: SimDuration,
    /// Buffer of each output port in wire bytes, shared by all priorities.
    pub buffer_bytes: u64,
    /// The headers around packets.
    pub framing: Headers,
    /// Largest IP packet, bytes.
    pub mtu: u32,
}

impl SwarmNetwork {
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
    /// The seed, which determines everything else.
    pub seed: u64,
    /// Number of hosts.
    pub hosts: u32,
    /// The physics.
    pub network: SwarmNetwork,
    /// The protocol; each life of each host gets its own seed.
    pub config: Config,
    /// Faults of every link.
    pub links: RandomFaults,
    /// Links that are down or slow for a while.
    pub impaired: Vec<Impaired>,
    /// Faults of hosts.
    pub host_faults: Vec<HostFault>,
    /// Clients that get another address, and when.
    pub moves: Vec<(HostId, SimTime)>,
    /// The hostile host, if there is one.
    pub hostile: Option<Hostile>,
    /// The calls, by cookie.
    pub calls: Vec<PlannedCall>,
    /// The promises that the checker verifies.
    pub promises: Promises,
}

/// A host that misbehaves.
#[derive(Clone, Copy, Debug)]
pub enum HostFault {
    /// Frozen for a while.
    Pause(HostId, SimTime, SimDuration),
    /// State lost; the host is back after the downtime, or never.
    Crash(HostId, SimTime, Option<SimDuration>),
}

/// One direction of a host's link is down or slow for a while.
#[derive(Clone, Copy, Debug)]
pub struct Impaired {
    /// The host whose link it is.
    pub host: HostId,
    /// The direction from the host to the switch; otherwise from the switch to the host.
    pub up: bool,
    /// The rate during that time; `None` if the link is down.
    pub rate: Option<Rate>,
    /// Start time.
    pub at: SimTime,
    /// End time.
    pub until: SimTime,
}

impl Impaired {
    /// The changes of a link with full rate `whole`, when the impairment starts and when it ends.
    pub(super) fn changes(&self, whole: Rate) -> [(SimTime, LinkChange); 2] {
        match self.rate {
            Some(rate) => {
                [(self.at, LinkChange::Rate(rate)), (self.until, LinkChange::Rate(whole))]
            }
            None => [(self.at, LinkChange::Fail), (self.until, LinkChange::Recover)],
        }
    }
}

impl Scenario {
    /// The scenario of `seed`.
    pub fn draw(seed: u64) -> Self {
        let mut rng = Rng::stream(seed, "scenario");
        let rng = &mut rng;
        let hosts = rng.between(2, 8) as u32;
        let rate = Rate(*rng.one_of(&[100, 1_000, 10_000, 25_000, 100_000]) * 1_000_000);
        // Options that were added later have separate streams, so that old seeds keep their
        // meaning.
        let options = &mut Rng::stream(seed, "options");
        let network = with_datagrams(options, network(rng, rate));
        let config = with_options(options, protocol(rng, rate));
        let proofs = &mut Rng::stream(seed, "proofs");
        let config = with_proofs(proofs, config, network.framing);
        // Enough time for some tens of full messages at this rate.
        let span_ns = (rate.time_for(300_000).0).clamp(200_000, 20_000_000);
        let calls = calls(rng, hosts, span_ns, &config);
        let impaired = impaired(options, (hosts, rate), span_ns);
        let slowest = LinkRate::new(slowest(rate, &impaired));
        let links = links(rng, seed, span_ns);
        let life = packet_life(&network, slowest, &links);
        let host_faults = host_faults(rng, hosts, span_ns, life);
        let moves = moves(&mut Rng::stream(seed, "moves"), hosts, span_ns, &config);
        let hostile = hostile(&mut Rng::stream(seed, "hostile"), (hosts, span_ns), &config);
        let faults = ScenarioFaults {
            links: &links,
            impaired: &impaired,
            hosts: &host_faults,
            moves: &moves,
            hostile: hostile.as_ref(),
        };
        let promises = promises(&config, (&network, slowest), &faults, &calls);
        Self {
            seed,
            hosts,
            network,
            config,
            links,
            impaired,
            host_faults,
            moves,
            hostile,
            calls,
            promises,
        }
    }
}

fn network(rng: &mut Rng, rate: Rate) -> SwarmNetwork {
    SwarmNetwork {
        rate: LinkRate::new(rate),
        propagation: SimDuration::nanos(rng.between(10, 5_000)),
        software_delay: SimDuration::nanos(rng.between(0, 5_000)),
        buffer_bytes: rng.log_between(8_000, 1_000_000),
        framing: *rng.one_of(&[Headers::Ip146, Headers::Udp]),
        mtu: Headers::MTU,
    }
}

/// In some scenarios, datagrams of another size than Ethernet's; a buffer holds three of them.
fn with_datagrams(rng: &mut Rng, network: SwarmNetwork) -> SwarmNetwork {
    if rng.chance(0.6) {
        return network;
    }
    let mtu = *rng.one_of(&[576, 1_280, 4_000, 9_000]);
    SwarmNetwork {
        mtu,
        buffer_bytes: network.buffer_bytes.max(3 * u64::from(mtu) + 200),
        ..network
    }
}

/// Options that only some users set.
fn with_options(rng: &mut Rng, mut config: Config) -> Config {
    if rng.chance(0.3) {
        config.network_levels = rng.between(1, 8) as u8;
    }
    if matches!(config.profile, Profile::Linux | Profile::LinuxUpstream) {
        return config;
    }
    if rng.chance(0.2) {
        config.receive_buffer = rng.log_between(20_000, 4_000_000) as u32;
    }
    if rng.chance(0.2) {
        config.unscheduled = UnscheduledLimit::Fixed(rng.log_between(1, 60_000) as u32);
    }
    if config.profile == Profile::Sigcomm18 && rng.chance(0.2) {
        let basic = Config::basic(config.link_rate);
        config.granting = basic.granting;
        config.overcommitment = basic.overcommitment;
        config.one_message_per_sender = basic.one_message_per_sender;
    }
    config
}

/// Address validation, if senders can be forged and the wire format supports challenges.
fn with_proofs(rng: &mut Rng, config: Config, framing: Headers) -> Config {
    let proves = config.profile == Profile::Default && framing == Headers::Udp && rng.chance(0.5);
    config.validate_addresses(proves).unguessable_ids(proves)
}

/// Moves of clients to another address, in a third of the scenarios in which a move cannot make a
/// call run twice.
fn moves(rng: &mut Rng, hosts: u32, span_ns: u64, config: &Config) -> Vec<(HostId, SimTime)> {
    let count = if config.validate_addresses && rng.chance(0.3) { rng.between(1, 3) } else { 0 };
    let mut one = || {
        let host = HostId(rng.between(0, u64::from(hosts) - 1) as u32);
        (host, WARM_UP + SimDuration::nanos(rng.between(0, 2 * span_ns)))
    };
    (0..count).map(|_| one()).collect()
}

fn protocol(rng: &mut Rng, rate: Rate) -> Config {
    let mut config = match rng.between(0, 9) {
        0 | 1 => Config::sigcomm18(rate),
        2 => Config::linux().link_rate(rate),
        3 => Config::linux_upstream().link_rate(rate),
        _ => Config::for_users(rate),
    };
    config.readable_events = rng.chance(0.5);
    config.max_message = rng.log_between(20_000, 400_000) as u32;
    if matches!(config.profile, Profile::Linux | Profile::LinuxUpstream) {
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
        let incast = IncastConfig::default().threshold(threshold);
        config.incast = Some(incast.budget(4_000).burst(20_000));
    }
    config
}

fn calls(rng: &mut Rng, hosts: u32, span_ns: u64, config: &Config) -> Vec<PlannedCall> {
    let count = rng.log_between(1, 80);
    // Some scenarios are incasts, with one server or one client.
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
            one_way: false,
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

/// Links that are down or slow for a while, in a fifth of the scenarios.
fn impaired(rng: &mut Rng, (hosts, whole): (u32, Rate), span_ns: u64) -> Vec<Impaired> {
    let count = if rng.chance(0.2) { rng.between(1, 3) } else { 0 };
    let mut one = || {
        let at = WARM_UP + SimDuration::nanos(rng.between(0, 2 * span_ns));
        let mbps = rng.log_between(SLOWEST_MBPS, whole.0 / 1_000_000);
        Impaired {
            host: HostId(rng.between(0, u64::from(hosts) - 1) as u32),
            up: rng.chance(0.5),
            rate: rng.chance(0.5).then_some(Rate(mbps * 1_000_000)),
            at,
            until: at + SimDuration::nanos(rng.log_between(1_000, 50_000_000)),
        }
    };
    (0..count).map(|_| one()).collect()
}

/// The lowest rate that a link of rate `whole` has at any time.
fn slowest(whole: Rate, impaired: &[Impaired]) -> Rate {
    impaired.iter().filter_map(|one| one.rate).fold(whole, |least, rate| Rate(least.0.min(rate.0)))
}

/// The longest time that a packet can live, pauses of hosts apart: a full buffer, every extra
/// delay, and a second.
fn packet_life(network: &SwarmNetwork, slowest: LinkRate, links: &RandomFaults) -> SimDuration {
    let buffer = slowest.serialisation(network.buffer_bytes as u32);
    let extra = SimDuration::nanos(u64::from(links.max_delay_ns));
    SimDuration(buffer.0 + 4 * extra.0 + 1_000_000_000)
}

fn host_faults(rng: &mut Rng, hosts: u32, span_ns: u64, life: SimDuration) -> Vec<HostFault> {
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
        let life = life + longest_pause;
        let host = HostId(rng.between(0, u64::from(hosts) - 1) as u32);
        let at = WARM_UP + SimDuration::nanos(rng.between(0, 2 * span_ns));
        let more = SimDuration::nanos(rng.log_between(1_000, 200_000_000));
        let downtime = (!rng.chance(0.3)).then_some(life + more);
        // A host that was paused during its crash would keep old packets for its new life.
        faults.retain(|fault| !matches!(fault, HostFault::Pause(h, ..) if *h == host));
        faults.push(HostFault::Crash(host, at, downtime));
    }
    faults
}
