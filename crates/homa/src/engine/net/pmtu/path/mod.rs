//! The MTU of the path to one peer: datagram packetization layer path MTU discovery (RFC 8899). Its
//! names for our fields: PLPMTU is `mtu`, MIN_PLPMTU `floor`, BASE_PLPMTU `base`, MAX_PLPMTU `max`.
//!
//! A probe is a padded packet that its receiver answers, with a short one beside it. Its size
//! counts as too large only if the short packet is answered and the padded one is not, three times.
//! * Loss causes a probe of the size in use. If it fails, the path is a black hole for such
//!   packets: the next smaller of 1500, `base` and `floor` is used, and is confirmed in the same
//!   way (§4.3, §5.2).
//! * A network report that quotes one of our packets lowers the size to the reported MTU, unless
//!   that is less than `floor` (§4.6.1).
//! * If the size is less than `max`, `max` is tried with the first message that fills a packet; one
//!   second after the size was lowered; and at growing intervals if it does not pass. Sizes in
//!   between are searched by halves (§5.3). If no such message is sent, nothing is tried.
//! * Nothing is probed before any packet of the peer has arrived, and nothing after a probe whose
//!   short packet was not answered either, until the peer is heard again. Large packets must not be
//!   most of what a silent peer is sent (RFC 8085 §3.1.3, RFC 8899 §5.1.1).

use homa_proto::{Duration, Time};

use crate::driver::ETHERNET_MTU;

/// BASE_PLPMTU (RFC 8899 §5.1.2).
const BASE: u16 = 1200;
/// Smallest sizes that links guarantee: IPv4 hosts must take packets of 576 bytes, and IPv6 links
/// must carry packets of 1280 (RFC 8200 §5).
const FLOOR_V4: u16 = 576;
const FLOOR_V6: u16 = 1280;
/// MAX_PROBES (RFC 8899 §5.1.2: by default 3, so that a lost packet is not taken for a size).
const ATTEMPTS: u8 = 3;
/// Time for the answer to the first attempt; it doubles with each attempt.
const ANSWER: Duration = Duration::millis(5);
/// The size in use is confirmed at most once in this time, no matter how much is lost.
const CONFIRMED: Duration = Duration::millis(250);
/// Bounds of PMTU_RAISE_TIMER, which doubles.
const RAISE_MIN: Duration = Duration::secs(1);
const RAISE_MAX: Duration = Duration::secs(60);
/// A search ends when the MTU is known to this many bytes.
const STEP: u16 = 16;

/// Counts of changed sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathChanges {
    /// The size was lowered.
    pub lowered: u64,
    /// The size was raised.
    pub raised: u64,
    /// The size was lowered because packets vanished without a report.
    pub black_holes: u64,
}

/// A probe in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathProbe {
    /// The RPC id in the probe; the short packet beside it carries [`Self::small_id`].
    pub id: u64,
    /// Size of its IP packet, bytes.
    pub size: u16,
    attempts: u8,
    /// When the next attempt is due.
    due: Time,
    /// A short packet was answered.
    alive: bool,
}

impl PathProbe {
    /// The RPC id in the short packet.
    pub const fn small_id(&self) -> u64 {
        self.id ^ 2
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SearchPhase {
    /// No probe is needed.
    Complete,
    /// Checks that the size in use passes.
    Confirming,
    /// Searches for a larger size.
    Searching,
}

/// See the module's documentation.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    mtu: u16,
    floor: u16,
    base: u16,
    max: u16,
    /// The smallest size that is known to fail; if none is, it is larger than `max`.
    too_big: u16,
    phase: SearchPhase,
    /// The size in use was chosen because of a black hole.
    fell: bool,
    probe: Option<PathProbe>,
    /// When the size in use was last confirmed, or a probe remained unanswered.
    confirmed: Time,
    raise_at: Time,
    raise_after: Duration,
    /// Since the last search, a message would have profited from larger packets.
    wanted: bool,
    /// The raise timer expired while no message would have profited.
    dormant: bool,
    /// When a packet of the peer last arrived; zero: never.
    heard: Time,
    /// Since when nothing of a probe was answered. No other begins before the peer is heard.
    silent: Time,
}

impl Path {
    /// A path that uses packets of `mtu` bytes, and may use up to `max`. Larger sizes were never
    /// searched, so they are as soon as a message profits from them.
    pub fn new(now: Time, v4: bool, mtu: u16, max: u16) -> Self {
        // Keeps `max + 1` in range.
        let max = max.max(mtu).min(u16::MAX - 1);
        let floor = max.min(if v4 { FLOOR_V4 } else { FLOOR_V6 });
        Self {
            mtu,
            floor,
            base: BASE.max(floor).min(max),
            max,
            too_big: max + 1,
            phase: SearchPhase::Complete,
            fell: false,
            probe: None,
            confirmed: Time::ZERO,
            raise_at: now,
            raise_after: RAISE_MIN,
            wanted: false,
            dormant: false,
            heard: Time::ZERO,
            silent: Time::ZERO,
        }
    }

