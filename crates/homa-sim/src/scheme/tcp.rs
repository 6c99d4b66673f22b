//! TCP and its variants as hosts of the simulator: the parameters of each row, and the options with
//! which a scenario changes them.
//!
//! If a paper derives a constant from its network's round trip, it is derived from the scenario's
//! here.

use std::fmt;
use std::sync::Arc;

use homa_proto::Duration;
use homa_workload::demotion::Setting;
use homa_workload::framing::Framing;
use homa_workload::rng::Rng;
use homa_workload::sizes::PACKET_BYTES;

use crate::draw::{Draw, MTUS};
use crate::engine::MakeTransport;
use crate::experiment::{Start, Started};
use crate::fabric::StrictPriority;
use crate::fabric::queue::{Combined, EcnScope, EcnThreshold, Phantom};
use crate::nic::{self, NicConfig};
use crate::scenario::{
    AlgorithmName, PickName, Scenario, ScenarioError, SchemeOptions, Span, TcpOptions,
};
use crate::topology::PortSpec;
use crate::transport::Homa;
use crate::transport::either::Either;
use crate::transport::parts::WireFormat;
use crate::transport::stream::{ConnectionPolicy, Pick};
use crate::transport::tcp::Tcp;
use crate::transport::tcp::config::{Algorithm, Recovery, RtoConfig, TcpConfig};
use crate::transport::tcp::priorities::{LEVELS, Priorities};

use super::{
    Environment, Family, HostConfig, HostKind, HostScheme, Nic, SwitchQueue, ecn_queue, hull,
};

/// Maximum number of permanent connections per client and server if one is drawn at random, because
/// the state of all of them is allocated with the first message.
const MOST_CONNECTIONS: u32 = 4_096;

/// Segments of the initial window of RFC 6928; larger ones follow the network.
const RFC_WINDOW: u32 = 10;

/// How a row makes its configuration.
pub type Build = fn(&Environment<'_>) -> TcpConfig;

/// Hosts that run [`crate::transport::tcp::Tcp`].
#[derive(Clone, Copy, Debug)]
pub(super) struct TcpHosts {
    /// Which TCP, in words.
    pub variant: &'static str,
    /// Makes its configuration.
    pub build: Build,
}

impl fmt::Display for TcpHosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.variant)
    }
}

impl HostKind for TcpHosts {
    fn family(&self) -> Family {
        Family::Tcp
    }

    fn options(&self) -> &'static [&'static str] {
        &["options.tcp", "options.pacer", "options.nic"]
    }

    fn configure(
        &self,
        nic: Nic,
        environment: &Environment<'_>,
        options: &SchemeOptions,
    ) -> Result<HostConfig, ScenarioError> {
        let nic = hull::nic(nic, environment, options)?;
        let tcp = configure(self.build, environment, options)?;
        Ok(Box::new(ConfiguredTcp { tcp, nic }))
    }

    fn resolved(
        &self,
        nic: Nic,
        environment: &Environment<'_>,
        options: &SchemeOptions,
    ) -> Result<SchemeOptions, ScenarioError> {
        let config = configure(self.build, environment, options)?;
        let card = hull::nic(nic, environment, options)?;
        let tcp = TcpOptions { source_ecn: card.mark_above, ..tcp_options(&config) };
        Ok(SchemeOptions {
            tcp: Some(tcp),
            pacer: hull::pacer_options(nic, card.pacer),
            nic: options.nic.map(hull::nic_options),
            ..options.clone()
        })
    }

    fn draw_options(&self, rng: &mut Rng, options: &mut SchemeOptions) {
        let connections = rng.maybe(&[0, 1, 2, 5]);
        let pick = rng.maybe(&[PickName::Random, PickName::Idle]);
        let sack = rng.maybe(&[false, true]);
        let (size_classes, demotion) = match rng.between(0, 4) {
            0 => (Some(vec![1_000, 20_000]), None),
            1 => (None, Some(vec![1_460, 10_000, 50_000])),
            _ => (None, None),
        };
        options.tcp = Some(TcpOptions {
            mtu: rng.maybe(&MTUS),
            min_rto: rng.maybe(&[Span::nanos(200_000), Span::millis(2), Span::millis(200)]),
            delayed_ack: rng.maybe(&[Span(0), Span::millis(1), Span::millis(40)]),
            initial_window: rng.maybe(&[1, 2, 10, 70]),
            connections,
            pick: pick.filter(|_| connections.is_some()),
            handshake: rng.maybe(&[false, true]),
            idle_restart: rng.maybe(&[false, true]),
            fast_retransmit: rng.maybe(&[false, true]),
            sack,
            rack: rng.maybe(&[false, true]).filter(|rack| !rack || sack == Some(true)),
            size_classes,
            demotion,
            ..TcpOptions::default()
        });
    }
}

