//! SIRD (NSDI 2025): receivers hand out credit and senders report congestion, over switches that
//! mark on the links between them.

use std::fmt;

use homa_proto::Duration;
use homa_workload::framing::Framing;
use homa_workload::rng::Rng;

use crate::draw::{Draw, MTUS};
use crate::experiment::{Start, Started};
use crate::fabric::StrictPriority;
use crate::scenario::{
    EcnConfig, QueueBytes, Scenario, ScenarioError, SchemeOptions, SirdFirstName, SirdOptions,
    SirdOrderName, Span,
};
use crate::transport::parts::WireFormat;
use crate::transport::sird::{Sird, SirdConfig, SirdFirst, SirdOrder};

use super::{
    Environment, HostConfig, HostKind, HostScheme, MTU, NetworkScale, Nic, SwitchQueue, ecn_queue,
    timeout,
};

use super::hosts::unsupported;

/// IP, UDP and R2P2 headers, 20 + 8 + 14 bytes, and the 4 bytes of a control packet's content.
const HEADERS: u32 = 42;
const CONTROL: u32 = HEADERS + 4;
/// Switches mark above 1.25 BDP of a host, whatever the rate of the port (82 packets at 100
/// Gbit/s in the authors' simulator).
const MARK_ABOVE: f64 = 1.25;
/// Multiples of a BDP above this are mistakes.
const MOST: f64 = 1e6;

/// Hosts that run [`crate::transport::sird`].
#[derive(Clone, Copy, Debug)]
pub(super) struct SirdHosts;

impl fmt::Display for SirdHosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SIRD: credit")
    }
}

impl HostKind for SirdHosts {
    fn options(&self) -> &'static [&'static str] {
        &["options.sird"]
    }

    fn ports(
        &self,
        row: SwitchQueue,
        options: &SchemeOptions,
        scale: NetworkScale,
    ) -> Result<SwitchQueue, ScenarioError> {
        let SwitchQueue::Ecn(ecn) = row else { return Ok(row) };
        let threshold = QueueBytes::Fixed(times(MARK_ABOVE, bdp(options, scale.rtt_bytes)?));
        Ok(SwitchQueue::Ecn(EcnConfig { threshold, ..ecn }))
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
        let given = with_defaults(options);
        let sird = SirdOptions {
            mtu: given.mtu.or(Some(MTU)),
            bdp: Some(config.bdp),
            resend: Some(Span(config.resend.0 * 1_000)),
            ..given
        };
        Ok(SchemeOptions { sird: Some(sird), ..options.clone() })
    }

    fn draw_options(&self, rng: &mut Rng, options: &mut SchemeOptions) {
        options.sird = Some(SirdOptions {
            mtu: rng.maybe(&MTUS),
            bdp: rng.maybe(&[3_000, 100_000]),
            credit: rng.maybe(&[1.0, 4.0]),
            csn_threshold: rng.maybe(&[0.0, 1.0, 1_000.0]),
            unsolicited: rng.maybe(&[0.0, 0.5, 16.0, MOST]),
            order: rng.maybe(&[SirdOrderName::Srpt, SirdOrderName::Fair]),
            shortest_share: rng.maybe(&[0.0, 1.0]),
            first: rng.maybe(&[SirdFirstName::Control, SirdFirstName::Nothing]),
            resend: rng.maybe(&[Span::nanos(300_000), Span::millis(5)]),
            ..SirdOptions::default()
        });
    }
}

/// The options of a plan with all multiples and choices written out.
fn with_defaults(options: &SchemeOptions) -> SirdOptions {
    let given = options.sird.unwrap_or_default();
    SirdOptions {
        credit: given.credit.or(Some(1.5)),
        sender_credit: given.sender_credit.or(Some(1.0)),
        csn_threshold: given.csn_threshold.or(Some(0.5)),
        unsolicited: given.unsolicited.or(Some(1.0)),
        gain: given.gain.or(Some(0.08)),
        host_floor: given.host_floor.or(Some(0.1)),
        network_floor: given.network_floor.or(Some(0.03)),
        order: given.order.or(Some(SirdOrderName::Srpt)),
        shortest_share: given.shortest_share.or(Some(0.5)),
        first: given.first.or(Some(SirdFirstName::Unsolicited)),
        ..given
    }
}

fn wire(options: &SchemeOptions) -> Result<WireFormat, ScenarioError> {
    let mtu = options.sird.and_then(|sird| sird.mtu).unwrap_or(MTU);
    if !(100..=9_000).contains(&mtu) {
        return Err(ScenarioError::field("options.sird.mtu", "be 100 to 9000 bytes"));
    }
    Ok(WireFormat::ethernet(mtu, HEADERS, CONTROL))
}

