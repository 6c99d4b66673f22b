//! Schemes: one row per combination of host transport, switch queue, forwarding and NIC.
//!
//! Commands, documentation and the conformance suite read this table. Each paper has one file here
//! with everything that it decides about hosts: their options, their configuration, the size and
//! price of packets, and how the simulation is built. `docs/adding-a-scheme.md` shows how to add
//! one.
//!
//! | module | contents |
//! |---|---|
//! | `rows` | the table |
//! | `hosts` | the interface of a row's hosts |
//! | [`homa`], [`tcp`], `pfabric`, `phost`, `ndp`, `sird`, `dcpim` | the hosts of papers |
//! | `uet`, `rdma` | the hosts of Ultra Ethernet, and of HPCC, DCQCN and TIMELY |
//! | `stop_and_wait`, `ideal` | the smallest transport, and a bound |
//! | `hull`, [`detail`] | HULL's NICs and phantom queues, and DeTail's switches, for TCP hosts |
//! | `shared` | switches that share memory, for hosts of many rows |
//! | `unfit` | errors of options that a scheme does not have |

mod dcpim;
pub mod detail;
mod display;
pub mod homa;
mod hosts;
mod hull;
mod ideal;
mod ndp;
mod pfabric;
mod phost;
mod rdma;
mod rows;
mod shared;
mod sird;
mod stop_and_wait;
pub mod tcp;
mod uet;
mod unfit;

use std::fmt;

use homa_proto::{Duration, Rate};
use homa_workload::framing::{FULL_FRAME, MIN_FRAME};
use homa_workload::sizes::SizeDistribution;

use crate::fabric::queue::{
    Combined, EcnRamp, EcnScope, EcnThreshold, Order, Phantom, PhantomConfig, PriorityDrop, Red,
    Trimming, TrimmingConfig,
};
use crate::fabric::{CioqConfig, Forwarding, PortQueue, StrictPriority};
use crate::scenario::{
    EcnConfig, EcnLinksName, EcnScopeName, QueueBytes, ScenarioError, SchemeOptions,
};
use crate::topology::{PortSpec, Tier};
use crate::transport::parts::WireFormat;

pub use crate::transport::tcp::config::TcpConfig;
pub use homa::HomaConfig;
pub use rows::SCHEMES;

pub(crate) use hosts::{Family, HostConfig, HostKind, HostScheme};
pub(crate) use shared::shares_memory;

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Scheme {
    /// Name in plans and commands.
    pub name: &'static str,
    /// The paper or document that describes it.
    pub paper: &'static str,
    /// The transport on hosts.
    pub(crate) host: &'static dyn HostKind,
    /// The queue of switch ports.
    pub queue: SwitchQueue,
    /// How switches choose paths, unless the scenario sets `fabric.routing`.
    pub forwarding: Forwarding,
    /// The NIC.
    pub nic: Nic,
    /// The transport supports only messages without a response.
    pub one_way_only: bool,
    /// The design relies on drops: packets may be dropped even in a network without faults and
    /// without limits.
    pub loses_by_design: bool,
}

/// The queue of switch ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchQueue {
    /// [`crate::fabric::StrictPriority`].
    Strict,
    /// [`crate::fabric::queue::EcnThreshold`]. `options.ecn` changes its threshold.
    Ecn(EcnConfig),
    /// [`crate::fabric::queue::Red`].
    Red(RedConfig),
    /// [`crate::fabric::queue::PriorityDrop`].
    PriorityDrop,
    /// [`crate::fabric::queue::Trimming`]. `options.ndp` changes its size.
    Trimming(TrimmingConfig),
    /// [`crate::fabric::queue::Phantom`] around an ECN threshold. Each of the two may be missing.
    Phantom(Option<EcnConfig>, Option<PhantomQueue>),
    /// [`crate::fabric::queue::Combined`], for switches that queue at inputs and outputs.
    Combined(CioqConfig),
}

impl SwitchQueue {
    /// The order of service that these ports guarantee.
    pub fn order(&self) -> Order {
        match self {
            Self::Strict => StrictPriority::ORDER,
            Self::Ecn(_) => EcnThreshold::ORDER,
            Self::Red(_) => Red::ORDER,
            Self::PriorityDrop => PriorityDrop::ORDER,
            Self::Trimming(_) => Trimming::ORDER,
            Self::Phantom(..) => Phantom::<EcnThreshold>::ORDER,
            Self::Combined(_) => Combined::ORDER,
        }
    }
}

