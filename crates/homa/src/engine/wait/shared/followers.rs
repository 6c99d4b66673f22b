//! Parked threads that could lead, in order of arrival.
//!
//! The engine's lock guards the queue. A ticket is used once, by an atomic operation: either its
//! thread leaves, or the leader gives that thread the lead. A thread that leaves without the lock
//! therefore learns whether it has the lead, and must then pass it on. Used tickets stay in the
//! queue until the queue has doubled.
//!
//! Invariant: a thread with a ticket runs no code of the application. Such code could panic, or
//! wait for this engine, which the thread might have to drive.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;

use super::Access;

/// Shorter queues are not searched for used tickets.
const FEW: usize = 16;

/// See the module's documentation.
#[derive(Default)]
pub struct Followers {
    queue: VecDeque<Ticket>,
    /// Length of the queue at which used tickets are removed.
    most: usize,
}

/// A thread's place in the queue.
#[derive(Clone)]
pub struct Ticket {
    seat: Arc<Seat>,
    number: u64,
}

/// A thread, which uses one ticket each time that it waits.
struct Seat {
    thread: Thread,
    /// Number of used tickets, which is the number of the next one.
    used: AtomicU64,
}

impl Seat {
    fn new() -> Arc<Self> {
        Arc::new(Self { thread: thread::current(), used: AtomicU64::new(0) })
    }
}

thread_local! {
    static SEAT: Arc<Seat> = Seat::new();
}

impl Ticket {
    /// Uses the ticket; false if it was used before.
    fn claim(&self) -> bool {
        let (number, next) = (self.number, self.number + 1);
        let used = &self.seat.used;
        used.compare_exchange(number, next, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// True once it was used.
    pub fn is_used(&self) -> bool {
        self.seat.used.load(Ordering::Relaxed) != self.number
    }

    /// Stops waiting; false if the thread was given the lead.
    pub fn leave(self) -> bool {
        self.claim()
    }
}

impl Followers {
    /// Registers this thread, which is about to park.
    pub fn join(&mut self) -> Ticket {
        // The search is paid for by as many threads that joined.
        if self.queue.len() >= self.most {
            self.queue.retain(|ticket| !ticket.is_used());
            self.most = FEW.max(2 * self.queue.len());
        }
        // A thread that is ending has lost its seat.
        let seat = SEAT.try_with(Arc::clone).unwrap_or_else(|_| Seat::new());
        let ticket = Ticket { number: seat.used.load(Ordering::Relaxed), seat };
        self.queue.push_back(ticket.clone());
        ticket
    }

    /// Gives the lead to the first thread that still waits; it must be woken.
    pub fn choose(&mut self) -> Option<Thread> {
        while let Some(ticket) = self.queue.pop_front() {
            if ticket.claim() {
                return Some(ticket.seat.thread.clone());
            }
        }
        None
    }
}

impl Access<'_> {
    /// Parks until woken, or until `unlocked` returns a value or this thread is given the lead.
    /// Returns the value, without the lock unless this thread has the lead.
    pub(super) fn follow<T>(
        &mut self,
        left: Option<Duration>,
        unlocked: Option<&dyn Fn() -> Option<T>>,
    ) -> Option<T> {
        // Deferred work may have ended what this thread waits for.
        if self.run_deferred() {
            return None;
        }
        // Waking tasks runs code of the application, which must come before the ticket.
        if self.waiters.wakes_tasks() {
            self.unlocked(|| ());
            return None;
        }
        let ticket = self.followers.join();
        self.release();
        let value = loop {
            match left {
                Some(left) => thread::park_timeout(left),
                None => thread::park(),
            }
            // Without a slot, only the lock shows whether the wait is over.
            let Some(unlocked) = unlocked else { break None };
            let value = unlocked();
            if value.is_some() || ticket.is_used() {
                break value;
            }
        };
        // It was woken for the lead, or its time has passed.
        if value.is_none() {
            self.guard = Some(self.shared.lock_state());
        }
        self.leading = !ticket.leave();
        if self.leading {
            self.guard.get_or_insert_with(|| self.shared.lock_state());
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{self, AssertUnwindSafe};
    use std::task::{Wake, Waker};
    use std::time::Instant;

    use super::super::Lead;
    use super::*;
    use crate::engine::wait::waiters::WakeTarget;
    use crate::{CallError, CallOptions, Client, Config, Engine};

    /// The waker of a task.
    struct Wakes<F>(F);

    impl<F: Fn() + Send + Sync + 'static> Wake for Wakes<F> {
        fn wake(self: Arc<Self>) {
            (self.0)();
        }
    }

    /// Another thread leads and is about to leave, while this one, about to follow, has a task to
    /// wake. If the lead is lost, this test hangs.
    fn follows_beside_a_waker(wakes: impl Fn(&dyn Fn(u64)) + Send + Sync + 'static) {
        let open = || Engine::bind("127.0.0.1:0".parse().unwrap(), Config::default()).unwrap();
        let (engine, silent) = (open(), open());
        let _server = silent.serve().unwrap();
        let to = silent.local_addr();
        let wait = move |client: &Client, millis| {
            let options = CallOptions::deadline(Duration::from_millis(millis));
            let result = client.call_with(to, "a question", &options);
            assert_eq!(result, Err(CallError::DeadlineExceeded));
        };
        let client = engine.client();
        thread::scope(|scope| {
            scope.spawn(|| wait(&engine.client(), 100));
            let mut access = engine.here().unwrap();
            while access.lead != Lead::Thread {
                drop(access);
                thread::yield_now();
                access = engine.here().unwrap();
            }
            let waker =
                Waker::from(Arc::new(Wakes(move || wakes(&|millis| wait(&client, millis)))));
            // No server listens at that port, so its waiter is woken.
            access.waiters.wait_for_request(0, WakeTarget::Task(waker));
            let until = Instant::now() + Duration::from_millis(300);
            let blocks = || access.block(Some(until), |_| None::<()>);
            let _ = panic::catch_unwind(AssertUnwindSafe(blocks));
        });
        wait(&engine.client(), 1);
    }

    #[test]
    fn a_waker_that_waits_for_the_engine_does_not_block_the_lead() {
        follows_beside_a_waker(|wait| wait(200));
    }

    #[test]
    fn a_waker_that_panics_does_not_keep_the_lead() {
        follows_beside_a_waker(|_| panic::resume_unwind(Box::new("a waker's")));
    }

    #[test]
    fn a_thread_leaves_or_leads_whatever_comes_first() {
        let mut followers = Followers::default();
        let leaves = followers.join();
        assert!(leaves.leave());
        assert!(followers.choose().is_none(), "a follower that left does not lead");
        let leads = followers.join();
        assert_eq!(followers.choose().map(|next| next.id()), Some(thread::current().id()));
        assert!(leads.is_used() && !leads.leave(), "a leader cannot leave as a follower");
        assert!(followers.choose().is_none());
    }

    #[test]
    fn used_tickets_do_not_pile_up() {
        let mut followers = Followers::default();
        // Each thread waits once.
        let mut joins = || thread::scope(|scope| scope.spawn(|| followers.join()).join().unwrap());
        let waiting: Vec<_> = (0..2 * FEW).map(|_| joins()).collect();
        for _ in 0..10_000 {
            assert!(followers.join().leave());
        }
        assert!(followers.queue.len() <= 4 * FEW, "{}", followers.queue.len());
        let leaders = std::iter::from_fn(|| followers.choose()).count();
        assert_eq!(leaders, waiting.len());
    }
}
