//! MatrixRow matrices of htsim (`.cm`): `Nodes`, `Connections`, `Triggers`, then a line for each
//! connection (`0->1 id 1 start 0 size 1000`) and each trigger (`trigger id 1 oneshot`), in any
//! order.
//!
//! A trigger is fired by connections that are complete at their sender (`send_done_trigger`) or
//! receiver (`recv_done_trigger`), and starts the connections that name it: `oneshot` all of them
//! at its only signal, `barrier count k` at the k-th, `multishot` one at each. As in htsim, counts
//! in the head must be those of the file. Starts are picoseconds.
//!
//! Left out: connections without an end (size 0), failures, which are refused; priorities (`prio`),
//! which only order the pulls of a receiver there; messages that share a connection (`msg`), which
//! are sent as separate ones.

use std::collections::BTreeMap;

use homa_workload::text::{TextRow, rows};

use crate::time::{SimDuration, SimTime};
use crate::traffic::flows::FlowError;
use crate::traffic::open_loop::ScheduledMessage;
use crate::traffic::tasks::{MOST_TASKS, Phase, TaskGraphBuilder, TaskKind};

use super::{FileMessages, FlowFile, between, bytes, number, time, wrong};

/// Words that announce numbers.
const HEAD: [&str; 4] = ["Nodes", "Connections", "Triggers", "Failures"];

/// Starts below this, a nanosecond, are probably microseconds.
const SHORT: SimTime = SimTime(1_000);

/// Whether the first word of a file is one of this format's.
pub(super) fn begins_with(word: &str) -> bool {
    HEAD.contains(&word) || word.contains("->") || word == "trigger"
}

struct MatrixRow {
    line: usize,
    ends: (u32, u32),
    bytes: u32,
    at: Option<SimTime>,
    trigger: Option<u32>,
    send_done: Option<u32>,
    recv_done: Option<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum TriggerKind {
    Oneshot,
    Multishot,
    Barrier(u32),
}

struct Trigger {
    line: usize,
    kind: TriggerKind,
    /// Signals that it gets, and connections that it starts.
    signals: u32,
    starts: u32,
}

#[derive(Default)]
struct Matrix {
    /// By word of [`HEAD`]: its number, and its line.
    announced: [Option<(u32, usize)>; 4],
    connections: Vec<MatrixRow>,
    triggers: BTreeMap<u32, Trigger>,
    has_priorities: bool,
}

pub(super) fn read(text: &str) -> Result<FlowFile, FlowError> {
    let mut matrix = Matrix::default();
    for row in rows(text) {
        let first = row.fields[0];
        if let Some(which) = HEAD.iter().position(|word| *word == first) {
            let [_, value] = row.fields[..] else {
                return wrong(&row, format!("expected a number behind `{first}`"));
            };
            matrix.announced[which] = Some((number(&row, first, value)?, row.line));
        } else if let Some((src, dst)) = first.split_once("->") {
            let connection = matrix.connection(&row, (src, dst))?;
            matrix.connections.push(connection);
        } else if first == "trigger" {
            matrix.trigger(&row)?;
        } else if first == "failure" {
            let expected = "failures of htsim are not simulated: remove the line, and impair the \
                            link with `fabric.impaired`";
            return wrong(&row, expected);
        } else {
            let expected = format!(
                "expected a connection such as `0->1 start 0 size 1000`, `trigger id 1 oneshot`, \
                 or {} and a number, found `{first}`",
                HEAD.join(", ")
            );
            return wrong(&row, expected);
        }
    }
    matrix.check_announced()?;
    matrix.check_triggers()?;
    matrix.file()
}

impl Matrix {
    fn connection(
        &mut self,
        row: &TextRow<'_>,
        (src, dst): (&str, &str),
    ) -> Result<MatrixRow, FlowError> {
        let (src, dst) = (number(row, "sender", src)?, number(row, "receiver", dst)?);
        let (mut size, mut at) = (None, None);
        let (mut trigger, mut send_done, mut recv_done) = (None, None, None);
        let mut words = row.fields[1..].iter().copied().peekable();
        while let Some(word) = words.next() {
            if word == "msg" {
                // Its number may be left out.
                words.next_if(|next| next.parse::<u32>().is_ok());
                continue;
            }
            if word == "addon" {
                continue;
            }
            let Some(value) = words.next() else {
                return wrong(row, format!("expected a value behind `{word}`"));
            };
            match word {
                "start" => at = Some(time(row, "start in picoseconds", (value, 1.0))?),
                "size" if value == "0" => {
                    let expected = "size 0 is a connection without an end, which no list has: give \
                                    it a size, or use `traffic.pattern = \"long-flows\"`";
                    return wrong(row, expected);
                }
                "size" => size = Some(bytes(row, "size", value, 1)?),
                "trigger" => trigger = Some(number(row, word, value)?),
                "send_done_trigger" => send_done = Some(number(row, word, value)?),
                "recv_done_trigger" => recv_done = Some(number(row, word, value)?),
                "id" => {
                    number(row, word, value)?;
                }
                "prio" => {
                    number(row, word, value)?;
                    self.has_priorities = true;
                }
                _ => {
                    let expected = format!(
                        "unknown word `{word}`: a connection has id, msg, start or trigger, size, \
                         send_done_trigger, recv_done_trigger, prio"
                    );
                    return wrong(row, expected);
                }
            }
        }
        if at.is_some() && trigger.is_some() {
            return wrong(row, "a connection has either `start` or `trigger`, not both");
        }
        let Some(bytes) = size else { return wrong(row, "expected `size` and a number of bytes") };
        let (line, ends) = (row.line, between(row, src, dst)?);
        Ok(MatrixRow { line, ends, bytes, at, trigger, send_done, recv_done })
    }

