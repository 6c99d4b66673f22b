//! How much bandwidth to give up for how much latency (HULL, NSDI 2012): the paper's two rules for
//! a given network, beside a simulation of exactly that network.
//!
//! One switch, `flows` hosts that send to another one, and a host that probes. Two runs have
//! lasting flows (§6.1), two have flows that come and go at a load (§6.2): DCTCP with its usual
//! threshold, and HULL with the headroom, with the same arrivals. The phantom queue counts all
//! bytes on the wire, so that its drain rate is a share of the link as the rules mean it; the
//! paper's hardware counts 1514 of 1538 bytes, and marks nothing if it should drain more than 98.4
//! %. Left out: offloads of network cards, whose bursts need more headroom; several switches.

use homa_proto::{Duration, Rate};
use homa_sim::experiment::run;
use homa_sim::measure::headroom::{self, DCTCP_SHORTFALL};
use homa_sim::scenario::{
    Bandwidth, Basis, EcnConfig, Fabric, Groups, Measures, OfferedLoad, PhantomOptions, Probes,
    Scenario, ScenarioError, ScenarioOutcome, Shape, SlowdownBy, Span, Stop, TcpOptions, Traffic,
    TrafficEnding,
};
use serde::Serialize;

/// Bytes of a full IP packet, which the rule counts.
const PACKET: u32 = 1_500;
/// The same on the wire, and the shortest frame.
const WIRE: [u64; 2] = [1_538, 84];
/// Duration of a run with lasting flows in full packets and in round trips (the longer one counts,
/// for example if many packets are in flight), and the round trips before it, in which the flows
/// find their rates.
const PACKETS: u64 = 200_000;
const ROUND_TRIPS: u64 = 1_000;
const WARM_UP: u64 = 200;
/// What can be simulated in some seconds.
const MOST_IN_FLIGHT: f64 = 10_000.0;
const SLOWEST: Rate = Rate::mbps(100);
const LONGEST: Duration = Duration::millis(10);
/// Flows of a run with flows that come and go.
const FLOWS: u64 = 300;

/// The question.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Question {
    /// Rate of every link.
    pub link: Rate,
    /// Round trip of a full packet and its acknowledgement in the idle network.
    pub rtt: Duration,
    /// Long flows at a time.
    pub flows: u32,
    /// Share of the link that traffic takes.
    pub load: f64,
    /// Share of the link at which the phantom queue drains; `None`: as the rule says.
    pub drain: Option<f64>,
    /// Bytes of a flow that comes and goes.
    pub flow_bytes: u32,
    /// Everything random follows from it.
    pub seed: u64,
}

/// Why there is no answer; the text says what to change.
#[derive(Clone, Debug, PartialEq)]
pub enum HeadroomError {
    /// A number of the question makes no sense.
    Question(String),
    /// What the headroom leaves does not carry the load.
    NotCarried {
        /// Share of the link that may be used.
        drain: f64,
        /// Share that is asked for.
        load: f64,
    },
    /// No simulation of that is quick.
    Large {
        /// The bandwidth-delay product in packets.
        in_flight: f64,
    },
    /// The simulator refuses.
    Scenario(ScenarioError),
}

impl std::fmt::Display for HeadroomError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Question(text) => f.write_str(text),
            Self::NotCarried { drain, load } => write!(
                f,
                "phantom queues would drain {:.1} % of the link: not more than the load of {:.1} % \
                 and the {:.0} % by which DCTCP stays below the drain rate",
                drain.max(0.0) * 100.0,
                load * 100.0,
                DCTCP_SHORTFALL * 100.0
            ),
            Self::Large { in_flight } => write!(
                f,
                "links from 100Mbps on can be simulated quickly, round trips up to 10ms, and up to \
                 {MOST_IN_FLIGHT} full packets in flight (here {in_flight:.0})"
            ),
            Self::Scenario(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for HeadroomError {}

impl From<ScenarioError> for HeadroomError {
    fn from(error: ScenarioError) -> Self {
        Self::Scenario(error)
    }
}

/// What the rules say.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Rule {
    /// The bandwidth-delay product.
    pub packets_in_flight: f64,
    /// Share of the link that has to be given away (eq. 5).
    pub headroom: f64,
    /// Share at which the phantom queue drains.
    pub drain: f64,
    /// How many times as long large flows take on average (eq. 3).
    pub slowdown: f64,
    /// The same with the throughput that DCTCP reaches at that drain rate.
    pub slowdown_dctcp: f64,
}

