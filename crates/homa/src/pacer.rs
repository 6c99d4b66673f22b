//! Keeps the queue below us short: at most two full packets (Homa §4).
//!
//! Packets that already left cannot be overtaken, so the order of sending is decided as late as
//! possible: the pacer says how many bytes may be pulled now. Two sources, by configuration:
//! * *rate*: an estimate of when the link will be idle, from its configured rate. The next packet
//!   is pulled as long before as we have been late at such times: a thread that spins keeps hardly
//!   more than the packet on the wire below it, one that sleeps the second packet as well;
//! * *kernel*: what the kernel says is still queued. A question is a system call, so it is asked
//!   once per two full packets or per batch, whichever is longer. A link that has swallowed every
//!   batch by the time the question is asked, at 300 Mbit/s or more, is faster than we are;
//!   the batch grows until it pays for itself. Single batches prove nothing: they may be in a
//!   shaper's bucket, or this thread stood still before it asked.
//!
//! Sizes are wire bytes: with IP, Ethernet, preamble and gap.

use homa_proto::{Duration, FULL_FRAME, Rate, Time};

/// The limit of Homa §4: two full packets.
const QUEUE_MAX: u32 = 2 * FULL_FRAME;
/// Largest batch on a link that is faster than we are: room for two full trains.
const BATCH_MAX: u32 = 120 * 1024;
/// On a fast link, two packets last no time: what the link sends in this time may be queued as
/// well.
const QUANTUM: Duration = Duration::micros(8);
/// A lateness counts in full when it happens and loses this fraction each time there is room.
const LATE_FORGOTTEN: u64 = 32;
/// The kernel charges buffers, not payload: a full packet counts as this much.
const PACKET_BUFFER: u32 = 2304;
/// Between questions, when nothing is known about the rate yet.
const FIRST_RETRY: Duration = Duration::micros(100);
/// So many times in a row nothing was queued any more: what we send does not fill the link, be it
/// fast or ours be little.
const IDLE_ANSWERS: u8 = 4;
/// A link that swallows at least this much at this rate is fast: no shaper's bucket holds that.
/// Half a million small RPCs a second are some 700 Mbit/s: at a higher rate here their batches
/// would stay small.
const SWALLOWED_MIN: u32 = 12 * FULL_FRAME;
const FAST: Rate = Rate::mbps(300);
/// Bounds of the time between questions.
const RETRY_MIN: Duration = Duration::micros(5);
const RETRY_MAX: Duration = Duration::millis(1);

/// See the module's documentation.
#[derive(Debug)]
pub struct Pacer {
    source: Source,
    wake: Option<Time>,
    waits: u64,
}

#[derive(Debug)]
enum Source {
    Rate(Link),
    Kernel(Kernel),
}

#[derive(Debug)]
struct Link {
    rate: Rate,
    /// When everything handed down will have left.
    idle_at: Time,
    /// How late we come when there is room again: the worst, slowly forgotten.
    late: Duration,
}

#[derive(Debug)]
struct Kernel {
    /// Sent since the last answer.
    unchecked: u32,
    /// What may be sent at once when nothing is queued.
    batch: u32,
    /// When the last question was asked.
    asked: Time,
    /// Answers in a row that nothing was queued.
    idle_answers: u8,
    /// Bytes that left before we could ask, at no less than [`FAST`], and since when.
    swallowed: u32,
    since: Time,
    /// The last answer, if not 0, and when it was new.
    backlog: Option<(Time, u32)>,
    /// About how long a packet takes to leave.
    retry: Duration,
    /// Until the next question while blocked.
    wait: Duration,
}

impl Pacer {
    /// A pacer for a link of the given rate, or one that asks the kernel.
    pub fn new(rate: Option<Rate>) -> Self {
        let source = match rate {
            Some(rate) => {
                let late = rate.time_for(u64::from(FULL_FRAME));
                Source::Rate(Link { rate, idle_at: Time::ZERO, late })
            }
            None => Source::Kernel(Kernel {
                unchecked: 0,
                batch: QUEUE_MAX,
                asked: Time::ZERO,
                idle_answers: 0,
                swallowed: 0,
                since: Time::ZERO,
                backlog: None,
                retry: FIRST_RETRY,
                wait: FIRST_RETRY,
            }),
        };
        Self { source, wake: None, waits: 0 }
    }

    /// Wire bytes that may be pulled now; 0 while the queue is full. `queued` asks the kernel.
    pub fn room(&mut self, now: Time, queued: impl FnOnce() -> Option<u32>) -> u32 {
        if self.wake.is_some_and(|wake| now < wake) {
            return 0;
        }
        let (room, wake) = match &mut self.source {
            Source::Rate(link) => {
                if let Some(wake) = self.wake {
                    link.came(now.since(wake));
                }
                link.room(now)
            }
            Source::Kernel(kernel) => (kernel.room(now, queued), now + kernel.wait),
        };
        // Two packets are outstanding at most when there is room for one more.
        if room >= FULL_FRAME {
            self.wake = None;
            return room;
        }
        self.waits += 1;
        self.wake = Some(wake);
        0
    }

