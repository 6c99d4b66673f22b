//! The demand of a scenario: which hosts send messages to which, how much of it, and for how long.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::collective::CollectiveTraffic;
use super::units::{self, Span};
use super::workflows::WorkflowTraffic;

/// Which hosts send messages to which, and the sizes of messages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "pattern", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Traffic {
    /// Every host sends to uniformly chosen others, open loop, Poisson (Homa §5.2).
    AllToAll {
        /// `w1` to `w5`, `w1-analytic`, a file with a table (`sizes.csv`), or a size in bytes.
        #[serde(deserialize_with = "units::workload")]
        workload: String,
        /// One-way messages or echo RPCs.
        #[serde(default)]
        exchange: Exchange,
        /// Larger messages are cut to this many bytes.
        #[serde(
            default,
            skip_serializing_if = "Option::is_none",
            deserialize_with = "units::bytes"
        )]
        max_bytes: Option<u32>,
    },
    /// The first hosts call the others, open loop, Poisson (Homa §5.1, Figure 8: 8 and 8).
    ClientsServers {
        /// As above.
        #[serde(deserialize_with = "units::workload")]
        workload: String,
        /// Number of clients.
        clients: u32,
        /// Number of servers.
        servers: u32,
        /// Larger messages are cut to this many bytes.
        #[serde(
            default,
            skip_serializing_if = "Option::is_none",
            deserialize_with = "units::bytes"
        )]
        max_bytes: Option<u32>,
    },
    /// Hosts 1, 2, ... send to host 0, open loop, Poisson, as servers that answer one client (HULL
    /// §6.2). Loads are shares of the link to host 0.
    ManyToOne {
        /// As above.
        #[serde(deserialize_with = "units::workload")]
        workload: String,
        /// Number of senders.
        senders: u32,
    },
    /// Host 0 keeps RPCs outstanding with servers in turn, closed loop (Homa §5.1, Figure 9).
    Incast {
        /// Number of servers: hosts 1, 2, ...
        servers: u32,
        /// RPCs in flight at a time.
        concurrent: u32,
        /// Bytes of each request.
        #[serde(default = "tiny_request", deserialize_with = "units::bytes")]
        request_bytes: u32,
        /// Bytes of each response.
        #[serde(deserialize_with = "units::bytes")]
        response_bytes: u32,
        /// RPCs are issued in rounds: the next ones begin when all have ended (DCTCP §4.2.1). The
        /// times of rounds are measured.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        together: bool,
    },
    /// Every host sends one message to one other host, all at the start.
    Permutation {
        /// Bytes of each message.
        #[serde(deserialize_with = "units::bytes")]
        bytes: u32,
    },
    /// Hosts 1, 2, ... send one message each to host 0, all at the start.
    FanIn {
        /// Number of senders.
        senders: u32,
        /// Bytes of each message.
        #[serde(deserialize_with = "units::bytes")]
        bytes: u32,
    },
    /// Flows of 2 GB each that start at time 0 and should outlast the run (HULL §6.1). The results
    /// are the rates of links and flows, and `probes`. Set either `senders` or `groups`.
    LongFlows {
        /// Number of hosts 1, 2, ... that send to host 0.
        #[serde(default, skip_serializing_if = "is_zero")]
        senders: u32,
        /// Flows between other hosts.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        groups: Vec<FlowGroup>,
    },
    /// Workflows of several requests (DeTail §6). Latencies are those of single responses, by the
    /// response's size; the field `workflows` of the outcome has the times of whole workflows.
    Workflows(WorkflowTraffic),
    /// One collective operation. The field `collective` of the outcome has its time.
    Collective(CollectiveTraffic),
    /// Messages from a file.
    Flows {
        /// Path of the file.
        file: String,
        /// The format of the file. Default: the one that its first row shows.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        format: Option<FlowFormat>,
        /// One-way messages or echo RPCs.
        #[serde(default)]
        exchange: Exchange,
    },
}

/// A format of a file of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FlowFormat {
    /// Rows of `id,src,dst,bytes,start_ns`, or of the columns that a header names.
    List,
    /// A connection matrix of htsim (`.cm`).
    Htsim,
    /// A flow file of HPCC's ns-3.
    Hpcc,
    /// A trace of YAPS, the simulator of dcPIM.
    Yaps,
    /// A program of LogGOPSim or ATLAHS, in the text form of GOAL.
    Goal,
}

/// Flows of several hosts, one flow for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowGroup {
    /// The first sending host; the others follow it.
    pub from: u32,
    /// Number of flows.
    pub count: u32,
    /// The first receiving host.
    pub to: u32,
    /// The flows go to different receivers: `to` and the hosts that follow it.
    #[serde(default)]
    pub spread: bool,
}

impl FlowGroup {
    /// Sender and receiver of every flow.
    pub fn pairs(&self) -> impl Iterator<Item = (u32, u32)> + use<> {
        let Self { from, count, to, spread } = *self;
        (0..count).map(move |n| (from + n, to + if spread { n } else { 0 }))
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

const fn tiny_request() -> u32 {
    100
}

/// The kind of one exchange.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Exchange {
    /// A message without a response (Homa §5.2).
    #[default]
    OneWay,
    /// A request and a response of the same size (Homa §5.1).
    Echo,
}

/// How much traffic an open-loop pattern offers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfferedLoad {
    /// Share of every host link's rate, in each direction that carries messages.
    pub fraction: f64,
    /// Which bytes count.
    #[serde(default)]
    pub basis: Basis,
    /// Which links `fraction` is a share of.
    #[serde(default, skip_serializing_if = "is_hosts")]
    pub links: LoadedLinks,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_hosts(links: &LoadedLinks) -> bool {
    *links == LoadedLinks::Hosts
}

/// The links that a load is a share of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LoadedLinks {
    /// Those of hosts (Homa §5.2).
    #[default]
    Hosts,
    /// The busiest link between two switches, if packets are spread over all shortest paths. For
    /// example, 16 hosts at 10 Gbit/s below two uplinks of 40 Gbit/s load these nearly twice as
    /// much as their own.
    Core,
}

