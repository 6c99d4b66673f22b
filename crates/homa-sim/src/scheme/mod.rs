//! Schemes: one row per host transport x switch queue x forwarding x NIC options.
//!
//! The table names what can be simulated; the commands, the documentation and the conformance suite
//! read it. `docs/adding-a-scheme.md` shows how a row is made.

pub mod detail;
mod display;
pub mod homa;
mod hull;
mod ndp;
mod pfabric;
mod phost;
mod rows;
pub mod tcp;

use std::sync::Arc;

use homa_proto::{Duration, Rate};
use homa_workload::framing::Framing;
use homa_workload::sizes::SizeDistribution;

use crate::fabric::queue::{
    Combined, EcnThreshold, Order, Phantom, PhantomConfig, PriorityDrop, Trimming, TrimmingConfig,
};
use crate::fabric::{CioqConfig, Forwarding, PortQueue, StrictPriority};
use crate::nic::NicConfig;
use crate::scenario::{EcnConfig, ScenarioError, SchemeOptions};

use crate::transport::ndp::NdpConfig;
use crate::transport::parts::WireFormat;
use crate::transport::pfabric::PFabricConfig;
use crate::transport::phost::PHostConfig;

pub use crate::transport::tcp::config::TcpConfig;
pub use homa::HomaConfig;
pub use rows::SCHEMES;

/// One row.
#[derive(Clone, Copy, Debug)]
pub struct Scheme {
    /// As plans and commands write it.
    pub name: &'static str,
    /// Where it is described.
    pub paper: &'static str,
    /// What runs on the hosts.
    pub host: Host,
    /// What the switch ports do with frames that wait.
    pub queue: Queue,
    /// How packets find their way, unless the scenario says otherwise.
    pub forwarding: Forwarding,
    /// What the NIC does.
    pub nic: Nic,
    /// Knows messages without answer only.
    pub one_way_only: bool,
    /// Packets may be dropped in a network without faults and limits: the design counts on it.
    pub loses_by_design: bool,
}

/// What runs on the hosts of a row.
#[derive(Clone, Copy, Debug)]
pub enum Host {
    /// Homa's own protocol code under a profile.
    Homa {
        /// The profile's name.
        profile: &'static str,
        /// Makes its configuration.
        build: homa::Build,
    },
    /// None: messages are scheduled with perfect knowledge ([`crate::clairvoyant`]).
    Bound,
    /// One packet of a message at a time.
    StopAndWait,
    /// Flows that start at line rate and leave the rest to switches.
    PFabric,
    /// Tokens of receivers.
    PHost,
    /// Pulls of receivers.
    Ndp,
    /// Messages over byte streams.
    Tcp {
        /// Which TCP, in words.
        variant: &'static str,
        /// Makes its configuration.
        build: tcp::Build,
    },
}

/// What the switch ports of a row do with frames that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// [`crate::fabric::StrictPriority`].
    Strict,
    /// [`crate::fabric::queue::EcnThreshold`], unless `options.ecn` says otherwise with this many
    /// wire bytes.
    Ecn(EcnConfig),
    /// [`crate::fabric::queue::PriorityDrop`].
    PriorityDrop,
    /// [`crate::fabric::queue::Trimming`]; `options.ndp` decides on its size.
    Trimming(TrimmingConfig),
    /// [`crate::fabric::queue::Phantom`] around an ECN threshold, of which each may be missing.
    Phantom(Option<EcnConfig>, Option<PhantomConfig>),
    /// [`crate::fabric::queue::Combined`]: the switches queue at their inputs, too.
    Combined(CioqConfig),
}

impl Queue {
    /// What the order of service at these ports obeys.
    pub fn order(&self) -> Order {
        match self {
            Self::Strict => StrictPriority::ORDER,
            Self::Ecn(_) => EcnThreshold::ORDER,
            Self::PriorityDrop => PriorityDrop::ORDER,
            Self::Trimming(_) => Trimming::ORDER,
            Self::Phantom(..) => Phantom::<EcnThreshold>::ORDER,
            Self::Combined(_) => Combined::ORDER,
        }
    }
}

