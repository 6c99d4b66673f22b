//! The pull queue of a receiver: one for all its senders, served in turn among messages (NDP §3.2).

use std::collections::VecDeque;

use crate::transport::exchange::Ref;

/// Messages with pulls to be sent, each listed once: its turn comes, one pull goes out, and it
/// queues again if it has more.
#[derive(Clone, Debug, Default)]
pub(super) struct PullQueue {
    turns: VecDeque<Ref>,
}

/// A message's pulls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pulls {
    /// That wait in the queue.
    waiting: u32,
    /// That were sent: what a PULL says.
    pub sent: u32,
    listed: bool,
}

impl Pulls {
    /// Waiting pulls above `most` are not needed any more.
    pub fn limit(&mut self, most: u32) {
        self.waiting = self.waiting.min(most);
    }
}

impl PullQueue {
    /// One more pull of a message waits.
    pub fn add(&mut self, pulls: &mut Pulls, message: Ref) {
        pulls.waiting += 1;
        if !std::mem::replace(&mut pulls.listed, true) {
            self.turns.push_back(message);
        }
    }

    /// The message whose turn it is. Go on with [`PullQueue::serve`], if it is still there.
    pub fn take(&mut self) -> Option<Ref> {
        self.turns.pop_front()
    }

    /// Sends a pull of the message that was taken; false when it needs none.
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

    /// True when no message is listed.
    pub fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }
}
