//! Runs a [`TaskGraph`]: begins tasks as soon as those that they wait for allow it.
//!
//! If a message fails, the tasks behind it never begin. Traffic ends when all messages have begun
//! and no task that takes time is left, or, after a failure or a loss, when nothing has happened
//! for the time that a run may take to drain.

use std::sync::Arc;

use crate::time::{SimDuration, SimTime};
use crate::traffic::paths::HostPaths;
use crate::traffic::source::{EndedMessage, Source, SourceActions, Start};

use super::{Phase, TaskGraph, TaskKind};

/// The token of the tasks that follow no other; no task has that number.
const STARTS: u32 = u32::MAX - 1;

/// The source of a graph of tasks.
#[derive(Debug)]
pub struct TaskSource {
    graph: Arc<TaskGraph>,
    /// Times that an acknowledgement takes, by number of the path.
    acknowledged_after: Vec<SimDuration>,
    paths: HostPaths,
    /// By task: what it still waits for; of a distributor: signals that it has passed on.
    missing: Vec<u32>,
    /// Tasks in `starts` of the graph that have begun.
    started: usize,
    /// Tasks to begin now, in this order.
    ready: Vec<u32>,
    /// Messages and delays that have not begun.
    left: u64,
    /// By processor: when it has done all that it was given.
    free_at: Vec<SimTime>,
    /// Messages in flight.
    open: u64,
    /// Delays that have begun and are not done.
    delays: u64,
    /// Wake-ups that are due.
    timers: u64,
    /// Messages that have arrived, and those that failed.
    arrived: u64,
    failed: u64,
    /// When the first task began, and when the last one was done.
    began: Option<SimTime>,
    last: SimTime,
    /// When a task last began or ended.
    active: SimTime,
    /// Traffic ends after this time without an event.
    patience: SimDuration,
}

impl TaskSource {
    /// The source of a graph. `acknowledged_after` are the times that an acknowledgement takes, by
    /// number of its path.
    pub fn new(
        graph: Arc<TaskGraph>,
        (paths, acknowledged_after): (HostPaths, Vec<SimDuration>),
        patience: SimDuration,
    ) -> Self {
        let distributors =
            graph.tasks().iter().filter(|task| matches!(task, TaskKind::Distributor));
        let left = graph.tasks().len() as u64 - distributors.count() as u64;
        let mut missing = graph.missing.clone();
        for (missing, task) in missing.iter_mut().zip(graph.tasks()) {
            if *task == TaskKind::Distributor {
                *missing = 0;
            }
        }
        let free_at = vec![SimTime::ZERO; graph.units()];
        Self {
            graph,
            free_at,
            acknowledged_after,
            paths,
            missing,
            started: 0,
            ready: Vec::new(),
            left,
            open: 0,
            delays: 0,
            timers: 0,
            arrived: 0,
            failed: 0,
            began: None,
            last: SimTime::ZERO,
            active: SimTime::ZERO,
            patience,
        }
    }

    /// Messages of the graph, and those among them that have arrived.
    pub fn counts(&self) -> (u64, u64) {
        (self.graph.messages(), self.arrived)
    }

    /// Time from the first task to the end of the last; `None` unless all are done.
    pub fn took(&self) -> Option<SimDuration> {
        let done = self.left == 0 && self.open == 0 && self.delays == 0 && self.failed == 0;
        self.began.filter(|_| done).map(|began| self.last.since(began))
    }

    /// A phase of a task is reached.
    fn reached(&mut self, task: u32, phase: Phase) {
        let graph = self.graph.clone();
        for follower in graph.followers(task, phase) {
            let missing = &mut self.missing[follower as usize];
            if graph.tasks()[follower as usize] == TaskKind::Distributor {
                self.ready.extend(graph.next_of(follower, missing));
                continue;
            }
            *missing -= 1;
            if *missing == 0 {
                self.ready.push(follower);
            }
        }
    }

    /// A task that is no message is done.
    fn done(&mut self, now: SimTime, task: u32) {
        self.last = self.last.max(now);
        self.reached(task, Phase::Sent);
        self.reached(task, Phase::Done);
    }

    /// Begins all tasks that are ready, and those that become ready by that.
    fn begin_ready(&mut self, now: SimTime, actions: &mut SourceActions) {
        self.active = now;
        let mut next = 0;
        while let Some(&task) = self.ready.get(next) {
            next += 1;
            self.left -= 1;
            self.began.get_or_insert(now);
            self.reached(task, Phase::Begun);
            match self.graph.tasks()[task as usize] {
                TaskKind::Message { src, dst, bytes } => {
                    self.open += 1;
                    actions.starts.push(Start { token: task, ..Start::new(src, dst, bytes) });
                }
                TaskKind::Delay(SimDuration::ZERO) => self.done(now, task),
                TaskKind::Delay(time) => {
                    self.delays += 1;
                    self.wake(now + time, task, actions);
                }
                TaskKind::Compute { time, unit } => {
                    let free = &mut self.free_at[unit as usize];
                    *free = now.max(*free) + time;
                    let end = *free;
                    self.delays += 1;
                    self.wake(end, task, actions);
                }
                TaskKind::Distributor => {}
            }
        }
        self.ready.clear();
        let all = self.left == 0 && self.delays == 0;
        actions.is_exhausted |= all || (self.open == 0 && self.timers == 0);
    }