/// What the NIC of a row does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nic {
    /// It takes a packet from its transport whenever its wire is free, and holds none.
    Pull,
    /// It spaces the packets of flows that met congestion ([`crate::nic::pacer`]).
    Pacer,
}

/// What a scheme's configuration is derived from.
#[derive(Clone, Copy, Debug)]
pub struct Environment<'a> {
    /// Rate of a host's link.
    pub link: Rate,
    /// RTTbytes of the fabric: what a host can send while the first grant comes back.
    pub rtt_bytes: u32,
    /// The workload's name, as plans write it.
    pub workload: &'a str,
    /// Its sizes.
    pub sizes: &'a SizeDistribution,
}

impl Environment<'_> {
    /// The bandwidth-delay product in packets of `full` bytes on the wire.
    fn bdp(&self, full: u32) -> u32 {
        self.rtt_bytes.div_ceil(full).max(1)
    }

    /// The time of `n` round trips without queueing.
    fn round_trips(&self, n: u64) -> Duration {
        self.link.time_for(n * u64::from(self.rtt_bytes))
    }
}

/// Packets with 40 bytes of headers, `mtu` bytes in all, and control packets of those headers, in
/// Ethernet frames unless `bare`.
fn plain_format(
    (mtu, bare): (Option<u32>, Option<bool>),
    field: &'static str,
) -> Result<WireFormat, ScenarioError> {
    let mtu = mtu.unwrap_or(1_500);
    if !(100..=9_000).contains(&mtu) {
        return Err(ScenarioError::field(field, "be 100 to 9000 bytes"));
    }
    let headers = WireFormat::HEADERS;
    Ok(match bare {
        Some(true) => WireFormat::bare(mtu, headers, headers),
        _ => WireFormat::ethernet(mtu, headers, headers),
    })
}

/// A timeout that leaves a host time for anything but sending again: of the fastest networks, a
/// round trip takes longer.
fn timeout(time: Duration, field: &'static str) -> Result<Duration, ScenarioError> {
    match time >= Duration::micros(1) {
        true => Ok(time),
        false => Err(ScenarioError::field(field, "be at least 1us")),
    }
}

/// What runs on the hosts of a scenario. The one place where it becomes a type is
/// `experiment/start.rs`.
#[derive(Clone, Debug)]
pub enum HostConfig {
    /// Homa's own protocol code behind a [`crate::nic::Nic`].
    Homa(Box<HomaConfig>, NicConfig),
    /// None, for a bound.
    Bound,
    /// [`crate::transport::StopAndWait`].
    StopAndWait,
    /// [`crate::transport::pfabric`].
    PFabric(PFabricConfig),
    /// [`crate::transport::phost`].
    PHost(PHostConfig),
    /// [`crate::transport::ndp`]; paths and seed are those of the simulation.
    Ndp(NdpConfig),
    /// [`crate::transport::tcp::Tcp`] behind a [`crate::nic::Nic`].
    Tcp(Arc<TcpConfig>, NicConfig),
}

impl HostConfig {
    /// How messages are priced in the scheme's own wire bytes.
    pub fn framing(&self) -> Framing {
        match self {
            Self::Homa(config, _) => config.framing.priced(),
            Self::Tcp(config, _) if !config.timestamps => Framing::Plain,
            Self::StopAndWait | Self::Tcp(..) => Framing::Tcp,
            Self::PFabric(_) | Self::PHost(_) | Self::Ndp(_) | Self::Bound => Framing::Plain,
        }
    }

    /// Its data packets; of Homa those that need no grant.
    pub fn frames(&self) -> WireFormat {
        match self {
            Self::Tcp(config, _) => {
                let headers = config.mtu.saturating_sub(config.mss());
                WireFormat::ethernet(config.mtu, headers, headers)
            }
            Self::PFabric(PFabricConfig { wire, .. })
            | Self::PHost(PHostConfig { wire, .. })
            | Self::Ndp(NdpConfig { wire, .. }) => *wire,
            Self::Homa(..) | Self::Bound | Self::StopAndWait => {
                let mtu = crate::Headers::MTU;
                let headers = mtu.saturating_sub(self.framing().max_payload());
                WireFormat::ethernet(mtu, headers, headers)
            }
        }
    }

