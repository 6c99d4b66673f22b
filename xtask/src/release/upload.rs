//! Lists the steps before an upload that a person has to do, because no check can know the
//! addresses, dates and names that the sources still lack. It neither fails nor changes anything.
//!
//! Left out: the upload itself, and what CONTRIBUTING.md says about it.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

use super::Outcome;
use crate::package::VERSION;
use crate::process::output;

/// Says what is left to a person, or that nothing is.
pub(super) fn left(repository: &Path) -> io::Result<Vec<Outcome>> {
    let read = |path: &str| fs::read_to_string(repository.join(path));
    let mut git = Command::new("git");
    git.args(["tag", "--points-at", "HEAD"]).current_dir(repository);
    let sources = ReleaseSources {
        workspace: &read("Cargo.toml")?,
        python: &read("python/pyproject.toml")?,
        changes: &read("CHANGELOG.md")?,
        // Sources that were unpacked from an archive have no tags.
        tags: &output(&mut git).unwrap_or_default(),
        maintainer: std::env::var("DEBEMAIL").is_ok_and(|address| !address.is_empty()),
    };
    let left: Vec<_> = sources.left().into_iter().map(Outcome::ForPerson).collect();
    let nothing = || vec![Outcome::Passed("addresses, version, tag and maintainer are set".into())];
    Ok(if left.is_empty() { nothing() } else { left })
}

/// What decides about it.
struct ReleaseSources<'a> {
    /// The manifest of the workspace.
    workspace: &'a str,
    /// The manifest of the Python package.
    python: &'a str,
    /// The list of changes.
    changes: &'a str,
    /// Tags of this commit, one a line.
    tags: &'a str,
    /// Whether the environment names the maintainer of Debian packages.
    maintainer: bool,
}

impl ReleaseSources<'_> {
    fn left(&self) -> Vec<String> {
        let has = |text: &str, start: &str| text.lines().any(|line| line.starts_with(start));
        let tag = format!("v{VERSION}");
        let steps = [
            (
                has(self.workspace, "repository = "),
                "set `repository` in [workspace.package] of Cargo.toml, and let each crate inherit \
                 it (`repository.workspace = true`): the sources have no public address yet"
                    .to_owned(),
            ),
            (
                has(self.python, "[project.urls]"),
                "set the same address in python/pyproject.toml ([project.urls])".to_owned(),
            ),
            (
                has(self.changes, &format!("## [{VERSION}] - ")),
                format!("give the changes in CHANGELOG.md their version and date: {VERSION}"),
            ),
            (
                self.tags.lines().any(|name| name == tag),
                format!("tag the commit: git tag --annotate {tag}"),
            ),
            (
                self.maintainer,
                "name the maintainer of the Debian packages before they are built and checked: \
                 DEBFULLNAME and DEBEMAIL"
                    .to_owned(),
            ),
        ];
        steps.into_iter().filter(|(done, _)| !done).map(|(_, step)| step).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_sources_lack_is_left_to_a_person() {
        let changes = format!("## [Unreleased]\n\n## [{VERSION}] - 2027-01-15\n");
        let tags = format!("nightly\nv{VERSION}\n");
        let all = || ReleaseSources {
            workspace: "[workspace.package]\nrepository = \"https://example.org/homa\"\n",
            python: "[project.urls]\nRepository = \"https://example.org/homa\"\n",
            changes: &changes,
            tags: &tags,
            maintainer: true,
        };
        assert!(all().left().is_empty(), "{:?}", all().left());
        for (lacks, step) in [
            (ReleaseSources { workspace: "[workspace.package]\n", ..all() }, "`repository`"),
            (ReleaseSources { python: "[project]\n", ..all() }, "[project.urls]"),
            (ReleaseSources { changes: "## [Unreleased]\n", ..all() }, "CHANGELOG.md"),
            (ReleaseSources { tags: "v0.0.1\n", ..all() }, "tag the commit"),
            (ReleaseSources { maintainer: false, ..all() }, "DEBEMAIL"),
        ] {
            let left = lacks.left();
            assert!(left.len() == 1 && left[0].contains(step), "{step}: {left:?}");
        }
    }
}
