//! When a receiver sends a RESEND (Homa §3.7): [`resend_due`].
//!
//! The paper has one constant timeout of a few milliseconds. Profile `default` adapts it to how
//! long the peer usually takes and backs off exponentially, because a server that is slow with
//! everything lost nothing, and RESENDs would keep it slow. While nothing at all is heard of a
//! peer, the interval between RESENDs to it doubles up to [`MAX_SILENT`] (RFC 8085 §3.1.1), and any
//! packet of it ends that. If the peer's host says that no server is there, an idempotent call asks
//! at a constant interval whether one is back. All functions are pure.

use crate::config::{LossConfig, LossPolicy};
use crate::units::{Duration, Time};

/// Homa §3.7: if no packet of a message arrives for a whole timeout, the receiver sends a RESEND.
///
/// Example: the timeout is 5 ms, and the last DATA arrived at 20 ms: the RESEND is due at 25 ms.
#[inline]
pub(super) fn resend_due(
    silence: &Silence,
    owed: &Owed,
    path: &Path,
    config: &LossConfig,
    policy: &LossPolicy,
) -> ResendDue {
    let due = due_at(silence, owed, config, policy);
    // The timeout has not passed.
    if silence.now < due {
        return ResendDue::At(due);
    }
    // Beyond the paper: a RESEND that would do harm waits.
    match blocked(silence, owed, path, config, policy) {
        Some((reason, until)) => ResendDue::Blocked(reason, until),
        None => ResendDue::Now,
    }
}

/// When a RESEND is due at the earliest.
pub(super) fn due_at(
    silence: &Silence,
    owed: &Owed,
    config: &LossConfig,
    policy: &LossPolicy,
) -> Time {
    // The time that the server named in its BUSY takes the place of the timeout.
    match silence.rest_until > silence.since {
        true => silence.rest_until,
        false => silence.since + resend_timeout(silence.resends, owed, config, policy),
    }
}

/// How long an RPC may be silent before a RESEND is due.
fn resend_timeout(resends: u16, owed: &Owed, config: &LossConfig, policy: &LossPolicy) -> Duration {
    let mut timeout = config.resend_after;
    if owed.server_absent {
        return timeout.max(ABSENT_RETRY);
    }
    if policy.adaptive_timeout {
        let (backoff, most) = match owed.is_request {
            true => (MAX_REQUEST_BACKOFF, MAX_REQUEST_TIMEOUT),
            false => (MAX_BACKOFF, MAX_TIMEOUT),
        };
        let learned = timeout.max(owed.usual.min(MAX_LEARNED));
        // A configured timeout above the bound is kept, because the user asked for it.
        timeout = Duration(learned.0 << resends.min(backoff)).min(most.max(timeout));
    }
    // Messages arrive one behind the other, so each may have to wait for all.
    if config.scale_with_bytes { timeout + owed.transfer } else { timeout }
}

/// Longest timeout that is learned from a slow peer.
pub(crate) const MAX_LEARNED: Duration = Duration::millis(100);
/// Longest timeout after backoff, and its exponent. With the 5 ms of profile `default`, only a
/// learned timeout reaches the former.
pub(super) const MAX_TIMEOUT: Duration = Duration::millis(250);
const MAX_BACKOFF: u16 = 5;
/// Longest time between RESENDs to a silent peer.
const MAX_SILENT: Duration = Duration::secs(2);
/// Time between RESENDs of a call whose server is not there, as its host said. That is often
/// enough for a server that restarts, and each is answered.
pub(super) const ABSENT_RETRY: Duration = Duration::millis(20);
/// Longest timeout of an incomplete request after backoff, and its exponent. The source address may
/// be spoofed, so it gets few packets; a client that is alive asks for its response itself. Nine
/// doublings of 5 ms reach the bound.
const MAX_REQUEST_TIMEOUT: Duration = Duration::millis(2_500);
const MAX_REQUEST_BACKOFF: u16 = 9;

/// How long an RPC has been silent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Silence {
    pub now: Time,
    /// The last sign of life or the last RESEND, whichever is later.
    pub since: Time,
    /// RESENDs since the last progress.
    pub resends: u16,
    /// The peer has no room and asked not to be asked before this time.
    pub rest_until: Time,
}

