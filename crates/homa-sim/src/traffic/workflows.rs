//! Workflows of requests and responses (DeTail §2.2, §6): when clients begin them, the order of
//! their steps, and when each ends.
//!
//! Random streams are named by host and class, so that a host's workflows depend neither on other
//! hosts nor on the speed of responses: sizes and servers of a step are drawn from the host's
//! streams when the step begins. Invariants: every workflow that begins ends once, finished or
//! failed; its steps do not overlap; workflows that began before the end of traffic are completed.

use std::collections::BTreeMap;

use homa_workload::rng::Rng;

use crate::scenario::{Burst, WorkflowClass, WorkflowTraffic};
use crate::time::{SimDuration, SimTime};

use super::source::{EndedMessage, Source, SourceActions, Start};

/// A measured workflow that has finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FinishedWorkflow {
    /// Its class, by the order of their names.
    pub class: u8,
    /// Requests per step.
    pub fan_out: u32,
    /// Time from its beginning to its last response.
    pub took: SimDuration,
}

/// Counts of a class, or of its workflows with one fan-out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassCount {
    /// Workflows that began while traffic was measured.
    pub begun: u64,
    /// Workflows among them that had an aborted request.
    pub failed: u64,
}

/// The servers of a client.
#[derive(Clone, Copy, Debug)]
enum Servers {
    /// All other hosts of this many.
    Others(u32),
    /// Hosts from the first number on, this many.
    From(u32, u32),
    /// This many hosts, those of every second block of the given size.
    Alternate { block: u32, count: u32 },
}

impl Servers {
    fn count(self) -> u32 {
        match self {
            Self::Others(hosts) => hosts - 1,
            Self::From(_, count) | Self::Alternate { count, .. } => count,
        }
    }

    fn host(self, client: u32, at: u32) -> u32 {
        match self {
            Self::Others(_) => at + u32::from(at >= client),
            Self::From(first, _) => first + at,
            Self::Alternate { block, .. } => at + (at / block + 1) * block,
        }
    }
}

/// A client's random streams of one class.
#[derive(Clone, Debug)]
struct Streams {
    /// Time of the next workflow in picoseconds.
    next_ps: f64,
    gaps: Rng,
    draws: Rng,
}

/// A workflow in progress.
#[derive(Clone, Copy, Debug)]
struct RunningWorkflow {
    class: u8,
    client: u32,
    fan_out: u32,
    began: SimTime,
    measured: bool,
    failed: bool,
    /// Number of steps that have not begun.
    steps: u32,
    /// Number of outstanding responses.
    awaited: u32,
}

/// The source of all workflows.
#[derive(Debug)]
pub struct Workflows {
    classes: Vec<WorkflowClass>,
    names: Vec<String>,
    request_bytes: u32,
    servers: Servers,
    clients: Vec<u32>,
    /// By client and class.
    streams: Vec<Streams>,
    running: Vec<RunningWorkflow>,
    free: Vec<u32>,
    warm_up: SimTime,
    /// Set at the end of traffic: true if the load lasts.
    traffic_ended: Option<bool>,
    open: u64,
    /// By class, then by fan-out.
    counts: Vec<BTreeMap<u32, ClassCount>>,
    finished: Vec<FinishedWorkflow>,
    /// Buffer of [`Workflows::draw_servers`].
    drawn: Vec<u32>,
}

impl Workflows {
    /// For traffic that was [checked](WorkflowTraffic::check). Workflows that begin before
    /// `warm_up` are not measured.
    pub fn new(traffic: &WorkflowTraffic, hosts: u32, (warm_up, seed): (SimTime, u64)) -> Self {
        let (clients, servers): (Vec<u32>, _) = match (traffic.clients, traffic.alternate) {
            (Some(clients), _) => ((0..clients).collect(), Servers::From(clients, hosts - clients)),
            (None, true) => {
                let block = traffic.alternate_block.unwrap_or(1);
                let begins = |host: &u32| (host / block).is_multiple_of(2);
                let clients: Vec<u32> = (0..hosts).filter(begins).collect();
                let count = hosts - clients.len() as u32;
                (clients, Servers::Alternate { block, count })
            }
            (None, false) => ((0..hosts).collect(), Servers::Others(hosts)),
        };
        let names: Vec<String> = traffic.classes.keys().cloned().collect();
        let stream = |what, name: &str, host| {
            Rng::stream(seed, &format!("workflows/{name}/{what}/host{host}"))
        };
        let of = |&host: &u32| {
            let names = names.iter();
            names.map(move |name| Streams {
                next_ps: 0.0,
                gaps: stream("gaps", name, host),
                draws: stream("draws", name, host),
            })
        };
        Self {
            streams: clients.iter().flat_map(of).collect(),
            counts: vec![BTreeMap::new(); names.len()],
            classes: traffic.classes.values().cloned().collect(),
            names,
            request_bytes: traffic.request_bytes,
            servers,
            clients,
            running: Vec::new(),
            free: Vec::new(),
            warm_up,
            traffic_ended: None,
            open: 0,
            finished: Vec::new(),
            drawn: Vec::new(),
        }
    }

