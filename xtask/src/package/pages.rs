//! The documentation in the Debian package, and names of its pages.
//!
//! In the repository, sources, messages and examples name a page as `docs/limits.md`. In the
//! package the same page is `/usr/share/doc/homa/limits.md`: the program is told the folder when it
//! is compiled (`crates/homa-cli/src/pages.rs`), and files that are copied are changed here. So
//! users of the package find each page that something there names.

use std::fs;
use std::io;
use std::path::Path;

use super::deb::Staged;
use crate::book;

/// Where the pages are installed.
pub(crate) const FOLDER: &str = "/usr/share/doc/homa";

/// Lays the book's pages into the package.
pub(super) fn install(repository: &Path, stage: &Staged<'_>) -> io::Result<()> {
    for (name, bytes) in book::pages(repository)? {
        stage.write(&format!("{}/{name}", FOLDER.trim_start_matches('/')), &bytes, 0o644)?;
    }
    Ok(())
}

/// Copies a text; pages that it names are those of the package.
pub(super) fn copy(stage: &Staged<'_>, from: &Path, to: &str) -> io::Result<()> {
    let mut text = fs::read_to_string(from)?;
    let mut names: Vec<String> = named(&text, "docs/").into_iter().map(str::to_owned).collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        text = text.replace(&format!("docs/{name}"), &format!("{FOLDER}/{name}"));
    }
    stage.write(to, text.as_bytes(), 0o644)
}

/// The pages (`PAGE.md`) that a text names below a folder.
pub(crate) fn named<'a>(text: &'a str, folder: &str) -> Vec<&'a str> {
    let mut names = Vec::new();
    for (at, _) in text.match_indices(folder) {
        let is_of_path = |c: char| c.is_alphanumeric() || "/.-_".contains(c);
        let rest = &text[at + folder.len()..];
        let other = |c: char| !(c.is_ascii_alphanumeric() || "/-_.".contains(c));
        let word = &rest[..rest.find(other).unwrap_or(rest.len())];
        // Another path may end with the folder's name.
        if let Some(end) = word.find(".md").filter(|_| !text[..at].ends_with(is_of_path)) {
            names.push(&word[..end + ".md".len()]);
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::tidy;

    /// What users read of the repository in a package, a crate or a wheel, apart from the pages.
    fn for_users(path: &str) -> bool {
        let of_crate = path.starts_with("crates/")
            && ["/src/", "/include/", "/man/"].iter().any(|folder| path.contains(folder));
        let python = ["python/src/", "python/package/"];
        of_crate
            || path.starts_with("contrib/")
            || python.iter().any(|folder| path.starts_with(folder))
    }

    #[test]
    fn each_page_that_users_are_told_of_is_in_the_package() {
        let root = crate::repository();
        let pages = book::pages(root).unwrap();
        let (mut found, mut lost) = (0, Vec::new());
        for path in tidy::files(root).unwrap().into_iter().filter(|path| for_users(path)) {
            let Ok(text) = fs::read_to_string(root.join(&path)) else { continue };
            for name in named(&text, "docs/") {
                // Tests read pages by a path that begins with `../`, which does not count.
                found += 1;
                if !pages.contains_key(name) {
                    lost.push(format!("{path}: docs/{name}"));
                }
            }
        }
        assert!(found > 20, "{found}");
        assert!(lost.is_empty(), "pages that no package has:\n{}", lost.join("\n"));
    }

    #[test]
    fn what_libraries_say_names_the_repository() {
        let root = crate::repository();
        let libraries = ["python/package/", "crates/homa-lab/src/"];
        let mut lost = Vec::new();
        for path in tidy::files(root).unwrap() {
            if !libraries.iter().any(|library| path.starts_with(library)) {
                continue;
            }
            let text = fs::read_to_string(root.join(&path)).unwrap_or_default();
            let words = text.split_whitespace().collect::<Vec<_>>().join(" ").replace("``", "");
            for name in named(&words, "docs/") {
                if !words.contains(&format!("docs/{name} in the repository")) {
                    lost.push(format!("{path}: docs/{name}"));
                }
            }
        }
        let why = "users of a crate or a wheel have no folder docs: say `in the repository`";
        assert!(lost.is_empty(), "{why}\n{}", lost.join("\n"));
    }

    #[test]
    fn links_between_the_pages_of_the_package_lead_somewhere() {
        let pages = book::pages(crate::repository()).unwrap();
        assert!(
            pages.contains_key("operating/metrics.md") && pages.contains_key("architecture.md")
        );
        assert!(!pages.contains_key("book.toml"), "no page links it");
        let mut lost = Vec::new();
        for (name, bytes) in pages.iter().filter(|(name, _)| name.ends_with(".md")) {
            let folder = Path::new(name).parent().unwrap();
            for link in book::links(&String::from_utf8_lossy(bytes)) {
                let path = link.split('#').next().unwrap_or_default();
                if path.is_empty() || link.contains("://") || link.starts_with("mailto:") {
                    continue;
                }
                let mut at = PathBuf::new();
                for part in folder.join(path).components() {
                    match part {
                        std::path::Component::ParentDir => drop(at.pop()),
                        other => at.push(other),
                    }
                }
                if !pages.contains_key(&*at.to_string_lossy()) {
                    lost.push(format!("{name}: {link}"));
                }
            }
        }
        assert!(lost.is_empty(), "links that lead nowhere:\n{}", lost.join("\n"));
    }

    #[test]
    fn examples_name_the_pages_of_the_package() {
        let folder = std::env::temp_dir().join(format!("pages-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let from = folder.join("from");
        fs::write(&from, "# docs/a.md says more (docs/b/c-d.md). See https://e.org/docs/f.md\n")
            .unwrap();
        copy(&Staged::new(&folder), &from, "to").unwrap();
        let text = fs::read_to_string(folder.join("to")).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(
            text,
            "# /usr/share/doc/homa/a.md says more (/usr/share/doc/homa/b/c-d.md). See \
             https://e.org/docs/f.md\n"
        );
        assert_eq!(
            named("docs/a.md, mydocs/b.md docs/c docs/d/e.md.", "docs/"),
            ["a.md", "d/e.md"]
        );
    }
}