/// A load must be below this, because results do not change any more at ten times the links'
/// capacity, and a larger number was probably meant as per cent.
const TOO_MUCH: f64 = 10.0;

impl OfferedLoad {
    /// This share of hosts' links.
    pub const fn new(fraction: f64, basis: Basis) -> Self {
        Self { fraction, basis, links: LoadedLinks::Hosts }
    }

    /// Whether `fraction` is a valid share of a link: above 0 and below 10, where more than 1 is an
    /// overload. The error is the part after "must" of a [`super::ScenarioError`].
    pub fn check(fraction: f64) -> Result<(), String> {
        if fraction > 0.0 && fraction < TOO_MUCH {
            return Ok(());
        }
        let must = format!("be a share of a link above 0 and below {TOO_MUCH}");
        Err(match as_share(fraction) {
            meant if meant < TOO_MUCH && meant > 0.0 => format!("{must}: {meant}?"),
            _ => format!("{must}, such as 0.8"),
        })
    }
}

/// The share that was probably meant, if `number` is too large for one and may be per cent.
fn as_share(number: f64) -> f64 {
    if number < TOO_MUCH { number } else { number / 100.0 }
}

/// Reads the table of a load. If there is a number instead, the error suggests the key.
pub(super) fn load<'de, D: Deserializer<'de>>(deserializer: D) -> Result<OfferedLoad, D::Error> {
    struct LoadKeys;

    fn key<E: Error>(number: f64) -> Result<OfferedLoad, E> {
        let share = as_share(number);
        Err(E::custom(format!("a load is a table of keys: write `load.fraction = {share}`")))
    }

    impl<'de> Visitor<'de> for LoadKeys {
        type Value = OfferedLoad;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a table with the keys fraction, basis and links")
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<OfferedLoad, A::Error> {
            OfferedLoad::deserialize(MapAccessDeserializer::new(map))
        }

        fn visit_f64<E: Error>(self, number: f64) -> Result<OfferedLoad, E> {
            key(number)
        }

        fn visit_i64<E: Error>(self, number: i64) -> Result<OfferedLoad, E> {
            key(number as f64)
        }

        fn visit_u64<E: Error>(self, number: u64) -> Result<OfferedLoad, E> {
            key(number as f64)
        }
    }

    deserializer.deserialize_any(LoadKeys)
}

/// Which bytes a load counts. The same fraction means different traffic for each basis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    /// Wire bytes in the framing of the Homa authors' simulator, including grants, under every
    /// scheme. Equal fractions therefore offer the same messages to every scheme (Homa §5.2).
    #[default]
    Paper,
    /// Wire bytes of data in the framing of the scheme.
    Wire,
    /// All wire bytes that the scheme's hosts send for a message that is alone in the network:
    /// data, requests, grants, acknowledgements, handshakes. A loaded network may add more, such as
    /// retransmissions.
    Everything,
    /// Application bytes (Homa §5.1; HULL; DeTail).
    Payload,
}

/// One-way messages at regular times from one host to another, which measure how long packets wait
/// on that path (HULL §5.2). No other measure counts them, and their delays do not include the
/// receiver's interrupts. The sending host should have nothing else to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Probes {
    /// Sending host.
    pub from: u32,
    /// Receiving host.
    pub to: u32,
    /// Time between two probes. Default: 1 ms.
    #[serde(default = "millisecond")]
    pub every: Span,
    /// Bytes of each probe. Default: 1400, which fit one packet.
    #[serde(default = "one_packet", deserialize_with = "units::bytes")]
    pub bytes: u32,
    /// A probe that takes longer counts as lost and in no mean or percentile, because it was
    /// retransmitted or waited behind a retransmitted one. Default: all probes count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_after: Option<Span>,
    /// Time that the instrument adds to every wait, e.g. because it measures across a switch whose
    /// forwarding takes time (HULL §5.2). Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instrument: Option<Span>,
}

const fn millisecond() -> Span {
    Span::millis(1)
}

const fn one_packet() -> u32 {
    1_400
}

/// When traffic ends. If both `messages` and `time` are set, the first of them ends it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Stop {
    /// After this many measured messages (RPCs for echo).
    #[serde(deserialize_with = "units::count")]
    pub messages: Option<u64>,
    /// At this time.
    pub time: Option<Span>,
    /// What happens to messages in flight at the end.
    pub ending: TrafficEnding,
    /// What happens if the backlog grows without bound.
    #[serde(skip_serializing_if = "is_end")]
    pub diverging: Diverging,
    /// The run lasts at most this long after the end of traffic, in simulated time.
    pub drain_limit: Span,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_end(diverging: &Diverging) -> bool {
    *diverging == Diverging::End
}

/// What happens to traffic whose backlog grows without bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Diverging {
    /// It ends as soon as that is certain, with a warning.
    #[default]
    End,
    /// It continues.
    Continue,
}

/// What happens to messages in flight when traffic ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TrafficEnding {
    /// The network runs until it is empty.
    #[default]
    Drain,
    /// Further messages, which are not measured, keep up the load until all measured messages have
    /// arrived.
    Loaded,
    /// The run ends at once, and messages that have not arrived are counted.
    Cut,
}

impl Default for Stop {
    fn default() -> Self {
        Self {
            messages: Some(300_000),
            time: None,
            ending: TrafficEnding::Drain,
            diverging: Diverging::End,
            drain_limit: Span(10 * 1_000_000_000_000),
        }
    }
}
