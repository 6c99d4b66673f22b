//! Workflows: requests and responses that belong together, as services of web sites send them
//! (DeTail §2.2, §6).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::ScenarioError;
use super::units::{self, Span};

/// Who begins workflows, who answers, and of which kinds they are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkflowTraffic {
    /// Hosts 0, 1, ... that begin workflows, which all other hosts answer. Absent: every host
    /// begins some, and answers all others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clients: Option<u32>,
    /// Hosts 0, 2, 4, ... begin workflows and hosts 1, 3, 5, ... answer. Not with `clients`.
    #[serde(default)]
    pub alternate: bool,
    /// Bytes of every request.
    #[serde(default = "ten", deserialize_with = "units::bytes")]
    pub request_bytes: u32,
    /// The kinds of workflow, by name.
    pub classes: BTreeMap<String, WorkflowClass>,
}

const fn ten() -> u32 {
    10
}

/// One kind of workflow: `steps` one after the other, each of `fan_out` requests at once, to
/// servers drawn anew for every step, all of them different while there are enough. A step is over
/// when its last response is there, a workflow with its last step.
///
/// One retrieval is a workflow of one step and fan-out 1; steps and a fan-out of 1 are a sequential
/// workflow, one step with a greater fan-out is partition and aggregation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkflowClass {
    /// Bytes of a response: each of these is as likely. Not to be left out; the class that has none
    /// is named by [`WorkflowTraffic::check`].
    #[serde(default, deserialize_with = "units::bytes")]
    pub response_bytes: Vec<u32>,
    /// Steps, one after the other.
    #[serde(default = "one")]
    pub steps: u32,
    /// Requests of a step, all at once; each of these is as likely, drawn once per workflow.
    #[serde(default = "one_of_one")]
    pub fan_out: Vec<u32>,
    /// Workflows that each client begins per second, Poisson.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_second: Option<f64>,
    /// Times of another rate, the same for all clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<Burst>,
    /// Workflows that each client always has under way; in place of a rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrent: Option<u32>,
    /// Priority level of requests and responses, 0 (lowest) to 7, for transports that let the
    /// application choose: those over TCP. Absent: the transport's own rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<u8>,
}

const fn one() -> u32 {
    1
}

fn one_of_one() -> Vec<u32> {
    vec![1]
}

/// Every `every`, beginning with the run, workflows begin for `length` at this rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Burst {
    /// From the beginning of one burst to that of the next.
    pub every: Span,
    /// How long one lasts.
    pub length: Span,
    /// Workflows that each client begins per second meanwhile.
    pub per_second: f64,
}

/// Most classes.
const MOST: usize = 200;

impl WorkflowTraffic {
    /// Refuses what cannot be run among `hosts` hosts.
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
            let must = |what: &str| format!("have classes that make sense: `{name}` {what}");
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