/// The bandwidth-delay product of a host in wire bytes, by default RTTbytes of the network rounded
/// up to full packets.
fn bdp(options: &SchemeOptions, rtt_bytes: u32) -> Result<u32, ScenarioError> {
    let full = wire(options)?.full();
    match options.sird.and_then(|sird| sird.bdp) {
        None => Ok(rtt_bytes.div_ceil(full).max(1).saturating_mul(full)),
        Some(bdp) if bdp >= full => Ok(bdp),
        Some(_) => {
            let must = format!("be at least a full packet, {full} bytes on the wire");
            Err(ScenarioError::field("options.sird.bdp", must))
        }
    }
}

/// A multiple of `bytes`.
fn times(multiple: f64, bytes: u32) -> u32 {
    (multiple * f64::from(bytes)).round() as u32
}

/// The configuration of hosts. Budgets hold at least one full packet.
fn configure(
    environment: &Environment<'_>,
    options: &SchemeOptions,
) -> Result<SirdConfig, ScenarioError> {
    let sird = with_defaults(options);
    let wire = wire(options)?;
    let bdp = bdp(options, environment.rtt_bytes)?;
    let number = |field, value: Option<f64>, (most, unit): (f64, &str)| match value {
        Some(value) if (0.0..=most).contains(&value) => Ok(value),
        _ => Err(ScenarioError::field(field, format!("be 0 to {most}{unit}"))),
    };
    let multiple = |field, value| number(field, value, (MOST, " BDP"));
    let budget =
        |field, value| multiple(field, value).map(|value| times(value, bdp).max(wire.full()));
    let share = |field, value| number(field, value, (1.0, ""));
    let sender_credit = budget("options.sird.sender_credit", sird.sender_credit)?;
    let floor = |field, value| share(field, value).map(|share| times(share, sender_credit));
    let csn_threshold = multiple("options.sird.csn_threshold", sird.csn_threshold)?;
    let unsolicited = multiple("options.sird.unsolicited", sird.unsolicited)?;
    let resend = environment.round_trips(20).max(Duration::millis(1));
    let resend = sird.resend.map_or(resend, |span| Duration(span.0 / 1_000));
    let shortest_share = share("options.sird.shortest_share", sird.shortest_share)?;
    Ok(SirdConfig {
        wire,
        link: environment.link,
        bdp,
        credit: budget("options.sird.credit", sird.credit)?,
        sender_credit,
        csn_threshold: times(csn_threshold, bdp),
        unsolicited: (unsolicited * f64::from(bdp)).round() as u64,
        gain: share("options.sird.gain", sird.gain)?,
        host_floor: floor("options.sird.host_floor", sird.host_floor)?,
        network_floor: floor("options.sird.network_floor", sird.network_floor)?,
        order: match sird.order {
            Some(SirdOrderName::Fair) => SirdOrder::Fair,
            _ => SirdOrder::Srpt,
        },
        shortest_share: (shortest_share * 1e3).round() as u32,
        first: match sird.first {
            Some(SirdFirstName::Control) => SirdFirst::Control,
            Some(SirdFirstName::Nothing) => SirdFirst::Nothing,
            _ => SirdFirst::Unsolicited,
        },
        resend: timeout(resend, "options.sird.resend")?,
    })
}

impl HostScheme for SirdConfig {
    fn framing(&self) -> Framing {
        Framing::R2p2
    }

    fn frames(&self) -> WireFormat {
        self.wire
    }

    /// Without overcommitment, bandwidth that idles while a message waits for permission is always
    /// wasted.
    fn degree(&self) -> Option<usize> {
        Some(0)
    }

    fn check(&self, _: &Scenario, queue: SwitchQueue) -> Result<(), ScenarioError> {
        match queue {
            SwitchQueue::Ecn(_) => Ok(()),
            _ => unsupported("SIRD over ports without an ECN threshold in their queues"),
        }
    }

    fn start<'a>(&self, start: Start<'_, 'a>) -> Started<'a> {
        let config = *self;
        let make = move |_, life| Sird::new(config, life);
        match start.queue() {
            SwitchQueue::Ecn(ecn) => {
                let trip = start.round_trip();
                start.with(make, move |port| ecn_queue(ecn, port, trip))
            }
            _ => start.with(make, |_| StrictPriority),
        }
    }
}