/// Marks between two thresholds that may follow the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RedConfig {
    /// Nothing is marked up to as many bytes (Kmin).
    pub from: QueueBytes,
    /// Everything is marked above as many (Kmax).
    pub all: QueueBytes,
    /// Probability at `all`, parts of a million (Pmax).
    pub most: u32,
}

impl RedConfig {
    /// The ramp of a port of this rate.
    pub fn at(self, port: Rate, round_trip: Duration) -> EcnRamp {
        let from = self.from.at(port, round_trip);
        EcnRamp { from, all: self.all.at(port, round_trip).max(from), most: self.most }
    }
}

/// A phantom queue whose threshold may follow the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhantomQueue {
    /// Everything but the threshold.
    pub config: PhantomConfig,
    /// Marks above this many virtual bytes.
    pub threshold: QueueBytes,
}

impl PhantomQueue {
    /// The phantom queue of a port of this rate.
    pub fn at(self, port: Rate, round_trip: Duration) -> PhantomConfig {
        PhantomConfig { threshold: self.threshold.at(port, round_trip), ..self.config }
    }
}

/// What thresholds of queues follow.
#[derive(Clone, Copy, Debug)]
pub struct NetworkScale {
    /// Rate of a host's link.
    pub link: Rate,
    /// RTTbytes of the network, see [`Environment`].
    pub rtt_bytes: u32,
    /// See [`Environment::byte_picos`].
    pub byte_picos: u64,
}

impl NetworkScale {
    /// The round trip without queueing.
    pub fn round_trip(self) -> Duration {
        self.link.time_for(self.rtt_bytes.into())
    }

    /// The round trip of a packet of `there` wire bytes and one of `back` over the longest path
    /// without queueing, picoseconds. [`NetworkScale::round_trip`] is for a full Ethernet frame and
    /// a minimal one.
    fn round_trip_of(self, there: u32, back: u32) -> u64 {
        let frames =
            u128::from(self.rtt_bytes) * 8_000_000_000_000 / u128::from(self.link.0.max(1));
        let counted = (FULL_FRAME + MIN_FRAME).saturating_mul(self.byte_picos);
        let wanted = (u64::from(there) + u64::from(back)).saturating_mul(self.byte_picos);
        let frames = u64::try_from(frames).unwrap_or(u64::MAX);
        frames.saturating_sub(counted).saturating_add(wanted)
    }

    /// A threshold at the port of a host.
    fn bytes(self, threshold: QueueBytes) -> u32 {
        threshold.at(self.link, self.round_trip())
    }
}

/// The NIC of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nic {
    /// Takes a packet from its transport whenever the wire is free, and holds none.
    Pull,
    /// Paces the packets of flows that met congestion ([`crate::nic::pacer`]).
    Pacer,
}

/// The network and workload that a scheme's configuration is derived from.
#[derive(Clone, Copy, Debug)]
pub struct Environment<'a> {
    /// Rate of a host's link.
    pub link: Rate,
    /// RTTbytes of the fabric: bytes that a host can send until the first grant comes back.
    pub rtt_bytes: u32,
    /// Picoseconds by which a packet takes longer over the longest path for each byte more.
    pub byte_picos: u64,
    /// Name of the workload in plans.
    pub workload: &'a str,
    /// Sizes of the workload.
    pub sizes: &'a SizeDistribution,
}

impl Environment<'_> {
    /// What thresholds of queues follow.
    fn scale(&self) -> NetworkScale {
        let Self { link, rtt_bytes, byte_picos, .. } = *self;
        NetworkScale { link, rtt_bytes, byte_picos }
    }

    /// The bandwidth-delay product in packets of `full` bytes on the wire.
    fn bdp(&self, full: u32) -> u32 {
        self.rtt_bytes.div_ceil(full).max(1)
    }

    /// The time of `n` round trips without queueing.
    fn round_trips(&self, n: u64) -> Duration {
        self.link.time_for(n * u64::from(self.rtt_bytes))
    }
}

/// Bytes of a full IP packet, unless a plan sets another size.
const MTU: u32 = 1_500;

