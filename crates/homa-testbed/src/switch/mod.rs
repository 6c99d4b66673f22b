//! The rack's switches: homa-sim's output-queued ports with its queues and its choice of paths,
//! driven in real time by one thread.
//!
//! The thread reads frames from one packet socket, lets [`fabric::Fabric`] compute when each is
//! delivered, and sends it to its host at that moment. If it has a processor to itself it polls
//! while there is traffic, because a sleep takes tens of microseconds to end on a virtual machine,
//! and the sender of a frame would have to wake it. It measures its lateness, because a rack whose
//! switch is late proves nothing.

mod fabric;
mod frame;
mod lateness;
mod packet_socket;
mod queueing;
mod ring;

use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use homa_sim::SimTime;
use homa_sim::topology::NodeId;
use homa_workload::quantile::{Percentile, Sorted};

pub(crate) use fabric::{FabricConfig, LinkChange};
pub use fabric::{Faults, Marking};
pub(crate) use frame::wire_bytes;
pub use lateness::Lateness;
pub use queueing::Queueing;

use fabric::{Delivery, Fabric, FabricCounters, LinkEvent};
use frame::WireFrame;
use packet_socket::PacketSocket;

use crate::link::host_of;
use crate::sys;
use crate::{Pauses, TestbedError};

/// Bounds on how close an event must be to be awaited without sleeping. Between them, the measured
/// overshoot of a sleep decides: 5 us on a physical machine, several times that on a virtual
/// machine whose timers and wake-ups go through the hypervisor. A shorter sleep would cost more
/// than it saves.
const SPIN_NS: std::ops::RangeInclusive<u64> = 4_000..=30_000;
/// Longest sleep, so that a request to stop or to report is answered soon.
const LONGEST_SLEEP_NS: u64 = 2_000_000;
/// After this long without a frame, the switch sleeps even if it has a processor to itself.
const SILENCE_NS: u64 = 50_000_000;

/// The switch's observations in an interval.
#[derive(Clone, Debug, Default)]
pub struct SwitchInterval {
    /// Lateness of deliveries.
    pub lateness: Lateness,
    /// Frames delivered.
    pub delivered: u64,
    /// Frames dropped because a buffer was full, all ports.
    pub dropped: u64,
    /// Frames lost on request.
    pub lost: u64,
    /// Frames duplicated on request.
    pub duplicated: u64,
    /// Frames marked with CE, once for each port that did.
    pub marked: u64,
    /// Frames lost with a link that failed.
    pub cut: u64,
    /// Queueing at the port to each host.
    pub queueing: Vec<Queueing>,
    /// Frames the switch noticed after they should have reached their output port.
    pub late_arrivals: u64,
    /// Frames that never reached the switch because it was not reading (must be zero).
    pub overflow: u64,
    /// Frames a host's interface would not take (must be zero).
    pub undeliverable: u64,
    /// Frames for hosts that do not exist.
    pub unknown_destination: u64,
    /// CPU time of the switch's thread, which includes the receive side of the hosts' protocol
    /// stacks, without [`Self::spun`].
    pub cpu: Duration,
    /// Time of empty polls: the processor was awake but free.
    pub spun: Duration,
    /// Wall-clock time.
    pub elapsed: Duration,
    /// Rounds that took long, until the run's report takes them.
    pub(crate) pauses: Pauses,
}

impl SwitchInterval {
    /// Share of the interval in which the switch's own processor was free; `None` without one.
    pub(crate) fn free(&self) -> Option<f64> {
        let share = self.spun.as_secs_f64() / self.elapsed.as_secs_f64();
        (!self.spun.is_zero() && share.is_finite()).then_some(share)
    }
}

/// The configuration of a switch.
#[derive(Clone, Debug)]
pub(crate) struct SwitchConfig {
    /// The switches, links and ports that it computes.
    pub(crate) fabric: FabricConfig,
    /// Shortest round that counts as a pause, nanoseconds.
    pub(crate) shortest_pause_ns: u64,
}

/// The running thread. Dropping it stops the switch.
pub(crate) struct Switch {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    /// Intervals requested and answered.
    asked: AtomicU64,
    answered: AtomicU64,
    interval: Mutex<SwitchInterval>,
    /// Links to be restored and then changed, until the thread has seen it.
    order: Mutex<Option<Vec<TimedChange>>>,
    ordered: AtomicBool,
}

