//! What a scenario asks of the network: who sends what to whom, how much of it, for how long.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::units::{self, Span};
use super::workflows::WorkflowTraffic;

/// Who sends what to whom.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "pattern", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Traffic {
    /// Every host to uniformly chosen others, open loop, Poisson (Homa §5.2).
    AllToAll {
        /// `w1` to `w5`, `w1-analytic`, a table (`sizes.csv`) or a size in bytes.
        #[serde(deserialize_with = "units::workload")]
        workload: String,
        /// One-way messages or echo RPCs.
        #[serde(default)]
        exchange: Exchange,
        /// Larger messages are cut to this many bytes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
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
        #[serde(default, skip_serializing_if = "Option::is_none")]
        max_bytes: Option<u32>,
    },
    /// Hosts 1, 2, ... send to host 0, open loop, Poisson: what a client's servers answer (HULL
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
        /// RPCs outstanding at a time.
        concurrent: u32,
        /// Bytes of each request.
        #[serde(default = "tiny_request")]
        request_bytes: u32,
        /// Bytes of each response.
        response_bytes: u32,
        /// The next RPCs begin when all have ended (DCTCP §4.2.1): rounds, which are measured.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        together: bool,
    },
    /// Every host sends messages of one size to one other host, all at the start.
    Permutation {
        /// Bytes of each message.
        bytes: u32,
    },
    /// Flows of 2 GB each from the start on, longer than a run should last (HULL §6.1): what counts
    /// is what links carry, and `probes`. Either `senders` or `groups`.
    LongFlows {
        /// Hosts 1, 2, ... of so many send to host 0.
        #[serde(default, skip_serializing_if = "is_zero")]
        senders: u32,
        /// Flows of other hosts.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        groups: Vec<FlowGroup>,
    },
    /// Requests and responses that belong together (DeTail §6). Latencies are those of single
    /// responses, by their size; those of workflows are `workflows` of the outcome.
    Workflows(WorkflowTraffic),
    /// Messages from a list: lines of `id,src,dst,bytes,start_ns`.
    Flows {
        /// Its path.
        file: String,
        /// One-way messages or echo RPCs.
        #[serde(default)]
        exchange: Exchange,
    },
}

/// Flows of several hosts, which have one each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowGroup {
    /// The first sending host; the others follow it.
    pub from: u32,
    /// Number of flows.
    pub count: u32,
    /// The first receiving host.
    pub to: u32,
    /// Each flow has a receiver of its own: the hosts that follow.
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

/// What one exchange is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Exchange {
    /// A message without answer (Homa §5.2).
    #[default]
    OneWay,
    /// A request and a response of the same size (Homa §5.1).
    Echo,
}

/// How much traffic an open-loop pattern offers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// Share of every host link's rate, in each direction that carries messages.
    pub fraction: f64,
    /// Which bytes it counts.
    #[serde(default)]
    pub basis: Basis,
}

/// Shares of a link from this on are refused: ten times what links carry leaves nothing to be
/// learned, and per cent are what was meant.
const TOO_MUCH: f64 = 10.0;

impl Load {
    /// Whether a link can be offered this share of what it carries: above 0 and below 10, since
    /// more than 1 is an overload. The error says what it must be, as [`super::ScenarioError`]
    /// wants it.
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

/// What was meant, if it may be per cent.
fn as_share(number: f64) -> f64 {
    if number < TOO_MUCH { number } else { number / 100.0 }
}

/// A load's table. A number in its place is answered with the key that was meant.
pub(super) fn load<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Load, D::Error> {
    struct LoadKeys;

    fn key<E: Error>(number: f64) -> Result<Load, E> {
        let share = as_share(number);
        Err(E::custom(format!("a load is a table of keys: write `load.fraction = {share}`")))
    }

    impl<'de> Visitor<'de> for LoadKeys {
        type Value = Load;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("struct Load")
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Load, A::Error> {
            Load::deserialize(MapAccessDeserializer::new(map))
        }

        fn visit_f64<E: Error>(self, number: f64) -> Result<Load, E> {
            key(number)
        }

        fn visit_i64<E: Error>(self, number: i64) -> Result<Load, E> {
            key(number as f64)
        }

        fn visit_u64<E: Error>(self, number: u64) -> Result<Load, E> {
            key(number as f64)
        }
    }

    deserializer.deserialize_any(LoadKeys)
}

/// Which bytes a load counts. The same fraction offers different traffic in each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    /// Wire bytes in the framing of the Homa authors' simulator, grants included, whatever the
    /// scheme sends: equal fractions offer equal messages to every scheme (Homa §5.2).
    #[default]
    Paper,
    /// Wire bytes in the scheme's own framing.
    Wire,
    /// Application bytes (Homa §5.1; HULL; DeTail).
    Payload,
}

/// One-way messages at equal times from one host to another, beside the traffic and in none of its
/// numbers: how long packets wait on that way (HULL §5.2), without those of the receiver's
/// interrupts. The host that sends them should have
/// nothing else to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Probes {
    /// Sending host.
    pub from: u32,
    /// Receiving host.
    pub to: u32,
    /// Between two of them.
    #[serde(default = "millisecond")]
    pub every: Span,
    /// Bytes of each; a packet's worth.
    #[serde(default = "one_packet")]
    pub bytes: u32,
    /// A probe that takes longer was lost and sent again, or waited behind one that was: it counts
    /// as lost and in no mean or percentile. Absent: all count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_after: Option<Span>,
}

const fn millisecond() -> Span {
    Span::millis(1)
}

const fn one_packet() -> u32 {
    1_400
}

/// When traffic ends. Both given: whichever comes first.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Stop {
    /// After this many measured messages (RPCs for echo).
    pub messages: Option<u64>,
    /// At this time.
    pub time: Option<Span>,
    /// What happens to messages under way at the end.
    pub ending: Ending,
    /// At most this long after the end of traffic, in simulated time.
    pub drain_limit: Span,
}

/// What happens to messages under way when traffic ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ending {
    /// The network runs until it is empty.
    #[default]
    Drain,
    /// More, unmeasured messages keep the load up until all measured ones arrived.
    Loaded,
    /// The run ends at once; what did not arrive is counted.
    Cut,
}

impl Default for Stop {
    fn default() -> Self {
        Self {
            messages: Some(300_000),
            time: None,
            ending: Ending::Drain,
            drain_limit: Span(10 * 1_000_000_000_000),
        }
    }
}
