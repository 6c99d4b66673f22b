//! RDMA's queue pairs with HPCC, DCQCN, TIMELY, DCTCP by rate, PowerTCP, θ-PowerTCP or Swift, over
//! switches that mark between two thresholds. Defaults are those of HPCC's simulator, revision
//! 9f4be2a (`run.py`), scaled to the rate of links. `parameters` has those of congestion controls.
//! Switches do not pause their senders unless a plan asks for it (`options.switch.kind =
//! "shared"`).

mod parameters;

use std::fmt;

use homa_proto::Duration;
use homa_workload::framing::Framing;
use homa_workload::rng::Rng;

use crate::draw::Draw;
use crate::experiment::{Start, Started};
use crate::fabric::queue::{CERTAIN, Red};
use crate::scenario::{Bandwidth, QueueBytes, RdmaOptions, ScenarioError, SchemeOptions, Span};
use crate::topology::{PortId, PortSpec};
use crate::transport::parts::WireFormat;
use crate::transport::rdma::control::Collected;
use crate::transport::rdma::{
    ArrivalStack, ControlConfig, IntStack, Rdma, RdmaConfig, SentAcross, SentAt,
};

use super::{
    Environment, HostConfig, HostKind, HostScheme, NetworkScale, Nic, RedConfig, SwitchQueue,
    between, timeout,
};

/// Message bytes of a full packet.
const PAYLOAD: u32 = 1_000;
/// Ethernet's header, IP, UDP, and the sequence number of data.
const HEADERS: u32 = 14 + 20 + 8 + 6;
/// The same and fields of an answer, which is at least as long as the shortest frame without its
/// checksum.
const ANSWER: u32 = 14 + 20 + 12;
const SHORTEST: u32 = 60;
/// InfiniBand's 4.096 us times 2^10; longer than the queues of an incast last.
const TIMEOUT: Duration = Duration(4_194_304);
const NACK_EVERY: Duration = Duration::micros(500);
const MIN_RATE: u64 = 1_000_000_000;

/// A congestion control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RdmaAlgorithm {
    Hpcc,
    Dcqcn,
    Timely,
    Dctcp,
    Power,
    ThetaPower,
    Swift,
}

/// Hosts that run [`crate::transport::rdma`].
#[derive(Clone, Copy, Debug)]
pub(super) struct RdmaHosts(pub RdmaAlgorithm);

impl fmt::Display for RdmaHosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            RdmaAlgorithm::Hpcc => "RDMA: HPCC",
            RdmaAlgorithm::Dcqcn => "RDMA: DCQCN",
            RdmaAlgorithm::Timely => "RDMA: TIMELY",
            RdmaAlgorithm::Dctcp => "RDMA: DCTCP by rate",
            RdmaAlgorithm::Power => "RDMA: PowerTCP",
            RdmaAlgorithm::ThetaPower => "RDMA: θ-PowerTCP",
            RdmaAlgorithm::Swift => "RDMA: Swift",
        })
    }
}

const fn micros(n: u64) -> QueueBytes {
    QueueBytes::Time(Duration::micros(n))
}

/// When switches mark packets of these hosts.
pub(super) const fn marks(algorithm: RdmaAlgorithm) -> RedConfig {
    match algorithm {
        // 100, 400 and 30 kB at 25, 25 and 10 Gbit/s.
        RdmaAlgorithm::Dcqcn => RedConfig { from: micros(32), all: micros(128), most: CERTAIN / 5 },
        RdmaAlgorithm::Dctcp => RedConfig { from: micros(24), all: micros(24), most: CERTAIN },
        _ => {
            let never = QueueBytes::Fixed(u32::MAX);
            RedConfig { from: never, all: never, most: CERTAIN }
        }
    }
}

/// A share with the least and the most that is allowed.
fn share(field: &'static str, value: f64, (least, most): (f64, f64)) -> Result<f64, ScenarioError> {
    match (least..=most).contains(&value) {
        true => Ok(value),
        false => Err(ScenarioError::field(field, format!("be {least} to {most}"))),
    }
}

