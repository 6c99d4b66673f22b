//! The engine: the protocol machine joined to a driver, a clock and the bytes of messages.
//!
//! [`Core`] does the work and is the same for both ways of driving it: by the caller's own thread
//! ([`inline`]) or by whoever happens to wait ([`shared`]). It follows the contract of the
//! protocol: after every packet, place its bytes, then drain events; before sleeping, ask for the
//! deadline.
//!
//! Invariants: whatever a peer sends is counted and ignored or acted upon, never an error of the
//! application; message bytes live from submission to release.

mod accounts;
mod arrivals;
mod backlog;
pub mod capacity;
mod clock;
mod closing;
mod context;
mod counts;
mod deferred;
mod fair;
pub mod inline;
mod links;
pub mod mailbox;
mod messages;
mod pack;
mod path;
mod paths;
mod peers;
mod reports;
pub mod shard_group;
pub mod shared;
mod spin;
mod state;
pub mod waiters;
pub mod watch;

use std::net::SocketAddr;
use std::time::Instant;

use homa_proto::{Endpoint, Request, RpcHandle, RpcId, Submit, Time};

use crate::config::{CallOptions, Config};
use crate::driver::Driver;
use crate::driver::fork::Process;
use crate::error::{CallError, OpenError, ReplyError};
use crate::message::Message;
use crate::metrics::{Direction, RpcOutcome};
use crate::payload::Payload;
use arrivals::{Arrivals, Overdue, PollEffort};
use backlog::BacklogRetry;
use capacity::Refusal;
use clock::Clock;
use closing::Closing;
pub use context::RequestContext;
use pack::{Packer, Sources};
use shard_group::ShardGroup;
pub use state::{EngineEvent, Partial, QueuedRequest, canonical};
use state::{EngineState, is_one_server};

/// Wire bytes sent in one turn before looking for arrivals again.
const TURN_MAX: u32 = 128 * 1024;

/// Control packets that may wait for the link while more is taken in: a batch can ask for more
/// answers than the protocol keeps.
const CONTROL_MAX: usize = 1024;

/// An engine without a thread.
pub struct Core {
    driver: Box<dyn Driver>,
    state: EngineState,
    packer: Packer,
    clock: Clock,
    now: Time,
    /// `now` was read since the last sleep or turn.
    fresh: bool,
    /// Turns without arrivals since the last one with.
    idle_turns: u32,
    arrivals: Arrivals,
    /// Datagrams that the sockets' queues had no room for, as counted last.
    overflows: u64,
    /// Timers are due and wait for what has arrived.
    overdue: Option<Overdue>,
    closing: Vec<Closing>,
    /// What waits in the driver, by link.
    retries: Vec<BacklogRetry>,
    /// When somebody wants to be woken.
    alarm: Option<Time>,
    /// Whose sockets and ids these are.
    process: Process,
}

/// The last word to servers is that their responses arrived: they would ask for it, a kernel module
/// for ever, and be told by our host that nobody is here, which ends the RPCs of others, too.
impl Drop for Core {
    fn drop(&mut self) {
        if self.is_here() {
            self.flush_acks();
            self.transmit();
        }
    }
}

impl Core {
    /// Joins a protocol machine to `driver`; `shard_group`: its place in a group.
    pub fn new(
        driver: Box<dyn Driver>,
        config: Config,
        shard_group: Option<ShardGroup>,
    ) -> Result<Self, OpenError> {
        let encapsulation = driver.encapsulation();
        let mut endpoint = Endpoint::new(config.complete(driver.receive_buffer(), encapsulation)?);
        driver.names().into_iter().for_each(|names| endpoint.share_client_directory(names));
        // From here on the protocol vouches for what was executed.
        endpoint.expire(Time::ZERO);
        let mut packer = Packer::new(config.priority_map, encapsulation);
        packer.set_ports(driver.local().iter().map(SocketAddr::port).collect());
        let clock = shard_group.as_ref().map_or_else(Clock::start, ShardGroup::clock);
        let mut state = EngineState::new(endpoint, config, &*driver, shard_group);
        driver.local().first().iter().for_each(|at| state.links.set_bound(at.ip()));
        Ok(Self {
            driver,
            state,
            packer,
            clock,
            now: Time::ZERO,
            fresh: false,
            idle_turns: 0,
            arrivals: Arrivals::default(),
            overflows: 0,
            overdue: None,
            closing: Vec::new(),
            retries: Vec::new(),
            alarm: None,
            process: Process::this(),
        })
    }

