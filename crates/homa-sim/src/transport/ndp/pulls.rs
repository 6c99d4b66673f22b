//! The pull queue of a receiver. All its senders share it, and messages take turns (NDP §3.2).

use std::collections::VecDeque;

use crate::transport::exchange::Ref;

/// Messages with pulls to send, each listed once. In its turn a message sends one pull, and joins
/// the end of the queue if it has more.
#[derive(Clone, Debug, Default)]
pub(super) struct PullQueue {
    turns: VecDeque<Ref>,
}

/// A message's pulls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pulls {
    /// Pulls that wait in the queue.
    waiting: u32,
    /// Pulls that were sent: the count that a PULL carries.
    pub sent: u32,
    listed: bool,
}

impl Pulls {
    /// Drops waiting pulls above `most`, because they are no longer needed.
    pub fn limit(&mut self, most: u32) {
        self.waiting = self.waiting.min(most);
    }
}

impl PullQueue {
    /// Adds a pull of a message.
    pub fn add(&mut self, pulls: &mut Pulls, message: Ref) {
        pulls.waiting += 1;
        if !std::mem::replace(&mut pulls.listed, true) {
            self.turns.push_back(message);
        }
    }

    /// The message whose turn it is. Call [`PullQueue::serve`] next, if the message still exists.
    pub fn take(&mut self) -> Option<Ref> {
        self.turns.pop_front()
    }

    /// Sends a pull of the message that was taken; false if it needs none.
    pub fn serve(&mut self, pulls: &mut Pulls, message: Ref) -> bool {
        pulls.listed = pulls.waiting > 1;
        if pulls.waiting == 0 {
            return false;
        }
        pulls.waiting -= 1;
        pulls.sent += 1;
        if pulls.listed {
            self.turns.push_back(message);
        }
        true
    }

    /// True if no message is listed.
    pub fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }
}
