//! Style and structure, checked by reading the repository: rules that rustfmt and clippy do not
//! have.
//!
//! Each finding names a file, a line and what to do. The checks judge lines, not syntax trees; if
//! that is too coarse, the list of the check has an exception with its reason.
//!
//! Left out: everything a compiler, rustfmt or clippy reports.

mod comments;
mod crates;
mod names;
mod source;
mod walls;
mod words;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Files without which a reader, a packager or a lawyer is lost.
const REQUIRED: [&str; 6] =
    ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE", ".ci/run"];

/// Largest file that is no text, bytes.
const MAX_BINARY: usize = 400_000;

/// Folders that are not part of the sources. In a linked worktree `.git` is a file.
const SKIPPED_FOLDERS: [&str; 2] = [".git", "target"];

/// Something to be changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Path from the root of the repository, with `/`.
    path: String,
    /// Line, from 1; 0 when it concerns the whole file.
    line: usize,
    /// The mistake and the remedy.
    advice: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.advice),
            line => write!(f, "{}:{line}: {}", self.path, self.advice),
        }
    }
}

/// Collects the findings in one file.
struct Findings<'a> {
    path: &'a str,
    list: Vec<Finding>,
}

impl Findings<'_> {
    fn add(&mut self, line: usize, advice: impl Into<String>) {
        self.list.push(Finding { path: self.path.to_owned(), line, advice: advice.into() });
    }
}

/// All findings in the repository at `root`, in the order of their files.
pub fn check(root: &Path) -> io::Result<Vec<Finding>> {
    let paths = files(root)?;
    let mut findings = Vec::new();
    let (mut counts, mut definitions) = (words::Counts::default(), names::Definitions::default());
    let (mut shares, mut walls) = (comments::Shares::default(), walls::Walls::default());
    for path in &paths {
        let content = std::fs::read(root.join(path))?;
        findings.extend(check_file(path, &content));
        if let Ok(text) = std::str::from_utf8(&content) {
            let prose = words::prose(path, text);
            counts.add(&prose);
            definitions.add(path, text);
            shares.add(path, text);
            walls.add(path, text, &prose);
        }
    }
    findings.extend(counts.check());
    findings.extend(definitions.check());
    findings.extend(shares.check());
    findings.extend(walls.check());
    findings.extend(walls.lost());
    match words::check_subjects(root) {
        Some(wrong) => findings.extend(wrong),
        None => println!("tidy: subjects of commits are not checked: there is no git history"),
    }
    for required in REQUIRED {
        if !paths.iter().any(|path| path == required) {
            findings.push(Finding {
                path: required.to_owned(),
                line: 0,
                advice: "is missing: write it".to_owned(),
            });
        }
    }
    Ok(findings)
}

/// The counts of words in the prose of some files, or of the whole repository, as a table.
pub fn words(root: &Path, paths: &[&str]) -> io::Result<String> {
    let all = files(root)?;
    let wanted = |path: &&String| paths.is_empty() || paths.iter().any(|p| path.starts_with(p));
    let mut counts = words::Counts::default();
    for path in all.iter().filter(wanted) {
        if let Ok(text) = std::fs::read_to_string(root.join(path)) {
            counts.add(&words::prose(path, &text));
        }
    }
    Ok(counts.table())
}

/// Everything that is wrong with one file, named by its path from the root.
fn check_file(path: &str, content: &[u8]) -> Vec<Finding> {
    let mut findings = Findings { path, list: Vec::new() };
    match std::str::from_utf8(content) {
        Ok(text) => {
            source::check_text(text, &mut findings);
            if path.ends_with(".rs") && !path.contains("/generated/") {
                source::check_rust(text, &mut findings);
                words::check_test_names(text, &mut findings);
            }
            if path.ends_with(".md") {
                words::check_markdown(text, &mut findings);
            }
            if path.ends_with(".py") || path.ends_with(".pyi") {
                source::check_python(text, &mut findings);
            }
            if path.ends_with("Cargo.toml") {
                crates::check_manifest(text, &mut findings);
            }
        }
        Err(_) if content.len() > MAX_BINARY => findings.add(
            0,
            format!("{} bytes of no text: generate it, or keep it elsewhere", content.len()),
        ),
        Err(_) => {}
    }
    findings.list
}

/// The repository's files, sorted: those that git tracks, so that a trace or a folder of results
/// beside them does not count, and a new file counts once it is added. Without
/// git, as in an unpacked archive, everything.
pub(crate) fn files(root: &Path) -> io::Result<Vec<String>> {
    let mut paths = tracked_files(root).unwrap_or_default();
    if paths.is_empty() {
        collect_files(root, root, &mut paths)?;
    }
    paths.sort();
    Ok(paths)
}

/// Existing files below `root` that git tracks; none if git or its repository is missing.
fn tracked_files(root: &Path) -> Option<Vec<String>> {
    let listed = Command::new("git").args(["ls-files", "-z"]).current_dir(root).output().ok()?;
    let list = String::from_utf8(listed.stdout).ok().filter(|_| listed.status.success())?;
    let there = list.split_terminator('\0').filter(|path| root.join(path).is_file());
    Some(there.map(str::to_owned).collect())
}

fn collect_files(root: &Path, folder: &Path, paths: &mut Vec<String>) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path: PathBuf = entry.path();
        let kind = entry.file_type()?;
        if SKIPPED_FOLDERS.contains(&name.as_str()) {
            continue;
        }
        if kind.is_dir() {
            collect_files(root, &path, paths)?;
        } else if kind.is_file()
            && let Ok(relative) = path.strip_prefix(root)
        {
            let parts: Vec<_> = relative.iter().map(|part| part.to_string_lossy()).collect();
            paths.push(parts.join("/"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
