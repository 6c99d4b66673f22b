//! How the project's prose reads, in numbers: words that a native engineer of this field rarely
//! writes have a most, words that plain explanations need have a least, both per 10,000 words of
//! comments and Markdown. Lines, names of tests and subjects of commits have a length.
//!
//! The limits come from the prose of quinn, s2n-quic, smoltcp, turmoil, TigerBeetle and ripgrep.
//! Numbers can be gamed, so that they stand beside a reader, not in place of one.
//!
//! Left out: code, code blocks and `inline code`, strings, tables of numbers.

use std::path::Path;
use std::process::Command;

use super::Finding;

/// The limit of a pattern's count.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Limit {
    /// At most this many per 10,000 words.
    Most(f64),
    /// At least this many per 10,000 words.
    Least(f64),
}

/// Words, any of which counts, and their limit.
const WORDS: [(&[&str], Limit); 14] = [
    (&[concat!("who", "ever")], Limit::Most(0.0)),
    (&[concat!("no", "body")], Limit::Most(1.0)),
    (
        &[concat!("some", "body"), concat!("any", "body"), concat!("every", "body")],
        Limit::Most(0.5),
    ),
    (&[concat!("so ", "many"), concat!("so ", "much")], Limit::Most(0.0)),
    (&[concat!("of ", "which")], Limit::Most(1.0)),
    (
        &[concat!("of its ", "own"), concat!("of our ", "own"), concat!("of their ", "own")],
        Limit::Most(1.0),
    ),
    (&[concat!("goes ", "on"), concat!("go ", "on")], Limit::Most(1.0)),
    (
        &[concat!("knows ", "of"), concat!("tells ", "of"), concat!("hears ", "of")],
        Limit::Most(0.5),
    ),
    (&[concat!("what ", "is"), concat!("what ", "was"), concat!("what ", "are")], Limit::Most(3.0)),
    (&["where"], Limit::Most(12.0)),
    (&["if"], Limit::Least(40.0)),
    (&["because"], Limit::Least(5.0)),
    (&["should"], Limit::Least(3.0)),
    (&["for example", "e.g"], Limit::Least(2.0)),
];

const MAX_MARKDOWN_CHARS: usize = 120;
const MAX_TEST_NAME: usize = 60;
const MAX_SUBJECT: usize = 72;
/// The file whose first commit begins the rule about subjects.
const SINCE: &str = "xtask/src/tidy/words.rs";

/// The prose of one file as lower-case words separated by one space; sentences that continue on the
/// next line are joined.
pub fn prose(path: &str, text: &str) -> String {
    let comment = |line: &str| -> Option<String> {
        let line = line.trim_start();
        let markers: &[&str] = match path.rsplit_once('.').map(|(_, ending)| ending) {
            Some("rs") => &["//!", "///", "//"],
            Some("h" | "c") => &["/**", "/*", " *", "*", "//"],
            Some("py" | "pyi" | "toml" | "sh") => &["#"],
            Some("md") => &[""],
            _ => return None,
        };
        let marker = markers.iter().find(|marker| line.starts_with(**marker))?;
        Some(line[marker.len()..].to_owned())
    };
    let (mut words, mut fenced) = (String::new(), false);
    for line in text.lines().filter_map(comment) {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            continue;
        }
        if !fenced {
            words.push_str(&without_code(&line).to_lowercase());
            words.push(' ');
        }
    }
    let word = |c: char| c.is_alphanumeric() || c == '\'' || c == '.';
    let words: Vec<&str> = words
        .split(|c| !word(c))
        .map(|word| word.trim_matches(['.', '\'']))
        .filter(|word| !word.is_empty())
        .collect();
    words.join(" ")
}

/// A line without what stands between backquotes.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join(" ")
}

/// How often each pattern occurs, and how many words there are.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    words: usize,
    found: [usize; WORDS.len()],
}

impl Counts {
    /// Adds the prose of a file.
    pub fn add(&mut self, prose: &str) {
        let padded = format!(" {prose} ");
        self.words += prose.split(' ').filter(|word| !word.is_empty()).count();
        for (found, (patterns, _)) in self.found.iter_mut().zip(WORDS) {
            let times = |pattern: &&str| overlapping(&padded, &format!(" {pattern} "));
            *found += patterns.iter().map(times).sum::<usize>();
        }
    }

    /// Each pattern with its count per 10,000 words and whether that is within the limit.
    fn rates(&self) -> impl Iterator<Item = (String, f64, Limit, bool)> {
        let words = self.words.max(1) as f64;
        self.found.into_iter().zip(WORDS).map(move |(found, (patterns, limit))| {
            let rate = found as f64 * 10_000.0 / words;
            let ok = match limit {
                Limit::Most(most) => rate <= most,
                Limit::Least(least) => rate >= least,
            };
            (patterns.join(", "), rate, limit, ok)
        })
    }

    /// The counts as a table for people.
    pub fn table(&self) -> String {
        let mut table = format!("{} words; per 10,000 of them:\n", self.words);
        for (patterns, rate, limit, ok) in self.rates() {
            let limit = match limit {
                Limit::Most(most) => format!("at most {most}"),
                Limit::Least(least) => format!("at least {least}"),
            };
            let mark = if ok { "" } else { "  <- to do" };
            table.push_str(&format!("  {patterns:<34} {rate:>6.1}  {limit}{mark}\n"));
        }
        table
    }