/// What a simulation showed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Seen {
    /// Share of the link that was used.
    pub used: f64,
    /// How long packets waited, mean.
    pub wait_mean_us: f64,
    /// 99th percentile.
    pub wait_p99_us: f64,
    /// Mean time of a flow; `null` if flows last.
    pub completion_ms: Option<f64>,
}

/// The same without and with headroom.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Pair {
    /// DCTCP with its usual threshold.
    pub without: Seen,
    /// HULL.
    pub with: Seen,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Answer {
    /// What the rules say.
    pub rule: Rule,
    /// Flows that last.
    pub long_flows: Pair,
    /// Flows that come and go at the load.
    pub at_load: Pair,
    /// How many times as long these take on average with headroom.
    pub slowdown: f64,
    /// Mean wait that headroom saves them, microseconds.
    pub saved_mean_us: f64,
    /// 99th percentile.
    pub saved_p99_us: f64,
}

impl Question {
    /// What the rules say of it, nothing simulated.
    pub fn rule(&self) -> Result<Rule, HeadroomError> {
        let wrong = |text: String| Err(HeadroomError::Question(text));
        let &Self { link, rtt, flows, load, drain, .. } = self;
        if !(1..=1_000).contains(&flows) {
            return wrong("flows are 1 to 1000".to_owned());
        }
        if !(0.01..1.0).contains(&load) {
            return wrong("a load is a share of the link: 0.01 or more, below 1".to_owned());
        }
        if !(100_000..=100_000_000).contains(&self.flow_bytes) {
            return wrong("large flows have 100 kB to 100 MB".to_owned());
        }
        if drain.is_some_and(|drain| !(drain > 0.0 && drain < 1.0)) {
            return wrong("a drain rate is a share of the link below 1, such as 0.95".to_owned());
        }
        let least = self.serialised();
        if rtt <= least || rtt > Duration::millis(100) {
            return wrong(format!(
                "on this link a round trip takes more than {:.1} us, the packets alone, and at \
                 most 100 ms",
                least.0 as f64 / 1e3
            ));
        }
        let headroom = headroom::needed(flows, link, rtt, PACKET);
        let drain = drain.unwrap_or(1.0 - headroom);
        let slowdown = headroom::slowdown(drain, load);
        let slowdown_dctcp = headroom::slowdown((drain - DCTCP_SHORTFALL).max(0.0), load);
        let (Some(slowdown), Some(slowdown_dctcp)) = (slowdown, slowdown_dctcp) else {
            return Err(HeadroomError::NotCarried { drain, load });
        };
        let packets_in_flight = headroom::packets_in_flight(link, rtt, PACKET);
        Ok(Rule { packets_in_flight, headroom, drain, slowdown, slowdown_dctcp })
    }

    /// Rules and simulations; `progress` hears which of the four begins.
    pub fn answer(&self, mut progress: impl FnMut(&str)) -> Result<Answer, HeadroomError> {
        let rule = self.rule()?;
        let in_flight = rule.packets_in_flight;
        if self.link < SLOWEST || self.rtt > LONGEST || in_flight > MOST_IN_FLIGHT {
            return Err(HeadroomError::Large { in_flight });
        }
        let mut pair = |lasting: bool| {
            let mut seen = |drain: Option<f64>| {
                progress(match (lasting, drain) {
                    (true, None) => "long flows, DCTCP",
                    (true, Some(_)) => "long flows, with headroom",
                    (false, None) => "flows that come and go, DCTCP",
                    (false, Some(_)) => "flows that come and go, with headroom",
                });
                let scenario = self.scenario(lasting, drain);
                run(&scenario, &mut |_| ()).map(|outcome| look(&outcome))
            };
            Ok::<_, HeadroomError>(Pair { without: seen(None)?, with: seen(Some(rule.drain))? })
        };
        let (long_flows, at_load) = (pair(true)?, pair(false)?);
        let completion = |seen: Seen| seen.completion_ms.unwrap_or(f64::NAN);
        let Pair { without, with } = at_load;
        Ok(Answer {
            rule,
            long_flows,
            at_load,
            slowdown: completion(with) / completion(without),
            saved_mean_us: without.wait_mean_us - with.wait_mean_us,
            saved_p99_us: without.wait_p99_us - with.wait_p99_us,
        })
    }

