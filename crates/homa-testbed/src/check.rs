//! Self-checks of the rack: a result counts only if the network, not the machine, was the
//! bottleneck.
//!
//! Before a run, [`probe`] sends known frames and compares their arrival with the computed time: on
//! idle links (wire timing) and behind a full load of lower priority (strict priority). After a
//! run, [`judge`] checks the run itself: processor headroom, lateness of the switch, frames that it
//! missed.

mod probe;

use std::cmp::Ordering;
use std::fmt;
use std::fs;

pub use probe::{Probes, probe};

use crate::{RackConfig, SwitchInterval};

/// Share of the time in which every processor of the rack must have been free.
const HEADROOM: f64 = 0.10;
/// The switch's own 99th percentile may be this part of the 99th percentile of short RPCs.
const LATENESS_SHARE: f64 = 0.05;
/// Share of frames the switch may notice too late to keep their exact order.
const LATE_ARRIVALS: f64 = 0.01;

/// The largest RPC that counts as short, bytes: it fits one Ethernet frame.
pub const SHORT_BYTES: u32 = 1_500;
/// Longest stall of the switch, milliseconds. Scheduling delays are shorter; if a hypervisor pauses
/// a virtual machine, the stall is longer and decides the tail of the run.
const STALL_MS: u64 = 100;

/// One number that was checked against its limit.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckedValue {
    /// The check it belongs to, in a few words; several numbers may belong to one check.
    pub name: &'static str,
    /// A sentence without its full stop: the number that was found and its limit.
    pub detail: String,
    /// The part of the limit that the number takes up, above 0. At most 1: within the limit; 0.5:
    /// half of what is allowed.
    pub strain: f64,
}

impl CheckedValue {
    /// Whether the number is within its limit.
    pub fn ok(&self) -> bool {
        self.strain <= 1.0
    }
}

/// All that was checked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verdict {
    /// In the order of checking.
    pub findings: Vec<CheckedValue>,
}

impl Verdict {
    /// True if every number is within its limit.
    pub fn valid(&self) -> bool {
        self.findings.iter().all(CheckedValue::ok)
    }

    /// The numbers beyond their limits.
    pub fn failed(&self) -> impl Iterator<Item = &CheckedValue> {
        self.findings.iter().filter(|finding| !finding.ok())
    }

    /// The number that is nearest to its limit, or farthest beyond it.
    pub fn worst(&self) -> Option<&CheckedValue> {
        self.findings.iter().max_by(|a, b| a.strain.total_cmp(&b.strain))
    }

    /// Adds another verdict's findings.
    pub fn extend(&mut self, other: Self) {
        self.findings.extend(other.findings);
    }

    /// Adds a number that may be at most its limit. A number that is not known (NaN) fails.
    fn at_most(&mut self, name: &'static str, (found, limit): (f64, f64), detail: String) {
        let strain = match found.partial_cmp(&limit) {
            Some(Ordering::Less | Ordering::Equal) if limit <= 0.0 => 0.0,
            Some(_) if limit > 0.0 => found.max(0.0) / limit,
            _ => f64::INFINITY,
        };
        self.findings.push(CheckedValue { name, detail, strain });
    }

    /// Adds a number that must be at least its limit, which is above 0.
    fn at_least(&mut self, name: &'static str, (found, limit): (f64, f64), detail: String) {
        let strain = if found > 0.0 { limit / found } else { f64::INFINITY };
        self.findings.push(CheckedValue { name, detail, strain });
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, finding) in self.findings.iter().enumerate() {
            let separator = if i == 0 { "" } else { "; " };
            let verdict = if finding.ok() { "ok" } else { "NOT OK" };
            write!(f, "{separator}{}: {}, {verdict}", finding.name, finding.detail)?;
        }
        f.write_str(if self.valid() { " => valid" } else { " => not valid" })
    }
}

/// Largest allowed lateness of the switch: a quarter of a full frame, but at least the cost of a
/// wake-up (15 us).
pub fn lateness_bound_us(rack: &RackConfig) -> u64 {
    (rack.full_frame_ns() / 4_000).max(15)
}

/// Observations of a run besides the switch's own.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shown {
    /// Share of the time in which the processor of the hosts was free.
    pub hosts_free: Option<f64>,
    /// 99th percentile of the latency of RPCs that fit one frame, nanoseconds: what the run reports
    /// first.
    pub short_p99_ns: Option<u64>,
}

/// Judges a run by the switch's and the processors' observations.
pub fn judge(rack: &RackConfig, seen: &SwitchInterval, shown: Shown) -> Verdict {
    let mut verdict = Verdict::default();
    let free = [shown.hosts_free, seen.free()].into_iter().flatten().reduce(f64::min);
    if let Some(free) = free {
        let detail = format!(
            "its busiest core was free for {:.0} % of the time (at least {:.0} %)",
            free * 100.0,
            HEADROOM * 100.0
        );
        verdict.at_least("CPU headroom", (free, HEADROOM), detail);
    }
    // A switch that is late by little against the reported latency did not decide it.
    let share_us = (shown.short_p99_ns.unwrap_or(0) as f64 * LATENESS_SHARE / 1_000.0) as u64;
    let bound = lateness_bound_us(rack).max(share_us);
    let p99 = seen.lateness.quantile_us(0.99);
    let detail = format!(
        "the emulated switch sent 1 % of all frames {p99} us or more too late (at most {bound} us)"
    );
    verdict.at_most("switch lateness", (p99 as f64, bound as f64), detail);
    let stall_ms = seen.lateness.max_us() / 1_000;
    let detail = format!("the machine stood still for {stall_ms} ms (at most {STALL_MS} ms)");
    verdict.at_most("machine", (stall_ms as f64, STALL_MS as f64), detail);
    let missed = seen.overflow + seen.undeliverable;
    let detail = format!("the emulated switch missed {missed} frames (none allowed)");
    verdict.at_most("switch backlog", (missed as f64, 0.0), detail);
    // All frames that came: a link that was cut delivers none of those it loses.
    let frames = (seen.delivered + seen.dropped + seen.lost + seen.cut).max(1) as f64;
    let late = seen.late_arrivals as f64 / frames;
    let detail = format!(
        "the emulated switch noticed {:.2} % of all frames too late to keep their order (at most \
         {:.0} %)",
        late * 100.0,
        LATE_ARRIVALS * 100.0
    );
    verdict.at_most("switch backlog", (late, LATE_ARRIVALS), detail);
    verdict
}