    /// A finding for each pattern beyond its limit.
    pub fn check(&self) -> Vec<Finding> {
        let wrong = self.rates().filter(|(.., ok)| !ok);
        wrong
            .map(|(patterns, rate, limit, _)| Finding {
                path: "the prose of the repository".to_owned(),
                line: 0,
                advice: format!(
                    "\"{patterns}\" {rate:.1} times in 10,000 words, limit {limit:?}: reword \
                     sentences (`cargo xtask words FILE…` counts)"
                ),
            })
            .collect()
    }
}

/// Occurrences of a pattern that begins and ends with a space, which neighbours may share.
fn overlapping(text: &str, pattern: &str) -> usize {
    let mut rest = text;
    let mut count = 0;
    while let Some(at) = rest.find(pattern) {
        count += 1;
        rest = &rest[at + pattern.len() - 1..];
    }
    count
}

/// Lines of Markdown that are too long; rows of tables and links cannot be wrapped.
pub(super) fn check_markdown(text: &str, findings: &mut super::Findings<'_>) {
    let mut fenced = false;
    for (line, content) in (1..).zip(text.lines()) {
        if content.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        let chars = content.chars().count();
        let unwrappable = fenced || content.starts_with('|') || !content.trim().contains(' ');
        if chars > MAX_MARKDOWN_CHARS && !unwrappable {
            let advice = format!("{chars} characters, at most {MAX_MARKDOWN_CHARS}: wrap it");
            findings.add(line, advice);
        }
    }
}

/// Names of tests that are too long to be read as a claim.
pub(super) fn check_test_names(text: &str, findings: &mut super::Findings<'_>) {
    let mut test = false;
    for (line, content) in (1..).zip(text.lines()) {
        let code = content.trim_start();
        if let Some(name) = code.strip_prefix("fn ").and_then(|rest| rest.split_once('(')) {
            if test && name.0.len() > MAX_TEST_NAME {
                let advice = format!(
                    "a test's name of {} characters, at most {MAX_TEST_NAME}: shorten the claim",
                    name.0.len()
                );
                findings.add(line, advice);
            }
            test = false;
        }
        test |= code == concat!("#[te", "st]");
    }
}

/// Subjects of commits since this rule exists; `None` if git or its history is missing.
pub fn check_subjects(root: &Path) -> Option<Vec<Finding>> {
    let git = |arguments: &[&str]| {
        let ran = Command::new("git").args(arguments).current_dir(root).output().ok()?;
        ran.status.success().then(|| String::from_utf8_lossy(&ran.stdout).into_owned())
    };
    let shallow = git(&["rev-parse", "--is-shallow-repository"])?;
    let added = git(&["log", "--diff-filter=A", "--format=%H", "--", SINCE])?;
    let first = added.lines().last().filter(|_| shallow.trim() == "false")?;
    let range = format!("{first}..HEAD");
    let subjects = git(&["log", "--no-merges", "--format=%h %s", "--ancestry-path", &range])?;
    let wrong = subjects.lines().filter_map(|line| {
        let (commit, subject) = line.split_once(' ')?;
        let advice = subject_advice(subject)?;
        Some(Finding { path: format!("commit {commit}"), line: 0, advice })
    });
    Some(wrong.collect())
}

/// Advice about a subject; `None` if it is `area: imperative` and short.
fn subject_advice(subject: &str) -> Option<String> {
    let chars = subject.chars().count();
    if chars > MAX_SUBJECT {
        return Some(format!("a subject of {chars} characters, at most {MAX_SUBJECT}"));
    }
    let area = |area: &str| {
        let part = |c: char| c.is_ascii_alphanumeric() || "-_/., ".contains(c);
        !area.is_empty() && area.len() <= 30 && area.chars().all(part)
    };
    let begins = |rest: &str| rest.chars().next().is_some_and(|c| !c.is_uppercase());
    match subject.split_once(": ") {
        Some((before, rest)) if area(before) && begins(rest) => None,
        _ if subject.starts_with("Revert \"") => None,
        _ => Some(format!("`{subject}`: write `area: imperative`, as in `bench: add --strict`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_prose_counts() {
        let rust = "//! If it `goes` on.\nlet x = where_();\n/// ```\n/// where\n/// ```\n";
        assert_eq!(prose("a.rs", rust), "if it on");
        assert_eq!(prose("a.md", "A, for\nexample `b`.\n"), "a for example");
        assert_eq!(prose("a.json", "{}"), "");
    }

    #[test]
    fn a_pattern_across_lines_and_beside_itself_counts() {
        let mut counts = Counts::default();
        counts.add("if if for example if");
        assert_eq!(counts.words, 5);
        let rate = |pattern: &str| counts.rates().find(|(name, ..)| name.contains(pattern));
        assert_eq!(rate("if").map(|(_, rate, ..)| rate), Some(6_000.0));
        assert_eq!(rate("for example").map(|(_, rate, ..)| rate), Some(2_000.0));
        assert!(counts.check().iter().any(|finding| finding.advice.contains("because")));
        assert!(!counts.check().iter().any(|finding| finding.advice.contains("where")));
    }

    #[test]
    fn subjects_name_an_area_and_an_action() {
        for good in ["bench: add --strict", "homa-sim, docs: name the RTO", "Revert \"x\""] {
            assert_eq!(subject_advice(good), None, "{good}");
        }
        let long = format!("bench: {}", "a".repeat(72));
        for bad in ["wip", "Names of peers", "bench: Add it", long.as_str()] {
            assert!(subject_advice(bad).is_some(), "{bad}");
        }
    }
}
