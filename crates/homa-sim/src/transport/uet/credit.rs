//! RCCC, the credit of receivers (UET 1.0; rules and constants as in `uet-htsim` 40ccb05,
//! `uec.cpp`).
//!
//! A sender begins with speculative credit for the largest window, which ends with the first packet
//! that it hears from the receiver. Each of its packets says how much it wants, the *pull target*.
//! Targets and pulls count quanta of 256 bytes from the message's start, so that a later one covers
//! those that were lost. A receiver pulls four packets at a time, at 99 % of its link's rate for
//! all senders together, which take turns while they want something. While none does, it pulls a
//! little ahead from those that were satisfied (slow pulls).
//!
//! A message that sent its last packet asks for nothing more. If packets of it are trimmed
//! afterwards, its receiver answers with a pull that grants nothing, because the target is what it
//! was, and there only a slow pull helps, which comes when no other sender wants anything. Here a
//! sender sends a request after a timeout if it lacks credit, has no packet in flight, and asked
//! for no more than it got (*inferred*).
//!
//! Invariants: a message is at most once in each list of the receiver's queue; a pull never takes
//! back what an earlier one gave. Left out: the rate that follows a host's PCIe bus. In the
//! authors' simulator, satisfied flows are also pulled after their end, and may be listed twice.
//! Targets may fall below what was pulled. A pull grants 16,384 bytes, even if packets are small.
//! The first credit is always the largest window, even if the first window is smaller.

use std::collections::VecDeque;

use homa_proto::{Duration, Rate, Time};
use homa_workload::rng::Rng;

use crate::transport::exchange::Ref;
use crate::transport::parts::PermitPacer;

use super::core_rate::{CoreRate, DataArrival};

/// Wire bytes of a quantum.
const QUANTUM: u32 = 256;
/// Full packets that a pull grants, rounded down to quanta.
const PACKETS_PER_PULL: u32 = 4;
/// Quanta whose time a pull takes that grants nothing.
const EMPTY_PULL: u32 = 4;
/// The share of its link that a receiver pulls, per cent.
const PULLED_PERCENT: u64 = 99;
/// Doublings of the time between requests to send, at most.
const MOST_DOUBLINGS: u8 = 6;

/// The sizes of credit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RcccConfig {
    /// Wire bytes of a full packet.
    pub full: u32,
    /// The host's link.
    pub link: Rate,
    /// Speculative credit of a message, wire bytes.
    pub initial: u64,
    /// The most credit that a message has, wire bytes.
    pub most: u64,
    /// Round trip of the longest empty path, ns: the least time between two requests to send.
    pub base_rtt: u64,
    /// Thousandths of what the links of a rack carry that its hosts can send. Above 1000, pulls
    /// follow what the core carries.
    pub oversubscription: u32,
}

impl RcccConfig {
    /// Quanta that a pull grants.
    const fn per_pull(&self) -> u32 {
        let quanta = PACKETS_PER_PULL * self.full / QUANTUM;
        if quanta == 0 { 1 } else { quanta }
    }

    /// Quanta by which slow pulls run ahead, at most.
    fn ahead(&self) -> u32 {
        u32::try_from(self.most / u64::from(QUANTUM)).unwrap_or(u32::MAX)
    }
}

/// The credit of a message at its sender.
#[derive(Clone, Debug)]
pub(super) struct Credit {
    /// Wire bytes that may be sent. The packet that uses it up may make it negative.
    bytes: i64,
    /// Quanta pulled so far.
    pulled: u32,
    /// The highest target that it sent.
    announced: u32,
    /// Nothing was heard of the receiver yet.
    speculates: bool,
    /// When it last sent a request to send (RTS).
    asked: Option<Time>,
    /// How many it sent since the last pull.
    requests: u8,
}

impl Credit {
    pub fn new(config: &RcccConfig) -> Self {
        let bytes = i64::try_from(config.initial).unwrap_or(i64::MAX);
        Self { bytes, pulled: 0, announced: 0, speculates: true, asked: None, requests: 0 }
    }

    /// A packet may be sent if there is any credit.
    pub fn is_there(&self) -> bool {
        self.bytes > 0
    }

    pub fn spend(&mut self, bytes: u32) {
        self.bytes -= i64::from(bytes);
    }

    /// Something was heard of the receiver, so what is left of the speculative credit is void.
    pub fn heard(&mut self) {
        if std::mem::replace(&mut self.speculates, false) {
            self.bytes = self.bytes.min(0);
        }
    }

