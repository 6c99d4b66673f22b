//! HULL's NICs and phantom queues (NSDI 2012) for TCP schemes, under a scenario's options.
//!
//! The paper has two sets of pacer parameters: those of its testbed at 1 Gbit/s (Table 3, §5.1) and
//! those of its simulation at 10 Gbit/s (§6.3). Links below 10 Gbit/s use the first set, others the
//! second, whose times follow the round trip. The
//! numbers of Table 3 and the bounds of the rate, 1 and 100 % of the link, are also in the authors'
//! ns-2 code.

use homa_proto::{Duration, Rate};

use crate::fabric::queue::{PhantomConfig, PhantomOrder, PhantomPlace};
use crate::nic::NicConfig;
use crate::nic::coalescing::{CoalescingConfig, InterruptGap};
use crate::nic::cpu::CpuConfig;
use crate::nic::pacer::PacerConfig;
use crate::nic::segmentation::SegmentationConfig;
use crate::scenario::{
    CpuOptions, EcnScopeName, InterruptsName, NicOptions, PacerOptions, PhantomOptions,
    PhantomOrderName, PhantomPlaceName, ScenarioError, SchemeOptions, Span,
};
use crate::time::SimDuration;
use crate::transport::tcp::config::Recovery;
use crate::transport::tcp::priorities::{LEVELS, Priorities};

use super::{Environment, NetworkScale, Nic, PhantomQueue, TcpConfig, rows, tcp};

/// The TCP that HULL compares with (§6): NewReno with selective acknowledgements, as in its Linux
/// 2.6.26, and a minimum RTO of 10 ms.
pub fn tcp(environment: &Environment<'_>) -> TcpConfig {
    TcpConfig { recovery: Recovery::SACK, ..tcp::newreno(environment) }
}

/// DCTCP with the constants of HULL's testbed at 1 Gbit/s (§6), whatever the network.
pub fn dctcp(environment: &Environment<'_>) -> TcpConfig {
    let initial_window = TcpConfig::dctcp().initial_window;
    TcpConfig { initial_window, ..tcp::dctcp(environment) }
}

/// [`tcp`] with messages of one packet at the highest level and others at the level below, over
/// separate connections (§6.2.2).
pub fn qos(environment: &Environment<'_>) -> TcpConfig {
    let tcp = tcp(environment);
    TcpConfig { priorities: Priorities::Size(vec![tcp.mss()]), ack_priority: LEVELS - 1, ..tcp }
}

/// The round trip of HULL's simulation (§6.3).
const SIMULATED_ROUND_TRIP: Duration = Duration(11_800);

/// The pacer of HULL's testbed (§5.1, Table 3) if the link is slower than 10 Gbit/s, otherwise that
/// of its simulation (§6.3) with times in proportion to the round trip, because the rate should
/// adapt within a few of them (§6): a period of 0.61 round trips, and a backlog that takes 28.
fn paper(scale: NetworkScale) -> PacerConfig {
    let ceiling = scale.link.0 as f64 / 8.0;
    let testbed = PacerConfig {
        period: Duration::micros(64),
        gain: 0.125,
        backlog_gain: 16.0,
        probability: 0.125,
        expiry: Duration::millis(10),
        depth: 3 * 1_024,
        tick: Some(Duration::micros(16)),
        fifo: 128 * 1_024,
        entries: 64,
        floor: ceiling / 100.0,
        ceiling,
    };
    if scale.link < Rate::gbps(10) {
        return testbed;
    }
    let round_trips = scale.round_trip().0.max(1) as f64 / SIMULATED_ROUND_TRIP.0 as f64;
    PacerConfig {
        period: Duration(((7_200.0 * round_trips) as u64).max(1)),
        backlog_gain: 375.0 / round_trips,
        expiry: Duration::millis(1),
        depth: 3_100,
        tick: None,
        // This is ten thousand full packets.
        fifo: 15_000_000,
        ..testbed
    }
}

