//! `cargo xtask book`: the documentation as a web site, by mdBook. Its summary names every page,
//! every link leads somewhere, and every file that the map or a decision names exists, which are
//! tests that need no mdBook.
//!
//! Left out: the snippets. Those in Rust are documentation tests of the crate `homa`; those in
//! Python and C are run by the tests of the program.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, ExitCode};

/// Builds the site into `target/book`.
pub fn run(root: &Path) -> ExitCode {
    let (source, to) = (root.join("target/book-source"), root.join("target/book"));
    if let Err(error) = stage(root, &source) {
        eprintln!("cannot copy the pages to {}: {error}", source.display());
        return ExitCode::from(2);
    }
    match Command::new("mdbook").arg("build").arg(&source).arg("-d").arg(&to).status() {
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

/// Copies the sources of the book to the folder `to`.
fn stage(root: &Path, to: &Path) -> io::Result<()> {
    if to.exists() {
        fs::remove_dir_all(to)?;
    }
    for (name, bytes) in sources(root)? {
        let copy = to.join(name);
        fs::create_dir_all(copy.parent().unwrap_or(to))?;
        fs::write(copy, bytes)?;
    }
    Ok(())
}

/// The files of `docs` by their paths in there, with ARCHITECTURE.md among them. A link between it
/// and a page of `docs` leads somewhere in the repository, for example on GitHub, and here.
fn sources(root: &Path) -> io::Result<BTreeMap<String, Vec<u8>>> {
    let map = fs::read_to_string(root.join("ARCHITECTURE.md"))?.replace("](docs/", "](");
    let mut files = BTreeMap::from([("architecture.md".to_owned(), map.into_bytes())]);
    for path in crate::tidy::files(root)? {
        let Some(name) = path.strip_prefix("docs/") else { continue };
        let mut bytes = fs::read(root.join(&path))?;
        if name.ends_with(".md") {
            let page = String::from_utf8(bytes).map_err(io::Error::other)?;
            bytes = page.replace("../ARCHITECTURE.md", "architecture.md").into_bytes();
        }
        files.insert(name.to_owned(), bytes);
    }
    Ok(files)
}

/// The pages of the book, and the files that they link, by their paths in the book.
pub(crate) fn pages(root: &Path) -> io::Result<BTreeMap<String, Vec<u8>>> {
    let mut files = sources(root)?;
    let mut linked = Vec::new();
    for (name, bytes) in files.iter().filter(|(name, _)| name.ends_with(".md")) {
        let folder = name.rsplit_once('/').map_or("", |(folder, _)| folder);
        let inside = links(&String::from_utf8_lossy(bytes)).into_iter();
        linked.extend(inside.map(|link| Path::new(folder).join(link)));
    }
    files.retain(|name, _| {
        name.ends_with(".md") || linked.iter().any(|link| link == Path::new(name))
    });
    Ok(files)
}

/// The links of a page: targets of `[text](target)` outside code.
pub(crate) fn links(page: &str) -> Vec<String> {
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
        let map = docs.join("../ARCHITECTURE.md");
        for page in named.iter().filter(|page| **page != map) {
            assert!(all.contains(page), "docs/SUMMARY.md names {}", page.display());
        }
    }

    /// The links of some pages that lead nowhere.
    fn lost_links(pages: &[PathBuf]) -> Vec<String> {
        let mut lost = Vec::new();
        for page in pages {
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
        lost
    }

    #[test]
    fn every_link_of_a_page_leads_somewhere() {
        let root = crate::repository();
        let mut all = vec![root.join("README.md"), root.join("ARCHITECTURE.md")];
        pages(&root.join("docs"), &mut all);
        let lost = lost_links(&all);
        assert!(lost.is_empty(), "links that lead nowhere:\n{}", lost.join("\n"));
    }

    #[test]
    fn every_link_of_the_book_stays_in_the_book() {
        let copy = std::env::temp_dir().join(format!("book-{}", std::process::id()));
        stage(crate::repository(), &copy).unwrap();
        let mut all = Vec::new();
        pages(&copy, &mut all);
        let lost = lost_links(&all);
        fs::remove_dir_all(&copy).unwrap();
        assert!(all.iter().any(|page| page.ends_with("architecture.md")));
        assert!(lost.is_empty(), "links that leave the book:\n{}", lost.join("\n"));
    }

    /// Files and folders that a line names between backquotes. Words in capitals are placeholders.
    fn named_files(line: &str) -> impl Iterator<Item = &str> {
        let code = line.split('`').skip(1).step_by(2);
        code.filter(|name| name.ends_with(".rs") || name.ends_with('/')).filter(|name| {
            !name.contains(|c: char| "<*".contains(c) || c.is_uppercase() || c.is_whitespace())
        })
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