    /// Notes what was handed down.
    pub fn sent(&mut self, now: Time, bytes: u32, queued: impl FnOnce() -> Option<u32>) {
        match &mut self.source {
            Source::Rate(link) => {
                link.idle_at = link.idle_at.max(now) + link.rate.time_for(u64::from(bytes));
            }
            Source::Kernel(kernel) => kernel.sent(now, bytes, queued),
        }
    }

    /// True while the link takes whatever we send as fast as we send it, as far as known: then
    /// packets cost more than bytes, and the order of few of them matters little. That it is fast
    /// ([`Kernel::is_fast`], which batches grow by) takes more proof: this costs no queue.
    pub fn outruns_us(&self) -> bool {
        match &self.source {
            Source::Rate(link) => link.rate.bytes_in(QUANTUM) >= u64::from(4 * FULL_FRAME),
            Source::Kernel(kernel) => kernel.idle_answers >= IDLE_ANSWERS,
        }
    }

    /// Times that it held packets back.
    pub fn waits(&self) -> u64 {
        self.waits
    }

    /// When there will be room again; `None` when there is room now.
    pub fn wake(&self) -> Option<Time> {
        self.wake
    }
}

impl Link {
    /// Notes how late we came to a link that had room again.
    fn came(&mut self, late: Duration) {
        // More than a packet's time makes no difference, and need not be remembered for longer.
        let late = late.min(self.rate.time_for(u64::from(FULL_FRAME)));
        self.late = late.max(Duration(self.late.0 - self.late.0 / LATE_FORGOTTEN));
    }

    /// Wire bytes that may be pulled, and when there will be room for a packet.
    fn room(&self, now: Time) -> (u32, Time) {
        let second = self.rate.bytes_in(self.late).min(u64::from(QUEUE_MAX - FULL_FRAME));
        let limit = (u64::from(FULL_FRAME) + second).max(self.rate.bytes_in(QUANTUM));
        let backlog = self.rate.bytes_in(self.idle_at.since(now));
        let ahead = self.rate.time_for(limit - u64::from(FULL_FRAME));
        let wake = Time(self.idle_at.0.saturating_sub(ahead.0)).max(now + Duration(1));
        (limit.saturating_sub(backlog) as u32, wake)
    }
}

impl Kernel {
    fn room(&mut self, now: Time, queued: impl FnOnce() -> Option<u32>) -> u32 {
        let stale = self.backlog.is_some() && self.asked != now;
        if stale || self.unchecked >= QUEUE_MAX {
            self.ask(now, queued);
        }
        match self.backlog {
            None => self.batch,
            Some((_, queued)) => {
                let packets = queued.div_ceil(PACKET_BUFFER);
                QUEUE_MAX.saturating_sub(packets.saturating_mul(FULL_FRAME))
            }
        }
    }

    fn sent(&mut self, now: Time, bytes: u32, queued: impl FnOnce() -> Option<u32>) {
        self.unchecked = self.unchecked.saturating_add(bytes);
        if bytes >= QUEUE_MAX - FULL_FRAME {
            self.ask(now, queued);
            // All of it left while we were sending it: more may go at once.
            if self.backlog.is_none() && self.is_fast(now) && bytes >= self.batch / 2 {
                self.batch = (2 * self.batch).min(BATCH_MAX);
            }
            self.swallowed = self.swallowed.saturating_add(bytes);
        }
    }

    /// Judges what left before `now`: the clock stands still during a turn, however long it takes.
    fn is_fast(&mut self, now: Time) -> bool {
        let elapsed = now.since(self.since);
        if elapsed > FAST.time_for(u64::from(self.swallowed)) {
            (self.since, self.swallowed) = (now, 0);
        }
        now > self.since && self.swallowed >= SWALLOWED_MIN
    }

    /// Asks, and learns from two answers in a row how fast the queue drains.
    fn ask(&mut self, now: Time, queued: impl FnOnce() -> Option<u32>) {
        self.unchecked = 0;
        self.asked = now;
        match queued().unwrap_or(0) {
            0 => {
                self.idle_answers = self.idle_answers.saturating_add(1);
                self.backlog = None;
                self.retry = FIRST_RETRY;
            }
            queued => {
                self.idle_answers = 0;
                (self.since, self.swallowed) = (now, 0);
                self.note_backlog(now, queued);
            }
        }
    }