/// The NIC of a row under a scenario's options.
pub fn nic(
    nic: Nic,
    environment: &Environment<'_>,
    options: &SchemeOptions,
) -> Result<NicConfig, ScenarioError> {
    let changes = options.pacer.unwrap_or_default();
    let is_on = match nic {
        Nic::Pacer => true,
        Nic::Pull if options.pacer == Some(PacerOptions::default()) => {
            let why = "the NICs of this scheme have no pacer, and an empty table does not say \
                       whether they should: leave it out, or set `enabled`";
            return Err(ScenarioError::unfit("options.pacer", why));
        }
        Nic::Pull => options.pacer.is_some(),
    };
    let mut config = offloads(options.nic)?;
    config.mark_above = options.tcp.as_ref().and_then(|tcp| tcp.source_ecn);
    if is_on && changes.enabled.unwrap_or(true) {
        let mut pacer = paper(environment.scale());
        change(&mut pacer, &changes)?;
        config.pacer = Some(pacer);
    }
    config.mark_by_port = options.ecn.is_some_and(|ecn| ecn.scope == EcnScopeName::Port);
    let NicConfig { mark_above, mark_by_port, .. } = config;
    let marks_alone = NicConfig { mark_above, mark_by_port, ..NicConfig::default() };
    if config.mark_above.is_some() && config != marks_alone {
        let why = "hosts mark what waits in their own queues, and here the NIC queues: leave it \
                   out, or `options.nic` and `options.pacer`";
        return Err(ScenarioError::unfit("options.tcp.source_ecn", why));
    }
    Ok(config)
}

fn time(span: Span) -> Duration {
    Duration(span.0 / 1_000)
}

/// The options with which the NIC of a row has this pacer.
pub fn pacer_options(nic: Nic, pacer: Option<PacerConfig>) -> Option<PacerOptions> {
    let span = |time: Duration| Some(Span(time.0 * 1_000));
    match (pacer, nic) {
        (None, Nic::Pull) => None,
        (None, Nic::Pacer) => {
            Some(PacerOptions { enabled: Some(false), ..PacerOptions::default() })
        }
        (Some(pacer), _) => Some(PacerOptions {
            enabled: Some(true),
            period: span(pacer.period),
            gain: Some(pacer.gain),
            beta: Some(pacer.backlog_gain),
            probability: Some(pacer.probability),
            expiry: span(pacer.expiry),
            depth: Some(pacer.depth),
            tick: span(pacer.tick.unwrap_or(Duration::ZERO)),
        }),
    }
}

/// The same options of a NIC with the parameters that they leave to their defaults.
pub fn nic_options(options: NicOptions) -> NicOptions {
    let queue = options.send_queue.unwrap_or(SegmentationConfig::LINUX.queue);
    let span = |time: Duration| Some(Span(time.0 * 1_000));
    let cost = |given: Option<Span>, paper| given.or(span(paper));
    let paper = CpuConfig::PAPER;
    NicOptions {
        send_queue: options.large_send.map(|_| queue),
        cpu: options.cpu.map(|cpu| CpuOptions {
            interrupt: cost(cpu.interrupt, paper.interrupt),
            frame: cost(cpu.frame, paper.frame),
            delivery: cost(cpu.delivery, paper.delivery),
            send: cost(cpu.send, paper.send),
        }),
        ..options
    }
}

/// The features of a NIC besides pacing.
pub fn offloads(options: Option<NicOptions>) -> Result<NicConfig, ScenarioError> {
    let Some(options) = options else { return Ok(NicConfig::default()) };
    let wrong = |field, must: &str| Err(ScenarioError::field(field, must));
    let NicOptions {
        large_send,
        send_queue,
        rx_frames,
        rx_delay,
        interrupt_gap,
        interrupts,
        merge,
        cpu,
    } = options;
    let queue = send_queue.unwrap_or(SegmentationConfig::LINUX.queue);
    if send_queue.is_some() && large_send.is_none() {
        return wrong("options.nic.send_queue", "come with `large_send`, such as 65536");
    }
    if queue < FULL_PACKET {
        return wrong("options.nic.send_queue", "be at least a full packet, 1538 bytes");
    }
    if rx_frames.is_some_and(|frames| frames > 1) && rx_delay.is_none_or(|delay| delay.0 == 0) {
        let must = "come with `rx_delay`, such as \"16us\": a last frame would wait for ever";
        return wrong("options.nic.rx_frames", must);
    }
    let longest = Span::millis(1_000);
    for (field, span) in
        [("options.nic.rx_delay", rx_delay), ("options.nic.interrupt_gap", interrupt_gap)]
    {
        if span.is_some_and(|span| span.0 > longest.0) {
            return wrong(field, "be at most 1s");
        }
    }
    let gap = match (interrupt_gap, interrupts) {
        (Some(_), Some(_)) => {
            return wrong("options.nic.interrupts", "come without `interrupt_gap`");
        }
        (None, Some(InterruptsName::E1000e)) => InterruptGap::E1000e,
        (gap, None) => InterruptGap::Constant(gap.map_or(Duration::ZERO, time)),
    };
    let throttles = interrupt_gap.is_some() || interrupts.is_some();
    let coalesces = rx_frames.is_some() || rx_delay.is_some() || throttles;
    let every = rx_delay.is_none().then_some(1);
    let coalescing = CoalescingConfig {
        frames: rx_frames.or(every),
        delay: rx_delay.map_or(Duration::ZERO, time),
        gap,
        merge: merge.unwrap_or(0),
    };
    Ok(NicConfig {
        pacer: None,
        segmentation: large_send.map(|bytes| SegmentationConfig { bytes, queue }),
        coalescing: (coalesces || merge.is_some()).then_some(coalescing),
        cpu: cpu.map(processor).transpose()?,
        mark_above: None,
        mark_by_port: false,
        instrument: None,
    })
}

