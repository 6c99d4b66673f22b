//! The scheme `ideal`: no hosts but a lower bound, SRPT with perfect knowledge
//! ([`crate::clairvoyant`]).

use std::fmt;

use homa_workload::framing::Framing;

use crate::experiment::{Start, Started};
use crate::scenario::{Scenario, ScenarioError, SchemeOptions};

use super::hosts::unsupported;
use super::{Environment, HostConfig, HostKind, HostScheme, Nic, SwitchQueue};

/// The bound in place of hosts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ideal;

impl fmt::Display for Ideal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("none: a bound, SRPT by clairvoyance")
    }
}

impl HostKind for Ideal {
    fn configure(
        &self,
        _: Nic,
        _: &Environment<'_>,
        _: &SchemeOptions,
    ) -> Result<HostConfig, ScenarioError> {
        Ok(Box::new(*self))
    }

    fn is_bound(&self) -> bool {
        true
    }
}

impl HostScheme for Ideal {
    fn framing(&self) -> Framing {
        Framing::Plain
    }

    /// Refuses scenarios that need something the bound leaves out.
    fn check(&self, scenario: &Scenario, _: SwitchQueue) -> Result<(), ScenarioError> {
        let (fabric, measures) = (&scenario.fabric, &scenario.measures);
        let rates = [fabric.loss_ppm, fabric.duplicate_ppm, fabric.reorder_ppm];
        let whole = fabric.impaired.is_empty() && fabric.paused.is_empty();
        let faulty = !whole || rates.iter().any(|ppm| *ppm > 0);
        let packets = measures.wasted_bandwidth || measures.tail_delay || measures.ledger;
        if faulty {
            unsupported(
                "faults under `ideal`, a bound without them: leave out loss_ppm, duplicate_ppm, \
                 reorder_ppm, impaired and paused",
            )
        } else if fabric.cut_through {
            unsupported("cut-through under `ideal`, a bound for switches that store and forward")
        } else if packets {
            unsupported(
                "measures of packets under `ideal`, a bound that has none: leave out \
                 wasted_bandwidth, tail_delay and ledger",
            )
        } else {
            Ok(())
        }
    }

    fn start<'a>(&self, start: Start<'_, 'a>) -> Started<'a> {
        start.bound()
    }
}
