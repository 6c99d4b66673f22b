//! Ultra Ethernet (UET 1.0): spraying, trimming switches that mark, and windows of senders (NSCC),
//! credit of receivers (RCCC), or both.

use std::fmt;

use homa_proto::Duration;
use homa_workload::framing::Framing;
use homa_workload::rng::Rng;

use crate::draw::{Draw, MTUS};
use crate::experiment::{Start, Started};
use crate::fabric::queue::{EcnRamp, Trimming, TrimmingConfig};
use crate::scenario::{Scenario, ScenarioError, SchemeOptions, Span, UetOptions, UetPathsName};
use crate::topology::{PortId, PortSpec, Tier};
use crate::transport::parts::WireFormat;
use crate::transport::uet::{NsccConfig, RcccConfig, Uet, UetConfig, UetControl, UetPaths};

use super::hosts::unsupported;
use super::{
    Environment, HostConfig, HostKind, HostScheme, NetworkScale, Nic, SwitchQueue, between, timeout,
};

/// Wire bytes of a full packet, of its headers, and of packets without message bytes.
const MTU: u32 = 4_150;
const HEADERS: u32 = 64;
/// Wire bytes after which a receiver acknowledges.
const ACK_EVERY: u32 = 16_384;
/// Entropy values of a flow.
const ENTROPIES: u32 = 64;
const MOST_ENTROPIES: u32 = 1 << 15;
/// The timeout without queues; the time of as many full queues at a host's link is added.
const TIMEOUT: Duration = Duration::micros(15);
const TIMEOUT_QUEUES: u64 = 6;
/// Full packets above this are mistakes.
const MOST_PACKETS: u32 = 100_000;

/// The queue of the row, before it follows the network.
pub(super) const QUEUE: TrimmingConfig = TrimmingConfig::uet(43 * MTU, HEADERS as u16);

/// Hosts that run [`crate::transport::uet`], with what holds their senders back.
#[derive(Clone, Copy, Debug)]
pub(super) struct UetHosts(pub UetControl);

impl fmt::Display for UetHosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            UetControl::Nscc => "UET: NSCC",
            UetControl::Rccc => "UET: RCCC",
            UetControl::Both => "UET: NSCC and RCCC",
        })
    }
}

impl HostKind for UetHosts {
    fn options(&self) -> &'static [&'static str] {
        &["options.uet"]
    }

    fn mtu(&self) -> u32 {
        MTU
    }

    fn ports(
        &self,
        _: SwitchQueue,
        options: &SchemeOptions,
        scale: NetworkScale,
    ) -> Result<SwitchQueue, ScenarioError> {
        UetSizes::new(options, scale)?.queue().map(SwitchQueue::Trimming)
    }

    fn configure(
        &self,
        _: Nic,
        environment: &Environment<'_>,
        options: &SchemeOptions,
    ) -> Result<HostConfig, ScenarioError> {
        Ok(Box::new(configure(self.0, environment.scale(), options)?))
    }

    fn resolved(
        &self,
        _: Nic,
        environment: &Environment<'_>,
        options: &SchemeOptions,
    ) -> Result<SchemeOptions, ScenarioError> {
        let config = configure(self.0, environment.scale(), options)?;
        let sizes = UetSizes::new(options, environment.scale())?;
        let uet = UetOptions {
            mtu: sizes.given.mtu.or(Some(MTU)),
            base_rtt: Some(Span(sizes.base_rtt)),
            queue_packets: Some(sizes.packets()),
            mark_from: Some(sizes.mark_from()),
            mark_all: Some(sizes.mark_all()),
            target: self.0.has_windows().then_some(Span(config.nscc.target * 1_000)),
            max_window: sizes.given.max_window.or(Some(1.5)),
            paths: sizes.given.paths.or(Some(UetPathsName::Mixed)),
            entropies: Some(config.evs.into()),
            ack_every: Some(config.ack_every),
            timeout: Some(Span(config.timeout.0 * 1_000)),
            // The default is not a whole number of packets.
            initial_window: sizes.given.initial_window,
        };
        Ok(SchemeOptions { uet: Some(uet), ..options.clone() })
    }

    fn draw_options(&self, rng: &mut Rng, options: &mut SchemeOptions) {
        let paths = [UetPathsName::Oblivious, UetPathsName::Bitmap, UetPathsName::Reps];
        options.uet = Some(UetOptions {
            mtu: rng.maybe(&MTUS),
            base_rtt: rng.maybe(&[Span::nanos(2_000), Span::nanos(200_000)]),
            queue_packets: rng.maybe(&[2, 20, 500]),
            target: rng
                .maybe(&[Span::nanos(100), Span::nanos(50_000)])
                .filter(|_| self.0.has_windows()),
            initial_window: rng.maybe(&[1, 10, 200]),
            max_window: rng.maybe(&[0.1, 4.0]),
            paths: rng.maybe(&paths),
            entropies: rng.maybe(&[1, 4, 1_024]),
            ack_every: rng.maybe(&[1, 100_000]),
            timeout: rng.maybe(&[Span::nanos(500_000), Span::millis(5)]),
            ..UetOptions::default()
        });
    }
}

