//! Programs of LogGOPSim and ATLAHS in the text form of GOAL: for each rank sends, receives and
//! computations, and what each waits for.
//!
//! Rank `r` is host `r`. A send is finished when an acknowledgement could be at its sender, a
//! receive when its message has arrived and it has begun, which it does when it is posted, that is
//! when what it requires is finished, and a computation after its
//! time, in nanoseconds; those of one `cpu` of a rank take turns. The n-th send to a rank with a
//! tag is received by the n-th receive from its sender with that tag. A message of no bytes has
//! one.
//!
//! Left out: any source or tag (-1), which are refused; `nic`, because a host has one; the
//! parameters of LogGOPS, because the simulated hosts and links have their own.

use std::collections::BTreeMap;

use homa_workload::sizes::MAX_BYTES;

use crate::time::{SimDuration, SimTime};
use crate::traffic::flows::FlowError;
use crate::traffic::tasks::{MOST_TASKS, Phase, TaskGraphBuilder, TaskKind};

use super::{FileMessages, FlowFile};

/// The first word of a file of this format.
pub(super) const HEAD: &str = "num_ranks";

/// A word, and its line.
#[derive(Clone, Copy)]
struct GoalWord<'a> {
    line: usize,
    text: &'a str,
}

impl GoalWord<'_> {
    fn wrong<T>(self, expected: impl Into<String>) -> Result<T, FlowError> {
        Err(FlowError { line: self.line, expected: expected.into() })
    }
}

/// The text without comments; lines stay where they are.
pub(super) fn without_comments(text: &str) -> String {
    let (mut kept, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find(['/', '#']) {
        let (before, comment) = rest.split_at(at);
        kept.push_str(before);
        let end = match comment.as_bytes().get(1) {
            _ if comment.starts_with('#') => comment.find('\n').unwrap_or(comment.len()),
            Some(b'/') => comment.find('\n').unwrap_or(comment.len()),
            Some(b'*') => comment.find("*/").map_or(comment.len(), |end| end + 2),
            _ => {
                kept.push('/');
                1
            }
        };
        if end > 1 || comment.starts_with('#') {
            kept.extend(comment[..end].chars().filter(|character| *character == '\n'));
            kept.push(' ');
        }
        rest = &comment[end..];
    }
    kept.push_str(rest);
    kept
}

/// The words of a text: braces, labels with their colon, and all else between blanks.
fn words(text: &str) -> impl Iterator<Item = GoalWord<'_>> {
    (1..).zip(text.lines()).flat_map(|(line, content)| {
        let parts = content.split_inclusive(['{', '}', ':']);
        let split = parts.flat_map(|part| match part.strip_suffix(['{', '}']) {
            Some(before) => [before, &part[before.len()..]],
            None => [part, ""],
        });
        split.flat_map(str::split_whitespace).map(move |text| GoalWord { line, text })
    })
}

/// An operation of a rank.
#[derive(Clone, Copy)]
struct GoalOperation {
    /// The task by which it begins.
    begins: u32,
    /// The task, and the phase of it, for which others wait if they require it.
    ends: u32,
    finished: Phase,
}

/// A send or receive that waits for its other end.
#[derive(Clone, Copy)]
struct GoalEnd {
    line: usize,
    task: u32,
    bytes: u32,
}

/// Sends and receives between two ranks with one tag, in the order of the file.
#[derive(Default)]
struct GoalChannel {
    sends: Vec<GoalEnd>,
    receives: Vec<GoalEnd>,
}

struct GoalReader<'a> {
    words: std::iter::Peekable<Box<dyn Iterator<Item = GoalWord<'a>> + 'a>>,
    last: GoalWord<'a>,
    ranks: u32,
    graph: TaskGraphBuilder,
    /// By task: the line of its operation.
    lines: Vec<usize>,
    /// By sender, receiver and tag.
    channels: BTreeMap<(u32, u32, u32), GoalChannel>,
    /// By rank and processor: its number.
    units: BTreeMap<(u32, u32), u32>,
}

