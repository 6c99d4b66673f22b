//! The interface of a scheme's hosts. Each paper has one file in this folder that implements both
//! traits: [`HostKind`] for the row of the table, and [`HostScheme`] for hosts that are configured
//! for a scenario.
//!
//! Calls of these traits are virtual, but they are made once per run, never per packet, because
//! [`HostScheme::start`] builds a simulation with concrete types.

use std::fmt;
use std::panic::RefUnwindSafe;

use homa_proto::LEVELS;
use homa_workload::framing::Framing;
use homa_workload::rng::Rng;

use crate::engine::MakeTransport;
use crate::experiment::{Start, Started};
use crate::scenario::{Scenario, ScenarioError, SchemeOptions};
use crate::transport::Homa;
use crate::transport::either::Either;
use crate::transport::parts::WireFormat;
use crate::transport::tcp::Tcp;

use super::{Environment, NetworkScale, Nic, SwitchQueue};

/// Hosts that several rows of the table have, for errors that name them together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// Homa under some profile.
    Homa,
    /// TCP under some congestion control.
    Tcp,
    /// Hosts of one row alone.
    Single,
}

/// The hosts of a row. `homa schemes` prints their text. Rows are plain data, which a panic in a
/// simulation cannot damage, so that a swarm can catch it.
pub(crate) trait HostKind: fmt::Display + fmt::Debug + Sync + RefUnwindSafe {
    /// The rows that these hosts belong to.
    fn family(&self) -> Family {
        Family::Single
    }

    /// The tables of options that these hosts have, e.g. `options.tcp`. Options that are not in a
    /// table are those of Homa, switches and ports.
    fn options(&self) -> &'static [&'static str] {
        &[]
    }

    /// Bytes of a full packet if no option sets them.
    fn mtu(&self) -> u32 {
        super::MTU
    }

    /// Whether the rule exists that the option `field` changes. Some of Homa's profiles lack rules.
    fn has_rule(&self, _field: &str, _environment: &Environment<'_>) -> bool {
        true
    }

    /// Wire bytes of the memory of a switch port, if the scenario sets no limit; `None` if it is
    /// unlimited. `rtt_bytes` are those of the network.
    fn memory(
        &self,
        _options: &SchemeOptions,
        _rtt_bytes: u32,
    ) -> Result<Option<u64>, ScenarioError> {
        Ok(None)
    }

    /// The queue of switch ports, if it follows the options of these hosts. `row` is that of the
    /// row.
    fn ports(
        &self,
        row: SwitchQueue,
        _options: &SchemeOptions,
        _scale: NetworkScale,
    ) -> Result<SwitchQueue, ScenarioError> {
        Ok(row)
    }

    /// The hosts under a scenario's options, which were checked to be theirs.
    fn configure(
        &self,
        nic: Nic,
        environment: &Environment<'_>,
        options: &SchemeOptions,
    ) -> Result<HostConfig, ScenarioError>;

    /// The same options with every one of these hosts written out, whether a plan sets it or it has
    /// its default in this environment. A scenario with these options is the same simulation.
    fn resolved(
        &self,
        _nic: Nic,
        _environment: &Environment<'_>,
        options: &SchemeOptions,
    ) -> Result<SchemeOptions, ScenarioError> {
        Ok(options.clone())
    }

    /// Sets some of these options at random, for scenarios of the swarm.
    fn draw_options(&self, _rng: &mut Rng, _options: &mut SchemeOptions) {}

    /// Whether they compare reports of ports to consecutive packets, so that these have to take
    /// the same path.
    fn compares_ports(&self) -> bool {
        false
    }

    /// The number of levels at which switches that share memory have to be lossless, and the levels
    /// that they neither count nor pause, as bits.
    fn lossless_levels(&self) -> (u8, u8) {
        (LEVELS as u8, 0)
    }

    /// Whether these are no hosts but a bound, so that nothing moves in packets.
    fn is_bound(&self) -> bool {
        false
    }
}

/// Hosts that are configured for a scenario.
pub(crate) trait HostScheme: fmt::Debug {
    /// How messages are priced in the scheme's wire bytes.
    fn framing(&self) -> Framing;

    /// The format of data packets; for Homa of those that need no grant.
    fn frames(&self) -> WireFormat {
        let mtu = crate::Headers::MTU;
        let headers = mtu.saturating_sub(self.framing().max_payload());
        WireFormat::ethernet(mtu, headers, headers)
    }

    /// The headers of a packet, if packets have a format in which they can be captured.
    fn packet_framing(&self) -> Option<crate::Headers> {
        None
    }

    /// RTTbytes that hosts begin with, as the scheme counts them. `network` are those of the
    /// network.
    fn rtt_bytes(&self, network: u32) -> u32 {
        network
    }

    /// The largest message of each level, 0 for scheduled levels; `None` if there are no cutoffs or
    /// hosts measure them.
    fn cutoffs(&self) -> Option<[u32; 8]> {
        None
    }

    /// The degree of overcommitment; `None` if there is none, or if it is measured or unlimited.
    fn degree(&self) -> Option<usize> {
        None
    }

    /// Whether a request may be executed again after its server has dropped its state.
    fn may_repeat(&self) -> bool {
        false
    }

    /// Whether each packet holds bytes of one message and says their place in it.
    fn names_places(&self) -> bool {
        true
    }

    /// Refuses ports and scenarios that these hosts do not support. A new kind of port should be
    /// refused here until the hosts have an arm for it in [`HostScheme::start`]. Not called if a
    /// second scheme shares the network.
    fn check(&self, _scenario: &Scenario, queue: SwitchQueue) -> Result<(), ScenarioError> {
        match queue {
            SwitchQueue::Combined(_) => {
                unsupported("hosts of this scheme over switches that queue at their inputs")
            }
            _ => Ok(()),
        }
    }

    /// Makes these hosts in a network that they share with a second scheme; `None` if they cannot
    /// share it. `seed` is that of the scenario.
    fn shared(&self, _seed: u64) -> Option<MakeTransport<Either<Homa, Tcp>>> {
        None
    }

    /// Builds the simulation. `start` has everything but the hosts and the queues of ports.
    fn start<'a>(&self, start: Start<'_, 'a>) -> Started<'a>;
}

/// The configured hosts of a scenario.
pub(crate) type HostConfig = Box<dyn HostScheme>;

/// The error of a scenario that needs `what`.
pub(super) fn unsupported(what: &str) -> Result<(), ScenarioError> {
    Err(ScenarioError::Unsupported { what: what.to_owned() })
}