    fn trigger(&mut self, row: &TextRow<'_>) -> Result<(), FlowError> {
        let (mut id, mut kind, mut count) = (None, None, None);
        let mut words = row.fields[1..].iter().copied();
        while let Some(word) = words.next() {
            match word {
                "oneshot" => kind = Some(TriggerKind::Oneshot),
                "multishot" => kind = Some(TriggerKind::Multishot),
                "barrier" => kind = Some(TriggerKind::Barrier(0)),
                "id" | "count" => {
                    let Some(value) = words.next() else {
                        return wrong(row, format!("expected a number behind `{word}`"));
                    };
                    let value = Some(number(row, word, value)?);
                    if word == "id" { id = value } else { count = value }
                }
                _ => {
                    let expected = format!(
                        "unknown word `{word}`: a trigger has an id, and is oneshot, multishot, or \
                         barrier with a count"
                    );
                    return wrong(row, expected);
                }
            }
        }
        let (Some(id), Some(kind)) = (id, kind) else {
            return wrong(row, "expected `trigger id N` and oneshot, multishot or barrier");
        };
        let kind = match (kind, count) {
            (TriggerKind::Barrier(_), Some(count)) => TriggerKind::Barrier(count),
            (TriggerKind::Barrier(_), None) => return wrong(row, "a barrier needs a `count`"),
            (kind, _) => kind,
        };
        let trigger = Trigger { line: row.line, kind, signals: 0, starts: 0 };
        if let Some(before) = self.triggers.insert(id, trigger) {
            return wrong(row, format!("trigger {id} is declared in line {}, too", before.line));
        }
        Ok(())
    }

    /// Refuses numbers in the head that are not those of the file, because a part of it may be
    /// missing.
    fn check_announced(&self) -> Result<(), FlowError> {
        let found = [None, Some(self.connections.len()), Some(self.triggers.len()), Some(0)];
        for ((word, announced), found) in HEAD.into_iter().zip(self.announced).zip(found) {
            let (Some((announced, line)), Some(found)) = (announced, found) else { continue };
            if announced as usize != found {
                let expected = format!("`{word}` is {announced}, and the file has {found}");
                return Err(FlowError { line, expected });
            }
        }
        let Some((nodes, _)) = self.announced[0] else { return Ok(()) };
        let beyond = |it: &&MatrixRow| it.ends.0.max(it.ends.1) >= nodes;
        match self.connections.iter().find(beyond) {
            Some(&MatrixRow { line, ends: (src, dst), .. }) => {
                let host = src.max(dst);
                let expected = format!("host {host} is not below `Nodes`, which is {nodes}");
                Err(FlowError { line, expected })
            }
            None => Ok(()),
        }
    }

