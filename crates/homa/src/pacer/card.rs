//! A model, in virtual time, of a network card and of a host that sends through it as the engine
//! does.
//!
//! The card serialises at the rate of the link. It keeps a packet on the socket's account until the
//! interrupt that reports it complete. Interrupts come at fixed intervals or, as from a shaper,
//! with every packet. The host looks at fixed intervals and sends everything that the pacer allows.

use std::collections::VecDeque;

use homa_proto::{Duration, FULL_FRAME, Rate, Time};

use super::LinkPacer;

/// The kernel's charge for the buffer itself, bytes.
const BUFFER: u32 = 768;
/// Full packets of the longest train.
const TRAIN: u32 = 10;

/// The packets that the host sends without a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// Full packets.
    Full,
    /// Packets of all sizes.
    Mixed,
    /// Trains of as many full packets as the budget allows, at most ten, each in one buffer.
    Trains,
}

/// A link, how it reports completions, and the host above it.
#[derive(Clone, Copy, Debug)]
pub struct CardRun {
    /// Rate of the link, before and after [`Self::change`].
    pub rates: [Rate; 2],
    /// When the rate changes.
    pub change: Time,
    /// The rate that the pacer is given.
    pub known_rate: Option<Rate>,
    /// Time between completion interrupts; zero means one per packet.
    pub every: Duration,
    /// Longest time between two looks of the host.
    pub step: Duration,
    /// The packets that are sent.
    pub traffic: Traffic,
    /// Results are counted from this time on, for [`Self::lasts`].
    pub from: Time,
    /// See [`Self::from`].
    pub lasts: Duration,
    /// With 0, all steps of the host are equal; otherwise each is shorter by up to a quarter, at
    /// random.
    pub seed: u64,
}

/// The result of a run.
#[derive(Clone, Copy, Debug)]
pub struct CardOutcome {
    /// Bytes that left, as a share of the link's capacity.
    pub share: f64,
    /// Median, over all looks, of the wire bytes on the account beyond rate × (completion interval
    /// + step).
    pub excess: i64,
    /// The most full packets, rounded up, that were not serialised after a look.
    pub most: u64,
    /// Queries of the kernel per look.
    pub questions: f64,
    /// The pacer's estimate at the end.
    pub estimate: Option<Rate>,
}

/// The card. It counts bits × 10⁹, so that a nanosecond at any rate is an integer.
#[derive(Debug)]
pub struct Card {
    rate: Rate,
    every: Duration,
    now: Time,
    interrupt: Time,
    /// Packets not yet reported: bits left to serialise, wire bytes, charge.
    skbs: VecDeque<(u64, u32, u32)>,
    /// Number of these that are serialised.
    done: usize,
    /// Wire bytes serialised.
    left: u64,
    charge: u32,
    /// Wire bytes passed down, and the part of them that is reported.
    handed: u64,
    reported: u64,
}

const fn bits(wire: u32) -> u64 {
    wire as u64 * 8_000_000_000
}

impl Card {
    /// An idle card.
    pub fn new(rate: Rate, every: Duration) -> Self {
        // Clocks never agree, so the interrupts drift relative to the host's steps.
        let every = if every == Duration::ZERO { every } else { every + Duration(7) };
        Self {
            rate,
            every,
            now: Time::ZERO,
            interrupt: Time::ZERO + every,
            skbs: VecDeque::new(),
            done: 0,
            left: 0,
            charge: 0,
            handed: 0,
            reported: 0,
        }
    }

    /// Changes the rate, also for queued packets.
    pub fn set_rate(&mut self, rate: Rate) {
        self.rate = rate;
    }

    /// Advances the time.
    pub fn advance(&mut self, to: Time) {
        while self.every > Duration::ZERO && self.interrupt <= to {
            self.serialise(self.interrupt);
            self.report();
            self.interrupt += self.every;
        }
        self.serialise(to);
        if self.every == Duration::ZERO {
            self.report();
        }
    }

    fn serialise(&mut self, to: Time) {
        let mut capacity = self.rate.0 * to.since(self.now).0;
        self.now = to;
        while capacity > 0
            && let Some((rest, wire, _)) = self.skbs.get_mut(self.done)
        {
            let now = capacity.min(*rest);
            (capacity, *rest) = (capacity - now, *rest - now);
            if *rest == 0 {
                self.left += u64::from(*wire);
                self.done += 1;
            }
        }
    }

    fn report(&mut self) {
        let reported = self.skbs.drain(..self.done);
        self.charge -= reported.map(|(_, _, charge)| charge).sum::<u32>();
        (self.done, self.reported) = (0, self.left);
    }

    /// Queues a buffer of `wire` bytes.
    pub fn send(&mut self, wire: u32, charge: u32) {
        self.skbs.push_back((bits(wire), wire, charge));
        self.charge += charge;
        self.handed += u64::from(wire);
    }

    /// The kernel's count of queued bytes.
    pub fn queued(&self) -> u32 {
        self.charge
    }

    /// Wire bytes serialised so far.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Wire bytes on the account.
    pub fn held(&self) -> u64 {
        self.handed - self.reported
    }

    /// Wire bytes not serialised yet.
    pub fn backlog(&self) -> u64 {
        let begun = self.skbs.get(self.done).map_or(0, |&(rest, wire, _)| bits(wire) - rest);
        self.handed - self.left - begun / 8_000_000_000
    }
}

