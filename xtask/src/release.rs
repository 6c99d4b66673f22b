//! `cargo xtask release --check`: what must hold before a release and takes too long for every test
//! run: two builds of the same sources give the same Python wheel, byte for byte.
//!
//! Both builds go the way of `pip install ./python`, from copies of the tracked files in two
//! folders. They use two target folders and two homes of cargo that share only the downloads,
//! so that every crate is compiled twice. Therefore no path, time or order of files can get into a
//! wheel unnoticed. Neither build is optimised, because that would take minutes: the check leaves
//! out the optimiser, which promises the same code for the same input and flags.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Error};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};

use crate::{python, target, tidy};

/// Debug information is as in releases, and no crate is optimised.
const ARGUMENTS: &str = "--profile dev --config profile.dev.opt-level=0 \
                         --config 'profile.dev.package.\"*\".opt-level=0'";

/// Runs the checks and says what they found.
pub fn check(repository: &Path) -> ExitCode {
    println!("building the wheel twice; this takes minutes");
    match two_wheels(repository) {
        Ok(wheel) => {
            println!("release: two builds gave the same {}", wheel.display());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("release: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Builds the wheel twice; returns its name if both are the same.
fn two_wheels(repository: &Path) -> io::Result<PathBuf> {
    let python = python::prepare(repository)
        .ok_or_else(|| Error::other("no Python for the build: see above"))?;
    // maturin asks for the crates of every platform, and other platforms' may never have been
    // needed here. Without a network the builds, which are offline, say what they lack.
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut fetch = Command::new(cargo);
    let _ = fetch.args(["fetch", "--quiet", "--locked"]).current_dir(repository).status();
    let folder = target(repository).join("wheels");
    let begin = |name| Build::begin(repository, &python, folder.join(name));
    // Both at a time, on a core each.
    let [one, another] = [begin("one")?, begin("another")?];
    let [one, another] = [one.finish()?, another.finish()?];
    let same = one.0 == another.0 && one.1 == another.1;
    let different = one.1.iter().zip(&another.1).position(|(one, other)| one != other);
    match same {
        true => Ok(one.0),
        false => Err(Error::other(format!(
            "two builds differ (the first different byte: {different:?}): compare the folders \
             `out` of {}/one and {0}/another",
            folder.display()
        ))),
    }
}

/// One build, in a separate folder.
struct Build {
    folder: PathBuf,
    process: Child,
}

impl Build {
    /// Copies the sources to `folder` and begins.
    fn begin(repository: &Path, python: &OsStr, folder: PathBuf) -> io::Result<Self> {
        for old in ["sources", "out", "home"] {
            match fs::remove_dir_all(folder.join(old)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        let sources = folder.join("sources");
        for path in tidy::files(repository)? {
            let copy = sources.join(&path);
            fs::create_dir_all(copy.parent().unwrap_or(&sources))?;
            fs::copy(repository.join(&path), copy)?;
        }
        // As of another user, without what that user would download.
        let home = folder.join("home");
        fs::create_dir_all(&home)?;
        for downloaded in ["registry", "git", "config.toml"] {
            symlink(cargo_home()?.join(downloaded), home.join(downloaded))?;
        }
        let process = Command::new(python)
            .args(["-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"])
            .args(["--no-cache-dir", "--disable-pip-version-check", "--wheel-dir"])
            .args([folder.join("out").as_path(), Path::new(".")])
            .current_dir(sources.join("python"))
            .env("PATH", path_with(python)?)
            // They would replace the flags that the package is built with.
            .env_remove("RUSTFLAGS")
            .env_remove("CARGO_ENCODED_RUSTFLAGS")
            .env("CARGO_HOME", &home)
            .env("CARGO_TARGET_DIR", folder.join("target"))
            .env("CARGO_INCREMENTAL", "0")
            .env("CARGO_NET_OFFLINE", "true")
            .env("MATURIN_PEP517_ARGS", ARGUMENTS)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::null())
            .spawn()?;
        Ok(Self { folder, process })
    }

    /// The wheel's name and bytes.
    fn finish(mut self) -> io::Result<(PathBuf, Vec<u8>)> {
        let status = self.process.wait()?;
        let out = self.folder.join("out");
        if !status.success() {
            return Err(Error::other(format!("the wheel does not build ({status}): see above")));
        }
        let wheels: Vec<_> = fs::read_dir(&out)?.collect::<io::Result<_>>()?;
        match &wheels[..] {
            [wheel] => Ok((wheel.file_name().into(), fs::read(wheel.path())?)),
            _ => Err(Error::other(format!("not one wheel in {}", out.display()))),
        }
    }
}

fn cargo_home() -> io::Result<PathBuf> {
    let named = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let usual = || Some(std::env::home_dir()?.join(".cargo"));
    named.or_else(usual).ok_or_else(|| Error::other("no home of cargo: set CARGO_HOME"))
}

/// With the programs of Python's environment, among them maturin.
fn path_with(python: &OsStr) -> io::Result<std::ffi::OsString> {
    let before = std::env::var_os("PATH").unwrap_or_default();
    let own = Path::new(python).parent().map(Path::to_path_buf);
    std::env::join_paths(own.into_iter().chain(std::env::split_paths(&before)))
        .map_err(Error::other)
}