/// TCP behind a NIC.
#[derive(Clone, Debug)]
struct ConfiguredTcp {
    tcp: Arc<TcpConfig>,
    nic: NicConfig,
}

impl HostScheme for ConfiguredTcp {
    fn framing(&self) -> Framing {
        if self.tcp.timestamps { Framing::Tcp } else { Framing::Plain }
    }

    fn frames(&self) -> WireFormat {
        let headers = self.tcp.mtu.saturating_sub(self.tcp.mss());
        WireFormat::ethernet(self.tcp.mtu, headers, headers)
    }

    fn names_places(&self) -> bool {
        false
    }

    /// Every kind of port will do.
    fn check(&self, _: &Scenario, _: SwitchQueue) -> Result<(), ScenarioError> {
        Ok(())
    }

    fn shared(&self, seed: u64) -> Option<MakeTransport<Either<Homa, Tcp>>> {
        let tcp = self.tcp.clone();
        let make = move |host, life| Either::Second(Tcp::new(tcp.clone(), host, (life, seed)));
        self.nic.is_plain().then(|| Box::new(make) as MakeTransport<_>)
    }

    fn start<'a>(&self, start: Start<'_, 'a>) -> Started<'a> {
        let (tcp, seed) = (self.tcp.clone(), start.seed());
        let plain = move |host, life| Tcp::new(tcp.clone(), host, (life, seed));
        let nic = NicConfig { instrument: start.instrument(), ..self.nic };
        let (ecn, phantom) = match (start.queue(), self.nic.is_plain()) {
            (SwitchQueue::Phantom(ecn, phantom), _) => (ecn, phantom),
            (SwitchQueue::Ecn(ecn), true) => {
                let trip = start.round_trip();
                return start.with(plain, move |port| ecn_queue(ecn, port, trip));
            }
            (SwitchQueue::Combined(_), true) => return start.with(plain, |_| Combined),
            (_, true) => return start.with(plain, |_| StrictPriority),
            (SwitchQueue::Ecn(ecn), false) => (Some(ecn), None),
            (_, false) => (None, None),
        };
        let paced = move |host, life| nic::Nic::new(plain(host, life), nic, host, (life, seed));
        if matches!(start.queue(), SwitchQueue::Combined(_)) {
            return start.with(paced, |_| Combined);
        }
        // One type of queue serves all rows with a NIC: a threshold that no queue reaches marks
        // nothing, and without a phantom queue only the threshold marks.
        let never = EcnThreshold::new(u32::MAX, EcnScope::Queue);
        let trip = start.round_trip();
        let queue = move |port: &PortSpec| {
            let inner = ecn.map_or(never, |ecn| ecn_queue(ecn, port, trip));
            let phantom = phantom.map(|phantom| phantom.at(port.rate, trip));
            Phantom::new(inner, phantom, port.rate)
        };
        start.with(paced, queue)
    }
}

/// A connection for every message, as simulations of message transports compare TCP with them
/// (pFabric §5, PIAS §5, and others): on a permanent connection a short message waits for the long
/// ones before it, which no message transport makes it do. Studies of permanent connections set
/// `options.tcp.connections` (Homa/Linux, ATC 2021 §5: 1; HULL §6: 16 or 1).
fn per_message(config: TcpConfig) -> TcpConfig {
    TcpConfig { connections: ConnectionPolicy::PerMessage, ..config }
}

/// TCP with the defaults of Linux.
pub fn linux(_: &Environment<'_>) -> TcpConfig {
    per_message(TcpConfig::linux())
}

