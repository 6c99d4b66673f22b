//! Tests of the pacer with models of links, in virtual time.

use super::card::{Card, CardRun, Knowledge, Traffic, run};
use super::fast_link::BATCH_MAX;
use super::*;

/// The kernel charges buffers rather than payload. A full packet counts as this many bytes.
const PACKET_BUFFER: u32 = 2304;

#[test]
fn a_slow_link_never_has_more_than_two_full_packets_queued() {
    let rate = Rate::mbps(100);
    let mut pacer = LinkPacer::new(Some(rate));
    let (mut now, mut idle_at, mut sent) = (Time::ZERO, Time::ZERO, 0u64);
    while now < Time(100_000_000) {
        let mut budget = pacer.budget(now, || None);
        while budget >= FULL_FRAME {
            pacer.sent(now, FULL_FRAME, || None);
            idle_at = idle_at.max(now) + rate.time_for(u64::from(FULL_FRAME));
            assert!(rate.bytes_in(idle_at.since(now)) <= u64::from(QUEUE_MAX));
            budget -= FULL_FRAME;
            sent += u64::from(FULL_FRAME);
        }
        pacer.budget(now, || None);
        now = pacer.wake().expect("the queue is full now");
    }
    let possible = rate.bytes_in(Duration::millis(100));
    assert!(sent > possible * 99 / 100, "the link was kept busy: {sent} of {possible} bytes");
}

#[test]
fn a_punctual_thread_queues_one_packet_and_a_late_one_two() {
    let rate = Rate::mbps(100);
    let packet = rate.time_for(u64::from(FULL_FRAME));
    for (late, ahead) in [(Duration(100), 30), (Duration::micros(60), 60), (packet, 124)] {
        let mut pacer = LinkPacer::new(Some(rate));
        let (mut now, mut idle_at) = (Time::ZERO, Time::ZERO);
        let (mut below, mut idle) = (Duration::ZERO, Duration::ZERO);
        for sent in 0..1000 {
            while pacer.budget(now, || None) >= FULL_FRAME {
                if sent > 500 {
                    below = below.max(idle_at.since(now));
                    idle = idle + now.since(idle_at);
                }
                pacer.sent(now, FULL_FRAME, || None);
                idle_at = idle_at.max(now) + packet;
            }
            now = pacer.wake().expect("the queue is full now") + late;
        }
        assert!(below <= Duration::micros(ahead), "{late:?} late: {below:?} below");
        assert!(idle.0 < packet.0 / 10, "{late:?} late: idle for {idle:?}");
    }
}

#[test]
fn a_link_faster_than_we_are_is_asked_about_once_per_batch() {
    let mut pacer = LinkPacer::new(None);
    let (mut asked, mut sent) = (0, 0);
    for i in 0..100 {
        let now = Time(i * 1000);
        let budget = pacer.budget(now, || panic!("an idle link was asked about before sending"));
        pacer.sent(now, budget, || {
            asked += 1;
            Some(0)
        });
        sent += budget;
    }
    assert_eq!(asked, 100);
    assert!(sent > 80 * BATCH_MAX, "batches grew: {sent}");
}

#[test]
fn batches_that_a_pause_swallowed_do_not_grow() {
    let mut pacer = LinkPacer::new(None);
    // Each turn sends a few batches, and drains each before the query. The clock advances only
    // between turns.
    for turn in 0..20 {
        let now = Time(turn * 10_000_000);
        for _ in 0..10 {
            assert_eq!(pacer.budget(now, || panic!("nothing was queued")), QUEUE_MAX);
            pacer.sent(now, QUEUE_MAX, || Some(0));
        }
    }
}

