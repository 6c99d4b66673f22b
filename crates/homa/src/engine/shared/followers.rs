//! Parked threads that could lead, by order of arrival.
//!
//! The engine's lock guards the queue. A ticket is used once, by an atomic operation, which may be
//! the thread's, to leave, or the leader's, to hand that thread the lead: a thread that leaves
//! without the lock knows whether it leads by then, and has to pass the lead on. Used tickets stay
//! in the queue until that has doubled.

use std::cell::Cell;
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
    /// This thread's, while it does not wait: what it wakes just before it parks may call back and
    /// wait, too, with a ticket of its own.
    static SEAT: Cell<Option<Arc<Seat>>> = const { Cell::new(None) };
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
        let leaves = self.claim();
        // A thread that ends has no use for it.
        let _ = SEAT.try_with(|seat| seat.set(Some(self.seat)));
        leaves
    }
}

impl Followers {
    /// This thread is about to park.
    pub fn join(&mut self) -> Ticket {
        if self.queue.len() >= self.most {
            self.queue.retain(|ticket| !ticket.is_used());
            self.most = FEW.max(2 * self.queue.len());
        }
        let seat = SEAT.try_with(Cell::take).ok().flatten().unwrap_or_else(Seat::new);
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
        if self.end_what_is_over() {
            return None;
        }
        let ticket = self.followers.join();
        self.release();
        let value = loop {
            // Before it parks, too: what was woken just now may have called back, and used up the
            // wake-up of this thread.
            if let Some(unlocked) = unlocked {
                let value = unlocked();
                if value.is_some() || ticket.is_used() {
                    break value;
                }
            }
            match left {
                Some(left) => thread::park_timeout(left),
                None => thread::park(),
            }
            if unlocked.is_none() {
                break None;
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
    use super::*;

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
    fn a_thread_that_waits_while_it_is_about_to_wait_does_not_use_up_the_first_ticket() {
        let mut followers = Followers::default();
        let outer = followers.join();
        assert!(followers.join().leave());
        assert!(!outer.is_used() && outer.leave());
    }

    #[test]
    fn tickets_of_those_who_left_do_not_pile_up() {
        let mut followers = Followers::default();
        let waiting: Vec<_> = (0..2 * FEW).map(|_| followers.join()).collect();
        for _ in 0..10_000 {
            assert!(followers.join().leave());
        }
        assert!(followers.queue.len() <= 4 * FEW, "{}", followers.queue.len());
        let leaders = std::iter::from_fn(|| followers.choose()).count();
        assert_eq!(leaders, waiting.len());
    }
}
