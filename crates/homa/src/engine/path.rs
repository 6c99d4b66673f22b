//! The MTU of the path to one peer, as far as packets of ours found out: datagram packetization
//! layer path MTU discovery (RFC 8899). Its names: PLPMTU is `mtu`, MIN_PLPMTU `floor`, BASE_PLPMTU
//! `base`, MAX_PLPMTU `max`.
//!
//! A probe is a padded packet that its receiver answers (`paths.rs`), beside a short one: only
//! where the short one is answered and the padded one is not, three times over, is its size too
//! large.
//! * Loss calls for a probe of the size in use. If that fails, the path is a black hole for such
//!   packets: `base` takes over, and is confirmed likewise (§4.3, §5.2).
//! * A report of the network that quotes a packet of ours lowers the size to what it says, if that
//!   is not below `floor` (§4.6.1).
//! * From a lowered size, `max` is tried again after a second, and after ever longer; where it does
//!   not pass, sizes in between are, by halves (§5.3).

use homa_proto::{Duration, Time};

/// BASE_PLPMTU (RFC 8899 §5.1.2).
const BASE: u16 = 1200;
/// Smallest sizes that links promise: IPv4 hosts take packets of so many bytes, IPv6 links carry
/// them (RFC 8200 §5).
const FLOOR_V4: u16 = 576;
const FLOOR_V6: u16 = 1280;
/// MAX_PROBES.
const ATTEMPTS: u8 = 3;
/// How long the first attempt has for its answer; each further one has twice as long.
const ANSWER: Duration = Duration::millis(5);
/// The size in use is confirmed at most so often, however much is lost.
const CONFIRMED: Duration = Duration::millis(250);
/// Bounds of PMTU_RAISE_TIMER: it doubles.
const RAISE_MIN: Duration = Duration::secs(1);
const RAISE_MAX: Duration = Duration::secs(60);
/// A search ends when it knows the MTU to so many bytes.
const STEP: u16 = 16;

/// What paths went through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// The size was lowered.
    pub lowered: u64,
    /// It was raised.
    pub raised: u64,
    /// It was lowered because packets vanished without a report.
    pub black_holes: u64,
}

/// A probe on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The RPC id that it carries; the short packet beside it carries [`Self::small_id`].
    pub id: u64,
    /// Bytes of its IP packet.
    pub size: u16,
    attempts: u8,
    /// When the next attempt is due.
    due: Time,
    /// A short packet was answered.
    alive: bool,
}

impl Probe {
    /// The RPC id of the short packet.
    pub const fn small_id(&self) -> u64 {
        self.id ^ 2
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing to find out.
    Complete,
    /// Does the size in use pass?
    Confirming,
    /// Do larger ones?
    Searching,
}

/// See the module's documentation.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    mtu: u16,
    floor: u16,
    base: u16,
    max: u16,
    /// The smallest size that is known not to pass; more than `max`: none.
    too_big: u16,
    phase: Phase,
    /// The size in use follows a black hole.
    fell: bool,
    probe: Option<Probe>,
    /// When the size in use was last confirmed, or nobody answered.
    confirmed: Time,
    raise_at: Time,
    raise_after: Duration,
    /// Nobody was there to profit when larger sizes were to be tried.
    dormant: bool,
}

impl Path {
    /// A path on which `mtu` is in use, of at most `max`.
    pub fn new(now: Time, v4: bool, mtu: u16, max: u16) -> Self {
        let floor = if v4 { FLOOR_V4 } else { FLOOR_V6 }.min(max);
        Self {
            mtu,
            floor,
            base: BASE.max(floor).min(max),
            max,
            too_big: max.saturating_add(1),
            phase: Phase::Complete,
            fell: false,
            probe: None,
            confirmed: Time::ZERO,
            raise_at: now + RAISE_MIN,
            raise_after: RAISE_MIN,
            dormant: false,
        }
    }

    /// The size in use, bytes of an IP packet.
    pub fn mtu(&self) -> u16 {
        self.mtu
    }

    /// The probe on its way.
    pub fn probe(&self) -> Option<Probe> {
        self.probe
    }

    /// There is nothing to remember.
    pub fn is_settled(&self, now: Time) -> bool {
        let quiet = self.phase == Phase::Complete && now >= self.confirmed + CONFIRMED;
        quiet && self.mtu >= self.max
    }

