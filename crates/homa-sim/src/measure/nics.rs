//! The work of network cards and processors while traffic was measured (HULL §4.1): load of
//! processors, data per acknowledgement, and bursts of packets.

use std::ops::Range;

use crate::nic::NicCounters;
use crate::nic::trains::Trains;
use crate::scenario::outcome::NicReport;
use crate::time::SimDuration;

/// Computes the report from the counters of the hosts' cards at the start and at the end; `None` if
/// hosts have no counters.
pub fn report(
    (start, end): (&[NicCounters], &[NicCounters]),
    receivers: Range<u32>,
    lasted: SimDuration,
) -> Option<NicReport> {
    if end.is_empty() || start.len() != end.len() || lasted.0 == 0 {
        return None;
    }
    let nanos = lasted.0 as f64 / 1e3;
    let busy = |host: usize| end[host].busy.saturating_sub(start[host].busy) as f64 / nanos;
    let receiving = || receivers.start as usize..(receivers.end as usize).min(end.len());
    let sum = |of: &dyn Fn(&NicCounters) -> u64| {
        let since = |host: usize| of(&end[host]).saturating_sub(of(&start[host]));
        receiving().map(since).sum::<u64>() as f64
    };
    let trains = |of: &dyn Fn(&NicCounters) -> Trains| {
        let each = end.iter().zip(start).map(|(end, start)| of(end).since(&of(start)));
        each.fold(Trains::default(), |a, b| a.and(&b))
    };
    let (data, control) =
        (trains(&|counters| counters.data_trains), trains(&|counters| counters.control_trains));
    let ratio = |of: f64, over: f64| (over > 0.0).then(|| of / over);
    let mean = |sum: u64, trains: &Trains| ratio(sum as f64, trains.count as f64);
    let micros = |nanos: Option<f64>| nanos.map(|nanos| nanos / 1e3);
    let all = |of: &dyn Fn(&NicCounters) -> u64| {
        let since = |(end, start): (&NicCounters, &NicCounters)| of(end).saturating_sub(of(start));
        end.iter().zip(start).map(since).sum::<u64>() as f64
    };
    let paced = all(&|counters| counters.paced.packets);
    Some(NicReport {
        pacer_wait_us: micros(ratio(all(&|counters| counters.paced.waited), paced)),
        receiver_cpu: receiving().map(busy).sum::<f64>() / receiving().len().max(1) as f64,
        busiest_cpu: (0..end.len()).map(busy).fold(0.0, f64::max),
        frames_per_interrupt: ratio(
            sum(&|counters| counters.received.frames),
            sum(&|counters| counters.received.interrupts),
        ),
        bytes_per_ack: ratio(
            sum(&|counters| counters.data_bytes),
            sum(&|counters| counters.control_sent),
        ),
        burst_bytes: mean(data.bytes, &data),
        burst_period_us: micros(mean(data.period, &data)),
        acks_per_burst: mean(control.packets, &control),
        ack_span_us: micros(mean(control.length, &control)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nic::coalescing::RingCounts;

    #[test]
    fn shares_refer_to_the_measured_time() {
        let received = RingCounts { interrupts: 10, frames: 80, deliveries: 20 };
        let counted = |busy, data_bytes, control_sent| NicCounters {
            received,
            busy,
            data_bytes,
            control_sent,
            ..NicCounters::default()
        };
        let (start, end) = (
            vec![NicCounters::default(); 2],
            [counted(500_000, 116_800, 10), counted(900_000, 0, 80)],
        );
        let report = report((&start, &end), 0..1, SimDuration(1_000_000_000)).unwrap();
        assert_eq!((report.receiver_cpu, report.busiest_cpu), (0.5, 0.9));
        assert_eq!(report.frames_per_interrupt, Some(8.0));
        assert_eq!(report.bytes_per_ack, Some(11_680.0));
        assert_eq!(report.burst_bytes, None);
        assert_eq!(super::report((&[], &[]), 0..1, SimDuration(1)), None);
    }
}
