//! The core: an engine without a thread. It joins the protocol machine to a driver, a clock, and
//! the bytes of messages.
//!
//! [`Core`] is the same for an engine that its caller polls ([`super::inline`]) and for one that
//! many threads share ([`super::wait`]). It follows the contract of the protocol: after every
//! packet, place its bytes and drain events; before sleeping, ask for the deadline.
//!
//! Its methods are grouped by theme, one file each: `calls` (submit, answer, cancel), `turn`
//! (receive, then timers), `receive` (one packet), `early` (requests that are read while they
//! arrive), `transmit` and `send` (pack and send), `limits`
//! (memory for outgoing messages), `path_mtu`, `reports` (ICMP), `closing`, `failure`, and
//! `counters`.
//!
//! Invariants: input from a peer is acted upon, or counted and ignored, but never becomes an error
//! of the application. The bytes of a message live from its submission to its release.

mod address;
mod calls;
mod closing;
pub mod context;
mod counters;
mod dialect;
mod early;
mod encrypted_peers;
pub mod event;
mod failure;
pub mod limits;
pub mod messages;
mod path_mtu;
pub mod peers;
mod protection;
pub mod receive;
mod reports;
mod send;
mod transmit;
mod turn;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Instant, SystemTime};

use homa_proto::{Endpoint, HOST_STALL, Time};

use super::clock::{self, Clock};
use super::net::backlog::Backlog;
use super::net::shard_group::ShardGroup;
use crate::config::Config;
use crate::driver::Driver;
use crate::driver::fork::Process;
use crate::error::OpenError;
use crate::payload::Payload;
pub use address::canonical;
use address::is_one_server;
use closing::Closing;
pub use context::RequestContext;
pub use event::{EngineEvent, Partial, QueuedRequest, SOCKET_CALL};
pub use failure::EngineEnd;
use failure::OwnedDriver;
use protection::{Reach, protected};
use receive::EngineState;
use send::{Packer, Sources};
use turn::{Arrivals, Overdue};

/// Wire bytes sent in one turn before the engine looks for arrivals again.
const TURN_MAX: u32 = 128 * 1024;

/// Control packets that may wait for the link while the engine takes in more packets. One batch of
/// arrivals can cause more answers than the protocol keeps.
const CONTROL_MAX: usize = 1024;

/// An engine without a thread.
pub struct Core {
    driver: OwnedDriver,
    state: EngineState,
    packer: Packer,
    clock: Clock,
    /// On the system's clock.
    opened: SystemTime,
    now: Time,
    /// True if `now` was read since the last sleep or turn.
    fresh: bool,
    /// Turns so far.
    turns: Arc<AtomicU64>,
    /// Consecutive turns that found no arrivals.
    idle_turns: u32,
    arrivals: Arrivals,
    /// The driver's count of receive-queue overflows at the last look.
    overflows: u64,
    /// Set while timers are due and wait until earlier arrivals have been read.
    overdue: Option<Overdue>,
    closing: Vec<Closing>,
    /// Packets that the driver could not send yet, by link.
    backlog: Backlog,
    /// A time at which the user of this engine wants a turn.
    alarm: Option<Time>,
    /// The process to which the sockets and RPC ids belong.
    process: Process,
    /// Set once it has ended.
    ended: Option<EngineEnd>,
    /// It has had a server.
    served: bool,
    /// Which hosts it may exchange packets with.
    reach: Reach,
    /// Requests that may be executed more than once say so in their packets.
    marks_idempotent: bool,
}

/// An engine acknowledges and answers before it closes. Otherwise a kernel server would send
/// NEED_ACK forever, and our host would answer that no process is at the port, which ends the RPCs
/// of its other processes. And a client whose request lies in a socket could not know that it was
/// not executed.
impl Drop for Core {
    fn drop(&mut self) {
        match self.ended {
            // The numbers of its descriptors may belong to files of the application by now.
            Some(EngineEnd::Failed(_)) => self.leak_descriptors(),
            // In a child of `fork` the sockets are still the parent's.
            None if self.is_here() => {
                self.flush_acks();
                self.transmit();
                self.answer_the_last();
            }
            _ => {}
        }
    }
}

