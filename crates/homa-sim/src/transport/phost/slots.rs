//! A receiver's token slots as in the authors' simulator (YAPS).
//!
//! One slot per packet time runs while tokens go out. Two rules differ from a receiver that sends a
//! token whenever one is due. When the receiver first sees a message with free packets, that many
//! of its next slots pass unused, so that packets that come unasked do not pile up on a link whose
//! every slot is given away; the number is set, not added, and a message without free packets sets
//! it to 0. A slot that finds no message to serve ends the chain: the receiver then sleeps until
//! the time at which a wait was to end, as it stood at that moment, or until the first packet of a
//! new message. Data that arrives in between does not wake it, even if a message may get tokens
//! again. Without these rules ([`TokenSlots::default`]) it is always awake.

use homa_proto::Time;

/// See the module's description.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TokenSlots {
    /// The rules apply.
    on: bool,
    /// Slots that pass unused.
    pass: u32,
    /// No slots run.
    asleep: bool,
    /// When it wakes.
    wake_at: Option<Time>,
}

impl TokenSlots {
    /// With the rules, or without.
    pub fn new(on: bool) -> Self {
        Self { on, ..Self::default() }
    }

    /// The first packet of a message with this many free packets arrives.
    pub fn begin(&mut self, free: u32) {
        if self.on {
            (self.pass, self.asleep) = (free, false);
        }
    }

    /// True if the slot that is due passes unused.
    pub fn passes(&mut self) -> bool {
        let passes = self.pass > 0;
        self.pass = self.pass.saturating_sub(1);
        passes
    }

    /// True if slots pass unused.
    pub fn has_passing(&self) -> bool {
        self.pass > 0
    }

    /// A slot finds no message to serve; the next wait ends at `wake_at`.
    pub fn sleep(&mut self, wake_at: Option<Time>) {
        if self.on {
            (self.asleep, self.wake_at) = (true, wake_at);
        }
    }

    /// Wakes it if it is time.
    pub fn expire(&mut self, now: Time) {
        if self.wake_at.is_some_and(|at| at <= now) {
            self.wake();
        }
    }

    /// A wait has ended.
    pub fn wake(&mut self) {
        (self.asleep, self.wake_at) = (false, None);
    }

    /// True if no slots run.
    pub fn is_asleep(&self) -> bool {
        self.asleep
    }

    /// True if slots run although no message may get a token: the next one ends the chain.
    pub fn runs_idle(&self) -> bool {
        self.on && !self.asleep
    }

    /// When it wakes.
    pub fn due(&self) -> Option<Time> {
        self.wake_at
    }
}
