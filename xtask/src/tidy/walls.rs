//! Walls between the parts of the protocol: fields that other modules may touch, imports that form
//! a circle, modules that name a scheme, and the table that leads from a rule of the paper to its
//! function.
//!
//! Each number has a limit, so that it does not grow back. They count lines and paths, not syntax
//! trees.
//!
//! Left out: private fields, which the compiler guards.

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use super::source::without_tests;

const PROTO: &str = "crates/homa-proto/src/";

/// The structures whose fields are counted together, and the most that are visible in the crate.
const STRUCTURES: [(&str, &str); 5] = [
    ("endpoint.rs", "Endpoint"),
    ("rpc/state.rs", "Rpc"),
    ("receive/message.rs", "IncomingMessage"),
    ("peer.rs", "Peer"),
    ("peer.rs", "PeerCold"),
];
const MOST_FIELDS: usize = 40;

/// Most files of the protocol that import each other in a circle.
const MOST_IN_CIRCLE: usize = 6;

/// A scheme that stands for all: most files of the simulator and the lab, beside its own, that name
/// it.
const SCHEME: &str = "phost";
const MOST_THAT_NAME_IT: usize = 4;

/// Documents and the most words of their prose.
const WORDS: [(&str, usize); 2] = [("ARCHITECTURE.md", 2_000), ("README.md", 1_000)];

/// The counted files.
#[derive(Default)]
pub struct Walls {
    /// The protocol's files without tests, by their path in its `src`.
    protocol: BTreeMap<String, String>,
    name_the_scheme: Vec<String>,
    words: BTreeMap<String, usize>,
}

impl Walls {
    /// Adds a file; `prose`: its words.
    pub fn add(&mut self, path: &str, text: &str, prose: &str) {
        if WORDS.iter().any(|(document, _)| *document == path) {
            self.words.insert(path.to_owned(), prose.split(' ').count());
        }
        let is_test = path.ends_with("/tests.rs") || path.contains("/tests/");
        if !path.ends_with(".rs") || is_test {
            return;
        }
        let text = without_tests(text).join("\n");
        if let Some(own) = path.strip_prefix(PROTO) {
            self.protocol.insert(own.to_owned(), text);
            return;
        }
        let counts = ["crates/homa-sim/src/", "crates/homa-lab/src/"];
        let counts = counts.iter().any(|folder| path.starts_with(folder));
        let text = text.to_lowercase();
        if counts && !path.contains(SCHEME) && super::source::has_word(&text, SCHEME) {
            self.name_the_scheme.push(path.to_owned());
        }
    }

    /// A finding for each number beyond its limit, and each row of the table that leads nowhere.
    pub fn check(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut add = |path: &str, advice: String| {
            findings.push(Finding { path: path.to_owned(), line: 0, advice });
        };
        let fields: Vec<String> = STRUCTURES.iter().flat_map(|at| self.visible(at)).collect();
        if fields.len() > MOST_FIELDS {
            let all = fields.join(", ");
            add(
                PROTO,
                format!(
                    "{} fields are visible in the crate, at most {MOST_FIELDS}: make some private \
                     and give them methods ({all})",
                    fields.len()
                ),
            );
        }
        let circle = largest_circle(&imports(&self.protocol));
        if circle.len() > MOST_IN_CIRCLE {
            let advice = format!(
                "{} files import each other, at most {MOST_IN_CIRCLE}: {}",
                circle.len(),
                circle.join(", ")
            );
            add(PROTO, advice);
        }
        if self.name_the_scheme.len() > MOST_THAT_NAME_IT {
            let files = self.name_the_scheme.join(", ");
            let advice = format!("named in more than {MOST_THAT_NAME_IT} files: {files}");
            add(SCHEME, advice);
        }
        for (document, most) in WORDS {
            let words = self.words.get(document).copied().unwrap_or_default();
            if words > most {
                add(document, format!("{words} words, at most {most}: shorten it"));
            }
        }
        for (file, function) in self.rules() {
            let opens = format!("fn {function}");
            let text = self.protocol.get(&file).map_or("", String::as_str);
            let found = text
                .match_indices(&opens)
                .any(|(at, _)| text[at + opens.len()..].starts_with(['(', '<']));
            if !found {
                let advice = format!("the table of rules names `{function}` in {file}: no such");
                add("crates/homa-proto/src/lib.rs", advice);
            }
        }
        findings
    }