/// Data packets of `mtu` bytes including 40 bytes of headers, and control packets of these headers
/// alone, in Ethernet frames unless `bare`.
fn plain_format(
    (mtu, bare): (Option<u32>, Option<bool>),
    field: &'static str,
) -> Result<WireFormat, ScenarioError> {
    let mtu = mtu.unwrap_or(MTU);
    if !(100..=9_000).contains(&mtu) {
        return Err(ScenarioError::field(field, "be 100 to 9000 bytes"));
    }
    let headers = WireFormat::HEADERS;
    Ok(match bare {
        Some(true) => WireFormat::bare(mtu, headers, headers),
        _ => WireFormat::ethernet(mtu, headers, headers),
    })
}

/// A number with the least and the most that is allowed.
fn between(field: &'static str, value: u32, least: u32, most: u32) -> Result<u32, ScenarioError> {
    match (least..=most).contains(&value) {
        true => Ok(value),
        false => Err(ScenarioError::field(field, format!("be {least} to {most}"))),
    }
}

/// Refuses an RTO below 1 us, with which a host would only retransmit, because a round trip takes
/// longer in the fastest networks.
fn timeout(time: Duration, field: &'static str) -> Result<Duration, ScenarioError> {
    match time >= Duration::micros(1) {
        true => Ok(time),
        false => Err(ScenarioError::field(field, "be at least 1us")),
    }
}

/// The ECN queue of a port.
pub(crate) fn ecn_queue(ecn: EcnConfig, port: &PortSpec, round_trip: Duration) -> EcnThreshold {
    let threshold = match ecn.links {
        EcnLinksName::Fabric if port.tier == Tier::TorDown => u32::MAX,
        _ => ecn.threshold.at(port.rate, round_trip),
    };
    let scope = match ecn.scope {
        EcnScopeName::Queue => EcnScope::Queue,
        EcnScopeName::Port => EcnScope::Port,
    };
    EcnThreshold::new(threshold, scope)
}

impl Scheme {
    /// The transport on hosts, in words.
    pub fn host(&self) -> impl fmt::Display {
        self.host
    }

    /// Bytes of a full packet if no option sets them.
    pub(crate) fn mtu(&self) -> u32 {
        self.host.mtu()
    }

    /// Whether the row is no transport but a lower bound, so that nothing moves in packets.
    pub fn is_bound(&self) -> bool {
        self.host.is_bound()
    }

    /// Whether hosts run Homa, i.e. have RTTbytes, cutoffs and grants as parameters.
    pub fn is_homa(&self) -> bool {
        self.host.family() == Family::Homa
    }

    /// The row's hosts under a scenario's options. Refuses options that they do not have.
    pub(crate) fn configure(
        &self,
        environment: &Environment<'_>,
        options: &SchemeOptions,
    ) -> Result<HostConfig, ScenarioError> {
        unfit::check(self, environment, options)?;
        self.host.configure(self.nic, environment, options)
    }

    /// The same options with every option of the scheme written out: those of hosts, NICs and
    /// ports, whether a plan sets them or they have their defaults in this environment. A scenario
    /// with these options is the same simulation.
    pub(crate) fn resolved(
        &self,
        environment: &Environment<'_>,
        options: &SchemeOptions,
    ) -> Result<SchemeOptions, ScenarioError> {
        let mut resolved = self.host.resolved(self.nic, environment, options)?;
        match self.queue(options, environment.scale())? {
            SwitchQueue::Strict
            | SwitchQueue::Red(_)
            | SwitchQueue::PriorityDrop
            | SwitchQueue::Trimming(_) => {}
            SwitchQueue::Ecn(ecn) => resolved.ecn = Some(ecn),
            SwitchQueue::Phantom(ecn, phantom) => {
                resolved.ecn = ecn;
                resolved.phantom = Some(hull::phantom_options(phantom));
            }
            SwitchQueue::Combined(config) => {
                resolved.ecn = match self.default_queue(environment.link) {
                    SwitchQueue::Ecn(ecn) => options.ecn.or(Some(ecn)),
                    _ => options.ecn,
                };
                resolved.switch = Some(detail::switch_options(config, options));
            }
        }
        if let Some(config) = self.shared_switches(options, environment.scale())? {
            resolved.switch = Some(shared::switch_options(&config, options));
        }
        Ok(resolved)
    }

