//! One simulation in several partitions, which threads simulate side by side: conservative parallel
//! simulation with a barrier after each window (in the literature, a partition is a *logical
//! process*).
//!
//! All partitions simulate the same window of time, which begins at the earliest pending event and
//! is as long as the lookahead, the least delay of a link between partitions. A frame that leaves
//! for another partition in a window takes effect after it. So the partitions need to know nothing
//! of each other until the window ends; then they exchange frames. Time without events is skipped.
//!
//! Invariants: a window's events depend on nothing that another thread does in the meantime; frames
//! enter a partition in the order of their senders' partitions, then of leaving; all decisions at a
//! barrier follow from numbers that every thread reads alike. So results depend on the number of
//! partitions, but not on the number of threads.

mod boundary;
mod gate;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::fabric::{FabricConfig, PortQueue};
use crate::measure::cost;
use crate::time::{SimDuration, SimTime};
use crate::topology::{Division, HostId, PortId, Wiring};
use crate::transport::Transport;

use super::host::ByHost;
use super::net::{Net, TraceHash};
use super::world::{PacketOf, TagOf, World};
use super::{Application, Counters, Fault, Halt, MakeQueue, MakeTransport, Probe, Simulation};

pub(super) use boundary::Boundary;
use boundary::Crossing;
use gate::{Gate, Pass};

/// An application on the hosts of one partition of several.
pub(crate) trait Divided: Application {
    /// What it tells the applications of other partitions. It reaches them before any frame that
    /// leaves later.
    type Note: Send;

    /// The notes for a partition, to be taken out.
    fn notes(&mut self, to: usize) -> &mut Vec<Self::Note>;

    /// A note of another partition.
    fn on_note(&mut self, note: Self::Note);

    /// How many messages the run waits for before it stops, less those of other partitions that
    /// ended here; `None` if it does not wait for any. The run stops if the sum over all partitions
    /// is 0.
    fn awaited(&self) -> Option<i64> {
        None
    }
}

/// The note of an application.
type NoteOf<W> = <<W as World>::App as Divided>::Note;

/// A simulation in partitions; see the module header.
pub(crate) struct Partitioned<W: World<App: Divided>> {
    members: Vec<Simulation<W>>,
    division: Arc<Division>,
    threads: usize,
    mail: Mail<W>,
    now: SimTime,
    cpu_elsewhere: f64,
}

/// What one partition sends another at the end of a window.
struct Post<W: World<App: Divided>> {
    frames: Vec<Crossing<PacketOf<W>, TagOf<W>>>,
    notes: Vec<NoteOf<W>>,
}

/// Posts by turn of the window (even or odd), sender and receiver. With two turns, a partition may
/// begin its next window while another still reads the posts of the last one.
struct Mail<W: World<App: Divided>> {
    partitions: usize,
    posts: Vec<Mutex<Post<W>>>,
}

impl<W: World<App: Divided>> Mail<W> {
    fn new(partitions: usize) -> Self {
        let post = |_| Mutex::new(Post { frames: Vec::new(), notes: Vec::new() });
        Self { partitions, posts: (0..2 * partitions * partitions).map(post).collect() }
    }

    fn post(&self, turn: usize, (from, to): (usize, usize)) -> MutexGuard<'_, Post<W>> {
        let place = (turn * self.partitions + from) * self.partitions + to;
        self.posts[place].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a partition reports at the end of a window; a cache line, because threads write in turns.
#[derive(Debug, Default)]
#[repr(align(128))]
struct WindowReport {
    /// Its next event, or the first event of a frame that it sent.
    next: AtomicU64,
    events: AtomicU64,
    awaited: AtomicI64,
}

/// `WindowReport::awaited` of an application that waits for nothing.
const WAITS_NOT: i64 = i64::MIN;

/// What all threads of a run read.
struct WindowRun<'a, W: World<App: Divided>> {
    end: SimTime,
    most_events: u64,
    lookahead: SimDuration,
    mail: &'a Mail<W>,
    /// By turn and partition.
    reports: [Vec<WindowReport>; 2],
}

/// The sum of all reports of a window.
struct WindowSummary {
    next: SimTime,
    events: u64,
    awaited: Option<i64>,
}