/// Time (nanoseconds of CLOCK_MONOTONIC), ends, and new state.
pub(crate) type TimedChange = (u64, [NodeId; 2], LinkChange);

impl Switch {
    /// Starts a switch whose port of host `i` is the interface `interfaces[i]` of the calling
    /// thread's network namespace, on a dedicated processor if there is one.
    pub(crate) fn start(
        config: SwitchConfig,
        interfaces: Vec<u32>,
        processor: Option<usize>,
    ) -> Result<Self, TestbedError> {
        let socket = PacketSocket::open()
            .map_err(|e| TestbedError::setup("open the switch's packet socket", e))?;
        let shared = Arc::new(Shared::default());
        let thread = thread::Builder::new().name("switch".into()).spawn({
            let shared = Arc::clone(&shared);
            move || {
                sys::exact_timers();
                if let Some(processor) = processor {
                    sys::stay_on(processor);
                }
                sys::run_promptly();
                SwitchThread::new(config, interfaces, socket, shared).run(processor.is_some())
            }
        });
        let thread = thread.map_err(|e| TestbedError::setup("start the switch's thread", e))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Restores all links until these changes, which are in the order of time.
    pub(crate) fn mend_until(&self, changes: Vec<TimedChange>) {
        *self.shared.order.lock().unwrap_or_else(PoisonError::into_inner) = Some(changes);
        self.shared.ordered.store(true, Ordering::SeqCst);
    }

    /// The observations since the last call; starts the next interval.
    pub(crate) fn take_interval(&self) -> Result<SwitchInterval, TestbedError> {
        let mine = self.shared.asked.fetch_add(1, Ordering::SeqCst) + 1;
        let patience = Instant::now() + Duration::from_secs(5);
        while self.shared.answered.load(Ordering::SeqCst) < mine {
            if Instant::now() > patience {
                return Err(TestbedError::Panicked("switch"));
            }
            thread::sleep(Duration::from_millis(1));
        }
        let mut interval = self.shared.interval.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(std::mem::take(&mut *interval))
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            // A failed switch was already reported by `take_interval`.
            let _ = thread.join();
        }
    }
}

/// The thread's state.
struct SwitchThread {
    fabric: Fabric<WireFrame>,
    interfaces: Vec<u32>,
    socket: PacketSocket,
    shared: Arc<Shared>,
    current: SwitchInterval,
    before: FabricCounters,
    since: (Instant, Duration),
    shortest_pause_ns: u64,
}

impl SwitchThread {
    fn new(
        config: SwitchConfig,
        interfaces: Vec<u32>,
        socket: PacketSocket,
        shared: Arc<Shared>,
    ) -> Self {
        Self {
            fabric: Fabric::new(config.fabric),
            interfaces,
            socket,
            shared,
            current: SwitchInterval::default(),
            before: FabricCounters::default(),
            since: (Instant::now(), sys::thread_cpu()),
            shortest_pause_ns: config.shortest_pause_ns,
        }
    }

    fn run(mut self, own_processor: bool) -> io::Result<()> {
        // Picoseconds in 64 bits last 213 days, counted from here.
        let epoch = sys::monotonic_ns();
        let spin = sleep_overshoot_ns()?.clamp(*SPIN_NS.start(), *SPIN_NS.end());
        let (mut before, mut busy) = (epoch, epoch);
        while !self.shared.stop.load(Ordering::Relaxed) {
            let taken = self.take_frames(epoch);
            let now = sys::monotonic_ns();
            if self.shared.ordered.swap(false, Ordering::SeqCst) {
                self.obey(epoch);
            }
            let delivered = self.deliver(epoch, now);
            if self.shared.asked.load(Ordering::SeqCst)
                != self.shared.answered.load(Ordering::SeqCst)
            {
                self.publish();
            }
            self.current.pauses.step(self.shortest_pause_ns, before, now);
            if taken + delivered > 0 {
                busy = now;
            } else if now - before < sys::LONG_LOOK_NS {
                self.current.spun += Duration::from_nanos(now - before);
            }
            before = now;
            if !own_processor || now - busy > SILENCE_NS {
                self.sleep(epoch, spin)?;
                before = sys::monotonic_ns();
            }
        }
        Ok(())
    }