    /// The names of the classes and their counts by fan-out.
    pub fn counts(&self) -> impl Iterator<Item = (&str, &BTreeMap<u32, ClassCount>)> {
        self.names.iter().map(String::as_str).zip(&self.counts)
    }

    /// The measured workflows that have finished, in the order of their ends.
    pub fn finished(&self) -> &[FinishedWorkflow] {
        &self.finished
    }

    /// The stream of a client's class, which is also the token of its next workflow.
    fn token(&self, client: usize, class: usize) -> usize {
        client * self.classes.len() + class
    }

    /// Draws the time of the next workflow of a client's class, and requests a wake-up then.
    fn wait(&mut self, token: usize, actions: &mut SourceActions) {
        let class = &self.classes[token % self.classes.len()];
        let streams = &mut self.streams[token];
        let hazard = streams.gaps.exponential(1.0);
        streams.next_ps = next_arrival(class, streams.next_ps, hazard);
        if streams.next_ps < 1e19 {
            actions.wakes.push((SimTime(streams.next_ps as u64), token as u32));
        }
    }

    fn start(&mut self, now: SimTime, (client, class): (u32, usize), actions: &mut SourceActions) {
        let kind = &self.classes[class];
        let streams = self.clients.binary_search(&client).unwrap_or(0);
        let token = self.token(streams, class);
        let draws = &mut self.streams[token].draws;
        let fan_out = kind.fan_out[draws.uniform_below(kind.fan_out.len() as u32) as usize];
        let measured = self.traffic_ended.is_none() && now >= self.warm_up;
        self.open += u64::from(measured);
        if measured {
            self.counts[class].entry(fan_out).or_default().begun += 1;
        }
        let workflow = RunningWorkflow {
            class: class as u8,
            client,
            fan_out,
            began: now,
            measured,
            failed: false,
            steps: kind.steps,
            awaited: 0,
        };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.running[slot as usize] = workflow;
                slot
            }
            None => {
                self.running.push(workflow);
                self.running.len() as u32 - 1
            }
        };
        self.step(slot, actions);
    }

    /// Begins the next step of a workflow.
    fn step(&mut self, slot: u32, actions: &mut SourceActions) {
        let RunningWorkflow { class, client, fan_out, .. } = self.running[slot as usize];
        let place = self.clients.binary_search(&client).unwrap_or(0);
        let token = self.token(place, usize::from(class));
        self.draw_servers(token, fan_out);
        let kind = &self.classes[usize::from(class)];
        let draws = &mut self.streams[token].draws;
        for at in &self.drawn {
            let sizes = &kind.response_bytes;
            let size = sizes[draws.uniform_below(sizes.len() as u32) as usize];
            actions.starts.push(Start {
                response: Some(size),
                class,
                level: kind.level,
                token: slot,
                ..Start::new(client, self.servers.host(client, *at), self.request_bytes)
            });
        }
        let workflow = &mut self.running[slot as usize];
        workflow.steps -= 1;
        workflow.awaited = fan_out;
    }

    /// Draws `count` servers, all different if there are enough (R. Floyd's sampling).
    fn draw_servers(&mut self, token: usize, count: u32) {
        let rng = &mut self.streams[token].draws;
        let all = self.servers.count();
        self.drawn.clear();
        while (self.drawn.len() as u32) < count {
            let first = self.drawn.len();
            let some = (count - first as u32).min(all);
            for last in all - some..all {
                let at = rng.uniform_below(last + 1);
                let taken = self.drawn[first..].contains(&at);
                self.drawn.push(if taken { last } else { at });
            }
        }
    }

    fn end_workflow(&mut self, now: SimTime, slot: u32, actions: &mut SourceActions) {
        self.free.push(slot);
        let RunningWorkflow { class, client, fan_out, began, measured, failed, .. } =
            self.running[slot as usize];
        if measured {
            self.open -= 1;
            match failed {
                true => self.counts[usize::from(class)].entry(fan_out).or_default().failed += 1,
                false => {
                    self.finished.push(FinishedWorkflow { class, fan_out, took: now.since(began) })
                }
            }
        }
        let again = self.classes[usize::from(class)].concurrent.is_some();
        if again && self.traffic_ended != Some(false) {
            self.start(now, (client, usize::from(class)), actions);
        }
    }
}

