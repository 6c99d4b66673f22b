//! DeTail (UCB/EECS-2012-33 TR, SIGCOMM 2012) and the schemes that its evaluation compares it with:
//! switches with queues at inputs and outputs, and TCP that recovers from losses by RTOs only.

use homa_proto::Duration;

use crate::fabric::cioq::pfc::{PfcThresholds, ResponseTime};
use crate::fabric::{CioqConfig, PfcConfig};
use crate::scenario::{Buffer, ScenarioError, SchemeOptions, Span, SwitchKind, SwitchOptions};
use crate::time::SimDuration;
use crate::transport::stream::ConnectionPolicy;
use crate::transport::tcp::config::{Recovery, RtoConfig, TcpConfig};
use homa_proto::LEVELS;

use super::{Environment, NetworkScale, SwitchQueue};

/// DeTail's switch without flow control: 128 KB on each side of a port, and a crossbar with four
/// times the rate of a link (DeTail §5.1). The delay of the switch includes the forwarding decision
/// unless `options.switch.lookup` is set.
pub const SWITCH: CioqConfig = CioqConfig {
    bytes: 131_072,
    speedup: 4,
    lookup: SimDuration::ZERO,
    virtual_outputs: false,
    output_drops: false,
    pfc: None,
    mark_above: None,
};

/// [`SWITCH`] with priority flow control of eight levels.
pub const LOSSLESS_SWITCH: CioqConfig = CioqConfig {
    pfc: Some(PfcConfig {
        thresholds: None,
        priorities: LEVELS as u8,
        frame: 1_538,
        cable: None,
        response: ResponseTime::ByRate,
    }),
    ..SWITCH
};

/// [`SWITCH`] with flow control of one level. It replaces the credits of Infiniband's links, which
/// also stop a sender before a port has to drop, and take effect without a delay.
pub const ONE_LEVEL_SWITCH: CioqConfig = CioqConfig {
    pfc: Some(PfcConfig {
        thresholds: None,
        priorities: 1,
        frame: 1_538,
        cable: None,
        response: ResponseTime::Quantum,
    }),
    ..SWITCH
};

/// TCP NewReno of DeTail's flow hashing (DeTail §5.1, §6.3) with a new connection for each
/// retrieval. The paper says "a TCP timeout of 10 ms"; this is the initial RTO, too. Parameters
/// that the paper does not give are those of ns-3 at that time: an initial window of one segment,
/// and an acknowledgement for every segment.
pub fn flow_hashing(_: &Environment<'_>) -> TcpConfig {
    let newreno = TcpConfig::newreno();
    let min = Duration::millis(10);
    TcpConfig {
        rto: RtoConfig { initial: min, min, ..newreno.rto },
        connections: ConnectionPolicy::PerMessage,
        handshake: true,
        initial_window: 1,
        delayed_ack: None,
        ..newreno
    }
}

/// [`flow_hashing`] over a lossless fabric that reorders packets: no fast retransmit, and a minimum
/// RTO of 200 ms (DeTail §4.3.4, §5.1).
pub fn lossless(environment: &Environment<'_>) -> TcpConfig {
    let hashing = flow_hashing(environment);
    let min = Duration::millis(200);
    let rto = RtoConfig { initial: min, min, ..hashing.rto };
    TcpConfig { rto, recovery: Recovery::TIMEOUTS, ..hashing }
}

/// The switches of a row, or those that `options.switch.kind` replaces them with.
pub fn chosen(row: SwitchQueue, kind: Option<SwitchKind>, scale: NetworkScale) -> SwitchQueue {
    let config = match kind {
        None | Some(SwitchKind::Shared) => return row,
        Some(SwitchKind::Combined) => SWITCH,
        Some(SwitchKind::Lossless) => LOSSLESS_SWITCH,
    };
    // DCTCP needs marks from these switches, too.
    let mark_above = match row {
        SwitchQueue::Ecn(ecn) => Some(scale.bytes(ecn.threshold)),
        _ => None,
    };
    SwitchQueue::Combined(CioqConfig { mark_above, ..config })
}