/// A threshold of marks, at least `least` and within the queue.
fn threshold(
    field: &'static str,
    value: u32,
    (least, most): (u32, u32),
) -> Result<u32, ScenarioError> {
    match (least..=most).contains(&value) {
        true => Ok(value),
        false => {
            let must = format!("be {least} to {most}, which is `options.uet.queue_packets`");
            Err(ScenarioError::field(field, must))
        }
    }
}

/// A multiple of `bytes`.
fn times(multiple: f64, bytes: u64) -> u64 {
    (multiple * bytes as f64).round() as u64
}

/// Sizes of packets and queues, which follow the network.
struct UetSizes {
    given: UetOptions,
    wire: WireFormat,
    /// Round trip of a full packet and an acknowledgement, picoseconds.
    base_rtt: u64,
    /// Wire bytes of a BDP, at least a full packet.
    bdp: u64,
}

impl UetSizes {
    fn new(options: &SchemeOptions, scale: NetworkScale) -> Result<Self, ScenarioError> {
        let given = options.uet.unwrap_or_default();
        let mtu = between("options.uet.mtu", given.mtu.unwrap_or(MTU), 128, 9_000)?;
        let wire = WireFormat::bare(mtu, HEADERS, HEADERS);
        let trip = scale.round_trip_of(wire.full(), wire.control);
        let base_rtt = given.base_rtt.map_or(trip.max(1_000), |span| span.0);
        if !(1_000..=1_000_000_000_000).contains(&base_rtt) {
            return Err(ScenarioError::field("options.uet.base_rtt", "be 1ns to 1s"));
        }
        let bdp = u128::from(base_rtt) * u128::from(scale.link.0) / 8_000_000_000_000;
        let bdp = u64::try_from(bdp).unwrap_or(u64::MAX).max(wire.full().into());
        Ok(Self { given, wire, base_rtt, bdp })
    }

    /// Full packets of a BDP, rounded up.
    fn bdp_packets(&self) -> u32 {
        let packets = self.bdp.div_ceil(self.wire.full().into());
        u32::try_from(packets).unwrap_or(u32::MAX).min(MOST_PACKETS)
    }

    fn packets(&self) -> u32 {
        self.given.queue_packets.unwrap_or(self.bdp_packets())
    }

    /// Tenths of a BDP, or of a queue that is shorter, in full packets.
    fn tenths(&self, n: u32) -> u32 {
        (self.bdp_packets().min(self.packets()) * n).div_ceil(10)
    }

    fn mark_from(&self) -> u32 {
        self.given.mark_from.unwrap_or(self.tenths(2))
    }

    fn mark_all(&self) -> u32 {
        let least = self.given.mark_from.unwrap_or(0);
        self.given.mark_all.unwrap_or(self.tenths(8).max(least))
    }

    fn queue(&self) -> Result<TrimmingConfig, ScenarioError> {
        let packets = between("options.uet.queue_packets", self.packets(), 1, MOST_PACKETS)?;
        let from = threshold("options.uet.mark_from", self.mark_from(), (0, packets))?;
        let all = threshold("options.uet.mark_all", self.mark_all(), (from, packets))?;
        let full = self.wire.full();
        let marks = EcnRamp::to_one(from * full, all * full);
        let header = u16::try_from(self.wire.control).unwrap_or(u16::MAX);
        Ok(TrimmingConfig { marks: Some(marks), ..TrimmingConfig::uet(packets * full, header) })
    }
}

