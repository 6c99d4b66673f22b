//! What a simulation is: a plain description that a plan file holds, and what came out. Nothing
//! here runs: [`crate::experiment`] does.
//!
//! | module | what it decides |
//! |---|---|
//! | [`fabric`] | shape, rates, delays, buffers of the network |
//! | [`demand`] | traffic, load and how long |
//! | [`options`] | which of the scheme's parameters differ from its defaults |
//! | [`outcome`] | everything measured |
//!
//! Unknown keys are refused when a scenario is read.

mod alarms;
mod beside;
pub mod demand;
mod error;
pub mod fabric;
mod hull;
mod nic;
pub mod options;
pub mod outcome;
mod reports;
mod transports;
pub mod units;
mod workflows;

pub use beside::Beside;
pub use demand::{Basis, Ending, Exchange, FlowGroup, Load, Probes, Stop, Traffic};
pub use error::ScenarioError;
pub use fabric::{Buffer, Fabric, Impaired, Paused, Routing, Shape};
pub use hull::{PacerOptions, PhantomOptions, PhantomOrderName, PhantomPlaceName};
pub use nic::{CpuOptions, NicOptions};
pub use options::{
    AlgorithmName, EcnConfig, EcnScopeName, FramingName, Groups, Measures, PickName, SchemeOptions,
    SlowdownBy, TcpOptions,
};
pub use outcome::Outcome;
pub use transports::{
    NdpOptions, PFabricOptions, PHostFirst, PHostOptions, SwitchKind, SwitchOptions,
};
pub use units::{Bandwidth, Span, UnitError};
pub use workflows::{Burst, WorkflowClass, WorkflowTraffic};

use serde::{Deserialize, Serialize};

/// One simulation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scenario {
    /// A name in [`crate::scheme::SCHEMES`].
    pub scheme: String,
    /// Parameters of the scheme that differ from its defaults.
    pub options: SchemeOptions,
    /// Hosts of a second kind; absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beside: Option<Beside>,
    /// The network.
    pub fabric: Fabric,
    /// Who sends what to whom.
    pub traffic: Traffic,
    /// Messages that measure how long packets wait; absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probes: Option<Probes>,
    /// How much; of no meaning for closed loops and lists.
    #[serde(deserialize_with = "demand::load")]
    pub load: Load,
    /// Until when.
    pub stop: Stop,
    /// Messages that start before this are not measured. The authors measured from the empty
    /// start.
    pub warm_up: Span,
    /// Everything random follows from it.
    pub seed: u64,
    /// What a latency is divided by.
    pub slowdown: SlowdownBy,
    /// What is measured besides latency.
    pub measures: Measures,
}

impl Default for Scenario {
    /// Homa as users get it on the network of Homa §5.2, with W1 at 80 % load: of the five
    /// workloads the one whose default length shows whether the load is sustained.
    fn default() -> Self {
        Self {
            scheme: "homa".to_owned(),
            options: SchemeOptions::default(),
            beside: None,
            fabric: Fabric::default(),
            traffic: Traffic::AllToAll {
                workload: "w1".to_owned(),
                exchange: Exchange::OneWay,
                max_bytes: None,
            },
            probes: None,
            load: Load { fraction: 0.8, basis: Basis::Paper },
            stop: Stop::default(),
            warm_up: Span(0),
            seed: 1,
            slowdown: SlowdownBy::Authors,
            measures: Measures::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scenario_survives_its_text_and_unknown_keys_do_not() {
        let scenario = Scenario {
            options: SchemeOptions { overcommitment: Some(2), ..SchemeOptions::default() },
            warm_up: Span::millis(3),
            ..Scenario::default()
        };
        let text = serde_json::to_string(&scenario).unwrap();
        assert_eq!(serde_json::from_str::<Scenario>(&text).unwrap(), scenario);
        assert_eq!(serde_json::from_str::<Scenario>("{}").unwrap(), Scenario::default());
        for wrong in [
            r#"{"lod": 1}"#,
            r#"{"fabric": {"host_link": 10}}"#,
            r#"{"fabric": {"shape": {"kind": "leaf-spine", "racks": 2}}}"#,
            r#"{"traffic": {"pattern": "all-to-all", "workload": "w3", "size": 3}}"#,
            r#"{"measures": {"queue": true}}"#,
        ] {
            assert!(serde_json::from_str::<Scenario>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_load_that_is_a_number_names_its_key() {
        for (given, meant) in [("80", "0.8"), ("55.5", "0.555"), ("0.7", "0.7")] {
            let text = format!("{{\"load\": {given}}}");
            let refused = serde_json::from_str::<Scenario>(&text).unwrap_err().to_string();
            assert!(refused.contains(&format!("write `load.fraction = {meant}`")), "{refused}");
        }
        let text = r#"{"load": {"fraction": 0.5, "basis": "wire"}}"#;
        let load = serde_json::from_str::<Scenario>(text).unwrap().load;
        assert_eq!(load, Load { fraction: 0.5, basis: Basis::Wire });
    }
}
