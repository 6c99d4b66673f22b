//! NDP (SIGCOMM 2017): switches that trim, receivers that pull.

use homa_proto::Duration;

use crate::fabric::queue::TrimmingConfig;
use crate::scenario::{NdpOptions, ScenarioError, SchemeOptions};
use crate::transport::ndp::NdpConfig;
use crate::transport::parts::WireFormat;

use super::{Environment, plain_format};

/// Full packets that wait at a port (NDP §3.1).
const QUEUE: u32 = 8;

/// The row's hosts, but for their paths and seed. The first window fills the pipe and a queue: 15
/// packets on the network of the Homa paper, the default of the authors' code; the paper's 30 are
/// packets of 9000 bytes.
pub fn configure(
    environment: &Environment<'_>,
    options: &SchemeOptions,
) -> Result<NdpConfig, ScenarioError> {
    let wire = wire(options)?;
    let NdpOptions { initial_window, queue_packets, timeout, avoid_bad_paths, .. } =
        options.ndp.unwrap_or_default();
    if initial_window == Some(0) {
        return Err(ScenarioError::field("options.ndp.initial_window", "be at least 1"));
    }
    let fills = environment.bdp(wire.full()) + queue_packets.unwrap_or(QUEUE);
    let timeout = timeout.map_or(Duration::millis(5), |span| Duration(span.0 / 1_000));
    Ok(NdpConfig {
        wire,
        link: environment.link,
        initial_window: initial_window.unwrap_or(fills),
        timeout: super::timeout(timeout, "options.ndp.timeout")?,
        paths: 1,
        avoid_bad_paths: avoid_bad_paths.unwrap_or(true),
        seed: 0,
    })
}

/// The row's queues.
pub fn queue(options: &SchemeOptions) -> Result<TrimmingConfig, ScenarioError> {
    let wire = wire(options)?;
    let packets = options.ndp.and_then(|ndp| ndp.queue_packets).unwrap_or(QUEUE);
    if !(1..=10_000).contains(&packets) {
        return Err(ScenarioError::field("options.ndp.queue_packets", "be 1 to 10000"));
    }
    let header = u16::try_from(wire.control).unwrap_or(u16::MAX);
    Ok(TrimmingConfig { queue: packets * wire.full(), header, headers_per_data: 10 })
}

fn wire(options: &SchemeOptions) -> Result<WireFormat, ScenarioError> {
    plain_format((options.ndp.and_then(|ndp| ndp.mtu), None), "options.ndp.mtu")
}