/// The time in picoseconds at which a hazard of `left` has passed since `from`. It is exact for
/// rates that change at the ends of bursts.
fn next_arrival(class: &WorkflowClass, from: f64, mut left: f64) -> f64 {
    let base = class.per_second.unwrap_or(0.0) / 1e12;
    let Some(Burst { every, length, per_second }) = class.burst else {
        return from + left / base;
    };
    let (every, length, high) = (every.0 as f64, length.0 as f64, per_second / 1e12);
    let period = high * length + base * (every - length);
    let (mut cycle, mut at) = ((from / every).floor(), from % every);
    // Skip whole periods at once, so that rare workflows do not cost more than others.
    let whole = (left / period).floor();
    if !whole.is_finite() {
        return f64::INFINITY;
    }
    cycle += whole;
    left -= whole * period;
    loop {
        let (rate, end) = if at < length { (high, length) } else { (base, every) };
        if rate * (end - at) > left {
            return cycle * every + at + left / rate;
        }
        left -= rate * (end - at);
        (cycle, at) = if end < every { (cycle, end) } else { (cycle + 1.0, 0.0) };
    }
}

impl Source for Workflows {
    fn begin(&mut self, now: SimTime, actions: &mut SourceActions) {
        for client in 0..self.clients.len() {
            for class in 0..self.classes.len() {
                match self.classes[class].concurrent {
                    None => self.wait(self.token(client, class), actions),
                    Some(concurrent) => (0..concurrent)
                        .for_each(|_| self.start(now, (self.clients[client], class), actions)),
                }
            }
        }
    }

    fn due(&mut self, now: SimTime, token: u32, actions: &mut SourceActions) {
        let token = token as usize;
        self.wait(token, actions);
        let class = token % self.classes.len();
        self.start(now, (self.clients[token / self.classes.len()], class), actions);
    }

    fn ended(&mut self, now: SimTime, ended: EndedMessage, actions: &mut SourceActions) {
        let Some(workflow) = self.running.get_mut(ended.token as usize) else { return };
        workflow.failed |= ended.failed;
        workflow.awaited -= 1;
        match workflow {
            RunningWorkflow { awaited: 1.., .. } => {}
            RunningWorkflow { steps: 1.., failed: false, .. } => self.step(ended.token, actions),
            _ => self.end_workflow(now, ended.token, actions),
        }
    }

    fn traffic_ended(&mut self, keeps_load: bool) {
        self.traffic_ended = Some(keeps_load);
    }

    fn runs_past_end(&self) -> bool {
        true
    }

    fn is_finished(&self) -> bool {
        self.open == 0
    }

    fn workflows(&self) -> Option<&Workflows> {
        Some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Span;

    fn class(text: &str) -> WorkflowClass {
        serde_json::from_str(text).unwrap()
    }

    fn traffic(text: &str) -> WorkflowTraffic {
        let traffic: WorkflowTraffic = serde_json::from_str(text).unwrap();
        traffic.check(8).unwrap();
        traffic
    }

    #[test]
    fn blocks_of_hosts_begin_and_answer_in_turn() {
        let text = r#"{"alternate": true, "alternate_block": 2,
            "classes": {"a": {"response_bytes": [1], "per_second": 1}}}"#;
        let workflows = Workflows::new(&traffic(text), 8, (SimTime::ZERO, 1));
        assert_eq!(workflows.clients, [0, 1, 4, 5]);
        let servers = (0..workflows.servers.count()).map(|at| workflows.servers.host(0, at));
        assert_eq!(servers.collect::<Vec<_>>(), [2, 3, 6, 7]);
    }

