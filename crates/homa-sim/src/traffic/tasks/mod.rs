//! Messages that wait for each other, as a graph of tasks: connections with triggers (htsim),
//! programs of sends and computations (GOAL), and collectives are all built as one.
//!
//! A task begins when all tasks that it follows have reached the named [`Phase`]. A task that
//! follows none begins at a given time, or at the start. Invariants: the graph is compressed into
//! one array of edges, so that memory is linear in tasks and edges; the order in which tasks and
//! edges were added decides between equals. [`TaskGraph::stuck`] finds tasks that can never begin.
//!
//! Left out: a computation does not slow down the messages of its host.

mod source;

pub use source::TaskSource;

use crate::time::{SimDuration, SimTime};

/// What a task does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskKind {
    /// Sends a message. It is done when the message has arrived, or its RPC has been answered.
    Message {
        /// Sending host.
        src: u32,
        /// Receiving host.
        dst: u32,
        /// Message bytes.
        bytes: u32,
    },
    /// Takes time. It is done this long after it began; if that is 0, at once, so that a task can
    /// stand for "all of these".
    Delay(SimDuration),
    /// Occupies a processor for some time. Those of one processor take turns in the order in which
    /// they may begin.
    Compute {
        /// How long.
        time: SimDuration,
        /// Number of the processor, from 0 without gaps.
        unit: u32,
    },
    /// Passes each signal on to the next of the tasks that follow it, as htsim's `multishot`
    /// triggers do. It does not wait for all tasks that it follows.
    Distributor,
}

/// What of a task another one waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It has begun.
    Begun,
    /// Its sender knows that the message has arrived: an acknowledgement that leaves the receiver
    /// at once has come back through an idle network. Of other tasks: it is done.
    Sent,
    /// It is done.
    Done,
}

/// Bits of an edge that hold the task; the others hold the phase.
const TASK_BITS: u32 = 30;

/// The most tasks of a graph.
pub const MOST_TASKS: usize = 1 << 24;

/// A graph that is being built.
#[derive(Clone, Debug, Default)]
pub struct TaskGraphBuilder {
    tasks: Vec<TaskKind>,
    /// Task, phase of it, and the task that waits for it.
    edges: Vec<(u32, Phase, u32)>,
    starts: Vec<(SimTime, u32)>,
}

impl TaskGraphBuilder {
    /// Adds a task; returns its number. `None` if the graph has [`MOST_TASKS`] already.
    pub fn add(&mut self, task: TaskKind) -> Option<u32> {
        (self.tasks.len() < MOST_TASKS).then(|| {
            self.tasks.push(task);
            self.tasks.len() as u32 - 1
        })
    }

    /// A task that follows no other begins at this time instead of at the start.
    pub fn begin_at(&mut self, task: u32, at: SimTime) {
        self.starts.push((at, task));
    }

    /// `then` waits for a phase of `first`.
    pub fn follow(&mut self, first: u32, phase: Phase, then: u32) {
        self.edges.push((first, phase, then));
    }

    /// The finished graph.
    pub fn build(self) -> TaskGraph {
        let Self { tasks, edges, starts } = self;
        let mut missing = vec![0_u32; tasks.len()];
        let mut first = vec![0_u32; tasks.len() + 1];
        for (from, _, to) in &edges {
            first[*from as usize + 1] += 1;
            missing[*to as usize] += 1;
        }
        for task in 0..tasks.len() {
            first[task + 1] += first[task];
        }
        // Place each edge behind those of its task that were added before.
        let mut next = first.clone();
        let mut packed = vec![0_u32; edges.len()];
        for (from, phase, to) in edges {
            let place = &mut next[from as usize];
            packed[*place as usize] = (phase as u32) << TASK_BITS | to;
            *place += 1;
        }
        let mut at = vec![SimTime::ZERO; tasks.len()];
        for (time, task) in starts {
            at[task as usize] = time;
        }
        let is_root = |task: &u32| {
            let (kind, missing) = (tasks[*task as usize], missing[*task as usize]);
            missing == 0 && kind != TaskKind::Distributor
        };
        let roots = (0..tasks.len() as u32).filter(is_root);
        let mut starts: Vec<_> = roots.map(|task| (at[task as usize], task)).collect();
        starts.sort_by_key(|(at, _)| *at);
        TaskGraph { tasks, first, edges: packed, missing, starts }
    }
}

