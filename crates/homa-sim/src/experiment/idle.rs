//! Idle times: how long messages take if they are alone in the network. They are the divisor of
//! latencies if the scenario asks for measured divisors.
//!
//! Under `idle` the scheme sends every size over every path that was measured, one message at a
//! time. Under `best` it sends only first frames, because the time of a first frame in an idle
//! network does not depend on the scheme, and the rest of the message is assumed to follow at the
//! rate of the slowest link of the path. A scheme that starts slowly is therefore not excused
//! (pFabric §5.2, PIAS §5). `best-acked` adds the time of the last acknowledgement,
//! sent alone, to the latency and to the best time, because the completion times in these papers
//! end when the sender receives it. `bare` and `bare-acked` are formulas: only the bytes of the
//! message count, and nothing is measured.
//!
//! Prices are measured in the same way: what hosts send for a message that is alone.

use homa_proto::Rate;

use crate::measure::ideal::Alone;
use crate::scenario::{Exchange, Scenario, ScenarioError, SlowdownBy, Span, Stop};
use crate::time::{LinkRate, SimDuration, SimTime};
use crate::topology::HostId;
use crate::traffic::open_loop::ScheduledMessage;
use crate::traffic::rate::Price;
use crate::transport::parts::WireFormat;

use super::Experiment;
use super::assemble::Ideals;
use super::run::advance;
use super::running::AnySimulation;
use super::start::Watching;

/// Bytes of a message whose packet is as short as an acknowledgement.
const TINY: u32 = 1;

/// Packets of the longest message whose price is measured. A longer one costs as much more for each
/// packet as those before.
const MOST_PACKETS: u32 = 256;

/// When the turn of the message number `n` begins, while prices are measured: later than any
/// acknowledgement of the one before, even a delayed one.
fn turn(n: u64) -> SimTime {
    SimTime::ZERO + SimDuration::millis(200 * n)
}

/// From the beginning of a message's turn until it is sent.
const AFTER: SimDuration = SimDuration::millis(1);

/// Runs until the time, past the end of traffic.
fn run_to(sim: &mut dyn AnySimulation, until: SimTime) -> Result<(), ScenarioError> {
    // The end of traffic stops a simulation once.
    for _ in 0..2 {
        advance(sim, until, &mut |_| Ok(()))?;
    }
    Ok(())
}