    /// A pull arrived: the receiver has granted `pulled` quanta so far.
    pub fn pulled(&mut self, config: &RcccConfig, pulled: u32) {
        self.heard();
        self.requests = 0;
        let more = i64::from(pulled.saturating_sub(self.pulled)) * i64::from(QUANTUM);
        let most = i64::try_from(config.most).unwrap_or(i64::MAX);
        self.bytes = (self.bytes + more).min(most);
        self.pulled = self.pulled.max(pulled);
    }

    /// A packet with this target leaves.
    pub fn announces(&mut self, target: u32) {
        self.announced = self.announced.max(target);
    }

    /// The pull target of a sender that still has to send `backlog` wire bytes, with `sources`
    /// messages that share its link now. `window` bounds what it asks for, if it has one.
    pub fn target(
        &self,
        config: &RcccConfig,
        (backlog, is_new): (u64, bool),
        window: Option<u64>,
        sources: usize,
    ) -> u32 {
        let full = u64::from(config.full);
        let most = window.map_or(config.most, |window| config.most.min(window + full));
        let mut wants = i64::try_from(backlog.min(most)).unwrap_or(i64::MAX) - self.bytes;
        // It has enough if its speculation comes true, and would wait for a round trip if not.
        if self.speculates && is_new {
            wants = wants.max(i64::from(config.full));
        }
        let share = wants / i64::try_from(sources.max(1)).unwrap_or(i64::MAX);
        let quanta = share.max(0).cast_unsigned().div_ceil(QUANTUM.into());
        self.pulled.saturating_add(u32::try_from(quanta).unwrap_or(u32::MAX))
    }

    /// Whether a request to send may go now: at most one in a round trip. Counts it.
    pub fn asks(&mut self, config: &RcccConfig, now: Time) -> bool {
        let may = self.asked.is_none_or(|at| now.since(at).0 >= config.base_rtt);
        if may {
            self.asked = Some(now);
            self.requests = self.requests.saturating_add(1);
        }
        may
    }

    /// How long it waits for a pull without any packet in flight, until it asks for one. Requests
    /// may be lost, and so may pulls; but a receiver that owes some is only busy with others.
    pub fn patience(&self, timeout: Duration) -> Duration {
        let is_owed = self.requests == 0 && self.announced > self.pulled;
        let doublings = if is_owed { MOST_DOUBLINGS } else { self.requests.min(MOST_DOUBLINGS) };
        Duration(timeout.0.saturating_mul(1 << doublings))
    }
}

/// What a receiver has pulled of a message.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pulled {
    /// Quanta pulled so far.
    quanta: u32,
    /// The highest pull target of its sender.
    target: u32,
    is_wanted: bool,
    is_satisfied: bool,
    /// Pulls sent so far, which choose the paths of the next ones.
    sent: u16,
}

impl Pulled {
    fn wants_more(&self) -> bool {
        self.target > self.quanta
    }

    /// A pull of what the sender asked for, or, if it is slow, of some more. Returns its quanta.
    fn pull(&mut self, config: &RcccConfig, slow: bool) -> u32 {
        let most = if slow { u32::MAX } else { self.target.max(self.quanta) };
        let before = self.quanta;
        self.quanta = before.saturating_add(config.per_pull()).min(most);
        self.sent = self.sent.wrapping_add(1);
        self.quanta - before
    }
}

/// A pull to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pull {
    /// Quanta pulled of the message so far.
    pub quanta: u32,
    /// The number of the pull, from 1.
    pub number: u16,
}

/// The messages that a host pulls. They share one pacer, because they share the host's link.
#[derive(Clone, Debug)]
pub(super) struct CreditQueue {
    /// Those whose senders want something, in turn.
    wanted: VecDeque<Ref>,
    /// Those that were satisfied, for slow pulls.
    satisfied: VecDeque<Ref>,
    pacer: PermitPacer,
    /// In an oversubscribed network.
    core: Option<CoreRate>,
}

impl CreditQueue {
    pub fn new(config: &RcccConfig, rng: Rng) -> Self {
        let rate = (config.link.0 / 100 * PULLED_PERCENT).max(1);
        let core = (config.oversubscription > 1_000)
            .then(|| CoreRate::new(f64::from(config.oversubscription) / 1e3, config.base_rtt, rng));
        Self {
            wanted: VecDeque::new(),
            satisfied: VecDeque::new(),
            pacer: PermitPacer::new(Rate(rate), QUANTUM),
            core,
        }
    }