/// NewReno of the RFCs without selective acknowledgements and with a minimum RTO of 10 ms. This is
/// the TCP of the DCTCP paper's shorter variant (SIGCOMM 2010 §4) and of DeTail's flow hashing.
pub fn newreno(_: &Environment<'_>) -> TcpConfig {
    let newreno = TcpConfig::newreno();
    let rto = RtoConfig { min: Duration::millis(10), ..newreno.rto };
    per_message(TcpConfig { rto, delayed_ack: Some(Duration::millis(5)), ..newreno })
}

/// The streaming transport of Homa Figure 8 (§5.1: RAMCloud's InfRC): byte streams over one
/// connection per client and server. There is no congestion control, because Infiniband's links
/// lose nothing. If a fault loses a packet, recovery is that of [`newreno`] with selective
/// acknowledgements. Left out: the framing of Infiniband.
pub fn streaming(environment: &Environment<'_>) -> TcpConfig {
    let newreno = newreno(environment);
    TcpConfig {
        connections: ConnectionPolicy::ONE,
        recovery: Recovery::SACK,
        // As large as the limit on bytes in flight, so that it never restricts a sender.
        initial_window: newreno.flight_limit().div_ceil(newreno.mss()),
        idle_restart: false,
        ..newreno
    }
}

/// DCTCP as Linux runs it (RFC 8257), with a minimum RTO of 10 ms (SIGCOMM 2010 §4). The initial
/// window is the bandwidth-delay product, as where DCTCP is compared with message transports
/// (pFabric's scripts: 12 packets, PIAS: 70, SIRD: 66), but at least that of RFC 6928.
pub fn dctcp(environment: &Environment<'_>) -> TcpConfig {
    let dctcp = TcpConfig::dctcp();
    let rto = RtoConfig { min: Duration::millis(10), ..dctcp.rto };
    let initial_window = dctcp.initial_window.max(environment.rtt_bytes.div_ceil(dctcp.mss()));
    let delayed_ack = Some(Duration::millis(5));
    per_message(TcpConfig { rto, delayed_ack, initial_window, ..dctcp })
}

/// [`newreno`] that reacts to a mark as to a loss, once per window (RFC 3168 §6.1.2). This is the
/// TCP-ECN of HULL §3.1.
pub fn ecn(environment: &Environment<'_>) -> TcpConfig {
    TcpConfig { ecn: true, recovery: Recovery::SACK, ..newreno(environment) }
}

/// PIAS (NSDI 2015 §5.1, and its authors' ns-2 scripts): DCTCP over permanent connections that
/// carry one message at a time. The initial window is the bandwidth-delay product (70 packets at
/// their 85.2 us). Every segment is acknowledged, at the highest level. The initial and the minimum
/// RTO are 2 ms, with a clock granularity of 1 us.
pub fn pias(environment: &Environment<'_>) -> TcpConfig {
    let dctcp = TcpConfig { timestamps: false, ..TcpConfig::dctcp() };
    TcpConfig {
        rto: RtoConfig {
            initial: Duration::millis(2),
            min: Duration::millis(2),
            granularity: Duration::micros(1),
            ..dctcp.rto
        },
        recovery: Recovery::SACK,
        connections: ConnectionPolicy::IDLE,
        initial_window: environment.rtt_bytes.div_ceil(dctcp.mss()).max(2),
        delayed_ack: None,
        priorities: Priorities::Sent(demotion(environment)),
        ack_priority: LEVELS - 1,
        ..dctcp
    }
}

/// PIAS's demotion thresholds for the workload at 80 % load, as in most published comparisons.
fn demotion(environment: &Environment<'_>) -> Vec<u32> {
    let setting = Setting { load: 0.8, levels: LEVELS, packet: PACKET_BYTES };
    homa_workload::demotion::optimal(environment.sizes, setting)
}

fn duration(span: Span) -> Duration {
    Duration(span.0 / 1_000)
}