    /// False in a child of the process that made it.
    pub fn is_here(&self) -> bool {
        self.process.is_this()
    }

    /// The driver below.
    pub fn driver(&self) -> &dyn Driver {
        &*self.driver
    }

    /// Accepts requests at a local port.
    pub fn listen(&mut self, port: u16) {
        self.state.endpoint.listen(port);
    }

    /// Refuses new requests at a local port.
    pub fn unlisten(&mut self, port: u16) {
        self.state.endpoint.unlisten(port);
    }

    /// The time of this batch.
    fn tick(&mut self) -> Time {
        if !self.fresh {
            self.now = self.clock.now().max(self.now);
            self.fresh = true;
            self.arrivals.exhausted = false;
        }
        self.now
    }

    /// Starts a call from the socket numbered `socket`.
    pub fn call(
        &mut self,
        socket: usize,
        to: SocketAddr,
        request: Payload,
        options: &CallOptions,
        cookie: u64,
    ) -> Result<RpcHandle, CallError> {
        if !self.is_here() {
            return Err(CallError::Forked);
        }
        let now = self.tick();
        let mut request = Some(request);
        let result = self.try_call(now, socket, to, &mut request, options, cookie);
        if result.is_err() {
            self.state.counters.calls_refused += 1;
        }
        request.into_iter().for_each(|request| self.state.messages.discard(request));
        result
    }

    /// Takes the request unless it is refused.
    fn try_call(
        &mut self,
        now: Time,
        socket: usize,
        to: SocketAddr,
        request: &mut Option<Payload>,
        options: &CallOptions,
        cookie: u64,
    ) -> Result<RpcHandle, CallError> {
        let local = self.driver.local()[socket];
        let to = canonical(to);
        if !self.driver.reaches(socket, to.ip()) {
            return Err(CallError::AddressFamily { to, local });
        }
        if !is_one_server(to) {
            return Err(CallError::Destination { to });
        }
        if !self.driver.hears(socket, to) {
            return Err(CallError::OtherShard { to });
        }
        let bytes = request.as_ref().map_or(0, Payload::len);
        let length = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.fits(length).map_err(|refusal| match refusal {
            Refusal::Ever { max } => CallError::MessageTooLong { length: bytes, max },
            Refusal::Now { held } => CallError::SendMemoryFull { held },
        })?;
        let state = &mut self.state;
        let max_peers = state.config.max_peers;
        let peer = state.server(now, to);
        let peer = peer.ok_or(CallError::TooManyPeers { max: max_peers })?;
        let until = now + clock::proto(options.deadline);
        let context = RequestContext { until, trace: options.trace.map(Box::new) };
        let submit = Submit::Request(Request {
            peer,
            local_port: local.port(),
            remote_port: to.port(),
            length,
            deadline: until,
            idempotent: options.idempotent,
            head: self.packer.head(&context),
            cookie,
        });
        let submitted = state
            .endpoint
            .submit(now, submit)
            .map_err(|error| CallError::refused(error, bytes, max_peers))?;
        if let Some(message) = submitted.message
            && let Some(request) = request.take()
        {
            state.messages.insert(message, request, state.peers.account(peer), context);
        }
        state.submitted(now, peer, length);
        state.latencies.begin(now, submitted.rpc, peer, Direction::Client);
        state.drain_events();
        Ok(submitted.rpc)
    }