    /// A packet arrived at this host.
    pub fn saw(&mut self, now: Time, arrival: DataArrival) {
        if let Some(core) = &mut self.core {
            core.saw(now, arrival);
        }
    }

    /// When the next pull is due.
    pub fn next(&self) -> Option<Time> {
        let waits = !self.wanted.is_empty() || !self.satisfied.is_empty();
        waits.then(|| self.pacer.next())
    }

    /// A sender said how much it wants. It gets a pull in its turn if that is more than before, or
    /// `anyway`, because it has to send a packet again or lacks credit.
    pub fn wants(&mut self, pulled: &mut Pulled, message: Ref, (target, anyway): (u32, bool)) {
        let more = target > pulled.target;
        pulled.target = pulled.target.max(target);
        if (more || anyway) && !std::mem::replace(&mut pulled.is_wanted, true) {
            self.wanted.push_back(message);
        }
    }

    /// The message whose turn it is, if a pull is due. Call [`CreditQueue::pull`] next, if the
    /// message still exists.
    pub fn take(&mut self, now: Time) -> Option<Ref> {
        if self.pacer.next() > now {
            return None;
        }
        self.wanted.pop_front().or_else(|| self.satisfied.pop_front())
    }

    /// Pulls the message that was taken.
    pub fn pull(
        &mut self,
        config: &RcccConfig,
        pulled: &mut Pulled,
        (now, message): (Time, Ref),
    ) -> Pull {
        let slow = !pulled.is_wanted;
        let granted = pulled.pull(config, slow);
        if slow {
            pulled.is_satisfied = pulled.quanta.saturating_sub(pulled.target) < config.ahead();
            if pulled.is_satisfied {
                self.satisfied.push_back(message);
            }
        } else if pulled.wants_more() {
            self.wanted.push_back(message);
        } else {
            pulled.is_wanted = false;
            if !std::mem::replace(&mut pulled.is_satisfied, true) {
                self.satisfied.push_back(message);
            }
        }
        let bytes = QUANTUM * if granted == 0 { EMPTY_PULL } else { granted };
        let paced = self.core.as_mut().map_or(bytes, |core| core.stretched(now, bytes));
        self.pacer.take_for(now, paced);
        Pull { quanta: pulled.quanta, number: pulled.sent }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fat tree of `uet-htsim` with its defaults: credit for 63 packets, pulls of 64 quanta.
    const CONFIG: RcccConfig = RcccConfig {
        full: 4_150,
        link: Rate::gbps(100),
        initial: 262_930,
        most: 262_930,
        base_rtt: 14_023,
        oversubscription: 1_000,
    };
    const FULL: i64 = 4_150;
    const MUCH: (u64, bool) = (2_000_000, true);

    const fn name(index: u32) -> Ref {
        Ref { index, generation: 0 }
    }

    fn target(credit: &Credit, backlog: (u64, bool)) -> u32 {
        credit.target(&CONFIG, backlog, None, 1)
    }

    #[test]
    fn speculative_credit_is_void_once_something_is_heard() {
        let mut credit = Credit::new(&CONFIG);
        credit.spend(4_150);
        assert_eq!(credit.bytes, 262_930 - FULL);
        credit.heard();
        assert_eq!((credit.bytes, credit.is_there()), (0, false));
        credit.spend(100);
        credit.heard();
        assert_eq!(credit.bytes, -100, "what was sent too much stays owed");
    }

    #[test]
    fn a_later_pull_covers_a_lost_one_and_a_late_one_takes_nothing() {
        let mut credit = Credit::new(&CONFIG);
        credit.pulled(&CONFIG, 64);
        assert_eq!(credit.bytes, 16_384);
        credit.pulled(&CONFIG, 192);
        credit.pulled(&CONFIG, 128);
        assert_eq!((credit.bytes, credit.pulled), (3 * 16_384, 192));
        credit.pulled(&CONFIG, 1_000_000);
        assert_eq!(credit.bytes, 262_930, "the most");
    }

    #[test]
    fn a_sender_asks_for_what_its_credit_does_not_cover() {
        let mut credit = Credit::new(&CONFIG);
        // As `uet-htsim` prints for the first packets: 17 quanta, and 33 after the second.
        credit.spend(4_150);
        assert_eq!(target(&credit, MUCH), 17);
        credit.spend(4_150);
        assert_eq!(target(&credit, MUCH), 33);
        // It asks for a packet even if its speculation covers everything.
        assert_eq!(target(&credit, (1_000, true)), 17);
        assert_eq!(target(&credit, (1_000, false)), 0, "only packets to be sent again");
        credit.pulled(&CONFIG, 64);
        assert_eq!(target(&credit, MUCH), 64 + (262_930_u32 - 16_384).div_ceil(256));
        assert_eq!(target(&credit, (16_384, true)), 64);
        assert_eq!(credit.target(&CONFIG, MUCH, None, 4), 64 + (246_546_u32 / 4).div_ceil(256));
        assert_eq!(credit.target(&CONFIG, MUCH, Some(20_000), 1), 64 + 7_766_u32.div_ceil(256));
    }

    #[test]
    fn requests_are_a_round_trip_apart_and_waits_double() {
        let mut credit = Credit::new(&CONFIG);
        let timeout = Duration(100);
        assert_eq!(credit.patience(timeout), timeout);
        assert!(credit.asks(&CONFIG, Time(50_000)));
        assert!(!credit.asks(&CONFIG, Time(64_022)));
        assert_eq!(credit.patience(timeout), Duration(200));
        assert!(credit.asks(&CONFIG, Time(64_023)));
        assert_eq!(credit.patience(timeout), Duration(400));
        credit.pulled(&CONFIG, 64);
        assert_eq!(credit.patience(timeout), timeout);
        assert!(!credit.asks(&CONFIG, Time(70_000)), "a pull permits no other request");
        credit.announces(65);
        assert_eq!(credit.patience(timeout), Duration(6_400), "it is the receiver's turn");
        credit.pulled(&CONFIG, 65);
        assert_eq!(credit.patience(timeout), timeout);
    }

    /// The messages of the next pulls, with their times.
    fn pulls(
        queue: &mut CreditQueue,
        pulled: &mut [Pulled],
        n: usize,
    ) -> Vec<(Option<Time>, u32, u32)> {
        let pull = |_| {
            let at = queue.next();
            let message = queue.take(at.unwrap_or(Time(0))).expect("one is listed");
            let state = &mut pulled[message.index as usize];
            let pull = queue.pull(&CONFIG, state, (at.unwrap_or(Time(0)), message));
            (at, message.index, pull.quanta)
        };
        (0..n).map(pull).collect()
    }

    #[test]
    fn senders_take_turns_at_the_pace_of_the_link() {
        let mut queue = CreditQueue::new(&CONFIG, Rng::stream(1, "pulls"));
        let mut pulled = [Pulled::default(); 2];
        assert_eq!(queue.next(), None);
        for (index, quanta) in [(0, 150), (1, 100), (0, 120)] {
            queue.wants(&mut pulled[index as usize], name(index), (quanta, false));
        }
        // 16,384 bytes take 1,323.96 ns at 99 Gbit/s, and the 36 quanta of the fourth 744.7 ns.
        let expected = [
            (Some(Time(0)), 0, 64),
            (Some(Time(1_324)), 1, 64),
            (Some(Time(2_648)), 0, 128),
            (Some(Time(3_972)), 1, 100),
            (Some(Time(4_717)), 0, 150),
        ];
        assert_eq!(pulls(&mut queue, &mut pulled, 5), expected);
    }

    #[test]
    fn satisfied_senders_are_pulled_a_window_ahead() {
        let mut queue = CreditQueue::new(&CONFIG, Rng::stream(1, "pulls"));
        let mut pulled = [Pulled::default(); 2];
        queue.wants(&mut pulled[0], name(0), (10, false));
        assert_eq!(pulls(&mut queue, &mut pulled, 2)[1].2, 10 + 64);
        queue.wants(&mut pulled[1], name(1), (64, false));
        assert_eq!(pulls(&mut queue, &mut pulled, 1)[0].1, 1, "it is wanted, so it is first");
        let mut last = 0;
        while queue.next().is_some() {
            last = pulls(&mut queue, &mut pulled, 1)[0].2;
        }
        // 1,027 quanta are the most: after the pull that reaches them there is none.
        assert_eq!((pulled[0].quanta, last), (10 + 17 * 64, 64 + 17 * 64));
        // A request gets an answer all the same, which repeats what was pulled. It takes the time
        // of four quanta, 82.8 ns.
        queue.wants(&mut pulled[0], name(0), (10, true));
        let (at, _, quanta) = pulls(&mut queue, &mut pulled, 1)[0];
        assert_eq!(quanta, 10 + 17 * 64);
        queue.wants(&mut pulled[0], name(0), (10, true));
        let next = queue.next().zip(at).map(|(next, at)| next.since(at).0);
        assert!(next.is_some_and(|next| (82..=84).contains(&next)), "{next:?}");
    }
}