    /// Passes on the ordered changes of links.
    fn obey(&mut self, epoch: u64) {
        let order = self.shared.order.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(changes) = order else { return };
        self.fabric.mend();
        let event = |(at_ns, ends, change): TimedChange| LinkEvent {
            at: SimTime(at_ns.saturating_sub(epoch).saturating_mul(1_000)),
            ends,
            change,
        };
        self.fabric.change(changes.into_iter().map(event));
    }

    /// Sleeps until a frame arrives or shortly before the next delivery.
    fn sleep(&self, epoch: u64, spin: u64) -> io::Result<()> {
        let next = self.fabric.next_delivery().map(|at| epoch + at.0.div_ceil(1_000));
        let wait = next.map_or(LONGEST_SLEEP_NS, |at| at.saturating_sub(sys::monotonic_ns()));
        if wait <= spin {
            return Ok(());
        }
        let fd = self.socket.fd().as_raw_fd();
        let mut wanted = [libc::pollfd { fd, events: libc::POLLIN, revents: 0 }];
        sys::ppoll(&mut wanted, (wait - spin).min(LONGEST_SLEEP_NS))
    }

    /// Reads the frames that wait and puts each on its uplink at the time its host handed it over.
    fn take_frames(&mut self, epoch: u64) -> usize {
        let Self { fabric, interfaces, socket, current, .. } = self;
        socket.receive(|frame| {
            let from = interfaces.iter().position(|&index| index == frame.interface);
            // The loopback of the switch's own namespace is no port.
            let Some(from) = from else { return };
            let to = frame.bytes.get(0..6).and_then(host_of);
            let Some(to) = to.filter(|&host| host < interfaces.len()) else {
                current.unknown_destination += 1;
                return;
            };
            let at = SimTime(frame.at_ns.saturating_sub(epoch).saturating_mul(1_000));
            fabric.send(at, (from, to), frame::flow(frame.bytes), WireFrame::new(frame.bytes));
        })
    }

    /// Sends every frame that is due, and records its lateness.
    fn deliver(&mut self, epoch: u64, now_ns: u64) -> usize {
        let now = SimTime((now_ns - epoch) * 1_000);
        let mut due = 0;
        let Self { fabric, interfaces, socket, current, .. } = self;
        fabric.advance(now, |Delivery { port, frame, at }| {
            due += 1;
            let ideal_ns = epoch + at.0 / 1_000;
            current.lateness.record(sys::monotonic_ns().saturating_sub(ideal_ns));
            if socket.send(interfaces[port], frame.contents()) {
                current.delivered += 1;
            } else {
                current.undeliverable += 1;
            }
        });
        due
    }

    /// Publishes the counters since the last time.
    fn publish(&mut self) {
        let counters = self.fabric.counters();
        let (since, cpu) = (Instant::now(), sys::thread_cpu());
        self.current.dropped = counters.dropped - self.before.dropped;
        self.current.lost = counters.lost - self.before.lost;
        self.current.duplicated = counters.duplicated - self.before.duplicated;
        self.current.marked = counters.marked - self.before.marked;
        self.current.cut = counters.cut - self.before.cut;
        self.current.late_arrivals = counters.late - self.before.late;
        self.current.queueing = self.fabric.take_queueing();
        self.current.overflow = self.socket.take_overflow();
        self.current.elapsed = since - self.since.0;
        self.current.cpu = (cpu - self.since.1).saturating_sub(self.current.spun);
        self.before = counters;
        self.since = (since, cpu);
        let finished = std::mem::take(&mut self.current);
        *self.shared.interval.lock().unwrap_or_else(PoisonError::into_inner) = finished;
        let asked = self.shared.asked.load(Ordering::SeqCst);
        self.shared.answered.store(asked, Ordering::SeqCst);
    }
}

/// Overshoot of a sleep of the calling thread: the median of a few short sleeps.
fn sleep_overshoot_ns() -> io::Result<u64> {
    const ASKED_NS: u64 = 20_000;
    let mut overshoots = Vec::new();
    for _ in 0..51 {
        let start = sys::monotonic_ns();
        sys::ppoll(&mut [], ASKED_NS)?;
        overshoots.push(sys::monotonic_ns().saturating_sub(start + ASKED_NS));
    }
    Ok(Sorted::new(overshoots).percentile(Percentile::P50).unwrap_or(0))
}