/// A rate of a queue pair or an increment of one, bit/s.
fn rate(field: &'static str, given: Option<Bandwidth>, default: u64) -> Result<u64, ScenarioError> {
    let rate = given.map_or(default, |rate| rate.0);
    match rate <= 10_000_000_000_000 {
        true => Ok(rate),
        false => Err(ScenarioError::field(field, "be at most 10000Gbps")),
    }
}

/// A time in nanoseconds, at most a second.
fn nanos(
    field: &'static str,
    given: Option<Span>,
    default: Duration,
) -> Result<u64, ScenarioError> {
    let nanos = given.map_or(default.0, |span| span.0 / 1_000);
    match (1..=1_000_000_000).contains(&nanos) {
        true => Ok(nanos),
        false => Err(ScenarioError::field(field, "be 1ns to 1s")),
    }
}

/// What follows from the network and `options.rdma`.
struct RdmaSizes {
    given: RdmaOptions,
    algorithm: RdmaAlgorithm,
    wire: WireFormat,
    scale: NetworkScale,
    /// T, nanoseconds.
    base_rtt: u64,
    marks: RedConfig,
}

impl RdmaSizes {
    fn new(
        algorithm: RdmaAlgorithm,
        options: &SchemeOptions,
        scale: NetworkScale,
    ) -> Result<Self, ScenarioError> {
        let given = options.rdma.unwrap_or_default();
        let payload = between("options.rdma.payload", given.payload.unwrap_or(PAYLOAD), 64, 8_900)?;
        let more = match algorithm {
            RdmaAlgorithm::Hpcc => IntStack::BYTES,
            RdmaAlgorithm::Power => ArrivalStack::BYTES,
            RdmaAlgorithm::Timely | RdmaAlgorithm::ThetaPower => SentAt::BYTES,
            RdmaAlgorithm::Swift => SentAcross::BYTES,
            RdmaAlgorithm::Dcqcn | RdmaAlgorithm::Dctcp => 0,
        };
        let control = (ANSWER + more).max(SHORTEST);
        let wire = WireFormat { payload, overhead: HEADERS + more, control };
        let trip = Duration((scale.round_trip_of(payload, 0) / 1_000).max(1));
        let base_rtt = nanos("options.rdma.base_rtt", given.base_rtt, trip)?;
        let marks = RdmaHosts(algorithm).marks(&given)?;
        Ok(Self { given, algorithm, wire, scale, base_rtt, marks })
    }

    /// Bytes that the host's link sends in T.
    fn bdp(&self) -> u64 {
        let bytes = u128::from(self.base_rtt) * u128::from(self.scale.link.0) / 8_000_000_000;
        u64::try_from(bytes).unwrap_or(u64::MAX).max(self.wire.payload.into())
    }

    fn has_window(&self) -> Result<bool, ScenarioError> {
        let default = !matches!(self.algorithm, RdmaAlgorithm::Dcqcn | RdmaAlgorithm::Timely);
        let window = self.given.window.unwrap_or(default);
        if self.algorithm == RdmaAlgorithm::Swift && !window {
            let why = "hosts of `swift` have a window and no rate: leave it out";
            return Err(ScenarioError::unfit("options.rdma.window", why));
        }
        Ok(window)
    }

    fn has_acks_first(&self) -> bool {
        let default = matches!(
            self.algorithm,
            RdmaAlgorithm::Dcqcn | RdmaAlgorithm::Timely | RdmaAlgorithm::Swift
        );
        self.given.acks_first.unwrap_or(default)
    }