pub(super) fn read(text: &str) -> Result<FlowFile, FlowError> {
    let text = without_comments(text);
    let all: Box<dyn Iterator<Item = GoalWord<'_>>> = Box::new(words(&text));
    let mut program = GoalReader {
        words: all.peekable(),
        last: GoalWord { line: 1, text: "" },
        ranks: 0,
        graph: TaskGraphBuilder::default(),
        lines: Vec::new(),
        channels: BTreeMap::new(),
        units: BTreeMap::new(),
    };
    program.expect(HEAD)?;
    program.ranks = program.number("the number of ranks")?;
    while program.words.peek().is_some() {
        program.expect("rank")?;
        program.rank()?;
    }
    program.file()
}

impl<'a> GoalReader<'a> {
    fn next(&mut self, expected: &str) -> Result<GoalWord<'a>, FlowError> {
        match self.words.next() {
            Some(word) => {
                self.last = word;
                Ok(word)
            }
            None => self.last.wrong(format!("expected {expected}, and the file ends here")),
        }
    }

    fn expect(&mut self, text: &str) -> Result<(), FlowError> {
        let word = self.next(&format!("`{text}`"))?;
        match word.text == text {
            true => Ok(()),
            false => word.wrong(format!("expected `{text}`, found `{}`", word.text)),
        }
    }

    fn number(&mut self, what: &str) -> Result<u32, FlowError> {
        let word = self.next(what)?;
        match (word.text, word.text.parse()) {
            (_, Ok(number)) => Ok(number),
            ("-1", _) => word.wrong(format!(
                "{what}: any (-1) is not simulated, because the order of arrival would decide: \
                 give it a number"
            )),
            (text, _) => word.wrong(format!("{what}: expected a number, found `{text}`")),
        }
    }

    fn other_rank(&mut self, rank: u32) -> Result<u32, FlowError> {
        let other = self.number("rank")?;
        if other >= self.ranks || other == rank {
            let expected = format!("expected another rank than {rank} below {}", self.ranks);
            return self.last.wrong(expected);
        }
        Ok(other)
    }

    /// A size such as `8192b`.
    fn bytes(&mut self) -> Result<u32, FlowError> {
        let word = self.next("a size such as `8192b`")?;
        let number = word.text.strip_suffix('b').and_then(|number| number.parse().ok());
        match number.filter(|bytes: &u32| *bytes <= MAX_BYTES) {
            Some(bytes) => Ok(bytes.max(1)),
            None => word.wrong(format!("expected 0b to {MAX_BYTES}b, found `{}`", word.text)),
        }
    }

    /// Tag and processor behind an operation.
    fn options(&mut self) -> Result<(u32, u32), FlowError> {
        let (mut tag, mut cpu) = (0, 0);
        while let Some(word) = self.words.next_if(|it| ["tag", "cpu", "nic"].contains(&it.text)) {
            self.last = word;
            let number = self.number(word.text)?;
            match word.text {
                "tag" => tag = number,
                "cpu" => cpu = number,
                _ => {}
            }
        }
        Ok((tag, cpu))
    }

    fn add(&mut self, task: TaskKind) -> Result<u32, FlowError> {
        self.lines.push(self.last.line);
        match self.graph.add(task) {
            Some(task) => Ok(task),
            None => self.last.wrong(format!("more than {MOST_TASKS} operations")),
        }
    }

    /// A rank's operations and what they wait for.
    fn rank(&mut self) -> Result<(), FlowError> {
        let rank = self.number("rank")?;
        if rank >= self.ranks {
            return self.last.wrong(format!("rank {rank} is not below {}", self.ranks));
        }
        self.expect("{")?;
        let mut labels: BTreeMap<&str, GoalOperation> = BTreeMap::new();
        let mut edges: Vec<(GoalWord<'_>, GoalWord<'_>, bool)> = Vec::new();
        loop {
            let word = self.next("`}`")?;
            match word.text {
                "}" => break,
                "send" | "recv" | "calc" => {
                    self.operation(rank, word)?;
                }
                label if label.ends_with(':') => {
                    let kind = self.next("an operation")?;
                    let operation = self.operation(rank, kind)?;
                    if labels.insert(label.trim_end_matches(':'), operation).is_some() {
                        return word.wrong(format!("the label `{label}` is used twice"));
                    }
                }
                _ => {
                    let verb = self.next("`requires` or `irequires`")?;
                    if !["requires", "irequires"].contains(&verb.text) {
                        let expected = format!(
                            "expected an operation (send, recv, calc), or `{} requires` and a \
                             label, found `{}`",
                            word.text, verb.text
                        );
                        return verb.wrong(expected);
                    }
                    edges.push((word, self.next("a label")?, verb.text == "irequires"));
                }
            }
        }
        for (then, first, begun) in edges {
            let of = |label: GoalWord<'_>| match labels.get(label.text) {
                Some(operation) => Ok(*operation),
                None => label.wrong(format!("rank {rank} has no label `{}`", label.text)),
            };
            let (then, first) = (of(then)?, of(first)?);
            match begun {
                true => self.graph.follow(first.begins, Phase::Begun, then.begins),
                false => self.graph.follow(first.ends, first.finished, then.begins),
            }
        }
        Ok(())
    }

    fn operation(&mut self, rank: u32, kind: GoalWord<'_>) -> Result<GoalOperation, FlowError> {
        match kind.text {
            "send" => {
                let bytes = self.bytes()?;
                self.expect("to")?;
                let dst = self.other_rank(rank)?;
                let (tag, _) = self.options()?;
                let task = self.add(TaskKind::Message { src: rank, dst, bytes })?;
                let end = GoalEnd { line: kind.line, task, bytes };
                self.channels.entry((rank, dst, tag)).or_default().sends.push(end);
                Ok(GoalOperation { begins: task, ends: task, finished: Phase::Sent })
            }
            "recv" => {
                let bytes = self.bytes()?;
                self.expect("from")?;
                let src = self.other_rank(rank)?;
                let (tag, _) = self.options()?;
                // Posted, and with its message.
                let begins = self.add(TaskKind::Delay(SimDuration::ZERO))?;
                let task = self.add(TaskKind::Delay(SimDuration::ZERO))?;
                self.graph.follow(begins, Phase::Done, task);
                let end = GoalEnd { line: kind.line, task, bytes };
                self.channels.entry((src, rank, tag)).or_default().receives.push(end);
                Ok(GoalOperation { begins, ends: task, finished: Phase::Done })
            }
            "calc" => {
                let word = self.next("a time in nanoseconds")?;
                let nanos = word.text.parse::<u64>().ok().filter(|it| *it <= u64::MAX / 2_000);
                let Some(nanos) = nanos else {
                    let expected = format!("expected whole nanoseconds, found `{}`", word.text);
                    return word.wrong(expected);
                };
                let (_, cpu) = self.options()?;
                let next = self.units.len() as u32;
                let unit = *self.units.entry((rank, cpu)).or_insert(next);
                let time = SimDuration::nanos(nanos);
                let task = self.add(TaskKind::Compute { time, unit })?;
                Ok(GoalOperation { begins: task, ends: task, finished: Phase::Done })
            }
            other => kind.wrong(format!("expected send, recv or calc, found `{other}`")),
        }
    }

    fn file(mut self) -> Result<FlowFile, FlowError> {
        let mut alone = 0;
        for ((src, dst, tag), GoalChannel { sends, receives }) in &self.channels {
            for (send, receive) in sends.iter().zip(receives) {
                let GoalEnd { line, task, bytes } = *receive;
                if bytes != send.bytes {
                    let expected = format!(
                        "{bytes} bytes are received here, and the send from rank {src} to {dst} \
                         with tag {tag} in line {} has {}",
                        send.line, send.bytes
                    );
                    return Err(FlowError { line, expected });
                }
                self.graph.follow(send.task, Phase::Done, task);
            }
            if let Some(receive) = receives.get(sends.len()) {
                let expected = format!(
                    "nothing is received here: rank {src} has {} sends to {dst} with tag {tag}",
                    sends.len()
                );
                return Err(FlowError { line: receive.line, expected });
            }
            alone += sends.len() - receives.len();
        }
        let graph = self.graph.build();
        if let Some(stuck) = graph.stuck() {
            let line = self.lines.get(stuck as usize).copied().unwrap_or(1);
            let expected = "this operation can never begin, because it waits for itself: look at \
                            its `requires` and at the sends of its receives";
            return Err(FlowError { line, expected: expected.to_owned() });
        }
        let warnings = (alone > 0).then(|| format!("{alone} sends have no receive"));
        Ok(FlowFile {
            messages: FileMessages::Tasks(graph),
            begins: SimTime::ZERO,
            names_nodes: false,
            warnings: warnings.into_iter().collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_are_blank_and_lines_stay() {
        assert_eq!(without_comments("a // b\nc /* d\ne */ f / g"), "a  \nc \n  f / g");
        let found: Vec<_> = words("rank 0{\nl1:calc 5}").map(|it| (it.line, it.text)).collect();
        let expected =
            [(1, "rank"), (1, "0"), (1, "{"), (2, "l1:"), (2, "calc"), (2, "5"), (2, "}")];
        assert_eq!(found, expected);
    }

    #[test]
    fn operations_wait_for_each_other_and_receives_for_sends() {
        let text = "num_ranks 2\nrank 0 {\n a: calc 500 cpu 1\n b: send 100b to 1 tag 7\n b \
                    requires a\n c: send 0b to 1 tag 8\n c irequires b\n}\nrank 1 {\n recv 0b from \
                    0 tag 8 nic 0\n d: recv 100b from 0 tag 7\n e: calc 9\n e requires d\n}\n";
        let file = read(text).unwrap();
        let mut graph = TaskGraphBuilder::default();
        let unit = |nanos, unit| TaskKind::Compute { time: SimDuration::nanos(nanos), unit };
        let message = |bytes| TaskKind::Message { src: 0, dst: 1, bytes };
        let join = TaskKind::Delay(SimDuration::ZERO);
        // A receive is two tasks: it is posted, and it has its message.
        let tasks = [unit(500, 0), message(100), message(1), join, join, join, join, unit(9, 1)];
        tasks.into_iter().for_each(|task| assert!(graph.add(task).is_some()));
        graph.follow(0, Phase::Done, 1);
        graph.follow(1, Phase::Begun, 2);
        graph.follow(3, Phase::Done, 4);
        graph.follow(5, Phase::Done, 6);
        graph.follow(6, Phase::Done, 7);
        graph.follow(1, Phase::Done, 6);
        graph.follow(2, Phase::Done, 4);
        assert_eq!(file.messages, FileMessages::Tasks(graph.build()));
    }

    #[test]
    fn mistakes_name_their_line() {
        let refused = |body: &str| {
            let text = format!("num_ranks 2\nrank 0 {{\n{body}\n}}\n");
            read(&text).unwrap_err().to_string()
        };
        let cases = [
            (refused("send 8 to 1"), "line 3: expected 0b to"),
            (refused("send 8b to 2"), "line 3: expected another rank than 0 below 2"),
            (refused("recv 8b from -1"), "line 3: rank: any (-1) is not simulated"),
            (refused("recv 8b from 1"), "line 3: nothing is received here"),
            (refused("calc 1.5"), "line 3: expected whole nanoseconds"),
            (refused("a: calc 1\na requires b"), "line 4: rank 0 has no label `b`"),
            (refused("a: calc 1\na: calc 1"), "line 4: the label `a:` is used twice"),
            (refused("a: calc 1\na wants a"), "line 4: expected an operation"),
            (refused("a: calc 1\na requires a"), "line 3: this operation can never begin"),
            (refused("a: calc"), "line 4: expected whole nanoseconds, found `}`"),
            (read("num_ranks 2\nrank 0 {\n").unwrap_err().to_string(), "line 2: expected `}`"),
            (read("num_ranks 1\nrank 1 { }").unwrap_err().to_string(), "line 2: rank 1 is not"),
        ];
        for (error, said) in cases {
            assert!(error.starts_with(said), "{error}");
        }
    }
}
