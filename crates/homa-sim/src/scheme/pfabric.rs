//! pFabric (SIGCOMM 2013): hosts start at line rate, and switches schedule and drop by rank.

use std::fmt;

use homa_proto::Duration;
use homa_workload::framing::Framing;
use homa_workload::rng::Rng;

use crate::draw::{Draw, MTUS};
use crate::experiment::{Start, Started};
use crate::fabric::queue::{Combined, PriorityDrop};
use crate::scenario::{PFabricOptions, Scenario, ScenarioError, SchemeOptions, Span};
use crate::transport::parts::WireFormat;
use crate::transport::pfabric::{PFabric, PFabricConfig};

use super::{Environment, HostConfig, HostKind, HostScheme, MTU, Nic, SwitchQueue, plain_format};

/// Hosts that run [`crate::transport::pfabric`].
#[derive(Clone, Copy, Debug)]
pub(super) struct PFabricHosts;

impl fmt::Display for PFabricHosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("pFabric: window, timeout")
    }
}

impl HostKind for PFabricHosts {
    fn options(&self) -> &'static [&'static str] {
        &["options.pfabric"]
    }

    fn memory(
        &self,
        options: &SchemeOptions,
        rtt_bytes: u32,
    ) -> Result<Option<u64>, ScenarioError> {
        let wire = wire(options)?;
        // The packet in service counts, too.
        let packets = u64::from(queue_packets(rtt_bytes, options)?) + 1;
        Ok(Some(packets * u64::from(wire.full())))
    }

    fn configure(
        &self,
        _: Nic,
        environment: &Environment<'_>,
        options: &SchemeOptions,
    ) -> Result<HostConfig, ScenarioError> {
        Ok(Box::new(configure(environment, options)?))
    }

    fn resolved(
        &self,
        _: Nic,
        environment: &Environment<'_>,
        options: &SchemeOptions,
    ) -> Result<SchemeOptions, ScenarioError> {
        let config = configure(environment, options)?;
        let given = options.pfabric.unwrap_or_default();
        let pfabric = PFabricOptions {
            mtu: given.mtu.or(Some(MTU)),
            bare: given.bare.or(Some(false)),
            initial_window: Some(config.initial_window),
            max_window: Some(config.max_window),
            queue_packets: Some(queue_packets(environment.rtt_bytes, options)?),
            timeout: Some(Span(config.timeout.0 * 1_000)),
            probe_after: Some(config.probe_after),
        };
        Ok(SchemeOptions { pfabric: Some(pfabric), ..options.clone() })
    }

    fn draw_options(&self, rng: &mut Rng, options: &mut SchemeOptions) {
        options.pfabric = Some(PFabricOptions {
            mtu: rng.maybe(&MTUS),
            initial_window: rng.maybe(&[1, 5, 40]),
            queue_packets: rng.maybe(&[3, 12, 100]),
            timeout: rng.maybe(&[Span::nanos(30_000), Span::nanos(300_000)]),
            probe_after: rng.maybe(&[1, 5]),
            ..PFabricOptions::default()
        });
    }
}

/// The configuration of hosts. Parameters that the paper sets to its bandwidth-delay product follow
/// that of the scenario's network, e.g. the initial window.
fn configure(
    environment: &Environment<'_>,
    options: &SchemeOptions,
) -> Result<PFabricConfig, ScenarioError> {
    let PFabricOptions { initial_window, max_window, timeout, probe_after, .. } =
        options.pfabric.unwrap_or_default();
    let wire = wire(options)?;
    let queue = queue_packets(environment.rtt_bytes, options)?;
    let window = initial_window.unwrap_or(environment.bdp(wire.full()));
    let largest = max_window.unwrap_or_else(|| (queue - 1).max(window));
    if window == 0 {
        return Err(ScenarioError::field("options.pfabric.initial_window", "be at least 1 packet"));
    }
    if largest < window {
        let must = "be at least `initial_window`, whose default is the bandwidth-delay product";
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

fn wire(options: &SchemeOptions) -> Result<WireFormat, ScenarioError> {
    let PFabricOptions { mtu, bare, .. } = options.pfabric.unwrap_or_default();
    plain_format((mtu, bare), "options.pfabric.mtu")
}

/// Packets that can wait at a port besides the one in service, by default twice the bandwidth-delay
/// product (pFabric §5.1).
fn queue_packets(rtt_bytes: u32, options: &SchemeOptions) -> Result<u32, ScenarioError> {
    let wire = wire(options)?;
    let given = options.pfabric.and_then(|pfabric| pfabric.queue_packets);
    let packets = given.unwrap_or(2 * rtt_bytes.div_ceil(wire.full()).max(1));
    if packets < 2 {
        return Err(ScenarioError::field("options.pfabric.queue_packets", "be at least 2"));
    }
    Ok(packets)
}

impl HostScheme for PFabricConfig {
    fn framing(&self) -> Framing {
        Framing::Plain
    }

    fn frames(&self) -> WireFormat {
        self.wire
    }

    /// Every kind of port will do.
    fn check(&self, _: &Scenario, _: SwitchQueue) -> Result<(), ScenarioError> {
        Ok(())
    }

    fn start<'a>(&self, start: Start<'_, 'a>) -> Started<'a> {
        let config = *self;
        let make = move |_, life| PFabric::new(config, life);
        match start.queue() {
            SwitchQueue::Combined(_) => start.with(make, |_| Combined),
            _ => start.with(make, |_| PriorityDrop),
        }
    }
}