    fn least(&self) -> Result<u64, ScenarioError> {
        if self.algorithm == RdmaAlgorithm::Swift && self.given.min_rate.is_some() {
            let why = "hosts of `swift` have a window and no rate: leave it out, or set \
                       `options.swift.min_window`";
            return Err(ScenarioError::unfit("options.rdma.min_rate", why));
        }
        // 100 Mbit/s at 25 Gbit/s in PowerTCP's simulator.
        let part = match self.algorithm {
            RdmaAlgorithm::Power | RdmaAlgorithm::ThetaPower => 250,
            _ => 25,
        };
        let default = MIN_RATE.min(self.scale.link.0 / part);
        let least = rate("options.rdma.min_rate", self.given.min_rate, default)?;
        match (1_000..=self.scale.link.0).contains(&least) {
            true => Ok(least),
            false => {
                let must = "be at least 1kbps and at most the rate of a host's link";
                Err(ScenarioError::field("options.rdma.min_rate", must))
            }
        }
    }

    fn config(&self, int_unit: u32) -> Result<RdmaConfig, ScenarioError> {
        let given = &self.given;
        let rto = given.timeout.map_or(TIMEOUT, |span| Duration(span.0 / 1_000));
        let window = u32::try_from(self.bdp()).unwrap_or(u32::MAX);
        Ok(RdmaConfig {
            wire: self.wire,
            link: self.scale.link.0,
            least: self.least()?,
            window: self.has_window()?.then_some(window),
            nack_every: Duration(nanos("options.rdma.nack_every", given.nack_every, NACK_EVERY)?),
            timeout: timeout(rto, "options.rdma.timeout")?,
            acks_first: self.has_acks_first(),
            int_unit,
        })
    }

    /// `options.rdma` with every key written out.
    fn resolved(&self, config: &RdmaConfig) -> RdmaOptions {
        let marks = |value| self.marks_packets().then_some(value);
        let has_rate = self.algorithm != RdmaAlgorithm::Swift;
        RdmaOptions {
            payload: Some(self.wire.payload),
            base_rtt: Some(Span::nanos(self.base_rtt)),
            window: Some(config.window.is_some()),
            min_rate: has_rate.then_some(Bandwidth(config.least)),
            timeout: Some(Span::nanos(config.timeout.0)),
            nack_every: Some(Span::nanos(config.nack_every.0)),
            acks_first: Some(config.acks_first),
            mark_from: marks(self.marks.from),
            mark_all: marks(self.marks.all),
            mark_most: self.marks_packets().then_some(f64::from(self.marks.most) / 1e6),
        }
    }

    fn marks_packets(&self) -> bool {
        RdmaHosts(self.algorithm).heeds_marks()
    }
}

impl RdmaHosts {
    fn heeds_marks(self) -> bool {
        matches!(self.0, RdmaAlgorithm::Dcqcn | RdmaAlgorithm::Dctcp)
    }

    /// When switches mark under these options.
    fn marks(self, given: &RdmaOptions) -> Result<RedConfig, ScenarioError> {
        let row = marks(self.0);
        let set = [
            ("options.rdma.mark_from", given.mark_from.is_some()),
            ("options.rdma.mark_all", given.mark_all.is_some()),
            ("options.rdma.mark_most", given.mark_most.is_some()),
        ];
        if let Some((field, _)) = set.into_iter().find(|(_, set)| *set && !self.heeds_marks()) {
            let why = "only hosts of `dcqcn` and `dctcp-rdma` react to marks: leave it out";
            return Err(ScenarioError::unfit(field, why));
        }
        let most = given.mark_most.unwrap_or(f64::from(row.most) / 1e6);
        let most = share("options.rdma.mark_most", most, (0.0, 1.0))?;
        Ok(RedConfig {
            from: given.mark_from.unwrap_or(row.from),
            all: given.mark_all.unwrap_or(row.all),
            most: (most * f64::from(CERTAIN)).round() as u32,
        })
    }

    fn scheme(
        self,
        scale: NetworkScale,
        options: &SchemeOptions,
    ) -> Result<(RdmaSizes, RdmaScheme), ScenarioError> {
        let sizes = RdmaSizes::new(self.0, options, scale)?;
        let (control, int_unit) = parameters::control(&sizes, options)?;
        let rdma = sizes.config(int_unit)?;
        Ok((sizes, RdmaScheme { rdma, control }))
    }
}

