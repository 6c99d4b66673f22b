//! DeTail (UCB/EECS-2011-33 TR, SIGCOMM 2012) and what its evaluation compares it with, as rows:
//! switches with queues at inputs and outputs, and TCP whose losses only timeouts repair.

use homa_proto::Duration;

use crate::fabric::cioq::pfc::{PfcThresholds, ResponseTime};
use crate::fabric::{CioqConfig, PfcConfig};
use crate::scenario::{Buffer, ScenarioError, SchemeOptions, SwitchKind, SwitchOptions};
use crate::time::SimDuration;
use crate::transport::stream::ConnectionPolicy;
use crate::transport::tcp::config::{Recovery, RtoConfig, TcpConfig};
use homa_proto::LEVELS;

use super::{Environment, Queue};

/// DeTail's switch without flow control: 128 KB on each side of a port, a crossbar of four times
/// the link's rate (DeTail §5.1). The forwarding engine's time is in the links' delay, unless
/// `options.switch.lookup` says how long it takes.
pub const SWITCH: CioqConfig = CioqConfig {
    bytes: 131_072,
    speedup: 4,
    lookup: SimDuration::ZERO,
    virtual_outputs: false,
    pfc: None,
    mark_above: None,
};

/// The same with priority flow control of eight levels.
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

/// The same with one level: what stands in for the credits of Infiniband's links, which also stop a
/// sender before a port must drop, and need no time to be heeded.
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

/// TCP NewReno as DeTail's flow hashing has it (DeTail §5.1, §6.3), over a fresh connection for
/// each retrieval: "a TCP timeout of 10 ms", before anything was measured, too. What the paper does
/// not say is that of ns-3 at its time: an initial window of one segment, every segment
/// acknowledged.
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

/// The same above a lossless fabric whose packets overtake each other: no fast retransmit, timeouts
/// from 200 ms on (DeTail §4.3.4, §5.1).
pub fn lossless(environment: &Environment<'_>) -> TcpConfig {
    let hashing = flow_hashing(environment);
    let min = Duration::millis(200);
    let rto = RtoConfig { initial: min, min, ..hashing.rto };
    TcpConfig { rto, recovery: Recovery::TIMEOUTS, ..hashing }
}

/// The switches that options put under a scheme with others, or those of the row.
pub fn chosen(row: Queue, kind: Option<SwitchKind>) -> Queue {
    let config = match kind {
        None => return row,
        Some(SwitchKind::Combined) => SWITCH,
        Some(SwitchKind::Lossless) => LOSSLESS_SWITCH,
    };
    // DCTCP's switches mark here as there.
    let mark_above = match row {
        Queue::Ecn(ecn) => Some(ecn.threshold),
        _ => None,
    };
    Queue::Combined(CioqConfig { mark_above, ..config })
}

/// A row's switches under a scenario's options.
pub fn switch(
    mut config: CioqConfig,
    options: &SchemeOptions,
) -> Result<CioqConfig, ScenarioError> {
    let wrong = |field, must: &str| Err(ScenarioError::field(field, must));
    let SwitchOptions {
        kind: _,
        speedup,
        lookup,
        virtual_outputs,
        priorities,
        pause,
        unpause,
        response,
    } = options.switch.unwrap_or_default();
    config.speedup = speedup.unwrap_or(config.speedup);
    if !(1..=64).contains(&config.speedup) {
        return wrong("options.switch.speedup", "be 1 to 64");
    }
    config.lookup = lookup.map_or(config.lookup, |span| span.duration());
    config.virtual_outputs = virtual_outputs.unwrap_or(config.virtual_outputs);
    config.mark_above = match options.ecn {
        Some(_) if config.mark_above.is_none() => {
            let must = "stay out: the hosts of this scheme do not heed marks of congestion";
            return wrong("options.ecn", must);
        }
        Some(ecn) => Some(ecn.threshold),
        None => config.mark_above,
    };
    let Some(pfc) = &mut config.pfc else {
        return match (priorities, pause, unpause, response) {
            (None, None, None, None) => Ok(config),
            _ => wrong("options.switch", "not speak of pauses: this scheme's switches send none"),
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

/// The same with the memory that the fabric gives each side of a port.
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