/// Wire bytes of a full packet.
const FULL_PACKET: u32 = 1_538;

fn processor(options: CpuOptions) -> Result<CpuConfig, ScenarioError> {
    let paper = CpuConfig::PAPER;
    let config = CpuConfig {
        interrupt: options.interrupt.map_or(paper.interrupt, time),
        frame: options.frame.map_or(paper.frame, time),
        delivery: options.delivery.map_or(paper.delivery, time),
        send: options.send.map_or(paper.send, time),
    };
    let CpuConfig { interrupt, frame, delivery, send } = config;
    match [interrupt, frame, delivery, send].into_iter().max() {
        Some(longest) if longest > Duration::millis(1) => {
            Err(ScenarioError::field("options.nic.cpu", "cost at most 1ms for one of each"))
        }
        _ => Ok(config),
    }
}

fn change(config: &mut PacerConfig, changes: &PacerOptions) -> Result<(), ScenarioError> {
    let wrong = |field, must: &str| Err(ScenarioError::field(field, must));
    let PacerOptions { period, gain, beta, probability, expiry, depth, tick, .. } = *changes;
    config.period = period.map_or(config.period, time);
    config.gain = gain.unwrap_or(config.gain);
    config.backlog_gain = beta.unwrap_or(config.backlog_gain);
    config.probability = probability.unwrap_or(config.probability);
    config.expiry = expiry.map_or(config.expiry, time);
    config.depth = depth.unwrap_or(config.depth);
    if let Some(tick) = tick {
        config.tick = (tick.0 > 0).then(|| time(tick));
    }
    if config.period == Duration::ZERO {
        return wrong("options.pacer.period", "be at least 1ns");
    }
    if !(config.gain > 0.0 && config.gain <= 1.0) {
        return wrong("options.pacer.gain", "be above 0 and at most 1");
    }
    if !(config.backlog_gain >= 0.0 && config.backlog_gain.is_finite()) {
        return wrong("options.pacer.beta", "be at least 0");
    }
    if !(0.0..=1.0).contains(&config.probability) {
        return wrong("options.pacer.probability", "be 0 to 1");
    }
    if config.depth < 64 {
        return wrong("options.pacer.depth", "be at least 64 bytes");
    }
    if config.tick == Some(Duration::ZERO) {
        return wrong("options.pacer.tick", "be 0ns (tokens come continuously) or at least 1ns");
    }
    Ok(())
}

/// The phantom queue of the options; `None` if they switch it off.
pub fn phantom(options: &PhantomOptions) -> Result<Option<PhantomQueue>, ScenarioError> {
    let paper = PhantomConfig::PAPER;
    let drain = options.drain.unwrap_or(f64::from(paper.drain_ppm) / 1e6);
    if !(1e-6..=1.0).contains(&drain) {
        let must = "be a share of the link: a millionth to 1";
        return Err(ScenarioError::field("options.phantom.drain", must));
    }
    let config = PhantomConfig {
        drain_ppm: (drain * 1e6).round() as u32,
        threshold: paper.threshold,
        order: match options.order.unwrap_or_default() {
            PhantomOrderName::CompareThenAdd => PhantomOrder::CompareThenAdd,
            PhantomOrderName::AddThenCompare => PhantomOrder::AddThenCompare,
        },
        place: match options.place.unwrap_or_default() {
            PhantomPlaceName::Series => PhantomPlace::Series,
            PhantomPlaceName::Parallel => PhantomPlace::Parallel,
        },
        tick: options.tick.filter(|tick| tick.0 > 0).map(|tick| SimDuration(tick.0)),
        uncounted: options.uncounted.unwrap_or(paper.uncounted),
    };
    let threshold = options.threshold.unwrap_or(rows::PHANTOM.threshold);
    Ok(options.enabled.unwrap_or(true).then_some(PhantomQueue { config, threshold }))
}