#[test]
fn a_slow_link_of_unknown_rate_is_busy_with_few_queries() {
    let packet = Rate::mbps(100).time_for(u64::from(FULL_FRAME));
    let mut pacer = LinkPacer::new(None);
    // The times at which the queued packets will have left, in a model of the kernel's queue.
    let mut leaving = std::collections::VecDeque::new();
    let asked = std::cell::Cell::new(0);
    let (mut now, mut sent) = (Time::ZERO, 0u64);
    let end = Time(1_000_000_000);
    while now < end {
        let mut budget = pacer.budget(now, || {
            asked.set(asked.get() + 1);
            leaving.retain(|&at| at > now);
            Some(leaving.len() as u32 * PACKET_BUFFER)
        });
        while budget >= FULL_FRAME {
            leaving.retain(|&at| at > now);
            let begins = leaving.back().copied().unwrap_or(now);
            leaving.push_back(begins + packet);
            assert!(leaving.len() <= 2, "{} packets queued", leaving.len());
            budget -= FULL_FRAME;
            sent += 1;
            pacer.sent(now, FULL_FRAME, || Some(leaving.len() as u32 * PACKET_BUFFER));
        }
        now = pacer.wake().unwrap_or(now + Duration(1));
    }
    let possible = end.0 / packet.0;
    assert!(sent >= possible * 98 / 100, "{sent} of {possible} packets");
    assert!(asked.get() < 4 * sent, "{} questions for {sent} packets", asked.get());
}

#[test]
fn no_packet_is_pulled_while_the_kernel_queue_is_full() {
    let mut pacer = LinkPacer::new(None);
    assert_eq!(pacer.budget(Time(0), || None), QUEUE_MAX);
    pacer.sent(Time(0), QUEUE_MAX, || Some(2 * PACKET_BUFFER));
    assert_eq!(pacer.budget(Time(1), || Some(2 * PACKET_BUFFER)), 0);
    let wake = pacer.wake().unwrap();
    assert_eq!(pacer.budget(Time(wake.0 - 1), || panic!("asked too early")), 0);
    assert_eq!(pacer.budget(wake, || Some(PACKET_BUFFER)), FULL_FRAME);
    assert!(pacer.budget(wake + Duration(1), || Some(0)) > FULL_FRAME);
}

#[test]
fn many_small_sends_are_asked_about_once_per_two_full_packets() {
    let mut pacer = LinkPacer::new(None);
    let mut asked = 0;
    for i in 0..1000 {
        pacer.budget(Time(i), || {
            asked += 1;
            Some(0)
        });
        pacer.sent(Time(i), 240, || panic!("a small send is not asked about"));
    }
    assert_eq!(asked, 1000 * 240 / 3120, "3120 is the first multiple above two full packets");
}

/// Runs some of the cases of the benchmark `nic`.
#[test]
fn a_card_that_reports_late_is_filled_and_its_queue_is_short() {
    for mbps in [100, 1_000, 25_000, 100_000] {
        for (every, step) in [(1, 500), (10, 10_000), (100, 2_000), (100, 10_000)] {
            for (knowledge, seed) in Knowledge::ALL.into_iter().flat_map(|all| [(all, 0), (all, 1)])
            {
                let cell =
                    knowledge.cell(Rate::mbps(mbps), Duration::micros(every), Duration(step));
                let out = run(&CardRun { seed, ..cell });
                let what = format!(
                    "{knowledge:?}, {mbps} Mbit/s, {every} us, {step} ns, seed {seed}: {out:?}"
                );
                assert!(out.share >= knowledge.least_share(), "{what}");
                assert!(out.excess <= i64::from(QUEUE_MAX), "{what}");
                assert!(out.questions < 4.0, "{what}");
                let known_rate = knowledge == Knowledge::Known;
                assert!(
                    !known_rate || out.estimate.is_none(),
                    "a known rate is not guessed: {what}"
                );
            }
        }
    }
}

