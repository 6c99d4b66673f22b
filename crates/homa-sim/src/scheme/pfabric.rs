//! pFabric (SIGCOMM 2013): hosts that start at line rate, switches that rank.

use homa_proto::Duration;

use crate::scenario::{PFabricOptions, ScenarioError, SchemeOptions};
use crate::transport::pfabric::PFabricConfig;

use super::{Environment, plain_format};

/// The row's hosts. What the paper sets to the bandwidth-delay product follows the network's.
pub fn configure(
    environment: &Environment<'_>,
    options: &SchemeOptions,
) -> Result<PFabricConfig, ScenarioError> {
    let PFabricOptions { mtu, bare, initial_window, max_window, timeout, probe_after, .. } =
        options.pfabric.unwrap_or_default();
    let wire = plain_format((mtu, bare), "options.pfabric.mtu")?;
    let queue = queue_packets(environment.rtt_bytes, options)?;
    let window = initial_window.unwrap_or(environment.bdp(wire.full()));
    let largest = max_window.unwrap_or_else(|| (queue - 1).max(window));
    if window == 0 {
        return Err(ScenarioError::field("options.pfabric.initial_window", "be at least 1 packet"));
    }
    if largest < window {
        let must = "be at least `initial_window`, of which the default is the bandwidth-delay \
                    product";
        return Err(ScenarioError::field("options.pfabric.max_window", must));
    }
    let three_round_trips = environment.round_trips(3).max(Duration::micros(1));
    let timeout = timeout.map_or(three_round_trips, |span| Duration(span.0 / 1_000));
    Ok(PFabricConfig {
        wire,
        initial_window: window,
        max_window: largest,
        timeout: super::timeout(timeout, "options.pfabric.timeout")?,
        probe_after: probe_after.unwrap_or(5).max(1),
    })
}

/// Packets that a port holds besides the one in service (pFabric §5.1: twice the bandwidth-delay
/// product).
fn queue_packets(rtt_bytes: u32, options: &SchemeOptions) -> Result<u32, ScenarioError> {
    let PFabricOptions { mtu, bare, queue_packets, .. } = options.pfabric.unwrap_or_default();
    let wire = plain_format((mtu, bare), "options.pfabric.mtu")?;
    let packets = queue_packets.unwrap_or(2 * rtt_bytes.div_ceil(wire.full()).max(1));
    if packets < 2 {
        return Err(ScenarioError::field("options.pfabric.queue_packets", "be at least 2"));
    }
    Ok(packets)
}

/// Wire bytes of a port's memory, where the scenario sets no limit.
pub fn memory(rtt_bytes: u32, options: &SchemeOptions) -> Result<u64, ScenarioError> {
    let PFabricOptions { mtu, bare, .. } = options.pfabric.unwrap_or_default();
    let wire = plain_format((mtu, bare), "options.pfabric.mtu")?;
    Ok((u64::from(queue_packets(rtt_bytes, options)?) + 1) * u64::from(wire.full()))
}