/// Tasks, and what each waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskGraph {
    tasks: Vec<TaskKind>,
    /// By task: its first edge.
    first: Vec<u32>,
    /// Edges by the task that they follow: phase and waiting task.
    edges: Vec<u32>,
    /// By task: number of edges to it.
    missing: Vec<u32>,
    /// The tasks that follow no other, by time.
    starts: Vec<(SimTime, u32)>,
}

impl TaskGraph {
    /// All tasks, by number.
    pub fn tasks(&self) -> &[TaskKind] {
        &self.tasks
    }

    /// Number of messages.
    pub fn messages(&self) -> u64 {
        self.sizes().count() as u64
    }

    /// Bytes of the messages, in the order of the tasks.
    pub fn sizes(&self) -> impl Iterator<Item = u32> {
        self.tasks.iter().filter_map(|task| match task {
            TaskKind::Message { bytes, .. } => Some(*bytes),
            TaskKind::Delay(_) | TaskKind::Compute { .. } | TaskKind::Distributor => None,
        })
    }

    /// Sender and receiver of every message.
    pub fn pairs(&self) -> impl Iterator<Item = (u32, u32)> {
        self.tasks.iter().filter_map(|task| match task {
            TaskKind::Message { src, dst, .. } => Some((*src, *dst)),
            TaskKind::Delay(_) | TaskKind::Compute { .. } | TaskKind::Distributor => None,
        })
    }

    /// The time of all tasks that take time without sending, one after the other.
    pub fn delays(&self) -> SimDuration {
        let time = |task: &TaskKind| match task {
            TaskKind::Delay(time) | TaskKind::Compute { time, .. } => time.0,
            TaskKind::Message { .. } | TaskKind::Distributor => 0,
        };
        SimDuration(self.tasks.iter().map(time).fold(0, u64::saturating_add))
    }

    /// Number of processors.
    fn units(&self) -> usize {
        let unit = |task: &TaskKind| match task {
            TaskKind::Compute { unit, .. } => *unit as usize + 1,
            TaskKind::Message { .. } | TaskKind::Delay(_) | TaskKind::Distributor => 0,
        };
        self.tasks.iter().map(unit).max().unwrap_or(0)
    }

    /// When the last of the tasks begins that follow no other.
    pub fn last_start(&self) -> SimTime {
        self.starts.last().map_or(SimTime::ZERO, |(at, _)| *at)
    }

    /// The tasks that wait for a phase of this one.
    fn followers(&self, task: u32, phase: Phase) -> impl Iterator<Item = u32> {
        let edges = &self.edges[self.range(task)];
        let wanted = phase as u32;
        edges.iter().filter(move |edge| *edge >> TASK_BITS == wanted).map(|edge| of_edge(*edge))
    }

    fn range(&self, task: u32) -> std::ops::Range<usize> {
        self.first[task as usize] as usize..self.first[task as usize + 1] as usize
    }