#[test]
fn packets_of_all_sizes_and_trains_are_paced_alike() {
    for traffic in [Traffic::Mixed, Traffic::Trains] {
        for (mbps, every) in [(1_000, 50), (10_000, 10), (100_000, 100)] {
            for knowledge in [Knowledge::Known, Knowledge::Unknown, Knowledge::TooHigh] {
                let (rate, every) = (Rate::mbps(mbps), Duration::micros(every));
                let cell = knowledge.cell(rate, every, Duration::micros(2));
                let out = run(&CardRun { traffic, ..cell });
                let what = format!("{traffic:?}, {knowledge:?}, {mbps} Mbit/s: {out:?}");
                assert!(out.share >= knowledge.least_share(), "{what}");
                assert!(out.excess <= i64::from(2 * QUEUE_MAX), "{what}");
            }
        }
    }
}

/// A shaper reports every packet as it leaves, and so does veth without a shaper.
#[test]
fn a_shaper_of_unknown_rate_has_at_most_two_packets_queued() {
    for mbps in [10, 100, 1_000] {
        let (rate, step) = (Rate::mbps(mbps), Duration::micros(1));
        let out = run(&Knowledge::Unknown.cell(rate, Duration::ZERO, step));
        assert!(out.most <= 2 && out.share > 0.97, "{mbps} Mbit/s: {out:?}");
    }
}

#[test]
fn an_application_with_little_to_send_does_not_wait() {
    for known_rate in [None, Some(Rate::gbps(25))] {
        let mut pacer = LinkPacer::new(known_rate);
        let mut card = Card::new(Rate::gbps(25), Duration::micros(50));
        for burst in 0..5000u64 {
            // Full load for 7 ms, and then one packet per millisecond.
            let busy = burst < 1000;
            let from = if busy { burst * 7_300 } else { 8_000_000 + (burst - 1000) * 1_000_000 };
            let now = Time(from);
            card.advance(now);
            let mut budget = pacer.budget(now, || Some(card.queued()));
            assert!(
                busy || budget >= FULL_FRAME,
                "burst {burst} had to wait, {known_rate:?}: {pacer:?}"
            );
            while budget >= FULL_FRAME {
                let bytes = if busy { budget / FULL_FRAME * FULL_FRAME } else { FULL_FRAME };
                for _ in 0..bytes / FULL_FRAME {
                    card.send(FULL_FRAME, PACKET_BUFFER);
                }
                pacer.sent(now, bytes, || Some(card.queued()));
                budget = if busy { pacer.budget(now, || Some(card.queued())) } else { 0 };
            }
        }
        let rate = pacer.estimate().or(known_rate).map_or(0, |rate| rate.0);
        assert!(rate > 20_000_000_000 && rate < 30_000_000_000, "{rate} bit/s, {known_rate:?}");
    }
}

#[test]
fn a_known_rate_stands_if_packets_are_never_charged() {
    let rate = Rate::gbps(1);
    let mut pacer = LinkPacer::new(Some(rate));
    let (mut now, mut sent, mut asked) = (Time::ZERO, 0, 0);
    while now < Time(10_000_000) {
        while pacer.budget(now, || Some(0)) >= FULL_FRAME {
            pacer.sent(now, FULL_FRAME, || {
                asked += 1;
                Some(0)
            });
            sent += 1;
        }
        now = pacer.wake().expect("the queue is full now");
    }
    let possible = rate.bytes_in(Duration::millis(10)) / u64::from(FULL_FRAME);
    assert!((possible..=possible + 2).contains(&sent), "{sent} of {possible} packets");
    assert!(asked < sent / 10, "{asked} questions");
    assert_eq!(pacer.estimate(), None);
}

#[test]
fn a_rate_that_is_set_later_is_used() {
    let mut pacer = LinkPacer::new(None);
    pacer.set_rate(Some(Rate::mbps(100)));
    pacer.sent(Time(0), QUEUE_MAX, || None);
    assert_eq!(pacer.budget(Time(1), || None), 0);
    pacer.set_rate(Some(Rate::gbps(100)));
    assert!(pacer.budget(Time(1_000), || None) >= FULL_FRAME, "a packet takes 123 ns now");
    pacer.set_rate(None);
    assert!(pacer.budget(Time(2_000), || None) >= FULL_FRAME);
}

