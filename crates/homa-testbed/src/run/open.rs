//! Open-loop load: every RPC starts at its time, whatever has finished.

use std::io;
use std::time::Duration;

use homa_workload::arrivals::Arrival;

use super::Record;
use super::group::{Client, HostGroup, LOOK_NS};
use crate::memory::MemoryWatch;
use crate::sys;
use crate::transport::RackRpc;

/// The results of a load phase at one host.
#[derive(Default)]
pub(crate) struct HostLoad {
    pub(crate) offered: usize,
    pub(crate) failed: usize,
    pub(crate) lost: usize,
    pub(crate) records: Vec<Record>,
}

/// One host's way through its schedule.
struct ScheduleProgress<'a> {
    arrivals: &'a [Arrival],
    /// `None`: as many as the response has.
    request_bytes: Option<u32>,
    first_id: u64,
    started: usize,
    ended: usize,
    failed: usize,
    /// Latency by arrival, nanoseconds; [`NEVER`] until it ends.
    latency: Vec<u64>,
}

/// Not zero, so that a table of it is written, and resident, when it is made.
const NEVER: u64 = u64::MAX;

impl HostGroup<'_> {
    /// Starts every arrival (one list per host of the rack, within `duration`) at its time and
    /// serves meanwhile; ends when all of this group's have ended, or `grace` after `duration`.
    pub(crate) fn open_loop(
        &mut self,
        (arrivals, request_bytes): (&[Vec<Arrival>], Option<u32>),
        duration: Duration,
        grace: Duration,
    ) -> io::Result<Vec<HostLoad>> {
        let start = self.stages.start_ns();
        let give_up = start + (duration + grace).as_nanos() as u64;
        let begin = |client: &mut Client<'_>| {
            ScheduleProgress::new(&arrivals[client.host.index], request_bytes, client)
        };
        let mut progress: Vec<_> = self.clients.iter_mut().map(begin).collect();
        // The records of RPCs are allocated by now.
        let mut watch = MemoryWatch::begin(start, duration);
        loop {
            let now = sys::monotonic_ns();
            let mut next = give_up;
            for (own, client) in progress.iter_mut().zip(&mut self.clients) {
                next = next.min(own.start_due(client, start, now)?.unwrap_or(give_up));
            }
            if now >= give_up || progress.iter().all(|own| own.ended == own.arrivals.len()) {
                self.memory = watch.and_then(MemoryWatch::end);
                return Ok(progress.into_iter().map(|own| own.into_load(start)).collect());
            }
            if let Some(watch) = &mut watch {
                watch.look(now);
            }
            self.poll(next.min(now + LOOK_NS))?;
            self.stages.check()?;
            for (own, client) in progress.iter_mut().zip(&mut self.clients) {
                own.take_ends(client, start);
            }
        }
    }
}

impl<'a> ScheduleProgress<'a> {
    fn new(arrivals: &'a [Arrival], request_bytes: Option<u32>, client: &mut Client<'_>) -> Self {
        Self {
            arrivals,
            request_bytes,
            first_id: client.reserve_ids(arrivals.len()),
            started: 0,
            ended: 0,
            failed: 0,
            latency: vec![NEVER; arrivals.len()],
        }
    }

    /// Starts the RPCs that are due and returns the time of the next one.
    fn start_due(
        &mut self,
        client: &mut Client<'_>,
        start: u64,
        now: u64,
    ) -> io::Result<Option<u64>> {
        while let Some(arrival) = self.arrivals.get(self.started) {
            if start + arrival.at_ns > now {
                return Ok(Some(start + arrival.at_ns));
            }
            client.transport.submit(RackRpc {
                id: self.first_id + self.started as u64,
                server: usize::from(arrival.dst),
                request_bytes: self.request_bytes.unwrap_or(arrival.bytes),
                response_bytes: arrival.bytes,
            })?;
            self.started += 1;
        }
        Ok(None)
    }

    fn take_ends(&mut self, client: &mut Client<'_>, start: u64) {
        for done in client.done.drain(..) {
            // Stragglers of an earlier stage have smaller ids.
            let Some(index) = done.id.checked_sub(self.first_id) else { continue };
            let index = index as usize;
            self.ended += 1;
            if done.error.is_none() {
                let due = start + self.arrivals[index].at_ns;
                self.latency[index] = done.at_ns.saturating_sub(due);
            } else {
                self.failed += 1;
            }
        }
    }

    fn into_load(self, start: u64) -> HostLoad {
        let ended = self.arrivals.iter().zip(&self.latency).filter(|(_, ns)| **ns != NEVER);
        let records = ended
            .map(|(&Arrival { bytes, at_ns, .. }, &latency_ns)| Record {
                bytes,
                due_ns: start + at_ns,
                latency_ns,
            })
            .collect();
        let offered = self.arrivals.len();
        HostLoad { offered, failed: self.failed, lost: offered - self.ended, records }
    }
}