/// A row's configuration with a scenario's changes.
pub fn configure(
    build: Build,
    environment: &Environment<'_>,
    options: &SchemeOptions,
) -> Result<Arc<TcpConfig>, ScenarioError> {
    let mut config = build(environment);
    if let Some(changes) = &options.tcp {
        let first = (config.initial_window, config.mss());
        apply(&mut config, changes)?;
        if changes.initial_window.is_none() && first.0 > RFC_WINDOW {
            // It was derived as bytes, and segments have another size now.
            let bytes = first.0.saturating_mul(first.1);
            config.initial_window = bytes.div_ceil(config.mss()).max(RFC_WINDOW);
        }
    }
    Ok(Arc::new(config))
}

/// The options with which a row becomes this configuration, except for `source_ecn`.
fn tcp_options(config: &TcpConfig) -> TcpOptions {
    let span = |time: Duration| Some(Span(time.0 * 1_000));
    let (connections, pick) = match config.connections {
        ConnectionPolicy::PerMessage => (0, None),
        ConnectionPolicy::Pool { size, pick: Pick::Random } => (size, Some(PickName::Random)),
        ConnectionPolicy::Pool { size, pick: Pick::Idle } => (size, Some(PickName::Idle)),
    };
    let (size_classes, demotion) = match &config.priorities {
        Priorities::One(_) => (None, None),
        Priorities::Size(bytes) => (Some(bytes.clone()), None),
        Priorities::Sent(bytes) => (None, Some(bytes.clone())),
    };
    TcpOptions {
        algorithm: Some(match config.algorithm {
            Algorithm::NewReno => AlgorithmName::NewReno,
            Algorithm::Cubic => AlgorithmName::Cubic,
            Algorithm::Dctcp { .. } => AlgorithmName::Dctcp,
        }),
        ecn: Some(config.ecn),
        mtu: Some(config.mtu),
        initial_rto: span(config.rto.initial),
        min_rto: span(config.rto.min),
        max_rto: span(config.rto.max),
        rto_granularity: span(config.rto.granularity),
        delayed_ack: span(config.longest_ack_delay()),
        window: Some(config.flight_limit()),
        initial_window: Some(config.initial_window),
        connections: Some(connections),
        pick,
        handshake: Some(config.handshake),
        idle_restart: Some(config.idle_restart),
        fast_retransmit: Some(config.recovery.fast_retransmit),
        sack: Some(config.recovery.sack),
        rack: Some(config.recovery.rack),
        timestamps: Some(config.timestamps),
        size_classes,
        source_ecn: None,
        demotion,
        max_timeouts: Some(if config.max_timeouts == u32::MAX { 0 } else { config.max_timeouts }),
        tso_win_divisor: Some(config.tso_win_divisor).filter(|part| *part > 0),
    }
}

/// Applies changes of the RTO and of delayed acknowledgements.
fn set_timers(config: &mut TcpConfig, changes: &TcpOptions) -> Result<(), ScenarioError> {
    let TcpOptions { initial_rto, min_rto, max_rto, rto_granularity, delayed_ack, .. } = changes;
    let set = |to: &mut Duration, from: &Option<Span>| {
        from.iter().for_each(|span| *to = duration(*span));
    };
    set(&mut config.rto.initial, initial_rto);
    set(&mut config.rto.min, min_rto);
    set(&mut config.rto.max, max_rto);
    set(&mut config.rto.granularity, rto_granularity);
    if config.rto.min > config.rto.max || config.rto.min == Duration::ZERO {
        let must = "be more than 0 and at most `max_rto`";
        return Err(ScenarioError::field("options.tcp.min_rto", must));
    }
    config.rto.initial = config.rto.initial.max(config.rto.min);
    if let Some(span) = delayed_ack {
        config.delayed_ack = (span.0 > 0).then(|| duration(*span));
    }
    Ok(())
}

/// Applies changes of congestion control and ECN.
fn set_algorithm(config: &mut TcpConfig, changes: &TcpOptions) -> Result<(), ScenarioError> {
    let wrong = |field, must: &str| Err(ScenarioError::field(field, must));
    config.ecn = changes.ecn.unwrap_or(config.ecn);
    config.algorithm = match changes.algorithm {
        None if matches!(config.algorithm, Algorithm::Dctcp { .. }) && !config.ecn => {
            return wrong("options.tcp.ecn", "be true under DCTCP, which needs marks");
        }
        None => config.algorithm,
        Some(AlgorithmName::NewReno) => Algorithm::NewReno,
        Some(AlgorithmName::Cubic) => Algorithm::Cubic,
        Some(AlgorithmName::Dctcp) if config.ecn => TcpConfig::dctcp().algorithm,
        Some(AlgorithmName::Dctcp) => {
            return wrong(
                "options.tcp.algorithm",
                "be dctcp only if hosts react to marks: set `ecn`",
            );
        }
    };
    Ok(())
}

