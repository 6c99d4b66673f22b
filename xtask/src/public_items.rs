//! `cargo xtask public-items`: the documented items of each library, as rustdoc lists them, beside
//! the pinned list `docs/public-items.txt`. An item that appears or disappears is a change for
//! users, so the list changes in the same commit.
//!
//! Reads `target/doc/<crate>/all.html`, which `cargo doc` writes. Left out: methods and fields,
//! which that page does not list, and items behind features that are off by default.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::{fs, io};

use crate::process::cargo;

/// The folders of the libraries whose items users can name.
const LIBRARIES: [&str; 7] =
    ["homa", "homa-proto", "homa-workload", "homa-sim", "homa-lab", "homa-testbed", "homa-bpf"];

const LIST: &str = "docs/public-items.txt";

/// With `write`, writes the list; otherwise compares it with the code and fails if they differ.
pub fn run(repository: &Path, write: bool) -> ExitCode {
    match list(repository).and_then(|found| pinned(repository, &found, write)) {
        Ok(changes) if changes.is_empty() => ExitCode::SUCCESS,
        Ok(changes) => {
            println!("{changes}{LIST} differs: run `cargo xtask public-items --write`, commit it,");
            println!("and add the change to CHANGELOG.md");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("cannot list the public items: {error}");
            ExitCode::from(2)
        }
    }
}

/// Writes the list, or says how it differs.
fn pinned(repository: &Path, found: &str, write: bool) -> io::Result<String> {
    let path = repository.join(LIST);
    if write {
        fs::write(path, found)?;
        return Ok(String::new());
    }
    Ok(difference(&fs::read_to_string(path)?, found))
}

/// Documents the libraries and lists their items, one a line, by library.
fn list(repository: &Path) -> io::Result<String> {
    let folder = crate::target(repository).join("doc");
    let mut command = cargo(repository);
    command.args(["doc", "--quiet", "--no-deps"]);
    for library in LIBRARIES {
        command.args(["--package", &library.replacen("homa", "homa-rpc", 1)]);
    }
    if !command.status()?.success() {
        return Err(io::Error::other("cargo doc failed"));
    }
    let mut all = String::new();
    for library in LIBRARIES {
        let name = library.replace('-', "_");
        let page = fs::read_to_string(folder.join(&name).join("all.html"))?;
        for item in items(&page) {
            let _ = writeln!(all, "{name}::{item}");
        }
    }
    Ok(all)
}

/// The items that a page of rustdoc lists, sorted, each with its kind: `Client (struct)`.
fn items(page: &str) -> Vec<String> {
    let entries = page.split("<li><a href=\"").skip(1);
    let mut found: Vec<String> = entries.filter_map(item).collect();
    found.sort();
    found
}

/// The item of a link such as `metrics/struct.Metrics.html">metrics::Metrics</a>`.
fn item(link: &str) -> Option<String> {
    let (target, rest) = link.split_once("\">")?;
    // The table of contents of the page.
    if target.starts_with('#') {
        return None;
    }
    let (path, _) = rest.split_once("</a>")?;
    let kind = target.rsplit('/').next()?.split('.').next()?;
    Some(format!("{path} ({kind})"))
}

/// The lines that only one of two lists has, with `-` for the pinned one and `+` for the code.
fn difference(pinned: &str, found: &str) -> String {
    let only = |mark: char, of: &str, than: &str| {
        let lines = of.lines().filter(|line| !than.lines().any(|other| other == *line));
        lines.fold(String::new(), |text, line| format!("{text}{mark} {line}\n"))
    };
    only('-', pinned, found) + &only('+', found, pinned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_read_from_a_page_of_rustdoc() {
        let page = "<li><a href=\"#structs\" title=\"Structs\">Structs</a></li>\
                    <ul><li><a href=\"pacer/struct.Link.html\">pacer::Link</a></li>\
                    <li><a href=\"struct.Client.html\">Client</a></li></ul>";
        assert_eq!(items(page), ["Client (struct)", "pacer::Link (struct)"]);
    }

    #[test]
    fn an_item_that_came_or_went_is_named() {
        let found = "homa::Client (struct)\nhoma::Server (struct)\n";
        assert_eq!(difference(found, found), "");
        let pinned = "homa::Client (struct)\nhoma::Gone (enum)\n";
        let named = "- homa::Gone (enum)\n+ homa::Server (struct)\n";
        assert_eq!(difference(pinned, found), named);
    }
}