/// Processor time of the whole machine so far, in ticks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessorTime {
    idle: u64,
    all: u64,
}

impl ProcessorTime {
    /// Reads it; `None` if /proc/stat has another format.
    pub(crate) fn now() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    fn parse(stat: &str) -> Option<Self> {
        let line = stat.lines().next()?.strip_prefix("cpu ")?;
        let ticks: Vec<u64> = line.split_whitespace().map_while(|t| t.parse().ok()).collect();
        // user nice system idle iowait irq softirq steal; guest time is already part of user.
        let all = ticks.get(0..8)?.iter().sum();
        Some(Self { idle: ticks[3] + ticks[4], all })
    }

    /// Share of the time since `earlier` that all processors together were idle.
    pub(crate) fn idle_since(self, earlier: Self) -> Option<f64> {
        let all = self.all.checked_sub(earlier.all).filter(|&all| all > 0)?;
        Some(self.idle.checked_sub(earlier.idle)? as f64 / all as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_share_comes_from_the_first_line_of_proc_stat() {
        let before = ProcessorTime::parse("cpu  10 0 10 70 10 0 0 0 5 5\ncpu0 1 2\n").unwrap();
        let after = ProcessorTime::parse("cpu  20 0 20 100 20 5 5 30 9 9\n").unwrap();
        assert_eq!(after.idle_since(before), Some(0.4));
        assert!(after.idle_since(after).is_none());
        assert!(ProcessorTime::parse("cpu 1 2 3").is_none());
        assert!(ProcessorTime::parse("").is_none());
    }

    #[test]
    fn a_run_is_invalid_for_each_reason_alone() {
        let rack = RackConfig::default();
        let free = |share| Shown { hosts_free: Some(share), ..Shown::default() };
        let none = Shown::default();
        let good = SwitchInterval { delivered: 1_000, ..SwitchInterval::default() };
        assert!(judge(&rack, &good, free(0.5)).valid());
        assert!(!judge(&rack, &good, free(0.05)).valid());
        assert!(!judge(&rack, &SwitchInterval { overflow: 1, ..good.clone() }, none).valid());
        assert!(!judge(&rack, &SwitchInterval { undeliverable: 1, ..good.clone() }, none).valid());
        assert!(!judge(&rack, &SwitchInterval { late_arrivals: 11, ..good.clone() }, none).valid());
        let cut = SwitchInterval { delivered: 10, cut: 990, late_arrivals: 9, ..good.clone() };
        assert!(judge(&rack, &cut, none).valid(), "nine of a thousand frames that came");
        let mut stalled = good.clone();
        (0..1_000).for_each(|_| stalled.lateness.record(1_000));
        assert!(judge(&rack, &stalled, none).valid());
        stalled.lateness.record(2_000_000_000);
        let verdict = judge(&rack, &stalled, none);
        assert!(verdict.to_string().contains("the machine stood still for 2000 ms"), "{verdict}");
        assert!(!verdict.valid());
        let mut late = good;
        late.lateness.record(1_000_000);
        let verdict = judge(&rack, &late, none);
        assert!(!verdict.valid());
        let slow = |ms: u64| Shown { short_p99_ns: Some(ms * 1_000_000), ..none };
        assert!(judge(&rack, &late, slow(21)).valid());
        assert!(!judge(&rack, &late, slow(19)).valid());
        assert!(verdict.to_string().ends_with("=> not valid"));
        let failed: Vec<&str> = verdict.failed().map(|finding| finding.detail.as_str()).collect();
        let said = "the emulated switch sent 1 % of all frames 1001 us or more too late (at most";
        assert!(failed.len() == 1 && failed[0].starts_with(said), "{failed:?}");
    }

    #[test]
    fn a_limit_half_used_up_is_a_strain_of_a_half() {
        let mut verdict = Verdict::default();
        verdict.at_most("a", (15.0, 30.0), String::new());
        verdict.at_least("b", (0.4, 0.1), String::new());
        verdict.at_most("c", (0.0, 0.0), String::new());
        let strains = |verdict: &Verdict| -> Vec<f64> {
            verdict.findings.iter().map(|finding| finding.strain).collect()
        };
        assert_eq!(strains(&verdict), [0.5, 0.25, 0.0]);
        assert!(verdict.valid() && verdict.worst().map(|worst| worst.name) == Some("a"));
        verdict.at_most("d", (1.0, 0.0), String::new());
        verdict.at_most("e", (f64::NAN, 5.0), String::new());
        verdict.at_least("f", (0.0, 0.1), String::new());
        verdict.at_most("g", (60.0, 30.0), String::new());
        let infinite = f64::INFINITY;
        assert_eq!(strains(&verdict)[3..], [infinite, infinite, infinite, 2.0]);
        assert_eq!(verdict.failed().count(), 4);
    }
}