/// The longest time in queues of `bytes` that a timeout allows for: that of six full ones at a
/// host's link, or of one at every link of the longest path if slower links make that longer.
fn full_queues(scale: NetworkScale, bytes: u32) -> Duration {
    let path = scale.byte_picos.saturating_mul(bytes.into()).div_ceil(1_000);
    scale.link.time_for(TIMEOUT_QUEUES * u64::from(bytes)).max(Duration(path))
}

/// The window of senders. Its sizes are also those of credit.
fn window(
    control: UetControl,
    scale: NetworkScale,
    sizes: &UetSizes,
) -> Result<NsccConfig, ScenarioError> {
    let (given, wire) = (sizes.given, sizes.wire);
    let most = given.max_window.unwrap_or(1.5);
    if !(0.01..=1_000.0).contains(&most) {
        return Err(ScenarioError::field("options.uet.max_window", "be 0.01 to 1000 BDP"));
    }
    let full = wire.full();
    let initial = given.initial_window.map(|packets| {
        between("options.uet.initial_window", packets, 1, MOST_PACKETS)
            .map(|packets| u64::from(packets) * u64::from(full))
    });
    if given.target.is_some() && !control.has_windows() {
        let must = "be left out: credit holds senders back here, not a window";
        return Err(ScenarioError::field("options.uet.target", must));
    }
    let default = (sizes.base_rtt / 4 * 3 / 1_000).max(1);
    let target = given.target.map_or(default, |span| span.0 / 1_000);
    if !(1..=1_000_000_000).contains(&target) {
        return Err(ScenarioError::field("options.uet.target", "be 1ns to 1s"));
    }
    Ok(NsccConfig {
        full,
        payload: wire.payload,
        link: scale.link,
        base_rtt: sizes.base_rtt.div_ceil(1_000),
        bdp: sizes.bdp,
        target,
        initial: initial.transpose()?.unwrap_or(times(most, sizes.bdp)),
        most: (most * 1e3).round() as u32,
    })
}

/// The configuration of hosts without what only the simulation knows: its seed, and whether its
/// network is oversubscribed.
fn configure(
    control: UetControl,
    scale: NetworkScale,
    options: &SchemeOptions,
) -> Result<UetConfig, ScenarioError> {
    let sizes = UetSizes::new(options, scale)?;
    let (given, wire) = (sizes.given, sizes.wire);
    let queue = sizes.queue()?;
    let nscc = window(control, scale, &sizes)?;
    let evs =
        between("options.uet.entropies", given.entropies.unwrap_or(ENTROPIES), 1, MOST_ENTROPIES)?;
    if !evs.is_power_of_two() {
        let must = format!("be a power of two of at most {MOST_ENTROPIES}");
        return Err(ScenarioError::field("options.uet.entropies", must));
    }
    let queues = full_queues(scale, queue.queue);
    let rto = given.timeout.map_or(Duration(TIMEOUT.0 + queues.0), |span| Duration(span.0 / 1_000));
    Ok(UetConfig {
        wire,
        control,
        nscc,
        rccc: RcccConfig {
            full: wire.full(),
            link: scale.link,
            initial: nscc.initial.max(wire.full().into()),
            most: nscc.largest(nscc.base_rtt),
            base_rtt: nscc.base_rtt,
            oversubscription: 1_000,
        },
        paths: match given.paths {
            Some(UetPathsName::Oblivious) => UetPaths::Oblivious,
            Some(UetPathsName::Bitmap) => UetPaths::Bitmap,
            Some(UetPathsName::Reps) => UetPaths::Reps,
            Some(UetPathsName::Mixed) | None => UetPaths::Mixed,
        },
        evs: evs as u16,
        ack_every: between(
            "options.uet.ack_every",
            given.ack_every.unwrap_or(ACK_EVERY),
            1,
            1 << 30,
        )?,
        timeout: timeout(rto, "options.uet.timeout")?,
        seed: 0,
    })
}

