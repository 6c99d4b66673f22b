//! The traffic of a network in partitions: each has its own generator, which starts the messages of
//! its hosts.
//!
//! A one-way message ends at its receiver, so that the generator of the receiver's partition keeps
//! it; the sender's tells it with a note, which arrives before the message can. An RPC ends at its
//! client, where it began. What no generator can know by itself, that is the end of traffic and the
//! sums over all partitions, is computed before the run or between windows.
//!
//! Left out: sources that follow what happens in the network (closed loops, workflows, tasks).

use std::sync::Arc;

use crate::engine::Divided;
use crate::scenario::{Exchange, TrafficEnding};
use crate::time::SimTime;
use crate::topology::Division;

use super::book::OpenMessage;
use super::generator::{Generator, Tally};

/// What the generator of one partition tells that of another. Messages are named by their sender
/// and number.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TrafficNote {
    /// A message to a host of the other partition began.
    Begun { src: u32, number: u32, message: OpenMessage },
    /// A sender aborted a message.
    Failed { src: u32, number: u32 },
    /// The response to this request was refused.
    Refused { src: u32, number: u32 },
}

/// The hosts of one partition, and notes for the other partitions.
#[derive(Debug)]
pub(crate) struct Share {
    number: u16,
    division: Arc<Division>,
    /// By partition.
    notes: Vec<Vec<TrafficNote>>,
}

impl Share {
    /// The share of partition `number`.
    pub fn new(number: u16, division: Arc<Division>) -> Self {
        let notes = vec![Vec::new(); usize::from(division.partitions())];
        Self { number, division, notes }
    }
}

impl Generator {
    /// The same generator for the hosts of one partition. Its pattern should start only their
    /// messages, and its limits have no number of messages.
    pub(crate) fn with_share(mut self, share: Share) -> Self {
        self.share = Some(Box::new(share));
        self
    }

    /// Enters the next message of `src`, which is submitted.
    pub(super) fn enter(&mut self, src: u32, message: OpenMessage) {
        let one_way = self.pattern.exchange == Exchange::OneWay;
        let share = self.share.as_mut().filter(|_| one_way);
        let away = share.and_then(|share| {
            let home = share.division.of_host(message.dst);
            (home != share.number).then(|| &mut share.notes[usize::from(home)])
        });
        match away {
            None => {
                self.book.begin(src, message);
            }
            Some(notes) => {
                let number = self.book.begin_elsewhere(src, message.bytes);
                notes.push(TrafficNote::Begun { src, number, message });
            }
        }
    }

    /// Tells all other partitions, because it is not known which has the message. Without
    /// partitions this does nothing.
    pub(super) fn tell_all(&mut self, note: TrafficNote) {
        let Some(share) = &mut self.share else { return };
        for (number, notes) in (0..).zip(&mut share.notes) {
            if number != share.number {
                notes.push(note);
            }
        }
    }

    /// Traffic has ended at `at`; the messages of that time have started.
    pub(crate) fn end_share(&mut self, at: SimTime) {
        self.ended = Some(at);
        self.pattern.source.traffic_ended(self.limits.ending == TrafficEnding::Loaded);
    }

    /// Takes over the counts and the new results of the generators of all partitions, in their
    /// order.
    pub(crate) fn gather(&mut self, parts: &mut [&mut Self]) {
        self.tally = parts.iter().map(|part| part.tally).fold(Tally::default(), Tally::plus);
        for part in &mut *parts {
            self.latencies.append(&mut part.latencies);
            self.kept.append(&mut part.kept);
        }
        self.backlog.append_sums(parts.iter_mut().map(|part| &mut part.backlog));
    }
}

impl Divided for Generator {
    type Note = TrafficNote;

    fn notes(&mut self, to: usize) -> &mut Vec<TrafficNote> {
        match &mut self.share {
            Some(share) => &mut share.notes[to],
            None => unreachable!("only the generator of a partition has notes"),
        }
    }

    fn on_note(&mut self, note: TrafficNote) {
        match note {
            TrafficNote::Begun { src, number, message } => self.book.enter(src, number, message),
            TrafficNote::Failed { src, number } => {
                let ended = self.book.end(src, number);
                let measured = ended.is_some_and(|message| message.measured);
                self.tally.measured_failed += u64::from(measured);
            }
            TrafficNote::Refused { src, number } => {
                let measured = self.book.is_measured(src, number);
                self.tally.measured_refused += u64::from(measured);
            }
        }
    }

    fn awaited(&self) -> Option<i64> {
        let Tally { measured, delivered, measured_failed, .. } = self.tally;
        let waits = self.ended.is_some() && self.limits.ending == TrafficEnding::Loaded;
        waits.then(|| measured as i64 - delivered as i64 - measured_failed as i64)
    }
}

impl Tally {
    fn plus(self, other: Self) -> Self {
        Self {
            submitted: self.submitted + other.submitted,
            measured: self.measured + other.measured,
            raised: self.raised + other.raised,
            delivered: self.delivered + other.delivered,
            failed: self.failed + other.failed,
            measured_failed: self.measured_failed + other.measured_failed,
            refused: self.refused + other.refused,
            measured_refused: self.measured_refused + other.measured_refused,
            offered_bytes: self.offered_bytes + other.offered_bytes,
            entered_bytes: self.entered_bytes + other.entered_bytes,
            offered_paper_bytes: self.offered_paper_bytes + other.offered_paper_bytes,
            delivered_bytes: self.delivered_bytes + other.delivered_bytes,
            all_offered_bytes: self.all_offered_bytes + other.all_offered_bytes,
            all_delivered_bytes: self.all_delivered_bytes + other.all_delivered_bytes,
        }
    }
}