impl<W: World<App: Divided>> WindowRun<'_, W> {
    /// Hands over what leaves a partition, and reports.
    fn publish(&self, turn: usize, number: usize, member: &mut Simulation<W>) {
        let pending = member.net.events.peek().unwrap_or(SimTime::MAX);
        let mut next = pending;
        if let Some(here) = &mut member.net.boundary {
            next = next.min(here.take_earliest());
            for to in (0..self.mail.partitions).filter(|to| *to != number) {
                let (frames, notes) = (here.leaving(to), member.application.notes(to));
                if !(frames.is_empty() && notes.is_empty()) {
                    let mut post = self.mail.post(turn, (number, to));
                    std::mem::swap(frames, &mut post.frames);
                    std::mem::swap(notes, &mut post.notes);
                }
            }
        }
        let report = &self.reports[turn][number];
        report.next.store(next.0, Ordering::Relaxed);
        report.events.store(member.net.counters.events, Ordering::Relaxed);
        let awaited = member.application.awaited().unwrap_or(WAITS_NOT);
        report.awaited.store(awaited, Ordering::Relaxed);
    }

    /// Takes in what the other partitions sent.
    fn collect(&self, turn: usize, number: usize, member: &mut Simulation<W>) {
        for from in (0..self.mail.partitions).filter(|from| *from != number) {
            let mut post = self.mail.post(turn, (from, number));
            post.frames.drain(..).for_each(|frame| member.net.admit_crossing(&frame));
            post.notes.drain(..).for_each(|note| member.application.on_note(note));
        }
    }

    fn summary(&self, turn: usize) -> WindowSummary {
        let none = WindowSummary { next: SimTime::MAX, events: 0, awaited: Some(0) };
        self.reports[turn].iter().fold(none, |sum, report| {
            let awaited = report.awaited.load(Ordering::Relaxed);
            WindowSummary {
                next: sum.next.min(SimTime(report.next.load(Ordering::Relaxed))),
                events: sum.events + report.events.load(Ordering::Relaxed),
                awaited: sum.awaited.filter(|_| awaited != WAITS_NOT).map(|sum| sum + awaited),
            }
        })
    }

    /// Simulates some partitions until the run halts; `None` if another thread panicked. Also
    /// returns the end of the last window.
    fn work(
        &self,
        members: &mut [(usize, &mut Simulation<W>)],
        mut pass: Pass<'_>,
        begin: SimTime,
    ) -> Option<(Halt, SimTime)> {
        let (mut turn, mut reached) = (0, begin);
        loop {
            for (number, member) in &mut *members {
                self.publish(turn, *number, member);
            }
            if !pass.wait() {
                return None;
            }
            for (number, member) in &mut *members {
                self.collect(turn, *number, member);
            }
            match self.summary(turn) {
                WindowSummary { awaited: Some(0), .. } => return Some((Halt::Stopped, reached)),
                WindowSummary { next: SimTime::MAX, .. } => return Some((Halt::Drained, reached)),
                WindowSummary { next, .. } if next > self.end => {
                    return Some((Halt::Time, self.end));
                }
                WindowSummary { events, .. } if events >= self.most_events => {
                    return Some((Halt::Events, reached));
                }
                WindowSummary { next, .. } => {
                    // The window is open at its end, and a simulation runs up to and including.
                    let last = next.0.saturating_add(self.lookahead.0 - 1);
                    reached = self.end.min(SimTime(last));
                }
            }
            for (_, member) in &mut *members {
                // Whether a run stops is decided for all partitions together.
                while member.run_until(reached, u64::MAX) == Halt::Stopped {}
            }
            turn = 1 - turn;
        }
    }
}

impl<W: World> Simulation<W> {
    /// The simulation of one partition.
    fn partition(net: Net<W>, application: W::App) -> Self {
        Self { net, application, make: None }
    }
}