    /// When [`Self::poll`] is due.
    pub fn due(&self) -> Time {
        match (self.probe, self.mtu < self.max) {
            (Some(probe), _) => probe.due,
            (None, true) if self.dormant => Time::MAX,
            (None, true) => self.raise_at,
            (None, false) => self.confirmed + CONFIRMED,
        }
    }

    /// Something is about to be sent; true if that makes [`Self::poll`] due.
    pub fn used(&mut self) -> bool {
        std::mem::take(&mut self.dormant)
    }

    /// Something that we sent was lost.
    pub fn lost(&mut self, now: Time) {
        if now >= self.confirmed + CONFIRMED {
            self.confirm(now);
        }
    }

    /// Finds out whether the size in use passes.
    fn confirm(&mut self, now: Time) {
        if self.phase == Phase::Complete && self.mtu > self.floor {
            self.phase = Phase::Confirming;
            self.begin(now, self.mtu);
        }
    }

    /// The network says that no packets larger than `mtu` pass; 0: that one was too large.
    pub fn too_big(&mut self, now: Time, mtu: u16, changes: &mut Changes) {
        if mtu < self.floor {
            return self.confirm(now);
        }
        let probed = self.probe.filter(|probe| probe.size > mtu);
        if mtu < self.mtu {
            changes.lowered += 1;
            self.mtu = mtu;
            self.too_big = mtu + 1;
            self.try_larger_soon(now);
            self.finish(now);
        } else if probed.is_some() {
            // The next to be tried is exactly this, if it is more than what is known to pass.
            self.too_big = mtu + 1;
            match mtu > self.mtu {
                true => self.begin(now, mtu),
                false => self.finish(now),
            }
        }
    }

    /// The packet with this id was answered; true if it was a probe.
    pub fn answered(&mut self, now: Time, id: u64, changes: &mut Changes) -> bool {
        let Some(probe) = &mut self.probe else { return false };
        probe.alive |= probe.small_id() == id;
        if probe.id != id {
            return probe.small_id() == id;
        }
        self.confirmed = now;
        if self.phase == Phase::Searching {
            changes.raised += 1;
            self.mtu = probe.size;
            self.search(now);
        } else if std::mem::take(&mut self.fell) {
            self.search(now);
        } else {
            self.finish(now);
        }
        true
    }

    /// Acts on what is due; returns a probe that is to be sent. Larger sizes are looked for while
    /// there is somebody to profit (`busy`), or as soon as there is again ([`Self::used`]).
    pub fn poll(&mut self, now: Time, busy: bool, changes: &mut Changes) -> Option<Probe> {
        if let Some(probe) = self.probe
            && now >= probe.due
            && probe.attempts >= ATTEMPTS
        {
            self.failed(now, probe, changes);
        }
        if self.probe.is_none() && self.mtu < self.max && now >= self.raise_at {
            self.raise(now, busy);
        }
        let probe = self.probe.as_mut().filter(|probe| now >= probe.due)?;
        probe.due = now + Duration(ANSWER.0 << probe.attempts);
        probe.attempts += 1;
        Some(*probe)
    }

    fn raise(&mut self, now: Time, busy: bool) {
        self.dormant = !busy;
        if !busy {
            return;
        }
        self.raise_after = Duration((2 * self.raise_after.0).min(RAISE_MAX.0));
        self.too_big = self.max.saturating_add(1);
        self.search(now);
    }

    /// Only a short packet was answered, or none.
    fn failed(&mut self, now: Time, probe: Probe, changes: &mut Changes) {
        match (self.phase, probe.alive) {
            // Nothing smaller is ever sent.
            (Phase::Confirming, true) if self.mtu > self.floor => {
                changes.lowered += 1;
                changes.black_holes += 1;
                self.too_big = self.mtu;
                self.mtu = if self.mtu > self.base { self.base } else { self.floor };
                self.try_larger_soon(now);
                self.fell = true;
                self.begin(now, self.mtu);
            }
            (Phase::Searching, true) => {
                self.too_big = probe.size;
                self.search(now);
            }
            // Whoever does not answer says nothing about sizes: no reason to wait longer.
            (Phase::Searching, false) => {
                self.raise_after = Duration((self.raise_after.0 / 2).max(RAISE_MIN.0));
                self.finish(now);
            }
            _ => self.finish(now),
        }
    }