/// What the RPC waits for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owed {
    /// The rest of a request: see [`MAX_REQUEST_TIMEOUT`].
    pub is_request: bool,
    /// How long such a wait usually takes with this peer.
    pub usual: Duration,
    /// How long the link needs for all bytes that are outstanding, from all peers.
    pub transfer: Duration,
    /// The host of the peer said that no server is there: see [`ABSENT_RETRY`].
    pub server_absent: bool,
}

/// What the way to the peer is like.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path {
    /// Too many RESENDs wait for our own link.
    pub queue_full: bool,
    /// Our downlink was full lately.
    pub downlink_full: bool,
    /// Until when another RESEND to this peer counts as outstanding.
    pub resend_until: Time,
}

/// Whether to send RESENDs for an RPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResendDue {
    Now,
    /// The timeout has not passed: look again then.
    At(Time),
    /// The timeout has passed, but a RESEND would do harm: look again at the time.
    Blocked(Block, Time),
}

/// Why no RESEND is sent although the timeout has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Block {
    QueueFull,
    DownlinkFull,
    /// One RESEND per peer at a time: it has not answered the last one.
    PeerAsked,
}

/// For how long a RESEND to a peer counts as outstanding if nothing is heard: `unanswered` is the
/// number of rounds of RESENDs before it since the peer was heard.
pub(super) fn outstanding_for(
    unanswered: u8,
    config: &LossConfig,
    policy: &LossPolicy,
) -> Duration {
    let first = config.resend_after;
    // Homa §3.7: the timeout of the paper is constant.
    if !policy.adaptive_timeout {
        return first;
    }
    // The shift is bounded, because `unanswered` may be 255; two seconds are reached long before.
    let doubled = first.0.saturating_mul(1 << unanswered.min(16));
    Duration(doubled).min(MAX_SILENT.max(first))
}

