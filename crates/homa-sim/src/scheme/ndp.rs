//! NDP (SIGCOMM 2017): switches trim packets, and receivers pull them.

use std::fmt;

use homa_proto::Duration;
use homa_workload::framing::Framing;
use homa_workload::rng::Rng;

use crate::draw::{Draw, MTUS};
use crate::experiment::{Start, Started};
use crate::fabric::queue::{Trimming, TrimmingConfig};
use crate::scenario::{NdpOptions, ScenarioError, SchemeOptions, Span};
use crate::topology::{PortId, PortSpec};
use crate::transport::ndp::{Ndp, NdpConfig};
use crate::transport::parts::WireFormat;

use super::{
    Environment, HostConfig, HostKind, HostScheme, MTU, NetworkScale, Nic, SwitchQueue,
    plain_format,
};

/// Full packets that can wait at a port (NDP §3.1).
const QUEUE: u32 = 8;

/// Hosts that run [`crate::transport::ndp`].
#[derive(Clone, Copy, Debug)]
pub(super) struct NdpHosts;

impl fmt::Display for NdpHosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NDP: pulls")
    }
}

impl HostKind for NdpHosts {
    fn options(&self) -> &'static [&'static str] {
        &["options.ndp"]
    }

    fn ports(
        &self,
        _: SwitchQueue,
        options: &SchemeOptions,
        _: NetworkScale,
    ) -> Result<SwitchQueue, ScenarioError> {
        queue(options).map(SwitchQueue::Trimming)
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
        let given = options.ndp.unwrap_or_default();
        let ndp = NdpOptions {
            mtu: given.mtu.or(Some(MTU)),
            initial_window: Some(config.initial_window),
            queue_packets: given.queue_packets.or(Some(QUEUE)),
            timeout: Some(Span(config.timeout.0 * 1_000)),
            avoid_bad_paths: Some(config.avoid_bad_paths),
            again_first: Some(config.again_first),
        };
        Ok(SchemeOptions { ndp: Some(ndp), ..options.clone() })
    }

    fn draw_options(&self, rng: &mut Rng, options: &mut SchemeOptions) {
        options.ndp = Some(NdpOptions {
            mtu: rng.maybe(&MTUS),
            initial_window: rng.maybe(&[1, 15, 60]),
            queue_packets: rng.maybe(&[1, 8, 30]),
            timeout: rng.maybe(&[Span::nanos(500_000), Span::millis(20)]),
            avoid_bad_paths: rng.maybe(&[false, true]),
            again_first: None,
        });
    }
}

/// The configuration of hosts without paths and seed, which are those of the simulation. The first
/// window fills the pipe and a queue. In the network of the Homa paper these are 15 packets, which
/// is the default of the authors' code; the 30 of the paper are packets of 9000 bytes.
fn configure(
    environment: &Environment<'_>,
    options: &SchemeOptions,
) -> Result<NdpConfig, ScenarioError> {
    let wire = wire(options)?;
    let NdpOptions { initial_window, queue_packets, timeout, avoid_bad_paths, again_first, .. } =
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
        again_first: again_first.unwrap_or(false),
        seed: 0,
    })
}

/// The queues of ports under a scenario's options.
fn queue(options: &SchemeOptions) -> Result<TrimmingConfig, ScenarioError> {
    let wire = wire(options)?;
    let packets = options.ndp.and_then(|ndp| ndp.queue_packets).unwrap_or(QUEUE);
    if !(1..=10_000).contains(&packets) {
        return Err(ScenarioError::field("options.ndp.queue_packets", "be 1 to 10000"));
    }
    let header = u16::try_from(wire.control).unwrap_or(u16::MAX);
    Ok(TrimmingConfig::ndp(packets * wire.full(), header))
}

fn wire(options: &SchemeOptions) -> Result<WireFormat, ScenarioError> {
    plain_format((options.ndp.and_then(|ndp| ndp.mtu), None), "options.ndp.mtu")
}

impl HostScheme for NdpConfig {
    fn framing(&self) -> Framing {
        Framing::Plain
    }

    fn frames(&self) -> WireFormat {
        self.wire
    }

    /// Without overcommitment, bandwidth that idles while a message waits for permission is always
    /// wasted.
    fn degree(&self) -> Option<usize> {
        Some(0)
    }

    fn start<'a>(&self, start: Start<'_, 'a>) -> Started<'a> {
        let seed = start.seed();
        let config = NdpConfig { paths: start.paths(), seed, ..*self };
        let queue = match start.queue() {
            SwitchQueue::Trimming(queue) => queue,
            _ => TrimmingConfig::PAPER,
        };
        let queues = move |port: PortId, _: &PortSpec| Trimming::new(queue, seed, port.0 + 1);
        start.with_numbered(move |host, life| Ndp::new(config, host, life), queues)
    }
}