    /// Size of IP packets in use, bytes.
    pub fn mtu(&self) -> u16 {
        self.mtu
    }

    /// The probe in flight.
    pub fn probe(&self) -> Option<PathProbe> {
        self.probe
    }

    /// True if the path needs no entry in the table.
    pub fn is_settled(&self, now: Time) -> bool {
        // The entry keeps the time of the last check for as long as that suppresses another one.
        let quiet = self.phase == SearchPhase::Complete && now >= self.confirmed + CONFIRMED;
        quiet && self.mtu >= self.max
    }

    /// When [`Self::poll`] is due.
    pub fn due(&self) -> Time {
        match (self.probe, self.mtu < self.max) {
            // A probe to a silent peer would show nothing about sizes.
            (Some(_), _) if self.awaits_peer() => Time::MAX,
            (Some(probe), _) => probe.due,
            (None, true) if self.dormant => Time::MAX,
            (None, true) => self.raise_at,
            (None, false) => self.confirmed + CONFIRMED,
        }
    }

    /// A message would profit from larger packets, up to `max`; true if [`Self::poll`] is due
    /// because of this.
    pub fn wanted(&mut self, max: u16) -> bool {
        let max = max.max(self.mtu).min(u16::MAX - 1);
        if max != self.max {
            self.max = max;
            // A size that failed may pass on the new route.
            self.too_big = max + 1;
        }
        self.wanted = true;
        std::mem::take(&mut self.dormant)
    }

    /// A packet of the peer arrived last at this time.
    pub fn note_heard(&mut self, at: Time) {
        self.heard = self.heard.max(at);
    }

    /// True if a probe waits for any packet of the peer.
    pub fn awaits_peer(&self) -> bool {
        self.probe.is_some_and(|probe| probe.attempts == 0) && self.heard <= self.silent
    }

    /// A packet that we sent was lost.
    pub fn lost(&mut self, now: Time) {
        // Loss has many causes, so the size is checked now and then and not for each.
        if now >= self.confirmed + CONFIRMED {
            self.confirm(now);
        }
    }

    /// Begins to check that the size in use passes.
    fn confirm(&mut self, now: Time) {
        // Nothing smaller is ever used, so there is nothing to check.
        if self.phase == SearchPhase::Complete && self.mtu > self.floor {
            self.phase = SearchPhase::Confirming;
            self.begin(now, self.mtu);
        }
    }

    /// The network reports that packets larger than `mtu` do not pass; 0 if it reports no MTU.
    pub fn too_big(&mut self, now: Time, mtu: u16, changes: &mut PathChanges) {
        // RFC 8899 §4.6.1: such a report is not believed, but the size is checked.
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
            // Exactly the reported size is tried next, if it is larger than any that passed.
            self.too_big = mtu + 1;
            match mtu > self.mtu {
                true => self.begin(now, mtu),
                false => self.finish(now),
            }
        }
    }

    /// The packet with this id was answered; true if it was a probe.
    pub fn answered(&mut self, now: Time, id: u64, changes: &mut PathChanges) -> bool {
        let Some(probe) = &mut self.probe else { return false };
        probe.alive |= probe.small_id() == id;
        // The short packet alone says that the peer is there, and nothing about the size.
        if probe.id != id {
            return probe.small_id() == id;
        }
        self.confirmed = now;
        if self.phase == SearchPhase::Searching {
            changes.raised += 1;
            // RFC 8899 §5.3: a probe of this size passed, so packets may have it.
            self.mtu = probe.size;
            self.search(now);
        } else if std::mem::take(&mut self.fell) {
            self.search(now);
        } else {
            self.finish(now);
        }
        true
    }

