//! One name for one thing: a top-level type name that three or more modules of the workspace define
//! is an entry of [`SHARED`], with the reason why it stays.

use std::collections::BTreeMap;

use super::Finding;

/// From this many definitions on, a name needs a reason.
const MANY: usize = 3;

/// Names that several modules share on purpose.
const SHARED: [(&str, &str); 4] = [
    ("Args", "each command of the program has its own; clap's convention"),
    ("Config", "the public options of a crate or a part, always qualified by its module"),
    ("Endpoint", "the protocol's, DESIGN's word; tonic's; Python's, which wraps an engine"),
    ("Server", "what serves in each interface: homa's, tower's, tonic's"),
];

/// Most names that may be shared.
const MOST_SHARED: usize = 25;

/// The definitions of each top-level type.
#[derive(Default)]
pub struct Definitions(BTreeMap<String, Vec<String>>);

impl Definitions {
    /// Adds a source file. Types inside a function or a module block are not top-level.
    pub fn add(&mut self, path: &str, text: &str) {
        let hidden = |path: &str| path.contains("/tests/") || path.contains("/benches/");
        if !path.ends_with(".rs") || hidden(path) || path.starts_with("fuzz/") {
            return;
        }
        for (line, content) in (1..).zip(text.lines()) {
            if let Some(name) = defined(content) {
                self.0.entry(name.to_owned()).or_default().push(format!("{path}:{line}"));
            }
        }
    }

    /// Names with many meanings and no reason, and reasons for names without.
    pub fn check(&self) -> Vec<Finding> {
        let shared = |name: &str| SHARED.iter().any(|(shared, _)| *shared == name);
        let finding = |name: &str, advice: String| Finding {
            path: format!("type `{name}`"),
            line: 0,
            advice,
        };
        let many = self.0.iter().filter(|(name, at)| at.len() >= MANY && !shared(name));
        let mut findings: Vec<Finding> = many
            .map(|(name, at)| {
                let places = at.join(", ");
                finding(name, format!("{} meanings: rename some of {places}", at.len()))
            })
            .collect();
        let few = |name: &str| self.0.get(name).is_none_or(|at| at.len() < MANY);
        for (name, _) in SHARED.iter().filter(|(name, _)| few(name)) {
            findings.push(finding(name, "is no longer shared: remove its reason".to_owned()));
        }
        if SHARED.len() > MOST_SHARED {
            let advice = format!("{} shared names, at most {MOST_SHARED}", SHARED.len());
            findings.push(finding("SHARED", advice));
        }
        findings
    }
}

/// The type that a line at the left margin defines.
fn defined(line: &str) -> Option<&str> {
    let mut code = line;
    if let Some(rest) = code.strip_prefix("pub") {
        let rest = rest
            .strip_prefix('(')
            .and_then(|rest| rest.split_once(')'))
            .map_or(rest, |(_, rest)| rest);
        code = rest.trim_start();
    }
    let kinds = ["struct ", "enum ", "trait ", "union "];
    let rest = kinds.iter().find_map(|kind| code.strip_prefix(kind))?;
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    Some(&rest[..end]).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_three_meanings_needs_a_reason() {
        let mut definitions = Definitions::default();
        for path in ["a.rs", "b.rs", "c.rs"] {
            definitions.add(path, "pub(crate) struct Entry<T> {}\nenum One {}\n");
        }
        definitions.add("d.rs", "    struct Entry;\n");
        definitions.add("tests/e.rs", "struct One;\n");
        let said: Vec<String> = definitions.check().iter().map(ToString::to_string).collect();
        assert!(said[0].starts_with("type `Entry`: 3 meanings: rename some of a.rs:1"), "{said:?}");
        assert!(!said.iter().any(|text| text.contains("Entry`: 4")), "{said:?}");
    }

    #[test]
    fn every_kind_of_type_is_seen() {
        for line in ["pub struct A;", "enum A {", "pub(super) trait A: B {", "union A {"] {
            assert_eq!(defined(line), Some("A"), "{line}");
        }
        for line in ["impl A {", "    struct A;", "fn a() {", "// struct A"] {
            assert_eq!(defined(line), None, "{line}");
        }
    }
}