    fn wake(&mut self, at: SimTime, token: u32, actions: &mut SourceActions) {
        self.timers += 1;
        actions.wakes.push((at, token));
    }

    /// Wakes when the next of the tasks begin that follow no other.
    fn await_start(&mut self, actions: &mut SourceActions) {
        if let Some((at, _)) = self.graph.starts.get(self.started).copied() {
            self.wake(at, STARTS, actions);
        }
    }
}

impl Source for TaskSource {
    fn begin(&mut self, now: SimTime, actions: &mut SourceActions) {
        (self.last, self.active) = (now, now);
        self.await_start(actions);
        actions.is_exhausted = self.left == 0;
    }

    fn due(&mut self, now: SimTime, token: u32, actions: &mut SourceActions) {
        self.timers -= 1;
        if token == STARTS {
            let graph = self.graph.clone();
            let due = graph.starts[self.started..].iter().take_while(|(at, _)| *at <= now);
            self.ready.extend(due.map(|(_, task)| *task));
            self.started += self.ready.len();
            self.await_start(actions);
        } else {
            match self.graph.tasks()[token as usize] {
                TaskKind::Message { .. } => self.reached(token, Phase::Sent),
                TaskKind::Delay(_) | TaskKind::Compute { .. } | TaskKind::Distributor => {
                    self.delays -= 1;
                    self.done(now, token);
                }
            }
        }
        self.begin_ready(now, actions);
    }

    fn ended(&mut self, now: SimTime, ended: EndedMessage, actions: &mut SourceActions) {
        let EndedMessage { token: task, failed } = ended;
        self.open -= 1;
        if failed {
            self.failed += 1;
        } else {
            self.arrived += 1;
            self.last = self.last.max(now);
            self.reached(task, Phase::Done);
            if let TaskKind::Message { src, dst, .. } = self.graph.tasks()[task as usize]
                && self.graph.followers(task, Phase::Sent).next().is_some()
            {
                let path = self.paths.number(dst, src) as usize;
                let after = self.acknowledged_after.get(path).copied().unwrap_or_default();
                self.wake(now + after, task, actions);
            }
        }
        self.begin_ready(now, actions);
    }

    fn sampled(&mut self, now: SimTime, actions: &mut SourceActions) {
        let waited = now.since(self.active);
        actions.is_exhausted |= self.timers == 0 && waited > self.patience;
    }