    /// Acts on timers; returns a probe to be sent. Larger sizes are searched while messages would
    /// profit (`busy`), or as soon as one would again ([`Self::wanted`]).
    pub fn poll(&mut self, now: Time, busy: bool, changes: &mut PathChanges) -> Option<PathProbe> {
        // RFC 8899 §5.1.2: one lost probe says nothing, so each size is tried several times.
        if let Some(probe) = self.probe
            && now >= probe.due
            && probe.attempts >= ATTEMPTS
        {
            self.failed(now, probe, changes);
        }
        if self.probe.is_none() && self.mtu < self.max && now >= self.raise_at {
            self.raise(now, busy);
        }
        if self.awaits_peer() {
            return None;
        }
        let probe = self.probe.as_mut().filter(|probe| now >= probe.due)?;
        probe.due = now + Duration(ANSWER.0 << probe.attempts);
        probe.attempts += 1;
        Some(*probe)
    }

    fn raise(&mut self, now: Time, busy: bool) {
        self.dormant = !(busy && self.wanted);
        // Larger packets would be used by no message now.
        if self.dormant {
            return;
        }
        self.wanted = false;
        self.raise_after = Duration((2 * self.raise_after.0).min(RAISE_MAX.0));
        self.too_big = self.max + 1;
        self.search(now);
    }

    /// Only the short packet was answered, or none.
    fn failed(&mut self, now: Time, probe: PathProbe, changes: &mut PathChanges) {
        if !probe.alive {
            self.silent = now;
        }
        match (self.phase, probe.alive) {
            // No smaller packets are ever sent.
            (SearchPhase::Confirming, true) if self.mtu > self.floor => {
                changes.lowered += 1;
                changes.black_holes += 1;
                self.too_big = self.mtu;
                self.mtu = self.next_lower();
                self.try_larger_soon(now);
                // The smaller size is confirmed as well, and then larger ones are searched.
                self.fell = true;
                self.begin(now, self.mtu);
            }
            (SearchPhase::Searching, true) => {
                self.too_big = probe.size;
                self.search(now);
            }
            // If no packet is answered, this shows nothing about sizes, so the interval is not
            // increased.
            (SearchPhase::Searching, false) => {
                self.raise_after = Duration((self.raise_after.0 / 2).max(RAISE_MIN.0));
                self.finish(now);
            }
            _ => self.finish(now),
        }
    }

    /// The size to use if the current one does not pass.
    fn next_lower(&self) -> u16 {
        let lower = [ETHERNET_MTU, self.base].into_iter().find(|&size| size < self.mtu);
        lower.unwrap_or(self.floor)
    }

    /// Restarts the raise timer after the size was lowered.
    fn try_larger_soon(&mut self, now: Time) {
        self.raise_after = RAISE_MIN;
        self.raise_at = now + RAISE_MIN;
    }

    /// Tries the largest size, or one half-way to a size that fails.
    fn search(&mut self, now: Time) {
        self.phase = SearchPhase::Searching;
        // The largest size first, then by halves (RFC 8899 §5.3.2).
        let size = match self.too_big > self.max {
            true => self.max,
            false => self.mtu + (self.too_big - self.mtu) / 2,
        };
        // Sixteen bytes more would not be worth further probes.
        let known = self.too_big <= self.max && self.too_big - self.mtu <= STEP;
        if known || size <= self.mtu {
            return self.finish(now);
        }
        self.begin(now, size);
    }

    fn begin(&mut self, now: Time, size: u16) {
        // An id as the server of an RPC that does not exist.
        let id = crate::config::random() | 1;
        self.probe = Some(PathProbe { id, size, attempts: 0, due: now, alive: false });
    }

    fn finish(&mut self, now: Time) {
        // Continuing loss makes the size in use be confirmed again and again. It shows nothing
        // about larger sizes, so it does not postpone them.
        if self.phase == SearchPhase::Searching {
            self.raise_at = now + self.raise_after;
        }
        self.phase = SearchPhase::Complete;
        self.probe = None;
        self.fell = false;
        self.confirmed = now;
    }
}

#[cfg(test)]
mod tests;