/// The switches of a row under a scenario's options.
pub fn switch(
    mut config: CioqConfig,
    options: &SchemeOptions,
    scale: NetworkScale,
) -> Result<CioqConfig, ScenarioError> {
    let wrong = |field, must: &str| Err(ScenarioError::field(field, must));
    let SwitchOptions {
        kind: _,
        speedup,
        lookup,
        virtual_outputs,
        output_drops,
        priorities,
        pause,
        unpause,
        response,
        memory: _,
        alpha: _,
        reserve: _,
        resume_gap: _,
        headroom: _,
    } = options.switch.unwrap_or_default();
    config.speedup = speedup.unwrap_or(config.speedup);
    if !(1..=64).contains(&config.speedup) {
        return wrong("options.switch.speedup", "be 1 to 64");
    }
    config.lookup = lookup.map_or(config.lookup, |span| span.duration());
    config.virtual_outputs = virtual_outputs.unwrap_or(config.virtual_outputs);
    config.mark_above =
        options.ecn.map_or(config.mark_above, |ecn| Some(scale.bytes(ecn.threshold)));
    config.output_drops = output_drops.unwrap_or(config.output_drops);
    if config.output_drops && config.pfc.is_some() {
        let why = "lossless switches drop nothing: leave it out, or set `kind` to \"combined\"";
        return Err(ScenarioError::unfit("options.switch.output_drops", why));
    }
    let Some(pfc) = &mut config.pfc else {
        return match (priorities, pause, unpause, response) {
            (None, None, None, None) => Ok(config),
            _ => {
                let why = "only lossless switches send pauses, and this scheme's drop instead: \
                           leave out `priorities`, `pause`, `unpause` and `response`, or set \
                           `kind` to \"lossless\"";
                Err(ScenarioError::unfit("options.switch", why))
            }
        };
    };
    pfc.priorities = priorities.unwrap_or(pfc.priorities);
    if !(1..=LEVELS as u8).contains(&pfc.priorities) {
        return wrong("options.switch.priorities", "be 1 to 8");
    }
    if let Some(response) = response {
        pfc.response = ResponseTime::After(response.duration());
    }
    pfc.thresholds = match (pause, unpause) {
        (None, None) => None,
        (Some(pause), Some(unpause)) if 0 < unpause && unpause <= pause => {
            Some(PfcThresholds { pause, unpause })
        }
        (None, Some(_)) => return wrong("options.switch.unpause", "come with `pause`"),
        _ => {
            let must = "come with `unpause`, which is more than 0 and not above it";
            return wrong("options.switch.pause", must);
        }
    };
    if let Some(mtu) = options.tcp.as_ref().and_then(|tcp| tcp.mtu) {
        pfc.frame = mtu + 38;
    }
    Ok(config)
}

/// The options of switches with this configuration. Thresholds and reaction times that follow each
/// link are left out, because no single number replaces them.
pub fn switch_options(config: CioqConfig, given: &SchemeOptions) -> SwitchOptions {
    let given = given.switch.unwrap_or_default();
    SwitchOptions {
        speedup: Some(config.speedup),
        lookup: Some(Span(config.lookup.0)),
        virtual_outputs: Some(config.virtual_outputs),
        output_drops: config.pfc.is_none().then_some(config.output_drops),
        priorities: config.pfc.map(|pfc| pfc.priorities),
        ..given
    }
}

/// The same switches with the memory that `fabric.buffer` gives to each side of a port.
pub fn sized(mut config: CioqConfig, buffer: Buffer) -> Result<CioqConfig, ScenarioError> {
    match buffer {
        Buffer::Unlimited => {}
        Buffer::PerPort { bytes } => match u32::try_from(bytes) {
            Ok(bytes) if (10_000..=1 << 30).contains(&bytes) => config.bytes = bytes,
            _ => {
                let must = "be 10000 to 1073741824 for switches that queue at their inputs";
                return Err(ScenarioError::field("fabric.buffer.bytes", must));
            }
        },
        Buffer::Shared { .. } | Buffer::PerLevel { .. } => {
            let must = "be per port for switches that queue at their inputs";
            return Err(ScenarioError::field("fabric.buffer", must));
        }
    }
    Ok(config)
}