    fn tasks(&self) -> Option<&TaskSource> {
        Some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::super::TaskGraphBuilder;
    use super::*;
    use crate::traffic::paths::Distance;

    /// A source with acknowledgements that take 7 ps.
    fn source(builder: TaskGraphBuilder) -> TaskSource {
        let paths = Distance { rack: 8, pod: 8 }.into();
        let acks = vec![SimDuration(7); 2];
        TaskSource::new(Arc::new(builder.build()), (paths, acks), SimDuration(1_000))
    }

    fn message(dst: u32) -> TaskKind {
        TaskKind::Message { src: 0, dst, bytes: 10 }
    }

    /// The receivers of the messages that begin now.
    fn begun(actions: &mut SourceActions) -> Vec<u32> {
        actions.starts.drain(..).map(|start| start.dst).collect()
    }

    fn ended(token: u32) -> EndedMessage {
        EndedMessage { token, failed: false }
    }

    #[test]
    fn a_message_begins_when_what_it_waits_for_is_sent_or_done() {
        let mut builder = TaskGraphBuilder::default();
        let first = builder.add(message(1)).unwrap();
        for (dst, phase) in [(2, Phase::Begun), (3, Phase::Sent), (4, Phase::Done)] {
            let next = builder.add(message(dst)).unwrap();
            builder.follow(first, phase, next);
        }
        builder.begin_at(first, SimTime(5));
        let (mut source, mut actions) = (source(builder), SourceActions::default());
        source.begin(SimTime(0), &mut actions);
        assert_eq!(actions.wakes.drain(..).collect::<Vec<_>>(), [(SimTime(5), STARTS)]);
        source.due(SimTime(5), STARTS, &mut actions);
        assert_eq!(begun(&mut actions), [1, 2]);
        source.ended(SimTime(20), ended(first), &mut actions);
        assert_eq!(begun(&mut actions), [4]);
        assert_eq!(actions.wakes.drain(..).collect::<Vec<_>>(), [(SimTime(27), first)]);
        assert!(!actions.is_exhausted);
        source.due(SimTime(27), first, &mut actions);
        assert_eq!(begun(&mut actions), [3]);
        assert!(actions.is_exhausted, "all messages have begun");
        assert_eq!(source.took(), None);
        (1..4).for_each(|task| source.ended(SimTime(30 + task), ended(task as u32), &mut actions));
        assert_eq!((source.took(), source.counts()), (Some(SimDuration(28)), (4, 4)));
    }

    #[test]
    fn a_join_waits_for_all_and_a_distributor_for_each() {
        let mut builder = TaskGraphBuilder::default();
        let firsts: Vec<u32> = (1..3).map(|dst| builder.add(message(dst)).unwrap()).collect();
        let join = builder.add(TaskKind::Delay(SimDuration(0))).unwrap();
        let pass = builder.add(TaskKind::Distributor).unwrap();
        for &first in &firsts {
            builder.follow(first, Phase::Done, join);
            builder.follow(first, Phase::Done, pass);
        }
        for (gate, dst) in [(join, 3), (pass, 4), (pass, 5)] {
            let next = builder.add(message(dst)).unwrap();
            builder.follow(gate, Phase::Done, next);
        }
        let (mut source, mut actions) = (source(builder), SourceActions::default());
        source.begin(SimTime(0), &mut actions);
        source.due(SimTime(0), STARTS, &mut actions);
        assert_eq!(begun(&mut actions), [1, 2]);
        source.ended(SimTime(1), ended(firsts[1]), &mut actions);
        assert_eq!(begun(&mut actions), [4], "the first signal, from either sender");
        source.ended(SimTime(2), ended(firsts[0]), &mut actions);
        let mut both = begun(&mut actions);
        both.sort_unstable();
        assert_eq!(both, [3, 5]);
    }

    #[test]
    fn a_computation_takes_its_time_and_is_waited_for() {
        let mut builder = TaskGraphBuilder::default();
        let first = builder.add(message(1)).unwrap();
        let compute = builder.add(TaskKind::Delay(SimDuration(100))).unwrap();
        builder.follow(first, Phase::Done, compute);
        let (mut source, mut actions) = (source(builder), SourceActions::default());
        source.begin(SimTime(0), &mut actions);
        source.due(SimTime(0), STARTS, &mut actions);
        assert!(!actions.is_exhausted, "the computation has not begun");
        source.ended(SimTime(10), ended(first), &mut actions);
        assert_eq!(actions.wakes.last(), Some(&(SimTime(110), compute)));
        assert!(!actions.is_exhausted, "the computation is not done");
        source.due(SimTime(110), compute, &mut actions);
        assert!(actions.is_exhausted);
        assert_eq!(source.took(), Some(SimDuration(110)));
    }

    #[test]
    fn computations_of_one_processor_take_turns() {
        let mut builder = TaskGraphBuilder::default();
        for (unit, time) in [(0, 100), (0, 50), (1, 30)] {
            let time = SimDuration(time);
            assert!(builder.add(TaskKind::Compute { time, unit }).is_some());
        }
        let (mut source, mut actions) = (source(builder), SourceActions::default());
        source.begin(SimTime(0), &mut actions);
        actions.wakes.clear();
        source.due(SimTime(0), STARTS, &mut actions);
        let ends: Vec<_> = actions.wakes.drain(..).collect();
        assert_eq!(ends, [(SimTime(100), 0), (SimTime(150), 1), (SimTime(30), 2)]);
        [(30, 2), (100, 0), (150, 1)]
            .into_iter()
            .for_each(|(at, task)| source.due(SimTime(at), task, &mut actions));
        assert_eq!((source.took(), actions.is_exhausted), (Some(SimDuration(150)), true));
    }

    #[test]
    fn what_waits_for_a_failed_or_lost_message_never_begins() {
        let mut builder = TaskGraphBuilder::default();
        let [first, second] = [message(1), message(2)].map(|task| builder.add(task).unwrap());
        builder.follow(first, Phase::Done, second);
        let start = || {
            let (mut source, mut actions) = (source(builder.clone()), SourceActions::default());
            source.begin(SimTime(0), &mut actions);
            source.due(SimTime(0), STARTS, &mut actions);
            actions.starts.clear();
            (source, actions)
        };
        let (mut failing, mut actions) = start();
        failing.ended(SimTime(9), EndedMessage { token: first, failed: true }, &mut actions);
        assert!(actions.is_exhausted && actions.starts.is_empty());
        assert_eq!((failing.took(), failing.counts()), (None, (2, 0)));
        let (mut losing, mut actions) = start();
        losing.sampled(SimTime(1_000), &mut actions);
        assert!(!actions.is_exhausted);
        losing.sampled(SimTime(1_001), &mut actions);
        assert!(actions.is_exhausted);
    }
}