impl Experiment<'_> {
    /// Measures the idle times that the scenario's divisor needs, by (bytes, path).
    pub(super) fn ideals(self, loaded: &dyn AnySimulation) -> Result<Ideals, ScenarioError> {
        let first = match self.scenario.slowdown {
            SlowdownBy::Authors
            | SlowdownBy::AuthorsCorrected
            | SlowdownBy::Bare
            | SlowdownBy::BareAcked => {
                return Ok(Ideals::new());
            }
            SlowdownBy::Idle | SlowdownBy::IdleFirstOnce => u32::MAX,
            SlowdownBy::Best | SlowdownBy::BestAcked => self.hosts.frames().payload,
        };
        let samples = loaded.generator().latencies.samples().iter().flatten();
        let mut kinds: Vec<(u32, u32)> =
            samples.map(|s| (s.bytes.min(first), s.switches)).collect();
        if self.scenario.slowdown == SlowdownBy::BestAcked {
            let tiny: Vec<_> = kinds.iter().map(|&(_, path)| (TINY, path)).collect();
            kinds.extend(tiny);
        }
        kinds.extend(self.probe_kind());
        kinds.sort_unstable();
        kinds.dedup();
        let ideals = self.alone(&kinds, first)?;
        match kinds.iter().find(|kind| !ideals.contains_key(kind)) {
            Some((bytes, _)) => {
                let must = format!(
                    "not be measured here: {bytes} bytes do not arrive even alone in this network"
                );
                Err(ScenarioError::field("slowdown", must))
            }
            None => Ok(ideals),
        }
    }

    /// Sends messages of these sizes over these paths one after the other. Responses to them have
    /// at most `response` bytes.
    fn alone(self, kinds: &[(u32, u32)], response: u32) -> Result<Ideals, ScenarioError> {
        let hosts = self.network.wiring.hosts();
        let response = self.demand.response_bytes().map(|bytes| bytes.min(response));
        let mut at = SimTime::ZERO;
        let list = kinds.iter().map(|&(bytes, path)| {
            let (src, dst) = self.network.paths.example(path, hosts);
            let arrival = ScheduledMessage { at, src, dst, bytes };
            // Leave three times the serialisation of request and response plus a round trip or two,
            // so that the previous message has surely left the network.
            let (there, back) = self.demand.call_bytes(bytes);
            let most = there.max(bytes).max(response.unwrap_or(back));
            let wire = u128::from(most) * 48_000_000_000_000 / u128::from(self.network.link.0);
            at += SimDuration(wire as u64) + SimDuration::micros(200);
            arrival
        });
        self.in_idle_network(list.collect(), response, |sim| {
            run_to(sim, SimTime::MAX)?;
            let samples = sim.generator().latencies.samples().iter().flatten();
            Ok(samples.map(|s| ((s.bytes, s.switches), s.latency)).collect())
        })
    }

    /// Runs `then` with a simulation that sends these messages instead of the scenario's, without
    /// faults. Responses to them have at most `response` bytes.
    fn in_idle_network<R>(
        self,
        list: Vec<ScheduledMessage>,
        response: Option<u32>,
        then: impl FnOnce(&mut dyn AnySimulation) -> Result<R, ScenarioError>,
    ) -> Result<R, ScenarioError> {
        let demand = self.demand.replaced_by(list, response);
        let mut scenario = Scenario { warm_up: Span(0), probes: None, ..self.scenario.clone() };
        scenario.stop = Stop { messages: Some(u64::MAX), time: None, ..scenario.stop };
        scenario.fabric.loss_ppm = 0;
        scenario.fabric.duplicate_ppm = 0;
        scenario.fabric.reorder_ppm = 0;
        let network = self.network.unimpaired();
        let (demand, network, beside) = (&demand, &network, None);
        let idle = Experiment { scenario: &scenario, demand, network, beside, ..self };
        let mut sim = idle.start(idle.generator()?.into(), Watching::default());
        then(&mut *sim)
    }

    /// What messages cost on the wire, with everything that hosts send for them: messages of one,
    /// two, four... packets are sent alone.
    pub(super) fn price(self) -> Result<Price, ScenarioError> {
        let (demand, frames) = (self.demand, self.hosts.frames());
        let most = demand.sizes.max_bytes().div_ceil(frames.payload).min(MOST_PACKETS);
        let doubled = |packets: &u32| Some(packets * 2).filter(|packets| *packets < 2 * most);
        let counts = std::iter::successors(Some(1), doubled);
        // The first message is not counted, because hosts that have not met send more, for example
        // CUTOFFS.
        let counts = [1].into_iter().chain(counts);
        let sizes: Vec<u32> = counts.map(|packets| packets * frames.payload).collect();
        let (src, dst) = demand.example();
        let list = sizes.iter().zip(0..);
        let list =
            list.map(|(&bytes, n)| ScheduledMessage { at: turn(n) + AFTER, src, dst, bytes });
        let ports = demand.counted_ports(self.network);
        let sent = |sim: &dyn AnySimulation| -> u64 {
            ports.iter().map(|port| sim.sent_bytes(*port)).sum()
        };
        // A response is as long as its request, and both count as messages.
        let messages = if demand.exchange == Exchange::Echo { 2.0 } else { 1.0 };
        let sent = self.in_idle_network(list.collect(), None, |sim| {
            let of = |(&bytes, n): (&u32, u64)| {
                let before = sent(sim);
                run_to(sim, turn(n + 1))?;
                Ok((bytes, (sent(sim) - before) as f64 / messages))
            };
            sizes.iter().zip(0..).map(of).collect::<Result<Vec<_>, ScenarioError>>()
        })?;
        Ok(Price::of_everything(self.hosts.framing(), frames.payload, &sent[1..]))
    }

    /// The divisor of latencies by (bytes, path).
    pub(super) fn divisor<'a>(self, ideals: &'a Ideals) -> Box<dyn Fn(u32, u32) -> Alone + 'a>
    where
        Self: 'a,
    {
        let by = self.scenario.slowdown;
        // The lookups cannot fail, because `ideals` has an entry for every measured message.
        match by {
            SlowdownBy::Idle => Box::new(move |bytes, path| ideals[&(bytes, path)].into()),
            SlowdownBy::IdleFirstOnce => {
                let (frames, link) = (self.hosts.frames(), LinkRate::new(self.network.link));
                Box::new(move |bytes, path| {
                    let first = link.serialisation(frames.data(bytes.min(frames.payload)));
                    SimDuration(ideals[&(bytes, path)].0.saturating_sub(first.0)).into()
                })
            }
            SlowdownBy::Best | SlowdownBy::BestAcked => {
                let acked = by == SlowdownBy::BestAcked;
                Box::new(move |bytes, path| Alone {
                    time: self.best(ideals, (bytes, path)),
                    after: if acked { ideals[&(TINY, path)] } else { SimDuration::ZERO },
                })
            }
            SlowdownBy::Bare => Box::new(move |bytes, path| {
                let (slowest, delays) = self.links(path);
                (slowest.serialisation(bytes) + delays).into()
            }),
            SlowdownBy::BareAcked => Box::new(move |bytes, path| {
                let (frames, (slowest, delays)) = (self.hosts.frames(), self.links(path));
                let (_, stored) = self.store_and_forward(path, frames.full());
                let (first, behind) = self.store_and_forward(path, frames.control);
                Alone {
                    time: slowest.serialisation(bytes) + delays + stored,
                    after: first + behind + delays,
                }
            }),
            SlowdownBy::Authors | SlowdownBy::AuthorsCorrected => {
                self.authors(by == SlowdownBy::AuthorsCorrected)
            }
        }
    }

    fn authors<'a>(self, corrected: bool) -> Box<dyn Fn(u32, u32) -> Alone + 'a>
    where
        Self: 'a,
    {
        let formula = self.network.formula(self.scenario, corrected);
        let demand = self.demand;
        let time = move |bytes, switches| formula.time(bytes, switches);
        match self.demand.exchange {
            Exchange::OneWay => Box::new(move |bytes, switches| time(bytes, switches).into()),
            // The request one way and the response the other.
            Exchange::Echo => Box::new(move |bytes, switches| {
                let (there, back) = demand.call_bytes(bytes);
                (time(there, switches) + time(back, switches)).into()
            }),
        }
    }

    /// The time of a frame on the first link of a path, and the sum of its times on the others.
    fn store_and_forward(self, path: u32, bytes: u32) -> (SimDuration, SimDuration) {
        let wiring = &self.network.wiring;
        let (src, dst) = self.network.paths.example(path, wiring.hosts());
        let mut times = wiring
            .path(HostId(src), HostId(dst))
            .into_iter()
            .map(|port| LinkRate::new(wiring.ports()[port.0 as usize].rate).serialisation(bytes));
        let first = times.next().unwrap_or(SimDuration::ZERO);
        (first, times.fold(SimDuration::ZERO, |sum, time| sum + time))
    }

    /// The slowest rate of the links of a path, and the sum of their delays.
    fn links(self, path: u32) -> (LinkRate, SimDuration) {
        let wiring = &self.network.wiring;
        let (src, dst) = self.network.paths.example(path, wiring.hosts());
        let (mut slowest, mut delays) = (Rate(u64::MAX), SimDuration::ZERO);
        for port in wiring.path(HostId(src), HostId(dst)) {
            let link = &wiring.ports()[port.0 as usize];
            slowest = slowest.min(link.rate);
            delays = delays + link.delay;
        }
        (LinkRate::new(slowest), delays)
    }

    /// The time of the first frame, plus that of the other frames on the slowest link of the path.
    fn best(self, ideals: &Ideals, (bytes, path): (u32, u32)) -> SimDuration {
        let frames = self.hosts.frames();
        let (slowest, _) = self.links(path);
        let behind = |bytes: u32| {
            let wire = wire_bytes(frames, bytes) - wire_bytes(frames, bytes.min(frames.payload));
            slowest.serialisation(u32::try_from(wire).unwrap_or(u32::MAX))
        };
        let (_, back) = self.demand.call_bytes(bytes);
        let answer = match self.demand.exchange {
            // Here `bytes` is the size of a response, and `ideals` includes its whole request.
            _ if self.demand.counts_responses() => 0,
            Exchange::OneWay => 0,
            Exchange::Echo => back,
        };
        ideals[&(bytes.min(frames.payload), path)] + behind(bytes) + behind(answer)
    }
}

/// Wire bytes of all packets of a message.
fn wire_bytes(frames: WireFormat, bytes: u32) -> u64 {
    let rest = bytes % frames.payload;
    let last = if rest > 0 { frames.data(rest) } else { 0 };
    u64::from(bytes / frames.payload) * u64::from(frames.full()) + u64::from(last)
}
