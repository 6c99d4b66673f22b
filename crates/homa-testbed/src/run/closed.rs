//! Closed-loop load: a fixed number of RPCs outstanding from host 0, the incast of Homa §5.3.

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use super::Record;
use super::group::{HostGroup, LOOK_NS};
use super::open::HostLoad;
use crate::sys;
use crate::transport::RackRpc;

/// The calls of a closed loop.
pub(crate) struct ClosedLoop {
    pub(crate) outstanding: usize,
    pub(crate) request_bytes: u32,
    pub(crate) response_bytes: u32,
    pub(crate) duration: Duration,
}

impl HostGroup<'_> {
    /// Host 0 keeps the RPCs going, the servers in turn; a group without host 0 has nothing to
    /// start.
    pub(crate) fn closed_loop(
        &mut self,
        plan: &ClosedLoop,
        grace: Duration,
    ) -> io::Result<Vec<HostLoad>> {
        let mut loads: Vec<HostLoad> = self.clients.iter().map(|_| HostLoad::default()).collect();
        let Some(own) = self.client_of(0) else { return Ok(loads) };
        let load = &mut loads[own];
        let start = self.stages.start_ns();
        let stop = start + plan.duration.as_nanos() as u64;
        let give_up = stop + grace.as_nanos() as u64;
        while sys::monotonic_ns() < start {
            self.poll(start)?;
        }
        let mut servers = self.clients[own].host.peers().cycle();
        let mut started: HashMap<u64, u64> = HashMap::new();
        loop {
            let mut now = sys::monotonic_ns();
            // Far more than the link carries take long to start: look for ends meanwhile.
            let look = stop.min(now + LOOK_NS);
            while now < look && started.len() < plan.outstanding {
                let Some(server) = servers.next() else { break };
                let id = self.clients[own].reserve_ids(1);
                started.insert(id, now);
                load.offered += 1;
                self.clients[own].transport.submit(RackRpc {
                    id,
                    server,
                    request_bytes: plan.request_bytes,
                    response_bytes: plan.response_bytes,
                })?;
                now = sys::monotonic_ns();
            }
            if now >= give_up || (now >= stop && started.is_empty()) {
                load.lost = started.len();
                return Ok(loads);
            }
            self.poll(now + LOOK_NS)?;
            self.stages.check()?;
            for done in self.clients[own].done.drain(..) {
                let Some(due_ns) = started.remove(&done.id) else { continue };
                if done.error.is_none() {
                    let latency_ns = done.at_ns.saturating_sub(due_ns);
                    let bytes = plan.response_bytes;
                    load.records.push(Record { bytes, due_ns, latency_ns });
                } else {
                    load.failed += 1;
                }
            }
        }
    }
}
