//! Hosts are upgraded one after another: the program of the previous release and this one call each
//! other, in both directions, in plain text and with keys.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::Outcome;
use super::program::RunningProgram;
use crate::process::{cargo, output, remove_folder, succeed};

/// Why nothing is compared with an earlier release.
pub(super) const NO_TAG: &str = "because no tag of a release (such as v0.1.0) precedes this commit";

/// Builds both programs, unoptimised, and lets them call each other.
pub(super) fn calls(repository: &Path) -> io::Result<Vec<Outcome>> {
    let Some(tag) = tag(repository) else {
        return Ok(vec![Outcome::Skipped(NO_TAG.to_owned())]);
    };
    let folder = crate::target(repository).join("previous");
    let sources = sources(repository, &folder, &tag)?;
    let old = program(&sources, &folder.join("target"))?;
    let new = program(repository, &crate::target(repository))?;
    let keys = folder.join("cluster.key");
    let _ = fs::remove_file(&keys);
    succeed(Command::new(&new).args(["key", "new"]).arg(&keys).stdout(Stdio::null()))?;
    for (server, client) in [(&old, &new), (&new, &old)] {
        converse(server, client, None)?;
        converse(server, client, Some(&keys))?;
    }
    fs::remove_file(keys)?;
    fs::remove_dir_all(sources)?;
    Ok(vec![Outcome::Passed(format!("this program and that of {tag} call each other"))])
}

/// The last tag of a release before this commit.
pub(super) fn tag(repository: &Path) -> Option<String> {
    let mut git = Command::new("git");
    git.args(["describe", "--tags", "--abbrev=0", "--match", "v[0-9]*", "HEAD^"]);
    let tag = git.current_dir(repository).stderr(Stdio::null()).output().ok()?;
    let name = String::from_utf8(tag.stdout).ok().filter(|_| tag.status.success())?;
    Some(name.trim().to_owned())
}

/// Unpacks the sources of a tag; returns their folder.
fn sources(repository: &Path, folder: &Path, tag: &str) -> io::Result<PathBuf> {
    let sources = folder.join("sources");
    remove_folder(&sources)?;
    fs::create_dir_all(&sources)?;
    let archive = folder.join("sources.tar");
    let mut pack = Command::new("git");
    pack.arg("archive").arg("--output").arg(&archive).arg(tag).current_dir(repository);
    succeed(&mut pack)?;
    let mut unpack = Command::new("tar");
    succeed(unpack.arg("-xf").arg(&archive).arg("-C").arg(&sources))?;
    fs::remove_file(archive).map(|()| sources)
}

/// Builds the program `homa` of some sources.
fn program(sources: &Path, target: &Path) -> io::Result<PathBuf> {
    let mut build = cargo(sources);
    build.args(["build", "--quiet", "--locked", "--bin", "homa"]);
    succeed(build.env("CARGO_TARGET_DIR", target)).map(|()| target.join("debug/homa"))
}

/// One program serves, the other calls it: short messages, and long ones, which need grants.
fn converse(server: &Path, client: &Path, keys: Option<&Path>) -> io::Result<()> {
    let with_keys = |command: &mut Command| {
        if let Some(keys) = keys {
            command.arg("--key").arg(keys);
        }
    };
    let mut serve = Command::new(server);
    serve.args(["serve", "--bind", "127.0.0.1:0", "--echo"]);
    with_keys(&mut serve);
    let (_serve, address) = RunningProgram::serve(&mut serve)?;
    for size in ["100", "1000000"] {
        let mut call = Command::new(client);
        call.args(["call", &address, "--size", size, "--count", "20"]).stdin(Stdio::null());
        with_keys(&mut call);
        output(&mut call)?;
    }
    Ok(())
}
