//! pHost (CoNEXT 2015): receivers hand out tokens, over drop-tail switches with two priorities of
//! data.

use std::fmt;

use homa_workload::framing::Framing;
use homa_workload::rng::Rng;

use crate::draw::{Draw, MTUS};
use crate::experiment::{Start, Started};
use crate::fabric::StrictPriority;
use crate::scenario::{PHostFirst, PHostOptions, ScenarioError, SchemeOptions};
use crate::transport::parts::WireFormat;
use crate::transport::phost::{PHost, PHostConfig, PHostLevels};

use super::{Environment, HostConfig, HostKind, HostScheme, MTU, Nic, plain_format};

/// Hosts that run [`crate::transport::phost`].
#[derive(Clone, Copy, Debug)]
pub(super) struct PHostHosts;

impl fmt::Display for PHostHosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("pHost: tokens")
    }
}

impl HostKind for PHostHosts {
    fn options(&self) -> &'static [&'static str] {
        &["options.phost"]
    }

    fn memory(
        &self,
        options: &SchemeOptions,
        rtt_bytes: u32,
    ) -> Result<Option<u64>, ScenarioError> {
        // The packet in service counts, too.
        let packets = u64::from(queue_packets(rtt_bytes, options)?) + 1;
        Ok(Some(packets * u64::from(wire(options)?.full())))
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
        let given = options.phost.unwrap_or_default();
        let packet_times = |tenths: u32| Some(f64::from(tenths) / 10.0);
        let phost = PHostOptions {
            mtu: given.mtu.or(Some(MTU)),
            bare: given.bare.or(Some(false)),
            free_tokens: Some(config.free_tokens),
            free_for_long: Some(config.free_for_long),
            window: Some(config.window),
            downgrade: packet_times(config.downgrade),
            expiry: packet_times(config.expiry),
            resend: packet_times(config.resend),
            first: given.first.or(Some(PHostFirst::Blind)),
            token_slots: Some(config.token_slots),
            queue_packets: Some(queue_packets(environment.rtt_bytes, options)?),
        };
        Ok(SchemeOptions { phost: Some(phost), ..options.clone() })
    }

    fn draw_options(&self, rng: &mut Rng, options: &mut SchemeOptions) {
        options.phost = Some(PHostOptions {
            mtu: rng.maybe(&MTUS),
            free_tokens: rng.maybe(&[1, 8, 60]),
            free_for_long: rng.maybe(&[false, true]),
            window: rng.maybe(&[1, 8, 60]),
            first: rng.maybe(&[PHostFirst::Blind, PHostFirst::Short]),
            queue_packets: rng.maybe(&[3, 20, 200]),
            ..PHostOptions::default()
        });
    }
}

/// The configuration of hosts. Times that the paper gives in round trips are those of the
/// scenario's network.
fn configure(
    environment: &Environment<'_>,
    options: &SchemeOptions,
) -> Result<PHostConfig, ScenarioError> {
    let PHostOptions {
        free_tokens,
        free_for_long,
        window,
        first,
        token_slots,
        downgrade,
        expiry,
        resend,
        ..
    } = options.phost.unwrap_or_default();
    let wire = wire(options)?;
    let bdp = environment.bdp(wire.full());
    let round_trips = f64::from(3 * environment.rtt_bytes) / f64::from(wire.full());
    let tenths = |times: f64| (times * 10.0).round().max(1.0) as u32;
    let wrong = |field, must: &str| Err(ScenarioError::field(field, must));
    let (downgrade, expiry) = (downgrade.unwrap_or(round_trips), expiry.unwrap_or(1.5));
    let resend = resend.unwrap_or(round_trips.max(1.0));
    if !(downgrade > 0.0 && downgrade < 1e6 && expiry > 0.0 && expiry < 1e6) {
        let must = "be packet times above 0 and below a million";
        return wrong("options.phost.downgrade and expiry", must);
    }
    // With less than a packet time, a host queues requests faster than its link sends them.
    if !(1.0..1e6).contains(&resend) {
        return wrong("options.phost.resend", "be packet times from 1 to below a million");
    }
    if window == Some(0) {
        return wrong("options.phost.window", "be at least 1");
    }
    Ok(PHostConfig {
        wire,
        link: environment.link,
        free_tokens: free_tokens.unwrap_or(bdp),
        free_for_long: free_for_long.unwrap_or(true),
        window: window.unwrap_or(bdp),
        downgrade: tenths(downgrade),
        expiry: tenths(expiry),
        resend: tenths(resend),
        token_slots: token_slots.unwrap_or(false),
        levels: match first {
            None | Some(PHostFirst::Blind) => PHostLevels::Blind,
            Some(PHostFirst::Short) => PHostLevels::ShortMessages,
            Some(PHostFirst::All) => PHostLevels::One,
        },
    })
}

/// Packets that can wait at a port besides the one in service: by default three bandwidth-delay
/// products, which are the 36 KB of pHost §4.1 in its network.
fn queue_packets(rtt_bytes: u32, options: &SchemeOptions) -> Result<u32, ScenarioError> {
    let full = wire(options)?.full();
    let given = options.phost.and_then(|phost| phost.queue_packets);
    Ok(given.unwrap_or(3 * rtt_bytes.div_ceil(full).max(1)))
}

fn wire(options: &SchemeOptions) -> Result<WireFormat, ScenarioError> {
    let PHostOptions { mtu, bare, .. } = options.phost.unwrap_or_default();
    plain_format((mtu, bare), "options.phost.mtu")
}

impl HostScheme for PHostConfig {
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
        let config = *self;
        start.with(move |_, life| PHost::new(config, life), |_| StrictPriority)
    }
}