impl HostScheme for UetConfig {
    fn framing(&self) -> Framing {
        Framing::Uet
    }

    fn frames(&self) -> WireFormat {
        self.wire
    }

    fn check(&self, _: &Scenario, queue: SwitchQueue) -> Result<(), ScenarioError> {
        match queue {
            SwitchQueue::Trimming(_) => Ok(()),
            _ => unsupported("Ultra Ethernet's transport over switches that do not trim"),
        }
    }

    fn start<'a>(&self, start: Start<'_, 'a>) -> Started<'a> {
        let seed = start.seed();
        let mut config = UetConfig { seed, ..*self };
        if config.control == UetControl::Rccc {
            config.rccc.oversubscription = start.oversubscription();
        }
        let queue = match start.queue() {
            SwitchQueue::Trimming(queue) => queue,
            _ => QUEUE,
        };
        let credit = config.control.has_credit();
        let queues = move |port: PortId, spec: &PortSpec| {
            let last_hop = spec.tier == Tier::TorDown;
            // With credit, the receiver decides about the last hop, and its marks are off.
            let marks = queue.marks.filter(|_| !(last_hop && credit));
            Trimming::new(TrimmingConfig { last_hop, marks, ..queue }, seed, port.0 + 1)
        };
        start.with_numbered(move |host, life| Uet::new(config, host, life), queues)
    }
}

#[cfg(test)]
mod tests {
    use homa_proto::Rate;

    use super::*;

    /// At 100 Gbit/s with six links of that rate; BDP is 43 full packets.
    const SCALE: NetworkScale =
        NetworkScale { link: Rate::gbps(100), rtt_bytes: 160_000, byte_picos: 480 };

    fn ramp(given: UetOptions) -> Result<(u32, u32, u32), ScenarioError> {
        let options = SchemeOptions { uet: Some(given), ..SchemeOptions::default() };
        let queue = UetSizes::new(&options, SCALE)?.queue()?;
        let marks = queue.marks.map_or((0, 0), |marks| (marks.from / MTU, marks.all / MTU));
        Ok((queue.queue / MTU, marks.0, marks.1))
    }

    #[test]
    fn marks_are_within_the_queue() {
        let none = UetOptions::default();
        for (queue_packets, mark_from, expected) in [
            (None, None, (43, 9, 35)),
            // A longer queue does not move them.
            (Some(500), None, (500, 9, 35)),
            (Some(10), None, (10, 2, 8)),
            (Some(1), None, (1, 1, 1)),
            (Some(10), Some(9), (10, 9, 9)),
        ] {
            let given = UetOptions { queue_packets, mark_from, ..none };
            assert_eq!(ramp(given).expect("it is valid"), expected, "{queue_packets:?}");
        }
        for (key, given) in [
            ("mark_from", UetOptions { mark_from: Some(11), mark_all: Some(12), ..none }),
            ("mark_all", UetOptions { mark_from: Some(9), mark_all: Some(11), ..none }),
        ] {
            let refused = ramp(UetOptions { queue_packets: Some(10), ..given }).unwrap_err();
            let refused = refused.to_string();
            assert!(refused.contains(key) && refused.contains("queue_packets"), "{refused}");
        }
    }

    #[test]
    fn a_timeout_allows_for_full_queues_at_slow_links() {
        for (byte_picos, expected) in [(480, 4_800), (160, 4_800), (2 * 80 + 4 * 800, 33_600)] {
            let queues = full_queues(NetworkScale { byte_picos, ..SCALE }, 10_000);
            assert_eq!(queues, Duration(expected), "{byte_picos}");
        }
    }

    #[test]
    fn the_shortest_round_trip_is_accepted() {
        let uet = Some(UetOptions { base_rtt: Some(Span(1_000)), ..UetOptions::default() });
        let options = SchemeOptions { uet, ..SchemeOptions::default() };
        let config = configure(UetControl::Nscc, SCALE, &options).expect("documented as 1ns to 1s");
        assert_eq!((config.nscc.base_rtt, config.nscc.target), (1, 1));
    }
}
