//! Size distributions: a step function from a uniform draw to the bytes of one message.
//!
//! W1-W5 are the workloads of the Homa paper (Figure 1); their tables lie in `data/` with their
//! sources. A draw u in (0, 1] takes the first row whose cumulative share is at least u. Nothing is
//! interpolated in them: the published simulations did not, and with interpolation the means would
//! fall by 1.5 to 5 %. Tables of other simulators are points with lines between them, which become
//! many steps here.
//!
//! Invariants of a [`SizeDistribution`]: at least one row; sizes strictly increase and are at least
//! 1; cumulative shares never decrease; the last one is exactly 1.
//!
//! The table of W1 ends at 100,000 bytes; 2e-7 of the messages of its model are larger.

mod etc_model;
mod lines;
mod packets;
mod reading;
mod table;
mod workload;
mod written;

pub use packets::PACKET as PACKET_BYTES;
pub use reading::{Between, Reading, Shares, TableForm};
pub use table::{TableError, TableErrorKind};
pub use workload::{Workload, WorkloadError};

use crate::rng::Rng;

/// The largest message that a table or a list may name, bytes: what transports take.
pub const MAX_BYTES: u32 = i32::MAX as u32;

/// One step of a [`SizeDistribution`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SizeStep {
    /// Message size in application bytes.
    pub bytes: u32,
    /// Share of messages of at most this size, 0 to 1.
    pub cumulative: f64,
}

/// How often messages of each size occur.
#[derive(Clone, Debug, PartialEq)]
pub struct SizeDistribution {
    steps: Vec<SizeStep>,
    /// Of a table: how it was understood.
    form: Option<TableForm>,
}

impl SizeDistribution {
    /// Every message has the same size in bytes; `None` for the empty message, which no RPC may
    /// carry.
    pub fn constant(bytes: u32) -> Option<Self> {
        (bytes > 0).then(|| Self::of_steps(vec![SizeStep { bytes, cumulative: 1.0 }]))
    }

    /// Reads a table: sizes and the share of messages of at most that, ascending. With the header
    /// `size_bytes,cumulative_fraction` its rows are steps; without it they are points with lines
    /// between them, in fractions or per cent, as generators of other simulators have them.
    pub fn from_csv(text: &str) -> Result<Self, TableError> {
        Self::from_table(text, Reading::default())
    }

    /// Reads a table as [`SizeDistribution::from_csv`] does, with some of it decided beforehand.
    pub fn from_table(text: &str, reading: Reading) -> Result<Self, TableError> {
        table::parse(text, reading).map(|(steps, form)| Self { steps, form: Some(form) })
    }

    /// A distribution that no table describes.
    fn of_steps(steps: Vec<SizeStep>) -> Self {
        Self { steps, form: None }
    }

    /// How the table was understood that this was read from; `None` if it was none of the user's.
    pub fn form(&self) -> Option<&TableForm> {
        self.form.as_ref()
    }

    /// What a list of messages holds: each of its sizes with its own share; `None` for an empty
    /// list or an empty message.
    pub fn of_messages(bytes: impl IntoIterator<Item = u32>) -> Option<Self> {
        let mut sizes: Vec<u32> = bytes.into_iter().collect();
        sizes.sort_unstable();
        if *sizes.first()? == 0 {
            return None;
        }
        let total = sizes.len() as f64;
        let mut steps: Vec<SizeStep> = Vec::new();
        for (index, &bytes) in sizes.iter().enumerate() {
            if steps.last().is_some_and(|step| step.bytes == bytes) {
                steps.pop();
            }
            steps.push(SizeStep { bytes, cumulative: (index + 1) as f64 / total });
        }
        Some(Self::of_steps(steps))
    }

    /// The same distribution with every larger size cut down to `max_bytes` (at least 1), as the
    /// Homa/Linux paper (ATC 2021) cuts at 1 MB: the messages stay, their bytes above the cap do
    /// not.
    pub fn truncated(&self, max_bytes: u32) -> Self {
        let cap = max_bytes.max(1);
        let is_cut = cap < self.max_bytes();
        // The mean that a table states is that of its own sizes.
        let form =
            self.form.map(|form| TableForm { stated: form.stated.filter(|_| !is_cut), ..form });
        let mut steps: Vec<SizeStep> = Vec::new();
        for step in &self.steps {
            if step.bytes >= cap {
                steps.push(SizeStep { bytes: cap, cumulative: 1.0 });
                break;
            }
            steps.push(*step);
        }
        Self { steps, form }
    }

    /// A warning if the first line of the table states a mean that the table, as it was
    /// understood, does not have.
    pub fn doubt(&self) -> Option<String> {
        let form = self.form.filter(|form| !form.agrees(self.mean_bytes()))?;
        let (stated, mean) = (form.stated?, self.mean_bytes() / f64::from(form.packet));
        Some(format!(
            "its first line states a mean of {stated}, and with {} it has {mean:.1}: `steps:FILE`, \
             `linear:FILE`, `bytes:FILE` and `packets:FILE` read it otherwise",
            form.between
        ))
    }

    /// The steps, by increasing size.
    pub fn steps(&self) -> &[SizeStep] {
        &self.steps
    }

    /// The size that a draw `u` in (0, 1] stands for; also the quantile function. Draws outside are
    /// taken as the nearest end.
    pub fn quantile(&self, u: f64) -> u32 {
        let index = self.steps.partition_point(|step| step.cumulative < u);
        self.steps[index.min(self.steps.len() - 1)].bytes
    }

    /// The size of the next message.
    pub fn sample(&self, rng: &mut Rng) -> u32 {
        self.quantile(rng.uniform())
    }

    /// Sizes with their own (not cumulative) shares, by increasing size; impossible sizes are left
    /// out.
    pub fn shares(&self) -> impl Iterator<Item = (u32, f64)> + '_ {
        let mut before = 0.0;
        self.steps.iter().filter_map(move |step| {
            let share = step.cumulative - before;
            before = step.cumulative;
            (share > 0.0).then_some((step.bytes, share))
        })
    }

    /// Mean of a cost over the messages, for example of their bytes on the wire.
    pub fn mean_of(&self, cost: impl Fn(u32) -> f64) -> f64 {
        self.shares().map(|(bytes, share)| share * cost(bytes)).sum()
    }

    /// Mean message size in bytes.
    pub fn mean_bytes(&self) -> f64 {
        self.mean_of(f64::from)
    }

    /// The smallest size that occurs, bytes.
    pub fn min_bytes(&self) -> u32 {
        self.shares().next().map_or(1, |(bytes, _)| bytes)
    }

    /// The largest size, bytes.
    pub fn max_bytes(&self) -> u32 {
        self.steps[self.steps.len() - 1].bytes
    }

    /// Share of messages of at most `bytes`, 0 to 1.
    pub fn share_of_messages(&self, bytes: u32) -> f64 {
        let above = self.steps.partition_point(|step| step.bytes <= bytes);
        above.checked_sub(1).map_or(0.0, |i| self.steps[i].cumulative)
    }

    /// Share of all bytes that travel in messages of at most `bytes`, 0 to 1.
    pub fn share_of_bytes(&self, bytes: u32) -> f64 {
        let below = self.mean_of(|size| if size <= bytes { f64::from(size) } else { 0.0 });
        below / self.mean_bytes()
    }
}

#[cfg(test)]
mod tests;
