//! The MTU of the path to one peer, as far as packets of ours found out: datagram packetization
//! layer path MTU discovery (RFC 8899). Its names: PLPMTU is `mtu`, MIN_PLPMTU `floor`, BASE_PLPMTU
//! `base`, MAX_PLPMTU `max`.
//!
//! A probe is a padded packet that its receiver answers (`paths.rs`), beside a short one: only
//! where the short one is answered and the padded one is not, three times over, is its size too
//! large.
//! * Loss calls for a probe of the size in use. If that fails, the path is a black hole for such
//!   packets: the next of 1500, `base` and `floor` takes over, and is confirmed likewise (§4.3,
//!   §5.2).
//! * A report of the network that quotes a packet of ours lowers the size to what it says, if that
//!   is not below `floor` (§4.6.1).
//! * From less than `max`, that is tried with the first message that fills a packet, after a second
//!   where the size was lowered, and after ever longer where it does not pass; then sizes in
//!   between are, by halves (§5.3). While no such message is sent, nothing is tried.

use homa_proto::{Duration, Time};

use crate::driver::ETHERNET_MTU;

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
pub struct PathChanges {
    /// The size was lowered.
    pub lowered: u64,
    /// It was raised.
    pub raised: u64,
    /// It was lowered because packets vanished without a report.
    pub black_holes: u64,
}

/// A probe on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathProbe {
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

impl PathProbe {
    /// The RPC id of the short packet.
    pub const fn small_id(&self) -> u64 {
        self.id ^ 2
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SearchPhase {
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
    phase: SearchPhase,
    /// The size in use follows a black hole.
    fell: bool,
    probe: Option<PathProbe>,
    /// When the size in use was last confirmed, or nobody answered.
    confirmed: Time,
    raise_at: Time,
    raise_after: Duration,
    /// Something was to be sent that larger packets would be good for, since they were tried last.
    wanted: bool,
    /// Nobody was there to profit when larger sizes were to be tried.
    dormant: bool,
}

impl Path {
    /// A path on which `mtu` is in use, of at most `max`.
    pub fn new(now: Time, v4: bool, mtu: u16, max: u16) -> Self {
        // There is a size above.
        let max = max.max(mtu).min(u16::MAX - 1);
        let floor = if v4 { FLOOR_V4 } else { FLOOR_V6 }.min(max);
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
            raise_at: now + RAISE_MIN,
            raise_after: RAISE_MIN,
            wanted: true,
            dormant: false,
        }
    }

    /// The size in use, bytes of an IP packet.
    pub fn mtu(&self) -> u16 {
        self.mtu
    }

    /// The probe on its way.
    pub fn probe(&self) -> Option<PathProbe> {
        self.probe
    }

    /// There is nothing to remember.
    pub fn is_settled(&self, now: Time) -> bool {
        let quiet = self.phase == SearchPhase::Complete && now >= self.confirmed + CONFIRMED;
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

    /// There is something to be sent that larger packets, up to `max`, would be good for; true if
    /// that makes [`Self::poll`] due.
    pub fn wanted(&mut self, max: u16) -> bool {
        let max = max.max(self.mtu).min(u16::MAX - 1);
        if max != self.max {
            self.max = max;
            self.too_big = max + 1;
        }
        self.wanted = true;
        std::mem::take(&mut self.dormant)
    }

    /// Larger packets are tried next.
    pub fn try_larger(&mut self, now: Time) {
        self.raise_at = now;
    }

    /// Something that we sent was lost.
    pub fn lost(&mut self, now: Time) {
        if now >= self.confirmed + CONFIRMED {
            self.confirm(now);
        }
    }

    /// Finds out whether the size in use passes.
    fn confirm(&mut self, now: Time) {
        if self.phase == SearchPhase::Complete && self.mtu > self.floor {
            self.phase = SearchPhase::Confirming;
            self.begin(now, self.mtu);
        }
    }

    /// The network says that no packets larger than `mtu` pass; 0: that one was too large.
    pub fn too_big(&mut self, now: Time, mtu: u16, changes: &mut PathChanges) {
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
    pub fn answered(&mut self, now: Time, id: u64, changes: &mut PathChanges) -> bool {
        let Some(probe) = &mut self.probe else { return false };
        probe.alive |= probe.small_id() == id;
        if probe.id != id {
            return probe.small_id() == id;
        }
        self.confirmed = now;
        if self.phase == SearchPhase::Searching {
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
    pub fn poll(&mut self, now: Time, busy: bool, changes: &mut PathChanges) -> Option<PathProbe> {
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
        self.dormant = !(busy && self.wanted);
        if self.dormant {
            return;
        }
        self.wanted = false;
        self.raise_after = Duration((2 * self.raise_after.0).min(RAISE_MAX.0));
        self.too_big = self.max + 1;
        self.search(now);
    }

    /// Only a short packet was answered, or none.
    fn failed(&mut self, now: Time, probe: PathProbe, changes: &mut PathChanges) {
        match (self.phase, probe.alive) {
            // Nothing smaller is ever sent.
            (SearchPhase::Confirming, true) if self.mtu > self.floor => {
                changes.lowered += 1;
                changes.black_holes += 1;
                self.too_big = self.mtu;
                self.mtu = self.next_lower();
                self.try_larger_soon(now);
                self.fell = true;
                self.begin(now, self.mtu);
            }
            (SearchPhase::Searching, true) => {
                self.too_big = probe.size;
                self.search(now);
            }
            // Whoever does not answer says nothing about sizes: no reason to wait longer.
            (SearchPhase::Searching, false) => {
                self.raise_after = Duration((self.raise_after.0 / 2).max(RAISE_MIN.0));
                self.finish(now);
            }
            _ => self.finish(now),
        }
    }

    /// What takes over where the size in use does not pass.
    fn next_lower(&self) -> u16 {
        let lower = [ETHERNET_MTU, self.base].into_iter().find(|&size| size < self.mtu);
        lower.unwrap_or(self.floor)
    }

    /// The size was lowered.
    fn try_larger_soon(&mut self, now: Time) {
        self.raise_after = RAISE_MIN;
        self.raise_at = now + RAISE_MIN;
    }

    /// Tries the largest size, or one half way to what does not pass.
    fn search(&mut self, now: Time) {
        self.phase = SearchPhase::Searching;
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
        self.probe = Some(PathProbe { id, size, attempts: 0, due: now, alive: false });
    }

    fn finish(&mut self, now: Time) {
        // Loss that goes on has the size in use confirmed time and again, and says nothing about
        // larger ones: these are not put off by it.
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