/// The kernel's charge for a buffer of `wire` bytes. Memory is allocated in powers of two or, for
/// trains, in pages.
pub fn charge(wire: u32) -> u32 {
    let memory = if wire > FULL_FRAME { wire.next_multiple_of(4096) } else { wire.max(512) };
    BUFFER + if wire > FULL_FRAME { memory } else { memory.min(1536) }
}

/// A generator of random numbers for the host's choices.
#[derive(Debug, Default)]
struct Sizes(u64);

impl Sizes {
    fn random(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        self.0 >> 33
    }

    /// A step of the host.
    fn step(&mut self, cell: &CardRun) -> Duration {
        let shorter = if cell.seed == 0 { 0 } else { self.random() % (cell.step.0 / 4) };
        Duration(cell.step.0 - shorter)
    }

    fn next(&mut self, traffic: Traffic, budget: u32) -> u32 {
        match traffic {
            Traffic::Full => FULL_FRAME,
            Traffic::Trains => FULL_FRAME * (budget / FULL_FRAME).clamp(1, TRAIN),
            Traffic::Mixed => [84, 400, 900, FULL_FRAME, FULL_FRAME][self.random() as usize % 5],
        }
    }
}

/// Sends as the engine does while the pacer allows it; returns the number of queries.
fn look(
    pacer: &mut LinkPacer,
    card: &mut Card,
    now: Time,
    cell: &CardRun,
    sizes: &mut Sizes,
) -> u64 {
    let asked = std::cell::Cell::new(0);
    let ask = |card: &Card| {
        asked.set(asked.get() + 1);
        Some(card.queued())
    };
    loop {
        let budget = pacer.budget(now, || ask(card));
        if budget == 0 {
            return asked.get();
        }
        let mut wire = 0;
        while wire == 0 || wire + FULL_FRAME <= budget {
            let size = sizes.next(cell.traffic, budget - wire);
            card.send(size, charge(size));
            wire += size;
        }
        pacer.sent(now, wire, || ask(card));
    }
}

/// Runs a host that always has something to send.
pub fn run(cell: &CardRun) -> CardOutcome {
    let mut pacer = LinkPacer::new(cell.known_rate);
    let mut card = Card::new(cell.rates[0], cell.every);
    let (mut now, mut questions, mut looks, mut before, mut most) = (Time::ZERO, 0, 0, 0, 0);
    let (mut sizes, mut excess) = (Sizes(cell.seed), Vec::new());
    let rate = if cell.change < cell.from { cell.rates[1] } else { cell.rates[0] };
    let unavoidable = rate.bytes_in(cell.every + cell.step) as i64;
    while now < cell.from + cell.lasts {
        card.advance(now);
        if now >= cell.change {
            card.set_rate(cell.rates[1]);
        }
        if now < cell.from {
            before = card.left();
        }
        questions += look(&mut pacer, &mut card, now, cell, &mut sizes);
        looks += 1;
        if now >= cell.from {
            excess.push(card.held() as i64 - unavoidable);
            most = most.max(card.backlog().div_ceil(FULL_FRAME.into()));
        }
        now += sizes.step(cell);
    }
    excess.sort_unstable();
    let possible = rate.bytes_in(cell.lasts) as f64;
    CardOutcome {
        share: (card.left() - before) as f64 / possible,
        excess: excess[excess.len() / 2],
        most,
        questions: questions as f64 / looks as f64,
        estimate: pacer.estimate(),
    }
}

/// The pacer's knowledge of the rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Knowledge {
    /// The rate.
    Known,
    /// Nothing.
    Unknown,
    /// A quarter of the rate.
    TooLow,
    /// Four times the rate.
    TooHigh,
    /// A quarter of the rate, which was right before the link became faster.
    Rose,
    /// Four times the rate, which was right before the link became slower.
    Fell,
    /// Nothing, and the link becomes four times as fast.
    UnknownRose,
    /// Nothing, and the link becomes four times slower.
    UnknownFell,
}

impl Knowledge {
    /// Every kind.
    pub const ALL: [Self; 8] = [
        Self::Known,
        Self::Unknown,
        Self::TooLow,
        Self::TooHigh,
        Self::Rose,
        Self::Fell,
        Self::UnknownRose,
        Self::UnknownFell,
    ];

    /// Smallest acceptable share of the capacity, because Homa should fill the link.
    pub fn least_share(self) -> f64 {
        if self == Self::Known { 0.97 } else { 0.90 }
    }

    /// The experiment: 10 ms to settle, after the change if there is one, and 10 ms that count.
    pub fn cell(self, rate: Rate, every: Duration, step: Duration) -> CardRun {
        let (low, high) = (Rate(rate.0 / 4), rate);
        let settle = Time(10_000_000);
        let (rates, known_rate) = match self {
            Self::Known => ([rate; 2], Some(rate)),
            Self::Unknown => ([rate; 2], None),
            Self::TooLow => ([rate; 2], Some(low)),
            Self::TooHigh => ([low; 2], Some(high)),
            Self::Rose => ([low, high], Some(low)),
            Self::Fell => ([high, low], Some(high)),
            Self::UnknownRose => ([low, high], None),
            Self::UnknownFell => ([high, low], None),
        };
        let change = if rates[0] == rates[1] { Time::ZERO } else { settle };
        let from = change + Duration::millis(10);
        let lasts = Duration::millis(10);
        CardRun {
            rates,
            change,
            known_rate,
            every,
            step,
            traffic: Traffic::Full,
            from,
            lasts,
            seed: 0,
        }
    }
}