fn apply(config: &mut TcpConfig, changes: &TcpOptions) -> Result<(), ScenarioError> {
    let wrong = |field, must: &str| Err(ScenarioError::field(field, must));
    if let Some(mtu) = changes.mtu {
        if !(200..=9_000).contains(&mtu) {
            return wrong("options.tcp.mtu", "be 200 to 9000 bytes");
        }
        config.mtu = mtu;
    }
    set_timers(config, changes)?;
    set_algorithm(config, changes)?;
    if let Some(bytes) = changes.window {
        if bytes < config.mss() {
            return wrong("options.tcp.window", "be at least a full segment, such as 65536");
        }
        (config.receive_window, config.send_buffer) = (bytes, bytes);
    }
    if let Some(segments) = changes.initial_window {
        if segments == 0 {
            return wrong("options.tcp.initial_window", "be at least 1 segment");
        }
        config.initial_window = segments;
    }
    if let Some(size) = changes.connections {
        let pick = match changes.pick.unwrap_or_default() {
            PickName::Random => Pick::Random,
            PickName::Idle => Pick::Idle,
        };
        if size > MOST_CONNECTIONS && pick == Pick::Random {
            return wrong("options.tcp.connections", "be at most 4096, unless `pick` is \"idle\"");
        }
        config.connections = match size {
            0 => ConnectionPolicy::PerMessage,
            size => ConnectionPolicy::Pool { size, pick },
        };
    } else if changes.pick.is_some() {
        return wrong("options.tcp.pick", "come with `connections`");
    }
    config.handshake = changes.handshake.unwrap_or(config.handshake);
    config.idle_restart = changes.idle_restart.unwrap_or(config.idle_restart);
    config.timestamps = changes.timestamps.unwrap_or(config.timestamps);
    config.max_timeouts = match changes.max_timeouts {
        None => config.max_timeouts,
        Some(0) => u32::MAX,
        Some(most) => most,
    };
    config.tso_win_divisor = changes.tso_win_divisor.unwrap_or(config.tso_win_divisor);
    let recovery = &mut config.recovery;
    recovery.fast_retransmit = changes.fast_retransmit.unwrap_or(recovery.fast_retransmit);
    recovery.sack = changes.sack.unwrap_or(recovery.sack);
    recovery.rack = changes.rack.unwrap_or(recovery.rack && recovery.sack);
    if recovery.rack && !recovery.sack {
        return wrong("options.tcp.rack", "come with `sack`");
    }
    set_priorities(config, changes)?;
    config.ecn |= changes.source_ecn.is_some();
    Ok(())
}

/// Applies changes of the levels of messages and acknowledgements.
fn set_priorities(config: &mut TcpConfig, changes: &TcpOptions) -> Result<(), ScenarioError> {
    let levels = |field, bytes: &[u32]| match bytes.len() < usize::from(LEVELS) && bytes.is_sorted()
    {
        true => Ok(bytes.to_vec()),
        false => Err(ScenarioError::field(field, "be at most 7 sizes, ascending")),
    };
    match (&changes.size_classes, &changes.demotion) {
        (Some(_), Some(_)) => {
            let why = "a message has its level by its size or by the bytes sent of it: leave out \
                       this or `size_classes`";
            return Err(ScenarioError::unfit("options.tcp.demotion", why));
        }
        (Some(bytes), None) => {
            config.priorities = Priorities::Size(levels("options.tcp.size_classes", bytes)?);
            config.ack_priority = LEVELS - 1;
        }
        (None, Some(bytes)) => {
            config.priorities = Priorities::Sent(levels("options.tcp.demotion", bytes)?);
            config.ack_priority = LEVELS - 1;
        }
        (None, None) => {}
    }
    Ok(())
}