    /// Counts the signals and connections of every trigger, and refuses those that cannot fire as
    /// declared.
    fn check_triggers(&mut self) -> Result<(), FlowError> {
        for connection in &self.connections {
            let MatrixRow { line, trigger, send_done, recv_done, .. } = *connection;
            let named = [(trigger, false), (send_done, true), (recv_done, true)];
            for (id, signals) in named.into_iter().filter_map(|(id, to)| Some((id?, to))) {
                let Some(trigger) = self.triggers.get_mut(&id) else {
                    let expected = format!(
                        "no line declares trigger {id}: add `trigger id {id} oneshot`, multishot, \
                         or barrier with a count"
                    );
                    return Err(FlowError { line, expected });
                };
                *if signals { &mut trigger.signals } else { &mut trigger.starts } += 1;
            }
        }
        for (id, &Trigger { line, kind, signals, starts }) in &self.triggers {
            let (needs, name) = match kind {
                TriggerKind::Oneshot => (1, "oneshot"),
                TriggerKind::Barrier(count) => (count, "barrier"),
                TriggerKind::Multishot if signals < starts => (starts, "multishot"),
                TriggerKind::Multishot => continue,
            };
            if signals != needs && (signals > 0 || starts > 0) {
                let expected = format!(
                    "trigger {id} is a {name} of {starts} connections and takes {needs} signals, \
                     and {signals} connections give it one (send_done_trigger, recv_done_trigger)"
                );
                return Err(FlowError { line, expected });
            }
        }
        Ok(())
    }

    fn file(self) -> Result<FlowFile, FlowError> {
        let warnings = self.warnings();
        let file = |messages| {
            let (begins, names_nodes) = (SimTime::ZERO, false);
            FlowFile { messages, begins, names_nodes, warnings }
        };
        if self.triggers.values().all(|trigger| trigger.signals == 0) {
            let list = self.connections.iter().map(|connection| ScheduledMessage {
                at: connection.at.unwrap_or(SimTime::ZERO),
                src: connection.ends.0,
                dst: connection.ends.1,
                bytes: connection.bytes,
            });
            let mut list: Vec<ScheduledMessage> = list.collect();
            list.sort_by_key(|message| message.at);
            return Ok(file(FileMessages::List(list)));
        }
        let many = || {
            let expected =
                format!("connections and triggers are more than {MOST_TASKS}: divide the file");
            FlowError { line: 1, expected }
        };
        let mut graph = TaskGraphBuilder::default();
        // The numbers of connections as tasks are their places in the list.
        for (place, connection) in (0..).zip(&self.connections) {
            let MatrixRow { ends: (src, dst), bytes, at, .. } = *connection;
            graph.add(TaskKind::Message { src, dst, bytes }).ok_or_else(many)?;
            if let Some(at) = at {
                graph.begin_at(place, at);
            }
        }
        let mut tasks = BTreeMap::new();
        for (id, trigger) in self.triggers.iter().filter(|(_, trigger)| trigger.signals > 0) {
            let kind = match trigger.kind {
                TriggerKind::Multishot => TaskKind::Distributor,
                TriggerKind::Oneshot | TriggerKind::Barrier(_) => {
                    TaskKind::Delay(SimDuration::ZERO)
                }
            };
            tasks.insert(*id, graph.add(kind).ok_or_else(many)?);
        }
        for (place, connection) in (0..).zip(&self.connections) {
            let task = |id: Option<u32>| tasks.get(&id?).copied();
            if let Some(trigger) = task(connection.trigger) {
                graph.follow(trigger, Phase::Done, place);
            }
            if let Some(trigger) = task(connection.send_done) {
                graph.follow(place, Phase::Sent, trigger);
            }
            if let Some(trigger) = task(connection.recv_done) {
                graph.follow(place, Phase::Done, trigger);
            }
        }
        let graph = graph.build();
        if let Some(stuck) = graph.stuck() {
            let line = self.connections.get(stuck as usize).map_or(1, |it| it.line);
            let expected = "this connection can never start: its trigger waits, through others, \
                            for the connection itself";
            return Err(FlowError { line, expected: expected.to_owned() });
        }
        Ok(file(FileMessages::Tasks(graph)))
    }