    /// Whether one-way messages that the network loses are retransmitted. Those of Homa are not,
    /// because a sender drops its state with the last byte.
    pub fn resends_one_way(&self) -> bool {
        !self.is_homa()
    }

    /// Whether switches queue at their inputs, or share memory, under these options.
    fn has_switch_options(&self, options: &SchemeOptions) -> bool {
        let is_replaced = options.switch.is_some_and(|switch| switch.kind.is_some());
        is_replaced || matches!(self.queue, SwitchQueue::Combined(_))
    }

    /// Whether switches pause senders before a queue is full.
    pub fn is_lossless(&self) -> bool {
        matches!(self.queue, SwitchQueue::Combined(CioqConfig { pfc: Some(_), .. }))
    }

    /// Wire bytes of a port's memory, if the scenario sets no limit; `None` if it is unlimited.
    pub(crate) fn memory(
        &self,
        options: &SchemeOptions,
        rtt_bytes: u32,
    ) -> Result<Option<u64>, ScenarioError> {
        self.host.memory(options, rtt_bytes)
    }

    /// The queue of switch ports if no option changes it. DCTCP's threshold depends on the link.
    fn default_queue(&self, link: Rate) -> SwitchQueue {
        match self.queue {
            SwitchQueue::Ecn(ecn) if ecn.threshold == rows::K && link < Rate::gbps(10) => {
                SwitchQueue::Ecn(EcnConfig { threshold: rows::SLOW_K, ..ecn })
            }
            queue => queue,
        }
    }

    /// The queue of switch ports under a scenario's options.
    pub fn queue(
        &self,
        options: &SchemeOptions,
        scale: NetworkScale,
    ) -> Result<SwitchQueue, ScenarioError> {
        if let Some(switch) = &options.switch {
            shared::check(switch)?;
        }
        let unheeded = |field| Err(unfit::unheeded(self, field));
        let asked = options.tcp.as_ref().is_some_and(|tcp| tcp.ecn == Some(true));
        let kind = options.switch.and_then(|switch| switch.kind);
        let row = self.host.ports(self.default_queue(scale.link), options, scale)?;
        match (detail::chosen(row, kind, scale), options.ecn, &options.phantom) {
            (SwitchQueue::Combined(row), Some(_), None) if row.mark_above.is_none() => {
                unheeded("options.ecn")
            }
            (SwitchQueue::Combined(_), Some(EcnConfig { links: EcnLinksName::Fabric, .. }), _) => {
                let why = "switches that queue at their inputs mark at all ports: leave it out";
                Err(ScenarioError::unfit("options.ecn.links", why))
            }
            (SwitchQueue::Combined(row), _, None) => {
                detail::switch(row, options, scale).map(SwitchQueue::Combined)
            }
            (queue, None, None) => Ok(queue),
            (SwitchQueue::Ecn(_), Some(ecn), None) => Ok(SwitchQueue::Ecn(ecn)),
            (SwitchQueue::Strict, Some(ecn), None) if asked => Ok(SwitchQueue::Ecn(ecn)),
            (SwitchQueue::Strict, ecn, Some(phantom)) if asked => {
                Ok(SwitchQueue::Phantom(ecn, hull::phantom(phantom)?))
            }
            // The phantom queue replaces the row's threshold, but not one that `options.ecn` sets.
            (SwitchQueue::Ecn(_) | SwitchQueue::Phantom(..), ecn, Some(phantom)) => {
                Ok(SwitchQueue::Phantom(ecn, hull::phantom(phantom)?))
            }
            (SwitchQueue::Phantom(_, phantom), ecn, None) => Ok(SwitchQueue::Phantom(ecn, phantom)),
            (SwitchQueue::Red(_), Some(_), _) => {
                let why = "switches mark between two thresholds: set `options.rdma.mark_from` and \
                           `options.rdma.mark_all` instead";
                Err(ScenarioError::unfit("options.ecn", why))
            }
            (_, Some(_), _) => unheeded("options.ecn"),
            (_, None, Some(_)) => unheeded("options.phantom"),
        }
    }
}

/// The scheme with this name.
pub fn find(name: &str) -> Option<&'static Scheme> {
    SCHEMES.iter().find(|scheme| scheme.name == name)
}
