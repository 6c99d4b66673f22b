//! Sending: packets are pulled from the protocol as late as possible, packed, and passed to the
//! driver; what the driver cannot send yet is tried again later.

use std::os::fd::RawFd;

use homa_proto::{LinkId, Time};

use super::turn::PollEffort;
use super::{Core, Sources, TURN_MAX};
use crate::engine::{clock, probes};

impl Core {
    /// One turn without waiting: sends, receives, runs timers, and sends what these caused. If
    /// nothing `arrived`, it looks for arrivals only before it runs a timer.
    pub fn turn(&mut self, arrived: bool) {
        self.fresh = false;
        self.tick();
        // This turn may be due because poll found a full socket writable.
        self.backlog.retry_full_sockets(self.driver.backlog());
        self.exchange(if arrived { PollEffort::Thorough } else { PollEffort::None });
        self.transmit();
        self.fresh = false;
    }

    /// A turn for threads that spin. It reads the clock, and thus runs timers, less often, and lets
    /// answers to arrivals wait so that they share datagrams with the application's next messages.
    pub fn spin(&mut self) {
        self.exchange(PollEffort::Passing);
    }

    /// Sends what may leave now, outside of a turn.
    pub fn flush(&mut self) {
        self.transmit();
        self.fresh = false;
    }

    /// True if control packets wait to be sent.
    pub fn has_control(&self) -> bool {
        self.state.endpoint.waiting_control() > 0
    }

    /// True if a full batch of control packets waits. They should leave before more are read.
    pub(super) fn has_control_backlog(&self) -> bool {
        self.state.endpoint.waiting_control() >= super::CONTROL_MAX
    }

    /// Sends what may leave now.
    pub fn transmit(&mut self) {
        // The descriptors may be files of the application by now.
        if self.ended.is_some() {
            return;
        }
        self.resume_backlog();
        if !self.state.endpoint.has_packet() {
            return;
        }
        let now = self.tick();
        let mut turn = 0;
        // Bounded, so that arrivals do not wait behind all that we may send.
        while turn < TURN_MAX {
            let backlogged = self.backlog.links();
            let state = &mut self.state;
            let queued = |link| self.driver.queued(link);
            // Homa §4: the queue of the link stays short, so the order is decided late (SRPT).
            let Some(budget) = state.links.send_budget(now, &state.endpoint, backlogged, queued)
            else {
                probes::queued(state.messages.outgoing_bytes());
                break;
            };
            let rise = state.links.outruns_us(budget.link);
            let mut sources = Sources {
                endpoint: &mut state.endpoint,
                messages: &state.messages,
                peers: &state.peers,
                stages: &mut state.latencies.stages,
                links: budget.links,
            };
            let wire = self.packer.pack(now, budget.bytes, rise, &mut sources);
            if wire == 0 {
                // A message just ended; others may wait for other links.
                // If packets are left, this stops: nothing was packed, so it would loop.
                if state.endpoint.has_packet_for(budget.links) {
                    break;
                }
                continue;
            }
            self.send_packed(now, budget.link, wire);
            turn += wire;
        }
        self.state.drain_events();
    }

    /// Sends the packed batch: `wire` bytes for a link, and control packets for others.
    pub(super) fn send_packed(&mut self, now: Time, link: LinkId, wire: u32) {
        self.driver.send(self.packer.outbox(), &self.state.messages);
        let waiting = self.driver.backlog();
        let left = match waiting.is_empty() {
            true => 0,
            // Bytes that wait in the backlog are charged to the link when they leave.
            false => self.backlog.note(now, self.packer.outbox(), wire, waiting),
        };
        self.state.links.sent(now, link, wire - left, |link| self.driver.queued(link));
        self.note_resends(now);
    }

    /// Tries again to send the backlogs that are due.
    fn resume_backlog(&mut self) {
        if self.backlog.is_empty() {
            return;
        }
        let now = self.tick();
        let Self { driver, state, backlog, .. } = self;
        backlog.resume(now, &mut **driver, |driver, link, wire| {
            state.links.sent(now, link, wire, |link| driver.queued(link));
        });
    }

    /// A full socket for which the driver waits, if any: poll reports when it is writable.
    pub fn full_socket(&self) -> Option<RawFd> {
        let waiting = self.ended.is_none().then(|| self.driver.backlog());
        waiting?.iter().find_map(|waiting| waiting.socket)
    }

    /// When the next turn is due if nothing arrives; in the past if there is work now.
    pub fn wake_at(&self) -> Option<Time> {
        if self.ended.is_some() {
            return None;
        }
        let state = &self.state;
        // Too many control packets wait, so that reading more would only add answers.
        let stopped = self.arrivals.are_left() && self.has_control_backlog();
        if self.arrivals.are_left() && !stopped {
            return Some(Time::ZERO);
        }
        let send = state.links.wake(&state.endpoint, self.backlog.links());
        // Timers wait for arrivals to be read, so they also wait while the link delays reading.
        let timers = state.endpoint.deadline().filter(|_| !stopped);
        let driver = self.driver.deadline();
        let due = [self.backlog.due(), send, timers, self.paths_due(), driver, self.alarm];
        due.into_iter().flatten().min()
    }

    /// True if the next turn is due because the link will take a packet, not because of a timer.
    pub fn is_paced(&self) -> bool {
        let wake = self.state.links.wake(&self.state.endpoint, self.backlog.links());
        let wake = wake.filter(|wake| *wake > Time::ZERO);
        wake.is_some_and(|wake| self.state.endpoint.deadline().is_none_or(|at| wake <= at))
    }

    /// How long a thread may sleep if nothing arrives: zero if there is work now.
    pub fn idle(&mut self) -> Option<std::time::Duration> {
        let wake = self.wake_at()?;
        // The clock is read only if that can shorten the sleep.
        if wake > self.now {
            self.now = self.clock.now().max(self.now);
        }
        Some(clock::std(wake.since(self.now)))
    }
}