    fn warnings(&self) -> Vec<String> {
        let last = self.connections.iter().filter_map(|connection| connection.at).max();
        let short = last.filter(|last| (SimTime(1)..SHORT).contains(last)).map(|last| {
            format!(
                "the last `start` is {} ps: starts of htsim are picoseconds, so if these are \
                 microseconds, multiply them by 1000000",
                last.0
            )
        });
        let priorities = self.has_priorities.then(|| {
            "`prio` orders the pulls of a receiver in htsim and is not simulated".to_owned()
        });
        short.into_iter().chain(priorities).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::FileMessages;
    use super::*;

    fn refused(text: &str) -> String {
        read(text).unwrap_err().to_string()
    }

    #[test]
    fn connections_without_triggers_are_a_list() {
        let text = "Connections 2\nNodes 4\n# comment\n3->0 id 1 start 5000.0 size 2000000 prio \
                    7\n1->2 id 2 start 0 size 9\n\n";
        let file = read(text).unwrap();
        let message = |at, (src, dst), bytes| ScheduledMessage { at: SimTime(at), src, dst, bytes };
        let expected = [message(0, (1, 2), 9), message(5_000, (3, 0), 2_000_000)];
        assert_eq!(file.messages, FileMessages::List(expected.to_vec()));
        assert_eq!(file.warnings.len(), 1, "{:?}", file.warnings);
        let short = read("0->1 start 12 size 5\n").unwrap().warnings;
        assert!(short[0].contains("multiply them by 1000000"), "{short:?}");
    }

    #[test]
    fn triggers_are_tasks_between_connections() {
        let text = "Nodes 3\nConnections 3\nTriggers 2\n0->1 id 1 start 7000 size 10 \
                    send_done_trigger 1 recv_done_trigger 2\n1->2 id 2 trigger 1 size 20\n2->0 id \
                    3 msg 1 trigger 2 size 30\ntrigger id 1 oneshot\ntrigger id 2 multishot\n";
        let file = read(text).unwrap();
        let mut graph = TaskGraphBuilder::default();
        for (src, dst, bytes) in [(0, 1, 10), (1, 2, 20), (2, 0, 30)] {
            graph.add(TaskKind::Message { src, dst, bytes }).unwrap();
        }
        let oneshot = graph.add(TaskKind::Delay(SimDuration::ZERO)).unwrap();
        let multishot = graph.add(TaskKind::Distributor).unwrap();
        graph.begin_at(0, SimTime(7_000));
        graph.follow(0, Phase::Sent, oneshot);
        graph.follow(0, Phase::Done, multishot);
        graph.follow(oneshot, Phase::Done, 1);
        graph.follow(multishot, Phase::Done, 2);
        assert_eq!(file.messages, FileMessages::Tasks(graph.build()));
        assert_eq!(file.begins, SimTime::ZERO);
    }

    #[test]
    fn mistakes_name_their_line() {
        let triggers = "0->1 start 0 size 1 send_done_trigger 1\n1->0 trigger 1 size 1\n";
        let with = |line: &str| refused(&format!("{triggers}{line}\n"));
        let cases = [
            (refused("0->1 start 0\n"), "line 1: expected `size`"),
            (refused("0->1 start 0 size 0\n"), "line 1: size 0 is a connection without an end"),
            (refused("0->0 start 0 size 1\n"), "line 1: a message needs two hosts"),
            (refused("0->1 start 0 size 1 colour 3\n"), "line 1: unknown word `colour`"),
            (refused("0->1 start 0 trigger 1 size 1\n"), "line 1: a connection has either"),
            (refused("0->1 size\n"), "line 1: expected a value behind `size`"),
            (refused("Nodes 2\n0->2 start 0 size 1\n"), "line 2: host 2 is not below `Nodes`"),
            (refused("Connections 2\n0->1 size 1\n"), "line 1: `Connections` is 2, and the file"),
            (refused("Nodes\n"), "line 1: expected a number behind `Nodes`"),
            (refused("Nodes 2\nhello\n"), "line 2: expected a connection such as"),
            (refused("Nodes 2\nfailure switch_id 1\n"), "line 2: failures of htsim"),
            (refused(triggers), "line 1: no line declares trigger 1"),
            (with("trigger id 1"), "line 3: expected `trigger id N` and oneshot"),
            (with("trigger id 1 barrier"), "line 3: a barrier needs a `count`"),
            (with("trigger id 1 barrier count 2"), "line 3: trigger 1 is a barrier"),
            (with("trigger id 1 oneshot\ntrigger id 1 oneshot"), "line 4: trigger 1 is declared"),
            (with("trigger id 1 oneshot\n0->1 trigger 2 size 1\ntrigger id 2 multishot"), "line 5"),
        ];
        for (error, said) in cases {
            assert!(error.starts_with(said), "{error}");
        }
        let circle = "0->1 trigger 1 size 1 recv_done_trigger 2\n1->0 trigger 2 size 1 \
                      recv_done_trigger 1\ntrigger id 1 oneshot\ntrigger id 2 oneshot\n";
        assert!(refused(circle).starts_with("line 1: this connection can never start"));
    }
}
