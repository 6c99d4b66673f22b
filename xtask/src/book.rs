//! `cargo xtask book`: the documentation as a web site, by mdBook. Its summary names every page,
//! every link leads somewhere, and every file that the map or a decision names exists, which are
//! tests that need no mdBook.
//!
//! Left out: the snippets. Those in Rust are documentation tests of the crate `homa`; those in
//! Python and C are run by the tests of the program.

use std::path::Path;
use std::process::{Command, ExitCode};

/// Builds the site into `target/book`.
pub fn run(root: &Path) -> ExitCode {
    let to = root.join("target/book");
    let built =
        Command::new("mdbook").arg("build").arg(root.join("docs")).arg("-d").arg(&to).status();
    match built {
        Ok(status) if status.success() => {
            println!("open {}", to.join("index.html").display());
            ExitCode::SUCCESS
        }
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("cannot run mdbook ({error}): install it with `cargo install mdbook`");
            ExitCode::from(2)
        }
    }
}

/// What a page links to: targets of `[text](target)` outside code.
#[cfg(test)]
fn links(page: &str) -> Vec<String> {
    let (mut found, mut fenced) = (Vec::new(), false);
    for line in page.lines() {
        if line.starts_with("```") {
            fenced = !fenced;
        }
        if fenced {
            continue;
        }
        let prose: Vec<&str> = line.split('`').step_by(2).collect();
        let prose = prose.join("x");
        for rest in prose.split("](").skip(1) {
            if let Some((target, _)) = rest.split_once(')') {
                found.push(target.to_owned());
            }
        }
    }
    found
}

/// A heading as the end of an address, as GitHub and mdBook make it.
#[cfg(test)]
fn anchor(heading: &str) -> String {
    let kept = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = kept.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;

    fn pages(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                pages(&path, found);
            } else if path.extension().is_some_and(|ending| ending == "md") {
                found.push(path);
            }
        }
    }

    #[test]
    fn the_summary_names_every_page() {
        let docs = crate::repository().join("docs");
        let mut all = Vec::new();
        pages(&docs, &mut all);
        let summary = docs.join("SUMMARY.md");
        let named: Vec<PathBuf> = links(&fs::read_to_string(&summary).unwrap())
            .iter()
            .map(|target| docs.join(target))
            .collect();
        for page in all.iter().filter(|page| **page != summary) {
            assert!(named.contains(page), "docs/SUMMARY.md lacks {}", page.display());
        }
        for page in &named {
            assert!(all.contains(page), "docs/SUMMARY.md names {}", page.display());
        }
    }

    #[test]
    fn every_link_of_a_page_leads_somewhere() {
        let root = crate::repository();
        let mut all = vec![root.join("README.md"), root.join("ARCHITECTURE.md")];
        pages(&root.join("docs"), &mut all);
        let mut lost = Vec::new();
        for page in &all {
            let text = fs::read_to_string(page).unwrap();
            let inside = |link: &String| !link.contains("://") && !link.starts_with("mailto:");
            for link in links(&text).into_iter().filter(inside) {
                let (path, part) = link.split_once('#').unwrap_or((&link, ""));
                let target = match path {
                    "" => page.clone(),
                    path => page.parent().unwrap().join(path),
                };
                let there = match fs::read_to_string(&target) {
                    _ if part.is_empty() => target.exists(),
                    Ok(text) => text.lines().any(|l| l.starts_with('#') && anchor(l) == part),
                    Err(_) => false,
                };
                if !there {
                    lost.push(format!("{}: {link}", page.display()));
                }
            }
        }
        assert!(lost.is_empty(), "links that lead nowhere:\n{}", lost.join("\n"));
    }

    /// Files and folders that a line names between backquotes. Words in capitals are placeholders.
    fn named_files(line: &str) -> impl Iterator<Item = &str> {
        let code = line.split('`').skip(1).step_by(2);
        code.filter(|name| name.ends_with(".rs") || name.ends_with('/'))
            .filter(|name| !name.contains(|c: char| "<*".contains(c) || c.is_uppercase() || c.is_whitespace()))
    }

    /// A rename that forgets the map leads every reader astray.
    #[test]
    fn files_that_the_map_and_decisions_name_exist() {
        let root = crate::repository();
        let mut all = vec![root.join("ARCHITECTURE.md")];
        pages(&root.join("docs/decisions"), &mut all);
        let mut bases = vec![root.to_owned(), root.join("crates")];
        for entry in fs::read_dir(root.join("crates")).unwrap() {
            bases.push(entry.unwrap().path().join("src"));
        }
        let mut lost = Vec::new();
        for page in &all {
            for line in fs::read_to_string(page).unwrap().lines() {
                // A name may continue the folder that the line names before it.
                let mut folders = bases.clone();
                for name in named_files(line) {
                    match folders.iter().map(|base| base.join(name)).find(|path| path.exists()) {
                        Some(path) if path.is_dir() => folders.push(path),
                        Some(_) => {}
                        None => lost.push(format!("{}: {name}", page.display())),
                    }
                }
            }
        }
        assert!(lost.is_empty(), "files that do not exist:\n{}", lost.join("\n"));
    }

    #[test]
    fn headings_become_the_ends_of_addresses() {
        assert_eq!(anchor("## Homa §3.4: what, where?"), "homa-34-what-where");
        assert_eq!(links("a [b](c.md#d) `[x](y)` [e](f)"), ["c.md#d", "f"]);
    }
}