    /// Answers a request. A refused one still waits unless it is gone.
    pub fn reply(
        &mut self,
        rpc: RpcHandle,
        response: Payload,
    ) -> Result<(), (ReplyError, Payload)> {
        if !self.is_here() {
            return Err((ReplyError::Forked, response));
        }
        let now = self.tick();
        let length = u32::try_from(response.len()).unwrap_or(u32::MAX);
        // That nobody waits is said first: there is no use in waiting for room.
        let Some(peer) = self.state.endpoint.peer_of(rpc) else {
            return Err((ReplyError::Gone, response));
        };
        let account = self.state.peers.account(peer);
        match self.fits(length).and_then(|()| self.has_share(length, account)) {
            Ok(()) => {}
            Err(Refusal::Ever { max }) => {
                let length = response.len();
                return Err((ReplyError::MessageTooLong { length, max }, response));
            }
            Err(Refusal::Now { held }) => {
                return Err((ReplyError::SendMemoryFull { held }, response));
            }
        }
        let submitted = match self.state.endpoint.submit(now, Submit::Response { rpc, length }) {
            Ok(submitted) => submitted,
            Err(error) => return Err((ReplyError::refused(error, response.len()), response)),
        };
        match submitted.message {
            Some(message) => {
                self.state.messages.insert(message, response, account, RequestContext::NONE);
            }
            None => self.state.messages.discard(response),
        }
        self.state.submitted(now, peer, length);
        self.state.ended(rpc, RpcOutcome::Ok);
        self.state.drain_events();
        Ok(())
    }

    /// Gives up a call or a request; false when it ended before.
    pub fn cancel(&mut self, rpc: RpcHandle) -> bool {
        let now = self.tick();
        let result = self.state.endpoint.submit(now, Submit::Cancel { rpc });
        if result.is_ok() {
            let outcome = self.state.latencies.given_up(rpc);
            self.state.ended(rpc, outcome);
        }
        self.state.drain_events();
        result.is_ok()
    }

    /// One turn without waiting: sends what may leave, takes in what arrived, acts on timers, and
    /// sends what that caused. Unless something `arrived`, only timers make it look for arrivals.
    pub fn turn(&mut self, arrived: bool) {
        self.fresh = false;
        self.tick();
        self.retry_full_socket();
        self.exchange(if arrived { PollEffort::Thorough } else { PollEffort::None });
        self.transmit();
        self.fresh = false;
    }

    /// A turn for threads that spin: looks at the clock, and so at timers, less often, and leaves
    /// what arrivals caused to travel with what the application makes of them.
    pub fn spin(&mut self) {
        self.exchange(PollEffort::Passing);
    }

    /// Sends what may leave, at a time of its own.
    pub fn flush(&mut self) {
        self.transmit();
        self.fresh = false;
    }

    /// True when control packets wait to be sent.
    pub fn has_control(&self) -> bool {
        self.state.endpoint.waiting_control() > 0
    }

