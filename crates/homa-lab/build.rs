//! Embeds the plans of `repro/` and names the simulator by its sources.
//!
//! `PLANS` and `RUN_SETS` list the files of `repro/**/*.toml`: those in a folder `runs` are sets of
//! runs, the others plans, in the order of their paths with numbers by value (fig4 before fig10).
//! The folder is a link to that of the repository, which a package has as files.
//! `MODEL` is a digest of the sources of homa-proto, homa-sim and homa-workload: what decides a
//! result. What only shows results is left out, so a changed chart runs nothing again. A package
//! has no such sources beside it and depends on exactly one version of them: the digest is that of
//! the version.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// The crates that decide the outcome of a simulation.
const MODEL: [&str; 3] = ["homa-proto", "homa-sim", "homa-workload"];

fn main() -> io::Result<()> {
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let mut plans = Vec::new();
    files(&manifest.join("repro"), &mut plans)?;
    plans.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    plans.sort_by_key(|path| natural(&path.to_string_lossy()));
    let in_runs = |path: &PathBuf| path.parent().is_some_and(|parent| parent.ends_with("runs"));
    let (sets, plans): (Vec<PathBuf>, Vec<PathBuf>) = plans.into_iter().partition(in_runs);
    let digest = digest(&manifest)?;
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join("embedded.rs");
    let text = format!(
        "/// Plans: file and text.\npub(crate) const PLANS: &[(&str, &str)] = &[{}];\n\
         /// Sets of runs: file and text.\npub(crate) const RUN_SETS: &[(&str, &str)] = &[{}];\n\
         /// Digest of the simulator's sources.\n\
         pub(crate) const MODEL: &str = \"{digest:032x}\";\n",
        listed(&manifest, &plans),
        listed(&manifest, &sets),
    );
    fs::write(out, text)
}

/// All files below a folder; Cargo looks at the folder for files that come and go.
fn files(folder: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    println!("cargo::rerun-if-changed={}", folder.display());
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            files(&path, found)?;
        } else {
            found.push(path);
        }
    }
    Ok(())
}

/// A key that sorts numbers by value.
fn natural(path: &str) -> Vec<(u64, String)> {
    let mut parts = vec![(0, String::new())];
    for letter in path.chars() {
        let (number, text) = parts.last_mut().expect("is never empty");
        match letter.to_digit(10) {
            Some(digit) if text.is_empty() && *number > 0 => {
                *number = *number * 10 + u64::from(digit)
            }
            Some(digit) => parts.push((u64::from(digit), String::new())),
            None => text.push(letter),
        }
    }
    parts
}

fn listed(root: &Path, paths: &[PathBuf]) -> String {
    let entry = |path: &PathBuf| {
        let name = path.strip_prefix(root).unwrap_or(path).to_string_lossy().replace('\\', "/");
        format!("({name:?}, include_str!({:?})),", path.display().to_string())
    };
    paths.iter().map(entry).collect()
}

/// FNV-1a over 128 bits of the names and contents of the model's files, or of the version.
fn digest(manifest: &Path) -> io::Result<u128> {
    const START: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let mut hash = START;
    let mut add = |bytes: &[u8]| {
        for byte in bytes.iter().chain(&(bytes.len() as u64).to_le_bytes()) {
            hash = (hash ^ u128::from(*byte)).wrapping_mul(PRIME);
        }
    };
    let crates = manifest.parent().unwrap_or(manifest);
    let sources = model(crates)?;
    if sources.is_empty() {
        add(env::var("CARGO_PKG_VERSION").unwrap_or_default().as_bytes());
    }
    for source in sources {
        add(source.strip_prefix(crates).unwrap_or(&source).to_string_lossy().as_bytes());
        add(&fs::read(&source)?);
    }
    Ok(hash)
}

/// The files of the model's crates in order; none in a package.
fn model(crates: &Path) -> io::Result<Vec<PathBuf>> {
    let mut sources = Vec::new();
    for name in MODEL {
        let folder = crates.join(name);
        let manifest = folder.join("Cargo.toml");
        if !manifest.is_file() {
            return Ok(Vec::new());
        }
        println!("cargo::rerun-if-changed={}", manifest.display());
        sources.push(manifest);
        for part in ["src", "data"].map(|part| folder.join(part)) {
            if part.is_dir() {
                files(&part, &mut sources)?;
            }
        }
    }
    sources.sort();
    Ok(sources)
}
