//! Parked threads that could lead, by order of arrival.
//!
//! The engine's lock guards the queue. A ticket is used once, by an atomic operation, which may be
//! the thread's, to leave, or the leader's, to hand that thread the lead: a thread that leaves
//! without the lock knows whether it leads by then, and has to pass the lead on. Used tickets stay
//! in the queue until that has doubled.
//!
//! Invariant: a thread with a ticket runs nobody else's code. That could wait for this engine,
//! which the thread could be leading, or panic.

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
    /// How long the queue becomes before used tickets are removed.
    most: usize,
}

/// A thread's place in the queue.
#[derive(Clone)]
pub struct Ticket {
    seat: Arc<Seat>,
    number: u64,
}

/// A thread that waits now and then, with one ticket each time.
struct Seat {
    thread: Thread,
    /// How many of its tickets were used, which is the number of the next.
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
    /// Uses it; false when it was used before.
    fn claim(&self) -> bool {
        let (number, next) = (self.number, self.number + 1);
        let used = &self.seat.used;
        used.compare_exchange(number, next, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// True once it was used.
    pub fn is_used(&self) -> bool {
        self.seat.used.load(Ordering::Relaxed) != self.number
    }

    /// This thread waits no longer; false when it was handed the lead.
    pub fn leave(self) -> bool {
        self.claim()
    }
}

impl Followers {
    /// This thread is about to park.
    pub fn join(&mut self) -> Ticket {
        if self.queue.len() >= self.most {
            self.queue.retain(|ticket| !ticket.is_used());
            self.most = FEW.max(2 * self.queue.len());
        }
        // A thread that ends has lost its own.
        let seat = SEAT.try_with(Arc::clone).unwrap_or_else(|_| Seat::new());
        let ticket = Ticket { number: seat.used.load(Ordering::Relaxed), seat };
        self.queue.push_back(ticket.clone());
        ticket
    }

    /// Hands the lead to the first that still waits, which has to be woken.
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
    /// Parks until woken, or until `unlocked` yields a value or this thread was handed the lead.
    /// Returns the value, without the lock unless this thread has the lead.
    pub(super) fn follow<T>(
        &mut self,
        left: Option<Duration>,
        unlocked: Option<&dyn Fn() -> Option<T>>,
    ) -> Option<T> {
        if self.run_deferred() {
            return None;
        }
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
            let Some(unlocked) = unlocked else { break None };
            let value = unlocked();
            if value.is_some() || ticket.is_used() {
                break value;
            }
        };
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

    /// What a task's waker does.
    struct Wakes<F>(F);

    impl<F: Fn() + Send + Sync + 'static> Wake for Wakes<F> {
        fn wake(self: Arc<Self>) {
            (self.0)();
        }
    }

    /// Another thread leads and soon leaves, while this one, about to follow, has a task to wake.
    /// Where the lead is lost, this hangs.
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
            // Nobody serves that port: who waits there is woken.
            access.waiters.wait_for_request(0, WakeTarget::Task(waker));
            let until = Instant::now() + Duration::from_millis(300);
            let blocks = || access.block(Some(until), |_| None::<()>);
            let _ = panic::catch_unwind(AssertUnwindSafe(blocks));
        });
        wait(&engine.client(), 1);
    }

    #[test]
    fn a_waker_that_waits_for_the_engine_does_not_keep_the_lead_from_it() {
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
        assert!(followers.choose().is_none(), "who has left does not lead");
        let leads = followers.join();
        assert_eq!(followers.choose().map(|next| next.id()), Some(thread::current().id()));
        assert!(leads.is_used() && !leads.leave(), "who leads does not just leave");
        assert!(followers.choose().is_none());
    }

    #[test]
    fn tickets_of_those_who_left_do_not_pile_up() {
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