    /// The first task that can never begin, because it waits for itself through others, or for a
    /// signal that a distributor does not have for it.
    pub fn stuck(&self) -> Option<u32> {
        let mut missing = self.missing.clone();
        let mut given = vec![0_u32; self.tasks.len()];
        let mut begun = vec![false; self.tasks.len()];
        let mut ready: Vec<u32> = self.starts.iter().map(|(_, task)| *task).collect();
        while let Some(task) = ready.pop() {
            begun[task as usize] = true;
            for edge in self.range(task).map(|edge| self.edges[edge]) {
                let to = of_edge(edge);
                match self.tasks[to as usize] {
                    TaskKind::Distributor => {
                        begun[to as usize] = true;
                        ready.extend(self.next_of(to, &mut given[to as usize]));
                    }
                    TaskKind::Message { .. } | TaskKind::Delay(_) | TaskKind::Compute { .. } => {
                        missing[to as usize] -= 1;
                        ready.extend((missing[to as usize] == 0).then_some(to));
                    }
                }
            }
        }
        begun.iter().position(|begun| !begun).map(|task| task as u32)
    }

    /// The task to which a distributor passes its next signal; `given` counts those before.
    fn next_of(&self, distributor: u32, given: &mut u32) -> Option<u32> {
        let place = self.range(distributor).nth(*given as usize)?;
        *given += 1;
        Some(of_edge(self.edges[place]))
    }
}

const fn of_edge(edge: u32) -> u32 {
    edge & ((1 << TASK_BITS) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGE: TaskKind = TaskKind::Message { src: 0, dst: 1, bytes: 1 };

    /// A graph of `count` messages with these edges.
    fn graph(count: u32, edges: &[(u32, Phase, u32)]) -> TaskGraph {
        let mut builder = TaskGraphBuilder::default();
        (0..count).for_each(|_| assert!(builder.add(MESSAGE).is_some()));
        edges.iter().for_each(|&(from, phase, to)| builder.follow(from, phase, to));
        builder.build()
    }

    #[test]
    fn followers_are_found_by_phase_in_the_order_of_their_edges() {
        let edges =
            [(1, Phase::Done, 3), (0, Phase::Begun, 2), (1, Phase::Sent, 0), (1, Phase::Done, 2)];
        let graph = graph(4, &edges);
        let of = |task, phase| graph.followers(task, phase).collect::<Vec<_>>();
        assert_eq!(of(1, Phase::Done), [3, 2]);
        assert_eq!((of(1, Phase::Sent), of(0, Phase::Begun)), (vec![0], vec![2]));
        assert_eq!(of(3, Phase::Done), [] as [u32; 0]);
        assert_eq!(graph.starts, [(SimTime::ZERO, 1)]);
    }

    #[test]
    fn a_task_that_waits_for_itself_is_stuck() {
        let line = [(0, Phase::Done, 1), (1, Phase::Done, 2)];
        assert_eq!(graph(3, &line).stuck(), None);
        let circle = [(0, Phase::Done, 1), (2, Phase::Done, 1), (1, Phase::Done, 2)];
        assert_eq!(graph(3, &circle).stuck(), Some(1));
    }

    #[test]
    fn a_distributor_needs_a_signal_for_each_task_behind_it() {
        let mut builder = TaskGraphBuilder::default();
        let [first, second] = [MESSAGE; 2].map(|task| builder.add(task).unwrap());
        let distributor = builder.add(TaskKind::Distributor).unwrap();
        let [third, fourth] = [MESSAGE; 2].map(|task| builder.add(task).unwrap());
        builder.follow(first, Phase::Done, distributor);
        builder.follow(distributor, Phase::Done, third);
        builder.follow(distributor, Phase::Done, fourth);
        assert_eq!(builder.clone().build().stuck(), Some(fourth));
        builder.follow(second, Phase::Done, distributor);
        assert_eq!(builder.build().stuck(), None);
    }

    #[test]
    fn tasks_that_follow_none_are_sorted_by_time() {
        let mut builder = TaskGraphBuilder::default();
        let tasks: Vec<u32> = (0..3).map(|_| builder.add(MESSAGE).unwrap()).collect();
        builder.begin_at(tasks[0], SimTime(9));
        let graph = builder.build();
        assert_eq!(graph.starts, [(SimTime(0), 1), (SimTime(0), 2), (SimTime(9), 0)]);
        assert_eq!((graph.last_start(), graph.messages()), (SimTime(9), 3));
    }
}
