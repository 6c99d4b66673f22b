//! TCP and its relatives as hosts of the simulator: which parameters a row has, and what a scenario
//! may change.
//!
//! Constants that follow the round trip in their papers follow the network's here.

use std::sync::Arc;

use homa_proto::Duration;
use homa_workload::demotion::Setting;
use homa_workload::sizes::PACKET_BYTES;

use crate::scenario::{AlgorithmName, PickName, ScenarioError, SchemeOptions, Span, TcpOptions};
use crate::transport::stream::{ConnectionPolicy, Pick};
use crate::transport::tcp::config::{Algorithm, Recovery, RtoConfig, TcpConfig};
use crate::transport::tcp::priorities::{LEVELS, Priorities};

use super::Environment;

/// Permanent connections per client and server from which one may be drawn: a place for each is
/// kept from the first message on.
const MOST_CONNECTIONS: u32 = 4_096;

/// How a row makes its configuration.
pub type Build = fn(&Environment<'_>) -> TcpConfig;

/// TCP as Linux runs it by default, one connection per client and server (as the TCP of the
/// Homa/Linux study, ATC 2021 §5).
pub fn linux(_: &Environment<'_>) -> TcpConfig {
    TcpConfig::linux()
}

/// The RFCs' NewReno with selective acknowledgements left out, timeouts from 10 ms on: the TCP of
/// the DCTCP paper's shorter variant (SIGCOMM 2010 §4) and of DeTail's flow hashing.
pub fn newreno(_: &Environment<'_>) -> TcpConfig {
    let newreno = TcpConfig::newreno();
    let rto = RtoConfig { min: Duration::millis(10), ..newreno.rto };
    TcpConfig { rto, delayed_ack: Some(Duration::millis(5)), ..newreno }
}

/// The streaming transport of Homa Figure 8 (§5.1: RAMCloud's InfRC): byte streams over one
/// connection per client and server that no congestion control holds back, since Infiniband's links
/// lose nothing; where a fault does, it is repaired as by [`newreno`] with selective
/// acknowledgements. Left out: how Infiniband frames packets.
pub fn streaming(environment: &Environment<'_>) -> TcpConfig {
    let newreno = newreno(environment);
    TcpConfig {
        recovery: Recovery::SACK,
        // All that may be under way.
        initial_window: newreno.flight_limit().div_ceil(newreno.mss()),
        idle_restart: false,
        ..newreno
    }
}

/// DCTCP as Linux runs it (RFC 8257), timeouts from 10 ms on (SIGCOMM 2010 §4).
pub fn dctcp(_: &Environment<'_>) -> TcpConfig {
    let dctcp = TcpConfig::dctcp();
    let rto = RtoConfig { min: Duration::millis(10), ..dctcp.rto };
    TcpConfig { rto, delayed_ack: Some(Duration::millis(5)), ..dctcp }
}

/// NewReno as [`newreno`] that takes marks for losses, once per window (RFC 3168 §6.1.2): the
/// TCP-ECN of HULL §3.1.
pub fn ecn(environment: &Environment<'_>) -> TcpConfig {
    TcpConfig { ecn: true, recovery: Recovery::SACK, ..newreno(environment) }
}

/// PIAS (NSDI 2015 §5.1, and its authors' ns-2 scripts): DCTCP over permanent connections that
/// carry one message at a time, an initial window of the bandwidth-delay product (70 packets at
/// their 85.2 us), every segment acknowledged, at the highest level, timeouts from 2 ms on, the
/// first too, by a clock of 1 us.
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

/// PIAS's thresholds for the workload at the load of most published comparisons.
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
        apply(&mut config, changes)?;
    }
    Ok(Arc::new(config))
}

/// The retransmission timer, and how long acknowledgements wait.
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

/// What governs the congestion window, and whether hosts heed marks.
fn set_algorithm(config: &mut TcpConfig, changes: &TcpOptions) -> Result<(), ScenarioError> {
    let wrong = |field, must: &str| Err(ScenarioError::field(field, must));
    config.ecn = changes.ecn.unwrap_or(config.ecn);
    config.algorithm = match changes.algorithm {
        None if matches!(config.algorithm, Algorithm::Dctcp { .. }) && !config.ecn => {
            return wrong("options.tcp.ecn", "be true under DCTCP, which lives by marks");
        }
        None => config.algorithm,
        Some(AlgorithmName::NewReno) => Algorithm::NewReno,
        Some(AlgorithmName::Cubic) => Algorithm::Cubic,
        Some(AlgorithmName::Dctcp) if config.ecn => TcpConfig::dctcp().algorithm,
        Some(AlgorithmName::Dctcp) => {
            return wrong("options.tcp.algorithm", "be dctcp only where hosts heed marks");
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
    let recovery = &mut config.recovery;
    recovery.fast_retransmit = changes.fast_retransmit.unwrap_or(recovery.fast_retransmit);
    recovery.sack = changes.sack.unwrap_or(recovery.sack);
    recovery.rack = changes.rack.unwrap_or(recovery.rack && recovery.sack);
    if recovery.rack && !recovery.sack {
        return wrong("options.tcp.rack", "come with `sack`");
    }
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
    config.ecn |= changes.source_ecn.is_some();
    Ok(())
}