/// The options with which a row's ports have this phantom queue, or none.
pub fn phantom_options(phantom: Option<PhantomQueue>) -> PhantomOptions {
    let Some(PhantomQueue { config, threshold }) = phantom else {
        return PhantomOptions { enabled: Some(false), ..PhantomOptions::default() };
    };
    PhantomOptions {
        enabled: Some(true),
        drain: Some(f64::from(config.drain_ppm) / 1e6),
        threshold: Some(threshold),
        order: Some(match config.order {
            PhantomOrder::CompareThenAdd => PhantomOrderName::CompareThenAdd,
            PhantomOrder::AddThenCompare => PhantomOrderName::AddThenCompare,
        }),
        place: Some(match config.place {
            PhantomPlace::Series => PhantomPlaceName::Series,
            PhantomPlace::Parallel => PhantomPlaceName::Parallel,
        }),
        tick: Some(config.tick.map_or(Span(0), |tick| Span(tick.0))),
        uncounted: Some(config.uncounted),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pacer_defaults_depend_on_the_rate_of_the_link() {
        let of = |gbps, rtt_bytes| {
            paper(NetworkScale { link: Rate::gbps(gbps), rtt_bytes, byte_picos: 0 })
        };
        let slow = of(1, 30_000);
        assert_eq!((slow.period, slow.depth, slow.ceiling), (Duration(64_000), 3_072, 125e6));
        let fast = of(10, 14_750);
        assert_eq!((fast.period, fast.backlog_gain, fast.floor), (Duration(7_200), 375.0, 12.5e6));
        let half = of(100, 73_750);
        assert_eq!((half.period, half.backlog_gain), (Duration(3_600), 750.0));
    }

    #[test]
    fn a_nic_that_could_hold_a_frame_for_ever_is_refused() {
        let nic = |options| offloads(Some(options));
        assert!(offloads(None).unwrap().is_plain());
        let paper = nic(NicOptions { cpu: Some(CpuOptions::default()), ..NicOptions::default() });
        assert_eq!(paper.unwrap().cpu, Some(CpuConfig::PAPER));
        let eight = NicOptions { rx_frames: Some(8), ..NicOptions::default() };
        assert!(nic(eight).unwrap_err().to_string().contains("options.nic.rx_frames"));
        let timed = nic(NicOptions { rx_delay: Some(Span::nanos(16_000)), ..eight }).unwrap();
        assert_eq!(timed.coalescing.unwrap().frames, Some(8));
        let queue = NicOptions { send_queue: Some(9_000), ..NicOptions::default() };
        assert!(nic(queue).unwrap_err().to_string().contains("options.nic.send_queue"));
        let e1000e = Some(InterruptsName::E1000e);
        let driver = NicOptions { interrupts: e1000e, ..NicOptions::default() };
        assert_eq!(nic(driver).unwrap().coalescing.unwrap().gap, InterruptGap::E1000e);
        let both = NicOptions { interrupt_gap: Some(Span(1)), ..driver };
        assert!(nic(both).unwrap_err().to_string().contains("options.nic.interrupts"));
    }

    #[test]
    fn invalid_values_are_refused_with_their_key() {
        let with = |drain| PhantomOptions { drain: Some(drain), ..PhantomOptions::default() };
        assert_eq!(phantom(&with(0.9)).unwrap().unwrap().config.drain_ppm, 900_000);
        for wrong in [0.0, 1e-9, 1.5, f64::NAN] {
            let error = phantom(&with(wrong)).unwrap_err().to_string();
            assert!(error.contains("options.phantom.drain"), "{error}");
        }
        let scale = NetworkScale { link: Rate::gbps(1), rtt_bytes: 30_000, byte_picos: 0 };
        let pacer = |changes| change(&mut paper(scale), &changes);
        let tick = PacerOptions { tick: Some(Span(1)), ..PacerOptions::default() };
        let gain = PacerOptions { gain: Some(2.0), ..PacerOptions::default() };
        let period = PacerOptions { period: Some(Span(999)), ..PacerOptions::default() };
        for (changes, key) in [(tick, "tick"), (gain, "gain"), (period, "period")] {
            let error = pacer(changes).unwrap_err().to_string();
            assert!(error.contains(&format!("options.pacer.{key}")), "{error}");
        }
    }
}
