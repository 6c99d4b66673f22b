//! Plain comments in the code that carries decisions: a least share of its lines gives the reason
//! for a branch, as in the RFC 9002 code of quinn and s2n-quic.
//!
//! A line counts as a comment if it begins with `//` and is no documentation. Modules of tests do
//! not count. The number can be gamed, so that it stands beside a reader, not in place of one.
//!
//! Left out: comments behind code on the same line.

use super::Finding;
use super::source::without_tests;

/// Folders, and the least share of plain comments in their lines, in thousandths.
const FOLDERS: [(&str, usize); 2] =
    [("crates/homa-proto/src/", 30), ("crates/homa/src/engine/", 30)];

/// Lines and plain comments, by folder.
#[derive(Default)]
pub struct Shares([(usize, usize); FOLDERS.len()]);

impl Shares {
    /// Adds a source file.
    pub fn add(&mut self, path: &str, text: &str) {
        let is_test = path.ends_with("/tests.rs") || path.contains("/tests/");
        let source = path.ends_with(".rs") && !is_test;
        for ((lines, comments), (folder, _)) in self.0.iter_mut().zip(FOLDERS) {
            if source && path.starts_with(folder) {
                let (more_lines, more_comments) = counted(text);
                *lines += more_lines;
                *comments += more_comments;
            }
        }
    }

    /// A finding for each folder below its share.
    pub fn check(&self) -> Vec<Finding> {
        let folders = self.0.iter().zip(FOLDERS);
        let wrong =
            folders.filter(|((lines, comments), (_, least))| comments * 1000 < lines * least);
        wrong
            .map(|(&(lines, comments), (folder, least))| Finding {
                path: folder.to_owned(),
                line: 0,
                advice: format!(
                    "{comments} plain comments in {lines} lines, at least {least} in 1,000: give \
                     the reason at branches, for example the rule of the paper or of an RFC"
                ),
            })
            .collect()
    }
}

/// Lines and plain comments of a file, apart from its modules of tests.
fn counted(text: &str) -> (usize, usize) {
    let (mut lines, mut comments) = (0, 0);
    for line in without_tests(text) {
        let code = line.trim_start();
        lines += 1;
        let plain = code.starts_with("//") && !code.starts_with("///") && !code.starts_with("//!");
        comments += usize::from(plain);
    }
    (lines, comments)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "//! H.\n// A reason.\n/// D.\nfn f() {} // Behind.\n    // Another.\n";

    #[test]
    fn only_plain_comments_outside_of_tests_count() {
        assert_eq!(counted(FILE), (5, 2));
        let tests = "#[cfg(test)]\nmod tests {\n    // One.\n    fn g() {}\n}\n// Three.\n";
        assert_eq!(counted(&format!("{FILE}{tests}")), (6, 3));
        assert_eq!(counted("#[cfg(test)]\nmod tests;\nfn f() {}\n"), (1, 0));
        assert_eq!(counted("#[cfg(test)]\nfn seen() {}\n// Kept.\n"), (3, 1));
    }

    #[test]
    fn a_folder_with_too_few_comments_is_found() {
        let code = |comments: usize| "// A.\n".repeat(comments) + &"f();\n".repeat(100 - comments);
        let found = |path: &str, comments: usize| {
            let mut shares = Shares::default();
            shares.add(path, &code(comments));
            shares.check().iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let few = found("crates/homa-proto/src/a.rs", 2);
        assert_eq!(few.len(), 1, "{few:?}");
        assert!(few[0].starts_with("crates/homa-proto/src/: 2 plain comments in 100"), "{few:?}");
        assert!(found("crates/homa-proto/src/a.rs", 3).is_empty());
        for elsewhere in ["crates/homa-sim/src/a.rs", "crates/homa/src/engine/a/tests.rs"] {
            assert!(found(elsewhere, 0).is_empty(), "{elsewhere}");
        }
    }
}
