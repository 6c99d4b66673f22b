//! Stop and wait: one packet of a message in flight at a time. The smallest complete transport, and
//! an example of a scheme.

use std::fmt;

use homa_workload::framing::Framing;

use crate::experiment::{Start, Started};
use crate::fabric::StrictPriority;
use crate::scenario::{ScenarioError, SchemeOptions};
use crate::transport::StopAndWait;

use super::{Environment, HostConfig, HostKind, HostScheme, Nic, SwitchQueue, ecn_queue};

/// Hosts that run [`crate::transport::StopAndWait`]. They have no options.
#[derive(Clone, Copy, Debug)]
pub(super) struct StopAndWaitHosts;

impl fmt::Display for StopAndWaitHosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("stop and wait")
    }
}

impl HostKind for StopAndWaitHosts {
    fn configure(
        &self,
        _: Nic,
        _: &Environment<'_>,
        _: &SchemeOptions,
    ) -> Result<HostConfig, ScenarioError> {
        Ok(Box::new(*self))
    }
}

impl HostScheme for StopAndWaitHosts {
    fn framing(&self) -> Framing {
        Framing::Tcp
    }

    fn start<'a>(&self, start: Start<'_, 'a>) -> Started<'a> {
        let make = |_, life| StopAndWait::new(life);
        match start.queue() {
            SwitchQueue::Ecn(ecn) => {
                let trip = start.round_trip();
                start.with(make, move |port| ecn_queue(ecn, port, trip))
            }
            _ => start.with(make, |_| StrictPriority),
        }
    }
}
