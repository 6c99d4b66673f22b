//! Checks of text: lengths, headers, forbidden words, `unsafe`, and what determinism forbids.
//!
//! Words this file must not contain are written in two halves.

use super::Findings;

const MAX_FILE_LINES: usize = 500;
const MAX_FUNCTION_LINES: usize = 70;
const MAX_LINE_CHARS: usize = 100;

/// Source files that may be longer, each with its reason.
const LONG_FILES: [(&str, &str); 0] = [];

/// Left in by accident, in any text.
const LEFTOVERS: [(&str, &str); 4] = [
    (concat!("<<<<", "<<<"), "settle the conflict of a merge"),
    (concat!(">>>>", ">>>"), "settle the conflict of a merge"),
    (concat!("TO", "DO"), "do it now, or open an issue"),
    (concat!("FIX", "ME"), "fix it now, or open an issue"),
];

/// Left in by accident, in Rust.
const RUST_LEFTOVERS: [(&str, &str); 4] = [
    (concat!("dbg", "!("), "remove the debugging print"),
    (concat!("todo", "!("), "write the code, or leave the item out"),
    (concat!("unimplemented", "!("), "write the code, or leave the item out"),
    (concat!("#[ign", "ore"), "make the test run everywhere, or remove it"),
];

/// Parts of paths that exist on one machine only.
const MACHINE_PATHS: [&str; 3] =
    [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("../sha", "red")];

/// The only places for code the compiler cannot check.
const UNSAFE_FOLDERS: [&str; 8] = [
    "crates/homa-bpf/src",
    "crates/homa/src/driver",
    "crates/homa/src/engine/probes.rs",
    "crates/homa/tests/common/kernel.rs",
    "crates/homa-testbed/",
    "crates/homa-capi/",
    "python/src/arrow.rs",
    "python/src/rpc/buffer.rs",
];

/// Crates whose result is a function of their inputs.
const DETERMINISTIC: [&str; 2] = ["crates/homa-proto/src/", "crates/homa-sim/src/"];

/// Rules for every text file.
pub(super) fn check_text(text: &str, findings: &mut Findings<'_>) {
    for (line, content) in (1..).zip(text.lines()) {
        for (word, advice) in LEFTOVERS {
            if has_word(content, word) {
                findings.add(line, format!("`{word}`: {advice}"));
            }
        }
        for path in MACHINE_PATHS {
            if content.contains(path) {
                findings.add(line, format!("`{path}` exists on one machine only: remove it"));
            }
        }
    }
}

/// Rules for Python; what ruff finds, the package's own tests say.
pub(super) fn check_python(text: &str, findings: &mut Findings<'_>) {
    if text.lines().count() > MAX_FILE_LINES {
        findings.add(0, format!("more than {MAX_FILE_LINES} lines: split it"));
    }
    let opens = |line: &str| line.starts_with("\"\"\"") || line.starts_with("# ");
    if !text.is_empty() && !text.lines().next().is_some_and(opens) {
        findings.add(1, "begin with a docstring: what it is, its invariants, what it leaves out");
    }
}

/// Rules for Rust.
pub(super) fn check_rust(text: &str, findings: &mut Findings<'_>) {
    let lines: Vec<&str> = text.lines().collect();
    let excused = LONG_FILES.iter().any(|(path, _)| *path == findings.path);
    if lines.len() > MAX_FILE_LINES && !excused {
        let advice = format!("{} lines, at most {MAX_FILE_LINES}: split it", lines.len());
        findings.add(0, advice);
    }
    if !lines.first().is_some_and(|line| line.starts_with("//!")) {
        findings
            .add(1, "begin with `//!`: what it is, its section, invariants, what it leaves out");
    }
    check_functions(&lines, findings);
    let unsafe_allowed = UNSAFE_FOLDERS.iter().any(|folder| findings.path.starts_with(folder));
    for (line, content) in (1..).zip(&lines) {
        let chars = content.chars().count();
        if chars > MAX_LINE_CHARS {
            findings.add(line, format!("{chars} characters, at most {MAX_LINE_CHARS}: wrap it"));
        }
        for (word, advice) in RUST_LEFTOVERS {
            if content.contains(word) {
                findings.add(line, format!("`{word}`: {advice}"));
            }
        }
        if leaves_crate(findings.path, content) {
            let advice = "a package lacks files outside of its crate: link their folder here";
            findings.add(line, advice);
        }
        if !unsafe_allowed && has_word(code_of(content), concat!("uns", "afe")) {
            findings
                .add(line, "code the compiler cannot check: move it to a driver or the testbed");
        }
    }
    if DETERMINISTIC.iter().any(|folder| findings.path.starts_with(folder)) {
        check_determinism(&lines, findings);
    }
}