    /// Sends what may leave now.
    pub fn transmit(&mut self) {
        self.resume_backlog();
        if !self.state.endpoint.has_packet() {
            return;
        }
        let now = self.tick();
        let mut turn = 0;
        while turn < TURN_MAX {
            let backlogged = self.backlogged_links();
            let state = &mut self.state;
            let queued = |link| self.driver.queued(link);
            let Some(budget) = state.links.send_budget(now, &state.endpoint, backlogged, queued)
            else {
                break;
            };
            let rise = state.links.outruns_us(budget.link);
            let mut sources = Sources {
                endpoint: &mut state.endpoint,
                messages: &state.messages,
                peers: &state.peers,
                links: budget.links,
            };
            let wire = self.packer.pack(now, budget.bytes, rise, &mut sources);
            if wire == 0 {
                // A message just ended; others may wait for other links.
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

    /// When the next turn is due unless something arrives; in the past when there is work now.
    pub fn wake_at(&self) -> Option<Time> {
        let state = &self.state;
        let stopped = self.arrivals.are_left() && self.has_control_backlog();
        if self.arrivals.are_left() && !stopped {
            return Some(Time::ZERO);
        }
        let send = state.links.wake(&state.endpoint, self.backlogged_links());
        // While the link holds up what arrived, that holds up timers.
        let timers = state.endpoint.deadline().filter(|_| !stopped);
        [self.backlog_due(), send, timers, self.paths_due(), self.alarm].into_iter().flatten().min()
    }

    /// The next turn is due because the link will have room for a packet, not for a timer.
    pub fn is_paced(&self) -> bool {
        let wake = self.state.links.wake(&self.state.endpoint, self.backlogged_links());
        let wake = wake.filter(|wake| *wake > Time::ZERO);
        wake.is_some_and(|wake| self.state.endpoint.deadline().is_none_or(|at| wake <= at))
    }

    /// How long a thread may sleep unless something arrives: zero when there is work now.
    pub fn idle(&mut self) -> Option<std::time::Duration> {
        let wake = self.wake_at()?;
        if wake > self.now {
            self.now = self.clock.now().max(self.now);
        }
        Some(clock::std(wake.since(self.now)))
    }

    /// The next thing for the application. Its bytes count against the memory for incoming messages
    /// until [`Self::taken`].
    pub fn next(&mut self) -> Option<EngineEvent> {
        self.state.ready.pop_front()
    }

    /// The next thing for the application, if that is a request.
    pub fn next_request(&mut self) -> Option<EngineEvent> {
        match self.state.ready.front()? {
            EngineEvent::Request { .. } => self.next(),
            _ => None,
        }
    }

    /// A lock guards this: from here on [`Self::payloads_to_drop`] has payloads that are over.
    pub fn defer_drops(&mut self) {
        self.state.messages.defer_drops();
    }

    /// Payloads that are over, to be dropped where no lock is held.
    pub fn payloads_to_drop(&mut self) -> &mut Vec<Payload> {
        self.state.messages.payloads_to_drop()
    }

    /// True when there are such.
    pub fn has_payloads_to_drop(&self) -> bool {
        self.state.messages.has_payloads_to_drop()
    }

    /// True when nobody waits any more for what has these terms.
    pub fn is_late(&self, context: &RequestContext) -> bool {
        context.until != Time::MAX && context.until <= self.clock.now()
    }

    /// Gives up a request that was delivered and not taken, whose client waits no longer.
    pub fn expire(&mut self, rpc: RpcHandle, request: QueuedRequest) {
        self.tick();
        self.accept_request(request);
        self.state.expire(rpc);
        self.state.drain_events();
    }

    /// A time of the protocol on the system's clock; `None` for never.
    pub fn instant(&self, time: Time) -> Option<Instant> {
        self.clock.instant(time)
    }

    /// From here on a turn is due at this time, too.
    pub fn set_alarm(&mut self, at: Option<Time>) {
        self.alarm = at;
    }

    /// The time of the last turn, if it was due by then.
    pub fn alarmed(&self) -> Option<Time> {
        self.alarm.filter(|&at| at <= self.now).and(Some(self.now))
    }

    /// What can be read of a message that arrives; `None` once it was handed over or given up.
    pub fn read(&self, partial: &Partial) -> Option<&[u8]> {
        self.state.messages.prefix(partial.message, partial.rpc)
    }

    /// Lends what can be read of a message that arrives.
    pub fn lend(&mut self, partial: &Partial) -> Option<Vec<u8>> {
        self.state.messages.lend(partial.message, partial.rpc)
    }

    /// Takes back what was lent, unless the message is gone.
    pub fn give_back(&mut self, partial: &Partial, lent: Vec<u8>) -> Option<Vec<u8>> {
        self.state.messages.give_back(partial.message, partial.rpc, lent)
    }

    /// The application took a response of so many bytes.
    pub fn accepted(&mut self, bytes: usize) {
        self.state.waiting -= bytes as u64;
        self.state.limit_memory(self.now);
    }

    /// The application takes a request.
    pub fn accept_request(&mut self, request: QueuedRequest) -> Message {
        self.state.accept(request)
    }

    /// True when [`Self::next`] would yield something.
    pub fn has_ready(&self) -> bool {
        !self.state.ready.is_empty()
    }

    /// Tells servers at once which calls are complete.
    pub fn flush_acks(&mut self) {
        self.state.endpoint.flush_acks();
    }

    /// Requests in progress at a local port.
    pub fn requests_at(&self, port: u16) -> usize {
        self.state.endpoint.requests_at(port)
    }

    /// The number of an RPC in progress, as its client writes it.
    pub fn id_of(&self, rpc: RpcHandle) -> Option<RpcId> {
        self.state.endpoint.id_of(rpc)
    }

    /// RPCs in progress as client and as server.
    pub fn rpcs(&self) -> (usize, usize) {
        self.state.endpoint.rpcs()
    }
}