    /// The headers of a packet, where it has a wire format.
    pub fn packet_framing(&self) -> Option<crate::Headers> {
        match self {
            Self::Homa(config, _) => Some(config.framing),
            _ => None,
        }
    }

    /// RTTbytes that hosts begin with, as the scheme counts them; in a network of so many.
    pub fn rtt_bytes(&self, network: u32) -> u32 {
        match self {
            Self::Homa(config, _) => config.rtt_bytes(),
            _ => network,
        }
    }

    /// The largest message of each level, 0 for scheduled levels; `None` where there are none, or
    /// they are measured.
    pub fn cutoffs(&self) -> Option<[u32; 8]> {
        match self {
            Self::Homa(config, _) => config.cutoffs(),
            _ => None,
        }
    }

    /// A request may run again after its server has forgotten it.
    pub fn may_repeat(&self) -> bool {
        matches!(self, Self::Homa(config, _) if config.may_repeat())
    }

    /// What is received is placed message by message: a packet holds bytes of one message.
    pub fn names_places(&self) -> bool {
        !matches!(self, Self::Tcp(..))
    }

    /// `experiment/start.rs` has them over switches that queue at their inputs.
    pub fn knows_combined(&self) -> bool {
        matches!(self, Self::Homa(..) | Self::PFabric(_) | Self::Tcp(..))
    }

    /// The degree of overcommitment; `None` where there is none, or it is measured or unlimited.
    pub fn degree(&self) -> Option<usize> {
        match self {
            Self::Homa(config, _) => config.degree(),
            // They never have one sender too many: any bandwidth that is idle while a message
            // waits for permission is wasted.
            Self::PHost(_) | Self::Ndp(_) => Some(0),
            _ => None,
        }
    }
}

impl Scheme {
    /// The row is no transport but what no transport can beat by much: nothing moves in packets.
    pub fn is_bound(&self) -> bool {
        matches!(self.host, Host::Bound)
    }

    /// The row's hosts under a scenario's options.
    pub fn configure(
        &self,
        environment: &Environment<'_>,
        options: &SchemeOptions,
    ) -> Result<HostConfig, ScenarioError> {
        self.check_options(options)?;
        Ok(match self.host {
            Host::Homa { build, .. } => {
                let nic = hull::offloads(options.nic)?;
                HostConfig::Homa(Box::new(HomaConfig::new(build, environment, options)?), nic)
            }
            Host::Bound => HostConfig::Bound,
            Host::StopAndWait => HostConfig::StopAndWait,
            Host::Tcp { build, .. } => {
                let nic = hull::nic(self.nic, environment, options)?;
                HostConfig::Tcp(tcp::configure(build, environment, options)?, nic)
            }
            Host::PFabric => HostConfig::PFabric(pfabric::configure(environment, options)?),
            Host::PHost => HostConfig::PHost(phost::configure(environment, options)?),
            Host::Ndp => HostConfig::Ndp(ndp::configure(environment, options)?),
        })
    }

    /// One-way messages that the network loses are sent again. Those of Homa are not: a sender
    /// forgets one with its last byte.
    pub fn resends_one_way(&self) -> bool {
        !matches!(self.host, Host::Homa { .. })
    }

    /// Its switches have queues at their inputs.
    fn queues_at_inputs(&self, options: &SchemeOptions) -> bool {
        let chosen = detail::chosen(self.queue, options.switch.and_then(|switch| switch.kind));
        matches!(chosen, Queue::Combined(_))
    }

    /// Its switches pause their senders before they must drop.
    pub fn is_lossless(&self) -> bool {
        matches!(self.queue, Queue::Combined(CioqConfig { pfc: Some(_), .. }))
    }