    /// A finding for each thing that is counted and was not found, because a count of nothing is
    /// within every limit.
    pub fn lost(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut add = |path: &str, what: String| {
            let advice =
                format!("{what} is not there: correct the list in xtask/src/tidy/walls.rs");
            findings.push(Finding { path: path.to_owned(), line: 0, advice });
        };
        for (file, name) in STRUCTURES {
            let text = self.protocol.get(file).map_or("", String::as_str);
            if !text.contains(&format!("struct {name} {{")) {
                add(PROTO, format!("`{name}` in {file}"));
            }
        }
        if self.rules().is_empty() {
            add(PROTO, "the table of rules in lib.rs".into());
        }
        for (document, _) in WORDS.iter().filter(|(name, _)| !self.words.contains_key(*name)) {
            add(document, "the document".into());
        }
        findings
    }

    /// The fields of a structure that the crate sees.
    fn visible(&self, (file, name): &(&str, &str)) -> Vec<String> {
        let text = self.protocol.get(*file).map_or("", String::as_str);
        let opens = format!("struct {name} {{");
        let body = text.split_once(&opens).map_or("", |(_, rest)| rest);
        let body = body.lines().take_while(|line| *line != "}").map(str::trim_start);
        let field = |line: &str| {
            let rest = line.strip_prefix("pub(crate) ").or_else(|| line.strip_prefix("pub "))?;
            Some(format!("{name}.{}", rest.split_once(':')?.0))
        };
        body.filter_map(field).collect()
    }

    /// The files and functions in the table of the paper's rules.
    fn rules(&self) -> Vec<(String, String)> {
        let text = self.protocol.get("lib.rs").map_or("", String::as_str);
        let rows = text.lines().filter_map(|line| line.strip_prefix("//! | §"));
        let pair = |row: &str| {
            let parts: Vec<&str> = row.split('`').collect();
            Some((parts.get(1)?.to_string(), parts.get(3)?.to_string()))
        };
        rows.filter_map(pair).collect()
    }
}

/// The files that each file imports from.
fn imports(files: &BTreeMap<String, String>) -> BTreeMap<String, BTreeSet<String>> {
    let of = |(file, text): (&String, &String)| {
        let mut to = BTreeSet::new();
        for statement in text.split(';').filter_map(use_of) {
            for path in expand(&statement) {
                to.extend(file_of(files, file, &path).filter(|to| to != file));
            }
        }
        (file.clone(), to)
    };
    files.iter().map(of).collect()
}

/// The path of the `use` at the end of `code`, without blanks. Re-exports do not count.
fn use_of(code: &str) -> Option<String> {
    let (before, path) = code.rsplit_once("use ")?;
    let begins = before.is_empty() || before.ends_with(['\n', ' ']);
    let public = before.lines().last().is_some_and(|line| line.trim_start().starts_with("pub"));
    let path: String = path.chars().filter(|c| !c.is_whitespace()).collect();
    let own = path.starts_with("crate::") || path.starts_with("super::");
    (begins && !public && own).then_some(path)
}

/// The single paths of `a::{b, c::{d, e}}`.
fn expand(path: &str) -> Vec<String> {
    let Some((before, inside)) = path.split_once('{') else { return vec![path.to_owned()] };
    let inside = inside.strip_suffix('}').unwrap_or(inside);
    let (mut depth, mut parts, mut part) = (0, Vec::new(), String::new());
    for c in inside.chars() {
        match c {
            ',' if depth == 0 => parts.push(std::mem::take(&mut part)),
            c => {
                depth += i32::from(c == '{') - i32::from(c == '}');
                part.push(c);
            }
        }
    }
    parts.push(part);
    let parts = parts.iter().filter(|part| !part.is_empty());
    parts.flat_map(|part| expand(&format!("{before}{part}"))).collect()
}

/// The file of the module that a path in `file` names.
fn file_of(files: &BTreeMap<String, String>, file: &str, path: &str) -> Option<String> {
    let mut at: Vec<&str> = file.trim_end_matches(".rs").split('/').collect();
    if at.last() == Some(&"mod") || at == ["lib"] {
        at.pop();
    }
    let mut parts = path.split("::").peekable();
    while let Some(part) = parts.next_if(|part| ["crate", "super", "self"].contains(part)) {
        match part {
            "crate" => at.clear(),
            "super" => {
                at.pop();
            }
            _ => {}
        }
    }
    at.extend(parts);
    // The longest part of the path that is a module; the rest names an item of it.
    (1..=at.len()).rev().find_map(|n| {
        let module = at[..n].join("/");
        let names = [format!("{module}.rs"), format!("{module}/mod.rs")];
        names.into_iter().find(|name| files.contains_key(name))
    })
}