    fn note_backlog(&mut self, now: Time, queued: u32) {
        self.batch = QUEUE_MAX;
        let (then, before) = self.backlog.unwrap_or((now, queued));
        if before == queued && self.backlog.is_some() {
            // Not yet. When it should have been, it cannot be long.
            let left = self.retry.0.saturating_sub(now.since(then).0);
            self.wait = Duration(left.max(self.retry.0 / 8).max(RETRY_MIN.0));
            return;
        }
        if before > queued {
            let per_packet = u64::from(PACKET_BUFFER) * now.since(then).0;
            let drained = per_packet / u64::from(before - queued);
            // A little early: coming late every time would be taken for a slower link.
            self.retry = Duration((drained / 8 * 7).clamp(RETRY_MIN.0, RETRY_MAX.0));
        }
        self.wait = self.retry;
        self.backlog = Some((now, queued));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_link_never_has_more_than_two_full_packets_queued() {
        let rate = Rate::mbps(100);
        let mut pacer = Pacer::new(Some(rate));
        let (mut now, mut idle_at, mut sent) = (Time::ZERO, Time::ZERO, 0u64);
        while now < Time(100_000_000) {
            let mut room = pacer.room(now, || None);
            while room >= FULL_FRAME {
                pacer.sent(now, FULL_FRAME, || None);
                idle_at = idle_at.max(now) + rate.time_for(u64::from(FULL_FRAME));
                assert!(rate.bytes_in(idle_at.since(now)) <= u64::from(QUEUE_MAX));
                room -= FULL_FRAME;
                sent += u64::from(FULL_FRAME);
            }
            pacer.room(now, || None);
            now = pacer.wake().expect("the queue is full now");
        }
        let possible = rate.bytes_in(Duration::millis(100));
        assert!(sent > possible * 99 / 100, "the link was kept busy: {sent} of {possible} bytes");
    }

    #[test]
    fn who_comes_in_time_keeps_one_packet_below_and_who_comes_late_two() {
        let rate = Rate::mbps(100);
        let packet = rate.time_for(u64::from(FULL_FRAME));
        for (late, ahead) in [(Duration(100), 30), (Duration::micros(60), 60), (packet, 124)] {
            let mut pacer = Pacer::new(Some(rate));
            let (mut now, mut idle_at) = (Time::ZERO, Time::ZERO);
            let (mut below, mut idle) = (Duration::ZERO, Duration::ZERO);
            for sent in 0..1000 {
                while pacer.room(now, || None) >= FULL_FRAME {
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
        let mut pacer = Pacer::new(None);
        let (mut asked, mut sent) = (0, 0);
        for i in 0..100 {
            let now = Time(i * 1000);
            let room = pacer.room(now, || panic!("an idle link was asked about before sending"));
            pacer.sent(now, room, || {
                asked += 1;
                Some(0)
            });
            sent += room;
        }
        assert_eq!(asked, 100);
        assert!(sent > 80 * BATCH_MAX, "batches grew: {sent}");
    }

    #[test]
    fn batches_that_a_pause_swallowed_do_not_grow() {
        let mut pacer = Pacer::new(None);
        // Turns of a few batches, each of which left before we asked; the clock tells only between.
        for turn in 0..20 {
            let now = Time(turn * 10_000_000);
            for _ in 0..10 {
                assert_eq!(pacer.room(now, || panic!("nothing was queued")), QUEUE_MAX);
                pacer.sent(now, QUEUE_MAX, || Some(0));
            }
        }
    }

    #[test]
    fn a_slow_link_that_only_the_kernel_knows_is_kept_busy_with_few_questions() {
        let packet = Rate::mbps(100).time_for(u64::from(FULL_FRAME));
        let mut pacer = Pacer::new(None);
        // When the packets below us will have left, by a model of the kernel's queue.
        let mut leaving = std::collections::VecDeque::new();
        let asked = std::cell::Cell::new(0);
        let (mut now, mut sent) = (Time::ZERO, 0u64);
        let end = Time(1_000_000_000);
        while now < end {
            let mut room = pacer.room(now, || {
                asked.set(asked.get() + 1);
                leaving.retain(|&at| at > now);
                Some(leaving.len() as u32 * PACKET_BUFFER)
            });
            while room >= FULL_FRAME {
                leaving.retain(|&at| at > now);
                let begins = leaving.back().copied().unwrap_or(now);
                leaving.push_back(begins + packet);
                assert!(leaving.len() <= 2, "{} packets queued", leaving.len());
                room -= FULL_FRAME;
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
    fn what_the_kernel_still_holds_stops_the_pulling_until_it_left() {
        let mut pacer = Pacer::new(None);
        assert_eq!(pacer.room(Time(0), || None), QUEUE_MAX);
        pacer.sent(Time(0), QUEUE_MAX, || Some(2 * PACKET_BUFFER));
        assert_eq!(pacer.room(Time(1), || Some(2 * PACKET_BUFFER)), 0);
        let wake = pacer.wake().unwrap();
        assert_eq!(pacer.room(Time(wake.0 - 1), || panic!("asked too early")), 0);
        assert_eq!(pacer.room(wake, || Some(PACKET_BUFFER)), FULL_FRAME);
        assert_eq!(pacer.room(wake + Duration(1), || Some(0)), QUEUE_MAX);
    }

    #[test]
    fn many_small_sends_are_asked_about_once_per_two_full_packets() {
        let mut pacer = Pacer::new(None);
        let mut asked = 0;
        for i in 0..1000 {
            pacer.room(Time(i), || {
                asked += 1;
                Some(0)
            });
            pacer.sent(Time(i), 240, || panic!("a small send is not asked about"));
        }
        assert_eq!(asked, 1000 * 240 / 3120, "3120 is the first multiple above two full packets");
    }
}
