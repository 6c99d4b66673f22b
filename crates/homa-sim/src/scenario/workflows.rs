//! Workflows: several requests that complete one task, as the services behind a web page send them
//! (DeTail §2.2, §6).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::ScenarioError;
use super::units::{self, Span};

/// Which hosts begin workflows, which answer, and the classes of workflows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkflowTraffic {
    /// Number of hosts 0, 1, ... that begin workflows, which all other hosts answer. By default
    /// every host begins workflows and answers those of all others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clients: Option<u32>,
    /// Hosts 0, 2, 4, ... begin workflows and hosts 1, 3, 5, ... answer. Cannot be combined with
    /// `clients`.
    #[serde(default)]
    pub alternate: bool,
    /// With `alternate`: hosts take turns in blocks of this many, e.g. by racks. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alternate_block: Option<u32>,
    /// Bytes of every request.
    #[serde(default = "ten", deserialize_with = "units::bytes")]
    pub request_bytes: u32,
    /// The classes of workflows, by name.
    pub classes: BTreeMap<String, WorkflowClass>,
}

const fn ten() -> u32 {
    10
}

/// A class of workflows. A workflow has `steps`, one after the other. In each step the client sends
/// `fan_out` requests at once to random servers, which are all different if there are enough. A
/// step ends when its last response has arrived, and a workflow ends with its last step.
///
/// For example, one step with fan-out 1 is a single retrieval, several steps with fan-out 1 are a
/// sequential workflow, and one step with a larger fan-out is partition and aggregation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkflowClass {
    /// Bytes of a response, drawn uniformly from these. Required: if it is empty,
    /// [`WorkflowTraffic::check`] returns an error that names the class.
    #[serde(default, deserialize_with = "units::bytes")]
    pub response_bytes: Vec<u32>,
    /// Number of steps.
    #[serde(default = "one")]
    pub steps: u32,
    /// Requests of a step, drawn uniformly from these once per workflow.
    #[serde(default = "one_of_one")]
    pub fan_out: Vec<u32>,
    /// Workflows that each client begins per second, Poisson.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_second: Option<f64>,
    /// Periods with a different rate, at the same times for all clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<Burst>,
    /// Workflows that each client always has in flight. Replaces a rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrent: Option<u32>,
    /// Priority level of requests and responses, 0 (lowest) to 7, for transports that let the
    /// application choose it, which are those over TCP. Default: the transport's rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<u8>,
}

const fn one() -> u32 {
    1
}

fn one_of_one() -> Vec<u32> {
    vec![1]
}

/// Periodic bursts: for a time of `length` in every period, clients begin workflows at another
/// rate. The first burst begins with the run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Burst {
    /// Time from the beginning of one burst to that of the next.
    pub every: Span,
    /// Length of a burst.
    pub length: Span,
    /// Workflows that each client begins per second during a burst.
    pub per_second: f64,
}

/// Maximum number of classes.
const MOST: usize = 200;

impl WorkflowTraffic {
    /// Refuses traffic that `hosts` hosts cannot run.
    pub fn check(&self, hosts: u32) -> Result<(), ScenarioError> {
        let wrong = |field, must: &str| Err(ScenarioError::field(field, must));
        match self.clients {
            Some(_) if self.alternate => {
                let why = "the first hosts are clients, or every second one is: leave out this \
                           or `alternate`";
                return Err(ScenarioError::unfit("traffic.clients", why));
            }
            Some(clients) if clients == 0 || clients >= hosts => {
                let must = format!("be 1 to {}", hosts - 1);
                return Err(ScenarioError::field("traffic.clients", must));
            }
            _ => {}
        }
        match self.alternate_block {
            Some(_) if !self.alternate => {
                return wrong("traffic.alternate_block", "come with `alternate`");
            }
            Some(block) if block == 0 || block >= hosts => {
                return wrong("traffic.alternate_block", "leave hosts on both sides");
            }
            _ => {}
        }
        if !(1..=1 << 30).contains(&self.request_bytes) {
            return wrong("traffic.request_bytes", "be 1 to 1073741824");
        }
        if self.classes.is_empty() || self.classes.len() > MOST {
            return wrong("traffic.classes", "name at least one kind of workflow, at most 200");
        }
        if self.classes.contains_key("") {
            return wrong("traffic.classes", "have names that are not empty");
        }
        self.classes.iter().try_for_each(|(name, class)| {
            let must = |what: &str| format!("have valid classes: `{name}` {what}");
            let fault = class.fault();
            fault.map_or(Ok(()), |what| Err(ScenarioError::field("traffic.classes", must(what))))
        })
    }
}

impl WorkflowClass {
    fn fault(&self) -> Option<&'static str> {
        let is_rate = |rate: f64| (0.0..=1e9).contains(&rate);
        let sizes = &self.response_bytes;
        if sizes.is_empty() || sizes.iter().any(|bytes| *bytes == 0 || *bytes > 1 << 30) {
            return Some("needs `response_bytes`, each 1 to 1073741824");
        }
        if self.fan_out.is_empty() || self.fan_out.iter().any(|n| !(1..=100_000).contains(n)) {
            return Some("needs a `fan_out`, each 1 to 100000");
        }
        if !(1..=1_000_000).contains(&self.steps) {
            return Some("needs 1 to 1000000 `steps`");
        }
        if self.level.is_some_and(|level| level > 7) {
            return Some("has a `level` of 0 to 7");
        }
        if let Some(Burst { every, length, per_second }) = self.burst {
            if length.0 == 0 || length > every || every.0 > 1 << 60 {
                return Some("has bursts of a `length` above 0 and not above `every`");
            }
            if !is_rate(per_second) {
                return Some("begins `per_second` 0 to 1000000000 workflows");
            }
        }
        let rates = [self.per_second, self.burst.map(|burst| burst.per_second)];
        let most = rates.into_iter().flatten().fold(0.0, f64::max);
        match (self.concurrent, self.per_second.is_some() || self.burst.is_some()) {
            _ if !is_rate(self.per_second.unwrap_or(0.0)) => {
                Some("begins `per_second` 0 to 1000000000 workflows")
            }
            (Some(n), false) if (1..=1_000_000).contains(&n) => None,
            (None, true) if most > 0.0 => None,
            _ => Some("says how many workflows begin `per_second`, or how many are `concurrent`"),
        }
    }
}