/// A card by which two engines send, each with its own socket. It reports at fixed intervals.
struct Both {
    rate: Rate,
    every: Duration,
    free: Time,
    /// For each packet, when it has left and which engine sent it.
    packets: Vec<(Time, usize)>,
}

impl Both {
    fn new(rate: Rate, every: Duration) -> Self {
        Self { rate, every, free: Time::ZERO, packets: Vec::new() }
    }

    fn send(&mut self, now: Time, whose: usize) {
        self.free = self.free.max(now) + self.rate.time_for(FULL_FRAME.into());
        self.packets.push((self.free, whose));
    }

    /// Returns the charge of one socket.
    fn queued(&self, now: Time, whose: usize) -> u32 {
        let reported = Time(now.0 / self.every.0 * self.every.0);
        let held = self.packets.iter().rev().take_while(|(left, _)| *left > reported);
        held.filter(|(_, owner)| *owner == whose).count() as u32 * PACKET_BUFFER
    }

    /// Both engines send for 20 ms, the second only in the second half. Returns the packets that
    /// each sent in the first and in the last 8 ms, and the largest number that had not left in the
    /// last 8 ms.
    fn run(mut self) -> ([[usize; 2]; 2], usize) {
        let mut pacers = [0; 2].map(|_| LinkPacer::new(Some(self.rate)));
        let (mut now, mut most, mut sent) = (Time::ZERO, 0, [[0; 2]; 2]);
        while now < Time(20_000_000) {
            let both = now >= Time(10_000_000);
            for (whose, pacer) in pacers.iter_mut().enumerate().take(1 + usize::from(both)) {
                pacer.set_senders(now, 1 + u32::from(both));
                while pacer.budget(now, || Some(self.queued(now, whose))) >= FULL_FRAME {
                    self.send(now, whose);
                    pacer.sent(now, FULL_FRAME, || Some(self.queued(now, whose)));
                    sent[usize::from(both)][whose] += usize::from(now.0 % 10_000_000 >= 2_000_000);
                }
            }
            let waiting = self.packets.iter().rev().take_while(|(left, _)| *left > now).count();
            // An engine that is alone also probes.
            most = if now >= Time(12_000_000) { most.max(waiting) } else { 0 };
            now += Duration(500);
        }
        (sent, most)
    }
}

#[test]
fn engines_that_send_by_one_card_part_it_whenever_it_reports() {
    for (mbps, every) in [(1_000, 1), (1_000, 100), (10_000, 1), (10_000, 100)] {
        let (rate, every) = (Rate::mbps(mbps), Duration::micros(every));
        let possible = rate.bytes_in(Duration::millis(8)) as usize / FULL_FRAME as usize;
        let (sent, most) = Both::new(rate, every).run();
        let what = format!("{mbps} Mbit/s, {every:?}: {sent:?} of {possible}, {most} queued");
        let [[alone, none], both] = sent;
        assert!(none == 0 && alone >= possible * 97 / 100, "{what}");
        assert!(both.iter().sum::<usize>() >= possible * 97 / 100, "{what}");
        assert!(both[0].abs_diff(both[1]) <= possible / 20, "{what}");
        assert!(most <= 6, "{what}");
    }
}

#[test]
fn senders_that_join_at_times_do_not_raise_a_known_rate() {
    let rate = Rate::gbps(1);
    for pause in [50_000, 300_000, 1_000_000] {
        let mut card = Both::new(rate, Duration::micros(1));
        let mut pacer = LinkPacer::new(Some(rate));
        for step in 0..40_000u64 {
            let now = Time(500 * step);
            // The other engine has little to send, so our packets leave faster than we expect.
            pacer.set_senders(now, 1 + ((now.0 / pause) % 2) as u32);
            while pacer.budget(now, || Some(card.queued(now, 0))) >= FULL_FRAME {
                card.send(now, 0);
                pacer.sent(now, FULL_FRAME, || Some(card.queued(now, 0)));
            }
            assert_eq!(pacer.estimate(), None, "turns of {pause} ns, at {now:?}");
        }
    }
}