/// The largest set of files that all reach each other by imports.
fn largest_circle(imports: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let reached: BTreeMap<&str, BTreeSet<&str>> = imports
        .keys()
        .map(|from| {
            let (mut seen, mut next) = (BTreeSet::new(), vec![from.as_str()]);
            while let Some(file) = next.pop() {
                let more = imports.get(file).into_iter().flatten().map(String::as_str);
                next.extend(more.filter(|file| seen.insert(*file)));
            }
            (from.as_str(), seen)
        })
        .collect();
    let circle = |(from, to): (&&str, &BTreeSet<&str>)| -> Vec<String> {
        let back = |file: &&&str| reached.get(*file).is_some_and(|back| back.contains(from));
        to.iter().filter(back).map(|file| (*file).to_owned()).collect()
    };
    reached.iter().map(circle).max_by_key(Vec::len).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A finding about some files of the protocol.
    fn said(files: &[(&str, &str)]) -> Vec<String> {
        let mut walls = Walls::default();
        for (file, text) in files {
            walls.add(&format!("{PROTO}{file}"), text, "");
        }
        walls.check().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn fields_that_the_crate_sees_are_counted() {
        let fields = |n: usize| {
            let visible: String = (0..n).map(|n| format!("    pub(crate) f{n}: u8,\n")).collect();
            format!("pub struct Endpoint {{\n{visible}    own: u8,\n}}\n")
        };
        assert_eq!(said(&[("endpoint.rs", &fields(MOST_FIELDS))]), [""; 0]);
        let many = said(&[("endpoint.rs", &fields(MOST_FIELDS + 1))]);
        assert!(many.len() == 1 && many[0].contains("41 fields"), "{many:?}");
    }

    #[test]
    fn files_that_import_each_other_are_found() {
        let ring: Vec<(String, String)> = (0..7)
            .map(|n| {
                (format!("m{n}.rs"), format!("use crate::{{a, m{}::{{X, Y}}}};\n", (n + 1) % 7))
            })
            .collect();
        let files: Vec<(&str, &str)> =
            ring.iter().map(|(file, text)| (file.as_str(), text.as_str())).collect();
        let found = said(&files);
        assert!(found.len() == 1 && found[0].contains("7 files import each other"), "{found:?}");
        assert_eq!(said(&files[..6]), [""; 0], "the last one closed the circle");
        let folders = [("a/mod.rs", "use super::b::c;\n"), ("b/c.rs", "use crate::a::X;\n")];
        let files = folders.iter().map(|(f, t)| ((*f).to_owned(), (*t).to_owned())).collect();
        assert_eq!(largest_circle(&imports(&files)), ["a/mod.rs", "b/c.rs"]);
    }

    #[test]
    fn a_rule_whose_function_is_gone_is_found() {
        let table = "//! | §3.2 | SRPT | `send/srpt.rs` (`shortest_first`) |\n";
        let code = |name: &str| format!("fn {name}(a: u32) {{}}\n");
        let with = |code: &str| said(&[("lib.rs", table), ("send/srpt.rs", code)]);
        assert_eq!(with(&code("shortest_first")), [""; 0]);
        let gone = with(&code("shortest_first_of"));
        assert!(
            gone.len() == 1 && gone[0].contains("`shortest_first` in send/srpt.rs"),
            "{gone:?}"
        );
    }

    #[test]
    fn files_that_name_the_scheme_are_counted_without_their_tests() {
        let mut walls = Walls::default();
        let tests = "#[cfg(test)]\nmod tests {\n    // pHost\n}\n";
        for file in ["a", "b", "c", "d", "phost"] {
            walls.add(&format!("crates/homa-sim/src/{file}.rs"), "// pHost\n", "");
            walls.add(&format!("crates/homa-lab/src/{file}.rs"), tests, "");
        }
        assert!(walls.check().is_empty());
        walls.add("crates/homa-lab/src/e.rs", "// pHost\n", "");
        assert_eq!(walls.check().len(), 1);
    }
}