    /// What packets take on the two links of both ways.
    fn serialised(&self) -> Duration {
        let bits = 2 * WIRE.iter().sum::<u64>() * 8;
        Duration((bits as f64 * 1e9 / self.link.0 as f64).ceil() as u64)
    }

    /// Time for this many full packets, picoseconds.
    fn time_for(&self, packets: u64) -> u64 {
        (packets as f64 * WIRE[0] as f64 * 8e12 / self.link.0 as f64) as u64
    }

    /// Marking threshold of DCTCP's switches, bytes: HULL §6.1 below 10 Gbit/s, DCTCP §3.5 from
    /// there on (65 packets), but at least a seventh of the bytes in flight (its §3.4, eq. 13).
    fn usual_threshold(&self) -> u32 {
        let usual = if self.link < Rate::gbps(10) { 30_000 } else { 65 * WIRE[0] as u32 };
        let in_flight = self.link.0 as f64 / 8.0 * self.rtt.0 as f64 * 1e-9;
        usual.max((in_flight / 7.0) as u32)
    }

    /// Measured time of a run and its warm-up, picoseconds.
    fn lasts(&self, lasting: bool) -> (u64, u64) {
        let round_trips = |count: u64| self.rtt.0 * 1_000 * count;
        if lasting {
            let lasts = self.time_for(PACKETS).max(round_trips(ROUND_TRIPS));
            return (lasts, (lasts / 10).max(round_trips(WARM_UP)));
        }
        let packets = FLOWS as f64 * f64::from(self.flow_bytes) / 1_448.0 / self.load;
        let lasts = self.time_for(packets as u64);
        (lasts, lasts / 10)
    }

    fn scenario(&self, lasting: bool, drain: Option<f64>) -> Scenario {
        let bytes = self.flow_bytes;
        let delay = Span((self.rtt.0 - self.serialised().0) * 1_000 / 4);
        let (lasts, warm_up) = self.lasts(lasting);
        let mut scenario = Scenario {
            scheme: if drain.is_some() { "hull" } else { "dctcp" }.to_owned(),
            fabric: Fabric {
                shape: Shape::SingleSwitch { hosts: self.flows + 2 },
                host_link: Bandwidth(self.link.0),
                fabric_link: Bandwidth(self.link.0),
                send_delay: delay,
                nic_delay: Span(0),
                receive_delay: delay,
                switch_delay: Span(0),
                ..Fabric::default()
            },
            traffic: match lasting {
                true => Traffic::LongFlows { senders: self.flows, groups: Vec::new() },
                false => Traffic::ManyToOne { workload: bytes.to_string(), senders: self.flows },
            },
            load: OfferedLoad::new(self.load, Basis::Payload),
            probes: Some(Probes {
                from: self.flows + 1,
                to: 0,
                every: Span((lasts / 4_000).max(1_000_000)),
                bytes: 1_400,
                lost_after: None,
                instrument: None,
            }),
            warm_up: Span(warm_up),
            stop: Stop {
                messages: None,
                time: Some(Span(warm_up + lasts)),
                ending: if lasting { TrafficEnding::Cut } else { TrafficEnding::Drain },
                ..Stop::default()
            },
            slowdown: SlowdownBy::Idle,
            measures: Measures {
                queues: false,
                priorities: false,
                groups: Some(Groups::default()),
                ..Measures::default()
            },
            seed: self.seed,
            ..Scenario::default()
        };
        // A separate flow for every message, without a limit on their number.
        scenario.options.tcp = Some(TcpOptions {
            connections: Some(u32::MAX),
            pick: Some(homa_sim::scenario::PickName::Idle),
            ..TcpOptions::default()
        });
        match drain {
            Some(drain) => {
                let (drain, uncounted) = (Some(drain), Some(0));
                let threshold = Some(1_000.into());
                let phantom = PhantomOptions { drain, threshold, uncounted, ..Default::default() };
                scenario.options.phantom = Some(phantom);
            }
            None => {
                scenario.options.ecn = Some(EcnConfig::new(self.usual_threshold().into()));
            }
        }
        scenario
    }
}