    /// Options of one transport mean nothing to another.
    fn check_options(&self, options: &SchemeOptions) -> Result<(), ScenarioError> {
        let of = |host: fn(&Host) -> bool| host(&self.host);
        if let Some(homas) = options.homas().next()
            && !of(|host| matches!(host, Host::Homa { .. }))
        {
            let must = "stay out: it is an option of Homa's, which this scheme does not have";
            return Err(ScenarioError::field(homas, must));
        }
        let others = [
            ("options.pfabric", options.pfabric.is_some() && !of(|h| matches!(h, Host::PFabric))),
            ("options.phost", options.phost.is_some() && !of(|h| matches!(h, Host::PHost))),
            ("options.tcp", options.tcp.is_some() && !of(|h| matches!(h, Host::Tcp { .. }))),
            ("options.pacer", options.pacer.is_some() && !of(|h| matches!(h, Host::Tcp { .. }))),
            ("options.nic", {
                let knows = |host: &Host| matches!(host, Host::Tcp { .. } | Host::Homa { .. });
                options.nic.is_some() && !of(knows)
            }),
            ("options.ndp", options.ndp.is_some() && !of(|h| matches!(h, Host::Ndp))),
            ("options.switch", options.switch.is_some() && !self.queues_at_inputs(options)),
        ];
        match others.iter().find(|(_, given)| *given) {
            None => Ok(()),
            Some((field, _)) => {
                Err(ScenarioError::field(field, "stay out: it belongs to another scheme"))
            }
        }
    }

    /// Wire bytes of a port's memory, where the scenario sets no limit; `None`: there is none.
    pub fn memory(
        &self,
        options: &SchemeOptions,
        rtt_bytes: u32,
    ) -> Result<Option<u64>, ScenarioError> {
        match self.host {
            Host::PFabric => pfabric::memory(rtt_bytes, options).map(Some),
            Host::PHost => phost::memory(rtt_bytes, options).map(Some),
            Host::Homa { .. } | Host::Bound | Host::StopAndWait | Host::Ndp | Host::Tcp { .. } => {
                Ok(None)
            }
        }
    }

    /// The row's queues under a scenario's options.
    pub fn queue(&self, options: &SchemeOptions) -> Result<Queue, ScenarioError> {
        let unheeded = |field| {
            let must = "stay out: the hosts of this scheme do not heed marks of congestion";
            Err(ScenarioError::field(field, must))
        };
        let asked = options.tcp.as_ref().is_some_and(|tcp| tcp.ecn == Some(true));
        let kind = options.switch.and_then(|switch| switch.kind);
        match (detail::chosen(self.queue, kind), options.ecn, &options.phantom) {
            (Queue::Trimming(_), None, None) => ndp::queue(options).map(Queue::Trimming),
            (Queue::Combined(row), _, None) => detail::switch(row, options).map(Queue::Combined),
            (queue, None, None) => Ok(queue),
            (Queue::Ecn(_), Some(ecn), None) => Ok(Queue::Ecn(ecn)),
            (Queue::Strict, Some(ecn), None) if asked => Ok(Queue::Ecn(ecn)),
            (Queue::Strict, ecn, Some(phantom)) if asked => {
                Ok(Queue::Phantom(ecn, hull::phantom(phantom)?))
            }
            // The phantom queue replaces the row's threshold, not one that is asked for.
            (Queue::Ecn(_) | Queue::Phantom(..), ecn, Some(phantom)) => {
                Ok(Queue::Phantom(ecn, hull::phantom(phantom)?))
            }
            (Queue::Phantom(_, phantom), ecn, None) => Ok(Queue::Phantom(ecn, phantom)),
            (_, Some(_), _) => unheeded("options.ecn"),
            (_, None, Some(_)) => unheeded("options.phantom"),
        }
    }
}

/// The scheme of that name.
pub fn find(name: &str) -> Option<&'static Scheme> {
    SCHEMES.iter().find(|scheme| scheme.name == name)
}