    #[test]
    fn arrivals_in_and_between_bursts_have_their_rates() {
        let bursty = WorkflowClass {
            burst: Some(Burst {
                every: Span::millis(100),
                length: Span::millis(20),
                per_second: 2_500.0,
            }),
            ..class(r#"{"response_bytes": [1], "per_second": 100}"#)
        };
        let mut rng = Rng::stream(1, "test");
        let (mut at, mut inside, mut outside) = (0.0, 0, 0);
        while at < 40e12 {
            at = next_arrival(&bursty, at, rng.exponential(1.0));
            let burst = at % 100e9 < 20e9;
            (inside, outside) = (inside + u32::from(burst), outside + u32::from(!burst));
        }
        // 40 s have 8 s at 2500 per second and 32 s at 100.
        assert!((inside as f64 / 20_000.0 - 1.0).abs() < 0.03, "{inside}");
        assert!((outside as f64 / 3_200.0 - 1.0).abs() < 0.07, "{outside}");
        let never = WorkflowClass { per_second: Some(0.0), burst: None, ..bursty.clone() };
        assert_eq!(next_arrival(&never, 0.0, 1.0), f64::INFINITY);
        let rare = WorkflowClass { per_second: None, ..bursty };
        assert_eq!(next_arrival(&rare, 0.0, 50.0 * 1_000.0), 100e12);
    }

    #[test]
    fn a_step_begins_after_all_responses_of_the_last() {
        let traffic = traffic(
            r#"{"clients": 2, "classes": {"page": {"response_bytes": [5, 7], "steps": 2,
               "fan_out": [3], "concurrent": 1, "level": 6}}}"#,
        );
        let mut source = Workflows::new(&traffic, 8, (SimTime::ZERO, 1));
        let mut actions = SourceActions::default();
        source.begin(SimTime::ZERO, &mut actions);
        let first: Vec<Start> = actions.starts.drain(..).collect();
        assert_eq!(first.iter().filter(|start| start.src == 1).count(), 3);
        let mut servers: Vec<u32> = first[..3].iter().map(|start| start.dst).collect();
        servers.sort_unstable();
        servers.dedup();
        assert!(servers.len() == 3 && servers.iter().all(|host| *host >= 2), "{servers:?}");
        assert!(first.iter().all(|start| start.level == Some(6) && start.bytes == 10));
        let ended = |failed| EndedMessage { token: first[0].token, failed };
        for at in [10, 20] {
            source.ended(SimTime(at), ended(false), &mut actions);
            assert!(actions.starts.is_empty());
        }
        source.ended(SimTime(30), ended(false), &mut actions);
        assert_eq!(actions.starts.drain(..).count(), 3, "the second step");
        source.traffic_ended(false);
        (0..3).for_each(|at| source.ended(SimTime(50 + at), ended(false), &mut actions));
        assert!(actions.starts.is_empty(), "none begins after the end of traffic");
        let took = SimDuration(52);
        assert_eq!(source.finished(), [FinishedWorkflow { class: 0, fan_out: 3, took }]);
        assert!(!source.is_finished(), "the other client's");
        (0..3).for_each(|_| {
            source.ended(SimTime(60), EndedMessage { token: 1, failed: true }, &mut actions)
        });
        assert!(source.is_finished() && actions.starts.is_empty());
        let counts: Vec<_> = source.counts().collect();
        let of_three = BTreeMap::from([(3, ClassCount { begun: 2, failed: 1 })]);
        assert_eq!(counts, [("page", &of_three)]);
    }

    #[test]
    fn servers_follow_from_the_roles() {
        let with = |roles: &str| {
            let class =
                r#""classes": {"a": {"response_bytes": [1], "concurrent": 1, "fan_out": [7]}}"#;
            let traffic = traffic(&format!("{{{roles} {class}}}"));
            let mut source = Workflows::new(&traffic, 8, (SimTime::ZERO, 1));
            let mut actions = SourceActions::default();
            source.begin(SimTime::ZERO, &mut actions);
            let of = |client| {
                let own = actions.starts.iter().filter(move |start| start.src == client);
                let mut servers: Vec<u32> = own.map(|start| start.dst).collect();
                servers.sort_unstable();
                servers
            };
            (of(2), of(3))
        };
        assert_eq!(with("").0, [0, 1, 3, 4, 5, 6, 7]);
        let (client, server) = with(r#""alternate": true,"#);
        assert_eq!((client.len(), server.len()), (7, 0));
        assert!(client.iter().all(|host| host % 2 == 1), "{client:?}");
        assert_eq!(with(r#""clients": 1,"#), (vec![], vec![]));
    }
}
