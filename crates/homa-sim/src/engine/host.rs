//! State of a host that the engine keeps: the wire it pulls packets for, its one timer, and whether
//! it is up. The transport is stored apart, because it is large and this is read more often.
//!
//! Invariants: at most one wake-up for the wire is pending, and only while the transport has
//! something to send; at most one timer event is *current*. Older timer events that are still in
//! the queue are ignored.

use std::ops::{Index, IndexMut};

use homa_proto::Time;

use crate::time::SimTime;

/// A value for each host of a range, by the host's number.
#[derive(Debug)]
pub(super) struct ByHost<T> {
    first: usize,
    values: Vec<T>,
}

impl<T> ByHost<T> {
    /// The values of `first` and the hosts after it.
    pub fn new(first: u32, values: Vec<T>) -> Self {
        Self { first: first as usize, values }
    }

    /// The value of a host; `None` if it is not in the range.
    pub fn get(&self, host: u32) -> Option<&T> {
        self.values.get((host as usize).wrapping_sub(self.first))
    }

    /// All hosts of the range with their values.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
        (self.first..).zip(&self.values)
    }
}

impl<T> Index<usize> for ByHost<T> {
    type Output = T;

    #[inline]
    fn index(&self, host: usize) -> &T {
        &self.values[host.wrapping_sub(self.first)]
    }
}

impl<T> IndexMut<usize> for ByHost<T> {
    #[inline]
    fn index_mut(&mut self, host: usize) -> &mut T {
        &mut self.values[host.wrapping_sub(self.first)]
    }
}

/// The engine's state of one host.
#[derive(Clone, Copy, Debug)]
pub(super) struct HostState {
    /// Time of the current timer event; `MAX` if none.
    pub timer: SimTime,
    /// Until this time the host is frozen: it processes nothing and sends nothing new.
    pub paused_until: SimTime,
    /// The timer was delayed until the end of a pause. Packets that arrived during the pause are
    /// processed before it.
    pub timer_waited: bool,
    /// Number of restarts.
    pub life: u32,
    pub up: bool,
    /// A wake-up at the end of the packet on the wire is pending.
    pub wire_awaited: bool,
    /// The host is in the list of hosts with new input.
    pub dirty: bool,
}

impl HostState {
    pub const fn new() -> Self {
        Self {
            // The first call informs the transport of the start of its life.
            timer: SimTime::ZERO,
            paused_until: SimTime::ZERO,
            timer_waited: false,
            life: 0,
            up: true,
            wire_awaited: false,
            dirty: false,
        }
    }

    /// Time of a new timer event, if the transport's deadline needs one.
    #[inline]
    pub fn rearm(&mut self, now: SimTime, deadline: Option<Time>) -> Option<SimTime> {
        let deadline = SimTime::from_protocol(deadline?);
        if deadline == SimTime::MAX || deadline >= self.timer {
            return None;
        }
        self.timer = deadline.max(now);
        Some(self.timer)
    }
}