impl<T, Q, A, P, F> Partitioned<(T, Q, A, P, F)>
where
    T: Transport,
    Q: PortQueue,
    A: Divided,
    P: Probe<T>,
    F: Fault<T::Packet>,
{
    /// Builds the simulation as [`Simulation::with_queues`] does, with an application, a probe and
    /// faults for each partition. The lookahead should be above 0, and no pauses, crashes and
    /// changes of links are supported. `threads` of 0 count as one.
    pub fn new(
        (wiring, config): (&Wiring, FabricConfig),
        (division, threads): (Division, usize),
        (mut make, queue): (MakeTransport<T>, MakeQueue<'_, Q>),
        parts: Vec<(A, P, F)>,
    ) -> Self {
        debug_assert_eq!(parts.len(), usize::from(division.partitions()));
        debug_assert!(division.lookahead() > SimDuration::ZERO && !Q::IS_COMBINED);
        let division = Arc::new(division);
        let member = |(number, (application, probe, faults)): (u16, (A, P, F))| {
            let own = (0..wiring.hosts()).filter(|host| division.of_host(*host) == number);
            let (first, last) = (own.clone().next().unwrap_or(0), own.max());
            let hosts = first..last.map_or(first, |last| last + 1);
            let transports = hosts.map(|host| make(HostId(host), 0)).collect();
            let transports = ByHost::new(first, transports);
            let ports = (0..).map(PortId).zip(wiring.ports());
            let queues = ports.map(|(port, spec)| queue(port, spec)).collect();
            let boundary = Boundary::new(number, Arc::clone(&division));
            let net = Net::new(
                (wiring.clone(), config),
                (transports, queues),
                (probe, faults),
                Some(boundary),
            );
            Simulation::partition(net, application)
        };
        let members: Vec<_> = (0..).zip(parts).map(member).collect();
        Self {
            mail: Mail::new(members.len()),
            threads: threads.clamp(1, members.len()),
            members,
            division,
            now: SimTime::ZERO,
            cpu_elsewhere: 0.0,
        }
    }
}

impl<W: World<App: Divided>> Partitioned<W> {
    /// As [`Simulation::run_until`], but the number of events is only looked at between windows,
    /// and applications stop a run by [`Divided::awaited`].
    pub fn run_until(&mut self, end: SimTime, max_events: u64) -> Halt
    where
        Simulation<W>: Send,
    {
        let reports = || self.members.iter().map(|_| WindowReport::default()).collect();
        let run = WindowRun {
            end,
            most_events: self.counters().events.saturating_add(max_events),
            lookahead: self.division.lookahead(),
            mail: &self.mail,
            reports: [reports(), reports()],
        };
        let (threads, partitions, now) = (self.threads, self.members.len(), self.now);
        let mut shares: Vec<Vec<(usize, &mut Simulation<W>)>> = Vec::new();
        shares.resize_with(threads, Vec::new);
        for (number, member) in self.members.iter_mut().enumerate() {
            shares[number * threads / partitions].push((number, member));
        }
        let gate = Gate::new(threads);
        let mut elsewhere = 0.0;
        let halt = std::thread::scope(|scope| {
            let (run, gate) = (&run, &gate);
            let mut shares = shares.into_iter();
            let mut own = shares.next().unwrap_or_default();
            let helper = |mut share: Vec<_>| {
                scope.spawn(move || {
                    run.work(&mut share, gate.pass(), now);
                    cost::cpu_seconds()
                })
            };
            let helpers: Vec<_> = shares.map(helper).collect();
            let halt = run.work(&mut own, gate.pass(), now);
            for helper in helpers {
                match helper.join() {
                    Ok(seconds) => elsewhere += seconds,
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            halt
        });
        self.cpu_elsewhere += elsewhere;
        // Without a result a helper has panicked, and the panic was passed on.
        let (halt, reached) = halt.unwrap_or((Halt::Stopped, now));
        self.now = match halt {
            Halt::Drained if end == SimTime::MAX => self.last_event(),
            Halt::Drained => end,
            _ => reached,
        };
        // The windows of a partition end later than its last event.
        self.now = self.now.max(now);
        for member in &mut self.members {
            member.net.now = member.net.now.max(self.now);
        }
        halt
    }

    /// The simulations of the partitions.
    pub fn members(&self) -> &[Simulation<W>] {
        &self.members
    }

    /// The simulations of the partitions, for reading and merging their results.
    pub fn members_mut(&mut self) -> &mut [Simulation<W>] {
        &mut self.members
    }

    /// The partition that has a port's queue.
    pub fn owner(&self, port: PortId) -> &Simulation<W> {
        &self.members[usize::from(self.division.of_port(port.0))]
    }

    /// The transport of a host.
    pub fn transport(&self, host: HostId) -> Option<&W::Host> {
        self.members[usize::from(self.division.of_host(host.0))].transport(host)
    }

    /// The transports of all hosts, by partition.
    pub fn transports(&self) -> impl Iterator<Item = &W::Host> {
        self.members.iter().flat_map(Simulation::transports)
    }

    /// The time that all partitions have reached.
    pub fn now(&self) -> SimTime {
        self.now
    }

    /// Time of the last event, if none is pending.
    pub fn last_event(&self) -> SimTime {
        self.members.iter().map(Simulation::last_event).max().unwrap_or(self.now)
    }

    /// The counts so far; the largest number of pending events is a sum over partitions, whose
    /// maxima may be at different times.
    pub fn counters(&self) -> Counters {
        self.members.iter().map(Simulation::counters).fold(Counters::default(), |sum, own| {
            Counters {
                packet_hops: sum.packet_hops + own.packet_hops,
                events: sum.events + own.events,
                peak_pending: sum.peak_pending + own.peak_pending,
                lost: sum.lost + own.lost,
                trimmed: sum.trimmed + own.trimmed,
            }
        })
    }

    /// Number of pending events.
    pub fn pending(&self) -> usize {
        self.members.iter().map(Simulation::pending).sum()
    }

    /// Packets in the fabric.
    pub fn packets_in_flight(&self) -> u32 {
        self.members.iter().map(Simulation::packets_in_flight).sum()
    }

    /// A hash of the hashes of all partitions, in their order.
    pub fn trace_hash(&self) -> u64 {
        let mut all = TraceHash::default();
        self.members.iter().for_each(|member| all.word(member.trace_hash()));
        all.0
    }

    /// Processor seconds of threads other than the caller's.
    pub fn cpu_elsewhere(&self) -> f64 {
        self.cpu_elsewhere
    }
}
