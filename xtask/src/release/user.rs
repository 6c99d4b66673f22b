//! Programs that use the library as those of users do: packages outside this workspace.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::process::{cargo, remove_folder, succeed};

/// The package of a user, with what the programs of the checks need.
const MANIFEST: &str = "[package]
name = \"NAME\"
version = \"0.1.0\"
edition = \"2024\"
[dependencies]
homa = { package = \"homa-rpc\", path = \"HOMA\", features = [\"metrics-http\"] }
nix = { version = \"0.31\", default-features = false, features = [\"signal\"] }
sd-notify = \"0.4\"
[workspace]
";

/// Where they are built.
pub(super) fn target(repository: &Path) -> PathBuf {
    crate::target(repository).join("of-users")
}

/// Builds a program from its source; returns its path.
pub(super) fn build(repository: &Path, name: &str, program: &str) -> io::Result<PathBuf> {
    let target = target(repository);
    let folder = target.join(format!("{name}-sources"));
    remove_folder(&folder)?;
    fs::create_dir_all(folder.join("src"))?;
    fs::write(folder.join("src/main.rs"), program)?;
    let library = repository.join("crates/homa").to_string_lossy().into_owned();
    let manifest = MANIFEST.replace("NAME", name).replace("HOMA", &library);
    fs::write(folder.join("Cargo.toml"), manifest)?;
    // The versions that the tests use.
    fs::copy(repository.join("Cargo.lock"), folder.join("Cargo.lock"))?;
    succeed(cargo(&folder).args(["build", "--quiet"]).env("CARGO_TARGET_DIR", &target))?;
    fs::remove_dir_all(folder)?;
    Ok(target.join("debug").join(name))
}