/// Whether a line takes a module from a folder above the crate of the file at `path`.
fn leaves_crate(path: &str, line: &str) -> bool {
    let (Some((_, inside)), Some(to)) =
        (path.split_once("/src/"), line.trim_start().strip_prefix("#[path = \""))
    else {
        return false;
    };
    // From the file to the root of its crate.
    let folders = inside.matches('/').count() + 1;
    to.matches("../").count() > folders
}

/// The lines of a file without those of its modules of tests. As rustfmt guarantees, such a module
/// ends at the first closing brace in its column.
pub(super) fn without_tests(text: &str) -> Vec<&str> {
    let mut kept = Vec::new();
    let mut rest = text.lines().peekable();
    while let Some(line) = rest.next() {
        let code = line.trim_start();
        let indent = &line[..line.len() - code.len()];
        let next = rest.peek().map_or("", |next| next.trim_start());
        if code.starts_with("#[cfg(test)]") && next.starts_with("mod ") {
            let whole = next.ends_with(';');
            rest.by_ref().find(|line| whole || line.strip_prefix(indent) == Some("}"));
            continue;
        }
        kept.push(line);
    }
    kept
}

/// Functions end at the first closing brace in their own column, which rustfmt guarantees.
fn check_functions(lines: &[&str], findings: &mut Findings<'_>) {
    for (start, content) in lines.iter().enumerate() {
        let code = content.trim_start();
        let indent = &content[..content.len() - code.len()];
        if !starts_function(code) || code.ends_with('}') || code.ends_with(';') {
            continue;
        }
        let end = lines[start..].iter().position(|line| {
            line.strip_prefix(indent)
                .is_some_and(|rest| rest == "}" || rest.starts_with(')') && rest.ends_with(';'))
        });
        let length = end.map_or(0, |end| end + 1);
        if length > MAX_FUNCTION_LINES {
            let advice =
                format!("{length} lines, at most {MAX_FUNCTION_LINES}: split the function");
            findings.add(start + 1, advice);
        }
    }
}

/// True for a line that opens a function: `fn` after nothing but qualifiers.
fn starts_function(code: &str) -> bool {
    let qualifiers = ["const", "async", "extern", "\"C\"", concat!("uns", "afe")];
    code.split_whitespace()
        .find(|word| !(word.starts_with("pub") || qualifiers.contains(word)))
        .is_some_and(|word| word == "fn")
}

fn check_determinism(lines: &[&str], findings: &mut Findings<'_>) {
    // The protocol's own tables hash with a fixed seed; only the standard ones draw theirs anew.
    let own_tables = lines.iter().any(|line| line.contains("hashbrown::"));
    let clocks = ["Instant", "SystemTime", "std::time", "thread_rng"];
    for (line, content) in (1..).zip(lines) {
        let code = code_of(content);
        for word in clocks {
            if has_word(code, word) {
                findings.add(line, format!("`{word}`: take time and seeds as arguments here"));
            }
        }
        for word in ["HashMap", "HashSet"] {
            let standard = code.contains("std::collections") || !own_tables;
            if has_word(code, word) && standard {
                let advice = "its order changes from run to run: use a BTreeMap or a dense index";
                findings.add(line, format!("`{word}`: {advice}"));
            }
        }
    }
}

/// The line without a comment at its end. (A `//` in a string ends it too.)
fn code_of(line: &str) -> &str {
    line.split_once("//").map_or(line, |(code, _)| code)
}

/// True when `word` occurs and is no part of a longer name.
pub(super) fn has_word(text: &str, word: &str) -> bool {
    let in_name = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        !before.is_some_and(in_name) && !after.is_some_and(in_name)
    })
}