fn look(outcome: &ScenarioOutcome) -> Seen {
    let waits = outcome.probes;
    Seen {
        used: outcome.utilisation,
        wait_mean_us: waits.map_or(f64::NAN, |waits| waits.mean_us),
        wait_p99_us: waits.map_or(f64::NAN, |waits| waits.p99_us),
        completion_ms: outcome.groups.first().map(|group| group.mean_us / 1e3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HULLS: Question = Question {
        link: Rate::gbps(10),
        rtt: Duration::micros(50),
        flows: 4,
        load: 0.4,
        drain: None,
        flow_bytes: 10_000_000,
        seed: 1,
    };

    #[test]
    fn the_rule_gives_away_what_the_flows_overshoot() {
        let rule = HULLS.rule().unwrap();
        assert!((rule.packets_in_flight - 41.67).abs() < 0.01, "{rule:?}");
        assert!((rule.headroom - 0.096).abs() < 1e-3, "{rule:?}");
        assert!((rule.slowdown - 0.6 / (rule.drain - 0.4)).abs() < 1e-9, "{rule:?}");
        assert!(rule.slowdown_dctcp > rule.slowdown);
        let chosen = Question { drain: Some(0.95), ..HULLS }.rule().unwrap();
        assert_eq!((chosen.drain, chosen.headroom), (0.95, rule.headroom));
    }

    #[test]
    fn what_cannot_be_is_refused_with_what_would_do() {
        let refused = |question: Question| question.rule().unwrap_err().to_string();
        let crowd = refused(Question { flows: 40, ..HULLS });
        assert!(crowd.contains("load of 40.0 %"), "{crowd}");
        let fast = refused(Question { rtt: Duration::micros(1), ..HULLS });
        assert!(fast.contains("2.6 us"), "{fast}");
        assert!(refused(Question { load: 1.0, ..HULLS }).contains("below 1"));
        assert!(refused(Question { load: 1e-7, ..HULLS }).contains("0.01"));
        assert!(refused(Question { flow_bytes: 9, ..HULLS }).contains("100 kB"));
        assert!(refused(Question { flows: 0, ..HULLS }).contains("1 to 1000"));
        assert!(refused(Question { drain: Some(1.5), ..HULLS }).contains("0.95"));
        let long = Question { link: Rate::gbps(1_000), rtt: Duration::millis(10), ..HULLS };
        let large = long.answer(|_| ()).unwrap_err().to_string();
        assert!(long.rule().is_ok() && large.contains("833333"), "{large}");
    }

    #[test]
    fn little_headroom_on_a_fast_link_still_keeps_queues_short() {
        // 417 packets in flight: by the rule a hundredth of the link.
        let fast = Question { link: Rate::gbps(100), flow_bytes: 1_000_000, ..HULLS };
        let Answer { rule, long_flows, .. } = fast.answer(|_| ()).unwrap();
        assert!((rule.drain - 0.9904).abs() < 1e-9, "{rule:?}");
        let Pair { without, with } = long_flows;
        assert!(with.wait_mean_us < 1.0 && without.wait_mean_us > 3.0, "{long_flows:?}");
        assert!(with.used > 0.9 && without.used > 0.99, "{long_flows:?}");
    }

    #[test]
    fn lasting_flows_are_looked_at_for_many_round_trips() {
        let far = Question { rtt: Duration::millis(10), ..HULLS };
        let scenario = far.scenario(true, None);
        assert_eq!(scenario.warm_up, Span::millis(2_000));
        assert_eq!(scenario.stop.time, Some(Span::millis(12_000)));
        // A seventh of 12.5 MB.
        assert_eq!(scenario.options.ecn.unwrap().threshold, 1_785_714.into());
    }
}