    /// The size was lowered.
    fn try_larger_soon(&mut self, now: Time) {
        self.raise_after = RAISE_MIN;
        self.raise_at = now + RAISE_MIN;
    }

    /// Tries the largest size, or one half way to what does not pass.
    fn search(&mut self, now: Time) {
        self.phase = Phase::Searching;
        let size = match self.too_big > self.max {
            true => self.max,
            false => self.mtu + (self.too_big - self.mtu) / 2,
        };
        let known = self.too_big <= self.max && self.too_big - self.mtu <= STEP;
        if known || size <= self.mtu {
            return self.finish(now);
        }
        self.begin(now, size);
    }

    fn begin(&mut self, now: Time, size: u16) {
        // As the server of an RPC that is none.
        let id = crate::config::random() | 1;
        self.probe = Some(Probe { id, size, attempts: 0, due: now, alive: false });
    }

    fn finish(&mut self, now: Time) {
        // Loss that goes on has the size in use confirmed time and again, and says nothing about
        // larger ones: these are not put off by it.
        if self.phase == Phase::Searching {
            self.raise_at = now + self.raise_after;
        }
        self.phase = Phase::Complete;
        self.probe = None;
        self.fell = false;
        self.confirmed = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Follows a path through time: packets of up to `passes` bytes are answered at once, and the
    /// short ones if the peer is `alive`. Returns the time at the end.
    fn follow(
        path: &mut Path,
        changes: &mut Changes,
        from: Time,
        until: Time,
        passes: u16,
        alive: bool,
    ) -> Time {
        let mut now = from;
        while now < until {
            if let Some(probe) = path.poll(now, true, changes) {
                if alive {
                    path.answered(now, probe.small_id(), changes);
                }
                if alive && probe.size <= passes {
                    path.answered(now, probe.id, changes);
                }
            }
            now = path.due().max(now + Duration::millis(1));
        }
        now
    }

    fn seconds(n: u64) -> Time {
        Time::ZERO + Duration::secs(n)
    }

    #[test]
    fn a_black_hole_is_left_within_a_tenth_of_a_second_and_its_size_found() {
        for (passes, v4, least) in
            [(1300, true, 1285), (1200, true, 1200), (600, true, 576), (1290, false, 1280)]
        {
            let (mut path, mut changes) =
                (Path::new(seconds(1), v4, 1500, 1500), Changes::default());
            path.lost(seconds(1));
            let fell = seconds(1) + Duration::millis(100);
            follow(&mut path, &mut changes, seconds(1), fell, passes, true);
            assert!(path.mtu() <= 1280, "{passes}: {}", path.mtu());
            let now = follow(&mut path, &mut changes, fell, seconds(60), passes, true);
            assert!((least..=passes).contains(&path.mtu()), "{passes}: {}", path.mtu());
            assert!(changes.black_holes >= 1, "{passes}");
            follow(&mut path, &mut changes, now, now + RAISE_MAX + RAISE_MAX, 1500, true);
            assert_eq!(path.mtu(), 1500);
        }
    }

    #[test]
    fn a_path_that_takes_not_even_the_floor_is_left_alone() {
        for v4 in [true, false] {
            let (mut path, mut changes) =
                (Path::new(seconds(1), v4, 1500, 1500), Changes::default());
            path.lost(seconds(1));
            let second = seconds(1) + Duration::millis(900);
            follow(&mut path, &mut changes, seconds(1), second, 100, true);
            let floor = if v4 { FLOOR_V4 } else { FLOOR_V6 };
            assert_eq!((path.mtu(), path.probe()), (floor, None));
            assert!(changes.black_holes <= 2, "{changes:?}");
        }
    }

    #[test]
    fn silence_and_single_losses_lower_nothing() {
        let (mut path, mut changes) = (Path::new(seconds(1), true, 1500, 1500), Changes::default());
        path.lost(seconds(1));
        follow(&mut path, &mut changes, seconds(1), seconds(2), 1500, false);
        path.lost(seconds(2));
        // The first two attempts are lost.
        let mut now = seconds(2);
        for attempt in 1..=3 {
            let probe = path.poll(now, true, &mut changes).expect("an attempt");
            path.answered(now, probe.small_id(), &mut changes);
            if attempt == 3 {
                path.answered(now, probe.id, &mut changes);
            }
            now = path.due();
        }
        assert_eq!((path.mtu(), changes), (1500, Changes::default()));
        assert!(path.is_settled(now), "and nothing is remembered");
    }

    #[test]
    fn a_low_path_that_nobody_uses_costs_no_time_and_is_raised_when_somebody_does() {
        let (mut path, mut changes) = (Path::new(seconds(1), true, 1400, 1500), Changes::default());
        assert_eq!(path.due(), seconds(2));
        assert_eq!(path.poll(seconds(2), false, &mut changes), None);
        assert_eq!(path.due(), Time::MAX, "nobody is looked for every second");
        assert!(path.used() && !path.used());
        assert!(path.due() <= seconds(9));
        assert_eq!(path.poll(seconds(9), true, &mut changes).map(|probe| probe.size), Some(1500));
    }

    #[test]
    fn loss_is_looked_into_now_and_then_only() {
        let (mut path, mut changes) = (Path::new(seconds(1), true, 1500, 1500), Changes::default());
        let (mut now, mut probes) = (seconds(1), 0);
        while now < seconds(2) {
            path.lost(now);
            if let Some(probe) = path.poll(now, true, &mut changes) {
                probes += 1;
                path.answered(now, probe.id, &mut changes);
            }
            now += Duration::millis(1);
        }
        assert_eq!(probes, 4);
    }

    #[test]
    fn neither_loss_nor_silence_puts_larger_sizes_off() {
        let (mut path, mut changes) = (Path::new(seconds(1), true, 1300, 1500), Changes::default());
        // Whoever answers is told of a loss every time that one is looked into. From 3 s on, there
        // are answers to larger sizes, too; nobody answered before.
        let (mut now, mut raised) = (seconds(1), None);
        while now < seconds(6) && raised.is_none() {
            path.lost(now);
            if let Some(probe) = path.poll(now, true, &mut changes)
                && (probe.size == 1300 || now >= seconds(3))
            {
                path.answered(now, probe.id, &mut changes);
            }
            raised = (path.mtu() == 1500).then_some(now);
            now += Duration::millis(1);
        }
        assert!(raised.is_some_and(|at| at <= seconds(4) + Duration::millis(200)), "{raised:?}");
    }

    #[test]
    fn a_report_lowers_to_what_it_says_but_not_below_the_floor() {
        let (mut path, mut changes) = (Path::new(seconds(1), true, 1500, 1500), Changes::default());
        path.too_big(seconds(1), 1300, &mut changes);
        assert_eq!((path.mtu(), changes.lowered), (1300, 1));
        path.too_big(seconds(1), 1400, &mut changes);
        assert_eq!(path.mtu(), 1300, "a report cannot raise");
        // It is looked into, and turns out wrong.
        for nonsense in [0, 68, 575] {
            path.too_big(seconds(1), nonsense, &mut changes);
            assert_eq!(path.mtu(), 1300, "{nonsense}");
        }
        let soon = seconds(1) + RAISE_MIN;
        follow(&mut path, &mut changes, seconds(1), soon + Duration(2), 1500, true);
        assert_eq!((path.mtu(), changes.raised), (1500, 1), "a forgery lasts for a second");
    }

    #[test]
    fn a_report_about_a_probe_ends_the_search_there() {
        let (mut path, mut changes) = (Path::new(seconds(1), true, 1200, 1500), Changes::default());
        let mut now = path.due();
        for size in [1500, 1400] {
            let probe = path.poll(now, true, &mut changes).expect("an attempt");
            assert_eq!(probe.size, size);
            if size == 1400 {
                path.answered(now, probe.id, &mut changes);
            }
            path.too_big(now, 1400, &mut changes);
            now += Duration(1);
        }
        assert_eq!((path.mtu(), path.probe()), (1400, None));
    }

    #[test]
    fn nobody_is_bothered_for_the_sake_of_a_path_without_traffic() {
        let (mut path, mut changes) = (Path::new(seconds(1), true, 1200, 1500), Changes::default());
        let mut now = seconds(1);
        while now < seconds(100) {
            assert_eq!(path.poll(now, false, &mut changes), None);
            now = path.due().max(now + Duration(1));
        }
    }
}