/// Why a RESEND that is due would do harm, and when to look again; `None` if it would not.
#[inline]
fn blocked(
    silence: &Silence,
    owed: &Owed,
    path: &Path,
    config: &LossConfig,
    policy: &LossPolicy,
) -> Option<(Block, Time)> {
    let now = silence.now;
    let soon = now + config.resend_after;
    // Our own link is the bottleneck: one more RESEND would only wait for it.
    if path.queue_full {
        return Some((Block::QueueFull, soon));
    }
    // Missing bytes may wait behind those that arrive, and a RESEND would make that queue longer.
    // Not for ever, because a full link may also be full of what others were sent.
    let waited = now.since(silence.since);
    if policy.defers_on_full_link && path.downlink_full && waited < MAX_TIMEOUT {
        return Some((Block::DownlinkFull, soon));
    }
    // The peer has not answered the last RESEND.
    if config.one_resend_per_peer && now < path.resend_until {
        // In case the peer stays silent: the longer that lasts, the later.
        let later = match owed.server_absent {
            // It does not back off, because a host that answers costs little to ask.
            true => now,
            false => now + Duration(waited.0 / 2).min(MAX_TIMEOUT),
        };
        return Some((Block::PeerAsked, path.resend_until.max(later)));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Profile};
    use crate::units::Rate;
    use std::vec::Vec;

    const MS: fn(u64) -> Duration = Duration::millis;
    const OPEN: Path = Path { queue_full: false, downlink_full: false, resend_until: Time::ZERO };
    const REST: Owed =
        Owed { is_request: false, usual: MS_0, transfer: MS_0, server_absent: false };
    const MS_0: Duration = Duration::ZERO;

    /// The decision of a profile for an RPC that was silent for `silent`.
    fn decide(
        config: &Config,
        silent: Duration,
        resends: u16,
        owed: Owed,
        path: Path,
    ) -> ResendDue {
        let now = Time::ZERO + Duration::secs(10);
        let since = Time(now.0 - silent.0);
        let silence = Silence { now, since, resends, rest_until: Time::ZERO };
        resend_due(&silence, &owed, &path, &config.loss, &config.profile.policy().loss)
    }

    #[test]
    fn silence_for_a_whole_timeout_calls_for_a_resend() {
        // The timeout is 5 ms, and the last DATA arrived at 20 ms.
        let config = Config::for_users(Rate::gbps(10));
        let policy = &config.profile.policy().loss;
        let at = |now, since| {
            let [now, since] = [now, since].map(|ms| Time::ZERO + MS(ms));
            let silence = Silence { now, since, resends: 0, rest_until: Time::ZERO };
            resend_due(&silence, &REST, &OPEN, &config.loss, policy)
        };
        let due = |ms| ResendDue::At(Time::ZERO + MS(ms));
        assert_eq!([at(20, 20), at(24, 20), at(25, 20)], [due(25), due(25), ResendDue::Now]);
        assert_eq!([at(25, 22), at(27, 22)], [due(27), ResendDue::Now], "more arrived at 22 ms");
    }

    #[test]
    fn the_papers_timeout_is_constant() {
        let paper = Config::sigcomm18(Rate::gbps(10));
        assert_eq!(paper.profile, Profile::Sigcomm18);
        let slow = Owed { usual: MS(80), transfer: MS(80), ..REST };
        for resends in [0, 1, 5] {
            assert!(matches!(
                decide(&paper, Duration(1_999_999), resends, slow, OPEN),
                ResendDue::At(_)
            ));
            assert_eq!(decide(&paper, MS(2), resends, slow, OPEN), ResendDue::Now);
        }
    }

    #[test]
    fn the_timeout_adapts_backs_off_and_is_bounded() {
        let users = Config::for_users(Rate::gbps(10));
        let policy = &users.profile.policy().loss;
        let timeout = |resends, owed: Owed| resend_timeout(resends, &owed, &users.loss, policy);
        let request = Owed { is_request: true, ..REST };
        let usual = |ms| Owed { usual: MS(ms), ..REST };
        for (want, got) in [
            (5, timeout(0, REST)),
            (10, timeout(1, REST)),
            (160, timeout(5, REST)),
            (160, timeout(9, REST)),
            (80, timeout(0, usual(80))),
            (160, timeout(1, usual(80))),
            (250, timeout(2, usual(80))),
            (100, timeout(0, usual(900))),
            (2_500, timeout(9, request)),
            (12, timeout(0, Owed { transfer: MS(7), ..REST })),
            (20, timeout(9, Owed { server_absent: true, ..usual(80) })),
        ] {
            assert_eq!(want, got.as_millis(), "{got:?}");
        }
    }

    #[test]
    fn a_silent_peer_is_asked_less_and_less_often() {
        let interval = |config: &Config, unanswered| {
            let policy = &config.profile.policy().loss;
            outstanding_for(unanswered, &config.loss, policy).as_millis()
        };
        let users = Config::for_users(Rate::gbps(10));
        let intervals: Vec<u64> = (0..11).map(|n| interval(&users, n)).collect();
        assert_eq!(intervals, [5, 10, 20, 40, 80, 160, 320, 640, 1_280, 2_000, 2_000]);
        assert_eq!(interval(&users, u8::MAX), 2_000);
        assert_eq!(interval(&Config::linux(), 9), 5, "as the kernel module");
    }

    #[test]
    fn a_resend_that_cannot_help_is_put_off() {
        let users = Config::for_users(Rate::gbps(10));
        let now = Time::ZERO + Duration::secs(10);
        let full = Path { downlink_full: true, ..OPEN };
        let asked = |ms| Path { resend_until: now + MS(ms), ..OPEN };
        let queued = Path { queue_full: true, ..OPEN };
        let due = |silent, path| decide(&users, MS(silent), 0, REST, path);
        assert_eq!(due(6, OPEN), ResendDue::Now);
        assert_eq!(due(6, queued), ResendDue::Blocked(Block::QueueFull, now + MS(5)));
        assert_eq!(due(6, full), ResendDue::Blocked(Block::DownlinkFull, now + MS(5)));
        assert_eq!(due(250, full), ResendDue::Now, "not for ever");
        assert_eq!(due(6, asked(4)), ResendDue::Blocked(Block::PeerAsked, now + MS(4)));
        assert_eq!(due(40, asked(4)), ResendDue::Blocked(Block::PeerAsked, now + MS(20)));
        // The kernel module asks whatever its link is like.
        let linux = Config::linux();
        assert_eq!(
            decide(&linux, MS(6), 0, REST, Path { queue_full: false, ..full }),
            ResendDue::Now
        );
        assert_eq!(decide(&linux, MS(6), 0, REST, asked(4)), ResendDue::Now);
    }
}