impl HostKind for RdmaHosts {
    /// Data has one level. Acknowledgements above it neither count nor pause, as in the authors'
    /// switches.
    fn lossless_levels(&self) -> (u8, u8) {
        (1, 1 << 7)
    }

    fn compares_ports(&self) -> bool {
        matches!(self.0, RdmaAlgorithm::Hpcc | RdmaAlgorithm::Power)
    }

    fn options(&self) -> &'static [&'static str] {
        match self.0 {
            RdmaAlgorithm::Hpcc => &["options.rdma", "options.hpcc"],
            RdmaAlgorithm::Dcqcn => &["options.rdma", "options.dcqcn"],
            RdmaAlgorithm::Timely => &["options.rdma", "options.timely"],
            RdmaAlgorithm::Dctcp => &["options.rdma", "options.dctcp_rdma"],
            RdmaAlgorithm::Power | RdmaAlgorithm::ThetaPower => {
                &["options.rdma", "options.powertcp"]
            }
            RdmaAlgorithm::Swift => &["options.rdma", "options.swift"],
        }
    }

    fn ports(
        &self,
        row: SwitchQueue,
        options: &SchemeOptions,
        _: NetworkScale,
    ) -> Result<SwitchQueue, ScenarioError> {
        match row {
            SwitchQueue::Red(_) => {
                let given = options.rdma.unwrap_or_default();
                self.marks(&given).map(SwitchQueue::Red)
            }
            other => Ok(other),
        }
    }

    fn configure(
        &self,
        _: Nic,
        environment: &Environment<'_>,
        options: &SchemeOptions,
    ) -> Result<HostConfig, ScenarioError> {
        Ok(Box::new(self.scheme(environment.scale(), options)?.1))
    }

    fn resolved(
        &self,
        _: Nic,
        environment: &Environment<'_>,
        options: &SchemeOptions,
    ) -> Result<SchemeOptions, ScenarioError> {
        let (sizes, scheme) = self.scheme(environment.scale(), options)?;
        let rdma = Some(sizes.resolved(&scheme.rdma));
        let written = SchemeOptions { rdma, ..options.clone() };
        Ok(parameters::resolved(&scheme.control, scheme.rdma.int_unit, written))
    }

    fn draw_options(&self, rng: &mut Rng, options: &mut SchemeOptions) {
        options.rdma = Some(RdmaOptions {
            payload: rng.maybe(&[256, 4_000]),
            base_rtt: rng.maybe(&[Span::nanos(2_000), Span::nanos(200_000)]),
            window: rng.maybe(&[true, self.0 == RdmaAlgorithm::Swift]),
            timeout: rng.maybe(&[Span::nanos(500_000), Span::millis(20)]),
            nack_every: rng.maybe(&[Span::nanos(5_000), Span::millis(5)]),
            acks_first: rng.maybe(&[true, false]),
            ..RdmaOptions::default()
        });
        parameters::draw(self.0, rng, options);
    }
}

/// Configured hosts.
#[derive(Debug)]
struct RdmaScheme {
    rdma: RdmaConfig,
    control: ControlConfig,
}

impl HostScheme for RdmaScheme {
    fn framing(&self) -> Framing {
        let WireFormat { payload, overhead, .. } = self.rdma.wire;
        Framing::Rdma { payload: payload as u16, headers: overhead as u16 }
    }

    fn frames(&self) -> WireFormat {
        self.rdma.wire
    }

    fn start<'a>(&self, start: Start<'_, 'a>) -> Started<'a> {
        let parts = (self.rdma, self.control);
        let (seed, round_trip) = (start.seed(), start.round_trip());
        let marks = match start.queue() {
            SwitchQueue::Red(marks) => marks,
            _ => marks(RdmaAlgorithm::Hpcc),
        };
        let queues = move |port: PortId, spec: &PortSpec| {
            Red::new(marks.at(spec.rate, round_trip), seed, port.0 + 1)
        };
        start.with_numbered(move |_, life| Rdma::new(parts, life), queues)
    }
}
