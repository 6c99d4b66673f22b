//! The licences of everything that a program links: one text from the licence files that crates
//! have in cargo's downloads.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Error};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::{cargo, output};

/// How names of files with licences begin, in capitals.
const NAMES: [&str; 6] = ["LICENSE", "LICENCE", "COPYING", "NOTICE", "COPYRIGHT", "UNLICENSE"];

/// Folders within folders that are searched: aws-lc has third-party code with licences in there.
const DEPTH: usize = 4;

/// The notices for what cargo builds with these arguments; with the C library if that is linked in,
/// too.
pub(crate) fn text(repository: &Path, built: &[&str], is_static: bool) -> io::Result<String> {
    let mut tree = cargo(repository);
    tree.args(["tree", "--locked", "--edges", "normal", "--prefix", "none", "--no-dedupe"]);
    tree.args(built).args(["--format", "{p}|{l}"]);
    let tree = output(&mut tree)?;
    let mut linked: Vec<&str> = tree.lines().filter(|line| !line.contains("(/")).collect();
    linked.sort_unstable();
    linked.dedup();
    let (mut list, mut texts) = (String::new(), BTreeMap::<String, Vec<String>>::new());
    if is_static {
        list = c_library(&output(Command::new("getconf").arg("GNU_LIBC_VERSION"))?)?;
    }
    let mut by_repository = BTreeMap::<(String, &str), Vec<String>>::new();
    let mut all = Vec::new();
    for line in linked {
        let Some((crate_, licence)) = line.split_once('|') else { continue };
        let Some((name, version)) = crate_.split_once(" v") else { continue };
        let version = version.split(' ').next().unwrap_or(version);
        let label = format!("{name} {version}");
        let _ = writeln!(list, "{label}: {licence}");
        let folder = downloaded(name, version)?;
        let (from, found) = (repository_of(&folder)?, licences(&folder)?);
        if let Some(from) = from.clone().filter(|_| !found.is_empty()) {
            by_repository.entry((from, licence)).or_insert_with(|| found.clone());
        }
        all.push((label, licence, from, found));
    }
    for (label, licence, from, mut found) in all {
        // Some crates lack the file that others of their repository and licence have.
        if let Some(theirs) = from.and_then(|from| by_repository.get(&(from, licence)))
            && found.is_empty()
        {
            found.clone_from(theirs);
        }
        if found.is_empty() {
            let why = "has no file with its licence, so the notices would be incomplete";
            return Err(Error::other(format!("{label} ({licence}) {why}")));
        }
        for text in found {
            texts.entry(text).or_default().push(label.clone());
        }
    }
    Ok(written(&list, texts))
}

/// The address of the repository that a crate in this folder names.
fn repository_of(folder: &Path) -> io::Result<Option<String>> {
    let manifest = fs::read_to_string(folder.join("Cargo.toml"))?;
    let line = manifest.lines().find_map(|line| line.strip_prefix("repository = "));
    Ok(line.map(str::to_owned))
}

/// The line about the C library whose version `getconf` prints, such as `glibc 2.36`.
fn c_library(printed: &str) -> io::Result<String> {
    let version = printed.trim().strip_prefix("glibc ").ok_or_else(|| {
        Error::other(format!("the C library is not glibc but `{printed}`: add its licence here"))
    })?;
    Ok(format!(
        "GNU C Library (glibc) {version}: LGPL-2.1-or-later, copyright the Free Software \
         Foundation; sources: https://ftp.gnu.org/gnu/glibc/\n"
    ))
}

/// The list, then each text once, below the crates that have it.
fn written(list: &str, texts: BTreeMap<String, Vec<String>>) -> String {
    let line = "-".repeat(80);
    let mut all = format!(
        "Third-party software that is linked in, with its licences\n\n\
         Rust standard library: MIT OR Apache-2.0, copyright The Rust Project Developers\n{list}"
    );
    let mut texts: Vec<(Vec<String>, String)> =
        texts.into_iter().map(|(text, crates)| (crates, text)).collect();
    texts.sort();
    for (mut crates, text) in texts {
        crates.dedup();
        let _ = write!(all, "\n{line}\n{}\n{line}\n\n{text}\n", crates.join(", "));
    }
    all
}

/// The folder of a crate in cargo's downloads.
fn downloaded(name: &str, version: &str) -> io::Result<PathBuf> {
    let registries = crate::cargo_home()?.join("registry/src");
    let folder = format!("{name}-{version}");
    for registry in fs::read_dir(&registries)? {
        let found = registry?.path().join(&folder);
        if found.is_dir() {
            return Ok(found);
        }
    }
    let place = registries.display();
    Err(Error::other(format!("{folder} is not in {place}: run `cargo fetch` for its licences")))
}

/// The texts of all licence files below a folder.
fn licences(folder: &Path) -> io::Result<Vec<String>> {
    let (mut texts, mut folders) = (Vec::new(), vec![(folder.to_path_buf(), 0)]);
    while let Some((folder, depth)) = folders.pop() {
        let mut entries: Vec<_> = fs::read_dir(folder)?.collect::<io::Result<_>>()?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let name = entry.file_name().to_string_lossy().to_uppercase();
            if entry.file_type()?.is_dir() && depth < DEPTH {
                folders.push((entry.path(), depth + 1));
            } else if entry.file_type()?.is_file()
                && NAMES.iter().any(|start| name.starts_with(start))
                && !name.ends_with(".RS")
            {
                let text = String::from_utf8_lossy(&fs::read(entry.path())?).replace('\r', "");
                texts.push(text.trim_end().to_owned());
            }
        }
    }
    Ok(texts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_c_library_is_named_with_its_version() {
        let line = c_library("glibc 2.36\n").unwrap();
        assert!(line.contains("2.36: LGPL-2.1-or-later"), "{line}");
        let notices = written(&line, BTreeMap::new());
        assert!(notices.contains(&line), "{notices}");
        assert!(c_library("undefined\n").is_err());
    }
}