impl Core {
    /// Joins a protocol machine to `driver`. `shard_group` is set if several engines share an
    /// address.
    ///
    /// # Errors
    /// [`OpenError::Config`] or [`OpenError::Mtu`] if `config` is out of range;
    /// [`OpenError::Unprotected`] off loopback without keys, unless plaintext is chosen.
    pub fn new(
        driver: Box<dyn Driver>,
        config: Config,
        shard_group: Option<ShardGroup>,
    ) -> Result<Self, OpenError> {
        let (alone_since, local) = (driver.alone_since(), driver.local().first().copied());
        // The record says nothing about requests that were sent to another address.
        if let Some((handover, at)) = config.handover.as_ref().zip(local) {
            handover.check(at)?;
        }
        let reach = Reach::of(&*driver, &config)?;
        let marks_idempotent = protection::allows_early_data(&config);
        let driver = protected(driver, &config)?;
        let encapsulation = driver.encapsulation();
        let mut endpoint = Endpoint::new(config.complete(driver.receive_buffer(), encapsulation)?);
        driver.names().into_iter().for_each(|names| endpoint.share_client_directory(names));
        // From this time on, the endpoint's memory of executed requests is complete.
        endpoint.expire(Time::ZERO);
        // Engines of a group compare times, so they need one clock.
        let clock = shard_group.as_ref().map_or_else(Clock::start, ShardGroup::clock);
        match (&config.handover, alone_since) {
            (Some(handover), _) => {
                let covers = handover.covers(clock.uptime_at(Time::ZERO));
                endpoint.take_over(handover.executions(), covers);
            }
            // No other engine executed a call that began since the address was bound.
            (None, Some(at)) => {
                let start = clock.instant(Time::ZERO).unwrap_or(at);
                endpoint.vouch_for(clock::proto(start.saturating_duration_since(at)));
            }
            (None, None) => {}
        }
        let mut packer = Packer::new(config.priority_map, encapsulation);
        packer.set_overhead(driver.overhead(), protection::padding(&config));
        packer.set_ports(driver.local().iter().map(SocketAddr::port).collect());
        let mut state = EngineState::new(endpoint, config, &*driver, shard_group);
        driver.local().first().iter().for_each(|at| state.links.set_bound(at.ip()));
        Ok(Self {
            driver: OwnedDriver::new(driver),
            state,
            packer,
            clock,
            opened: SystemTime::now(),
            now: Time::ZERO,
            fresh: false,
            turns: Arc::default(),
            idle_turns: 0,
            arrivals: Arrivals::default(),
            overflows: 0,
            overdue: None,
            closing: Vec::new(),
            backlog: Backlog::default(),
            alarm: None,
            process: Process::this(),
            ended: None,
            served: false,
            reach,
            marks_idempotent,
        })
    }

    /// False in a child of the process that created the engine.
    pub fn is_here(&self) -> bool {
        self.process.is_this()
    }

    /// The driver of this engine.
    pub fn driver(&self) -> &dyn Driver {
        &*self.driver
    }

    /// The time of this batch; reads the clock if that has not been done since the last turn.
    fn tick(&mut self) -> Time {
        if !self.fresh {
            let last = self.now;
            // The protocol's time never decreases.
            self.now = self.clock.now().max(last);
            self.fresh = true;
            self.arrivals.exhausted = false;
            if self.now.since(last) >= HOST_STALL {
                self.note_stall(last);
            }
        }
        self.now
    }

    /// The clock was not read for long: to sleep until the deadline is right, and to miss it by as
    /// much is a stall.
    #[cold]
    fn note_stall(&mut self, last: Time) {
        let due = self.state.endpoint.deadline().unwrap_or(Time::MAX).max(last);
        if self.now.since(due) >= HOST_STALL {
            self.state.latencies.stages.stalled(due, self.now);
        }
    }

    /// The time of the last turn, or of a later look at the clock.
    pub fn now(&self) -> Time {
        self.now
    }

    /// A time of the protocol on the system's clock; `None` for [`Time::MAX`].
    pub fn instant(&self, time: Time) -> Option<Instant> {
        self.clock.instant(time)
    }

    /// The clock, for comparisons with what [`Self::instant`] returns.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Follows the time of the current tokio runtime from now on.
    #[cfg(feature = "testing")]
    pub fn simulate_time(&mut self) {
        self.clock = Clock::simulated();
    }

    /// Asks for a turn at this time, too.
    pub fn set_alarm(&mut self, at: Option<Time>) {
        self.alarm = at;
    }

    /// The time of the last turn if the alarm was due by then.
    pub fn alarmed(&self) -> Option<Time> {
        self.alarm.filter(|&at| at <= self.now).and(Some(self.now))
    }

    /// Collects released payloads instead of dropping them, because a lock guards this engine. See
    /// [`Self::payloads_to_drop`].
    pub fn defer_drops(&mut self) {
        self.state.messages.defer_drops();
    }

    /// Released payloads, to be dropped after the lock is released: their destructors may call back
    /// into the engine.
    pub fn payloads_to_drop(&mut self) -> &mut Vec<Payload> {
        self.state.messages.payloads_to_drop()
    }

    /// True if [`Self::payloads_to_drop`] is not empty.
    pub fn has_payloads_to_drop(&self) -> bool {
        self.state.messages.has_payloads_to_drop()
    }

    /// The next event for the application. The bytes of a response count against the memory for
    /// incoming messages until [`Self::accepted`].
    pub fn next(&mut self) -> Option<EngineEvent> {
        self.state.ready.pop_front()
    }

    /// The next event, if it is a request.
    pub fn next_request(&mut self) -> Option<EngineEvent> {
        match self.state.ready.front()? {
            EngineEvent::Request { .. } => self.next(),
            _ => None,
        }
    }

    /// True if [`Self::next`] would return an event.
    pub fn has_ready(&self) -> bool {
        !self.state.ready.is_empty()
    }
}
