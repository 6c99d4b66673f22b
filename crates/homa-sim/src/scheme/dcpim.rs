//! dcPIM (SIGCOMM 2022): rounds of matching before long messages are sent, over drop-tail switches
//! with strict priorities.

use std::fmt;

use homa_proto::Duration;
use homa_workload::framing::Framing;
use homa_workload::rng::Rng;

use crate::draw::{Draw, MTUS};
use crate::experiment::{Start, Started};
use crate::fabric::StrictPriority;
use crate::scenario::{DcpimOptions, ScenarioError, SchemeOptions, Span};
use crate::transport::dcpim::{Dcpim, DcpimConfig};
use crate::transport::parts::WireFormat;

use super::{
    Environment, HostConfig, HostKind, HostScheme, MTU, Nic, between, plain_format, timeout,
};

/// Rounds and channels above this are mistakes.
const MOST: u32 = 64;
/// Packets above this are mistakes.
const MOST_PACKETS: u32 = 1_000_000;

/// Hosts that run [`crate::transport::dcpim`].
#[derive(Clone, Copy, Debug)]
pub(super) struct DcpimHosts;

impl fmt::Display for DcpimHosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("dcPIM: matched channels")
    }
}

impl HostKind for DcpimHosts {
    fn options(&self) -> &'static [&'static str] {
        &["options.dcpim"]
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
        let (given, span) = (with_defaults(options), |time: Duration| Some(Span(time.0 * 1_000)));
        let bdp = bdp(environment, options, config.wire)?;
        let dcpim = DcpimOptions {
            bdp: Some(bdp),
            short: Some(config.short),
            window: Some(config.window),
            control_rtt: span(control_rtt(environment, options)),
            notify: span(config.notify),
            ..given
        };
        Ok(SchemeOptions { dcpim: Some(dcpim), ..options.clone() })
    }

    fn draw_options(&self, rng: &mut Rng, options: &mut SchemeOptions) {
        options.dcpim = Some(DcpimOptions {
            mtu: rng.maybe(&MTUS),
            short: rng.maybe(&[0, 1, 200]),
            rounds: rng.maybe(&[1, 2, 8]),
            channels: rng.maybe(&[1, 3, 8]),
            control_rtt: rng.maybe(&[Span::nanos(2_000), Span::nanos(100_000)]),
            sorted_rounds: rng.maybe(&[0, 64]),
            window: rng.maybe(&[1, 400]),
            resend: rng.maybe(&[0.5, 10.0]),
            notify: rng.maybe(&[Span::nanos(100_000), Span::millis(5)]),
            ..DcpimOptions::default()
        });
    }
}

/// The options of a plan with all that do not follow the network written out.
fn with_defaults(options: &SchemeOptions) -> DcpimOptions {
    let given = options.dcpim.unwrap_or_default();
    DcpimOptions {
        mtu: given.mtu.or(Some(MTU)),
        bare: given.bare.or(Some(false)),
        rounds: given.rounds.or(Some(4)),
        channels: given.channels.or(Some(4)),
        slack: given.slack.or(Some(1.3)),
        sorted_rounds: given.sorted_rounds.or(Some(1)),
        window_timeout: given.window_timeout.or(Some(1.1)),
        resend: given.resend.or(Some(1.0)),
        ..given
    }
}

/// The bandwidth-delay product in packets.
fn bdp(
    environment: &Environment<'_>,
    options: &SchemeOptions,
    wire: WireFormat,
) -> Result<u32, ScenarioError> {
    let given = options.dcpim.and_then(|dcpim| dcpim.bdp);
    between("options.dcpim.bdp", given.unwrap_or(environment.bdp(wire.full())), 1, MOST_PACKETS)
}

fn control_rtt(environment: &Environment<'_>, options: &SchemeOptions) -> Duration {
    let given = options.dcpim.and_then(|dcpim| dcpim.control_rtt);
    let trip = environment.round_trips(1).max(Duration::micros(1));
    given.map_or(trip, |span| Duration(span.0 / 1_000))
}

/// A factor from `least` on.
fn factor(field: &'static str, value: Option<f64>, least: f64) -> Result<f64, ScenarioError> {
    match value {
        Some(value) if (least..=1_000.0).contains(&value) => Ok(value),
        _ => Err(ScenarioError::field(field, format!("be {least} to 1000"))),
    }
}

/// The configuration of hosts.
fn configure(
    environment: &Environment<'_>,
    options: &SchemeOptions,
) -> Result<DcpimConfig, ScenarioError> {
    let dcpim = with_defaults(options);
    let wire = plain_format((dcpim.mtu, dcpim.bare), "options.dcpim.mtu")?;
    let bdp = bdp(environment, options, wire)?;
    let count = |field, value: Option<u32>, least| between(field, value.unwrap_or(0), least, MOST);
    let channels = count("options.dcpim.channels", dcpim.channels, 1)?;
    let packets = |count: f64| {
        let bytes = count * f64::from(wire.full());
        environment.link.time_for(bytes.round() as u64)
    };
    let times = |field, value| Ok(packets(factor(field, value, 0.1)? * f64::from(bdp)));
    let slack = factor("options.dcpim.slack", dcpim.slack, 1.0)?;
    let trip = timeout(control_rtt(environment, options), "options.dcpim.control_rtt")?;
    if trip > Duration::secs(1) {
        return Err(ScenarioError::field("options.dcpim.control_rtt", "be at most 1s"));
    }
    let notify = environment.round_trips(20).max(Duration::millis(1));
    let notify = dcpim.notify.map_or(notify, |span| Duration(span.0 / 1_000));
    let most = |field, value: Option<u32>, least| {
        between(field, value.unwrap_or(bdp), least, MOST_PACKETS)
    };
    Ok(DcpimConfig {
        wire,
        link: environment.link,
        short: most("options.dcpim.short", dcpim.short, 0)?,
        rounds: count("options.dcpim.rounds", dcpim.rounds, 1)?,
        channels,
        round: Duration((slack * trip.0 as f64).round() as u64),
        sorted_rounds: count("options.dcpim.sorted_rounds", dcpim.sorted_rounds, 0)?,
        window: most("options.dcpim.window", dcpim.window, 1)?,
        window_timeout: times("options.dcpim.window_timeout", dcpim.window_timeout)?,
        resend: times("options.dcpim.resend", dcpim.resend)?,
        grace: Duration(trip.0 / 2 + packets(f64::from(channels)).0),
        notify: timeout(notify, "options.dcpim.notify")?,
        seed: 0,
    })
}

impl HostScheme for DcpimConfig {
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
        let config = DcpimConfig { seed: start.seed(), ..*self };
        start.with(move |host, life| Dcpim::new(config, host, life), |_| StrictPriority)
    }
}
