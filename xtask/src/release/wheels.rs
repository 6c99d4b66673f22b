//! Python wheels: two builds of the same sources give the same bytes, and the optimised one runs on
//! old distributions of Linux and on every Python since 3.10.
//!
//! The two builds go the way of `pip install ./python`, from copies of the tracked files in two
//! folders. They use two target folders and two homes of cargo that share only the downloads,
//! so that every crate is compiled twice. Therefore no path, time or order of files can get into a
//! wheel unnoticed. Neither is optimised, because that would take minutes: the check leaves out the
//! optimiser, which promises the same code for the same input and flags.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Error};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::Outcome;
use crate::process::{cargo, output, remove_folder, works};
use crate::{package, python, target, tidy};

/// Debug information is as in releases, and no crate is optimised.
const ARGUMENTS: &str = "--profile dev --config profile.dev.opt-level=0 \
                         --config 'profile.dev.package.\"*\".opt-level=0'";

/// The licences of all crates that are linked in. The manifest takes `LICENSE-*` into a wheel.
const NOTICES: &str = "LICENSE-THIRD-PARTY";

/// Files that crates share by a link to a folder, and where it points.
const LINK: (&str, &str) = ("crates/homa-lab/repro", "../../repro");

/// Builds the wheel twice, which takes minutes.
pub(super) fn two_alike(repository: &Path) -> io::Result<Vec<Outcome>> {
    let Some(python) = python_with_maturin(repository) else {
        return Ok(vec![Outcome::Skipped(NO_PYTHON.to_owned())]);
    };
    let wheel = two_wheels(repository, &python)?;
    Ok(vec![Outcome::Passed(format!("two builds gave the same {}", wheel.display()))])
}

/// Builds the optimised wheel as it is published, into `target/packages`.
pub(super) fn manylinux(repository: &Path) -> io::Result<Vec<Outcome>> {
    let Some(python) = python_with_maturin(repository) else {
        return Ok(vec![Outcome::Skipped(NO_PYTHON.to_owned())]);
    };
    let out = target(repository).join("packages");
    let started = std::time::SystemTime::now();
    let mut build = Command::new(&python);
    build.args(["-m", "maturin", "build", "--release", "--locked", "--quiet", "--out"]).arg(&out);
    build.current_dir(repository.join("python")).env("PATH", path_with(&python)?);
    // The file is beside the licences while maturin takes them.
    let notices = repository.join("python").join(NOTICES);
    fs::write(
        &notices,
        package::notices::text(repository, &["--package", "homa-rpc-python"], false)?,
    )?;
    let built = output(build.stdin(Stdio::null()));
    fs::remove_file(notices)?;
    built?;
    for file in fs::read_dir(&out)? {
        let file = file?;
        let name = file.file_name().to_string_lossy().into_owned();
        if name.ends_with(".whl") && file.metadata()?.modified()? >= started {
            let files =
                output(Command::new(&python).args(["-m", "zipfile", "-l"]).arg(file.path()))?;
            if !files.contains(&format!(".dist-info/licenses/{NOTICES} ")) {
                return Err(Error::other(format!("{name} lacks {NOTICES}")));
            }
            if !runs_widely(&name) {
                return Err(Error::other(format!(
                    "{name} is not abi3, or needs a newer C library than glibc 2.{GLIBC}"
                )));
            }
            let programs = fresh(repository, &python, &file.path())?;
            return Ok(vec![
                Outcome::Passed(format!("{name} in {}", out.display())),
                Outcome::Passed(format!(
                    "{programs} programs of its README run with nothing else installed"
                )),
            ]);
        }
    }
    Err(Error::other(format!("maturin left no wheel in {}", out.display())))
}

/// Installs a wheel into an environment with nothing else, and runs the programs of the page that
/// registries show. Returns how many there are.
fn fresh(repository: &Path, python: &OsStr, wheel: &Path) -> io::Result<usize> {
    let folder = target(repository).join("wheels/fresh");
    remove_folder(&folder)?;
    output(Command::new(python).args(["-m", "venv"]).arg(&folder))?;
    let alone = || {
        let mut alone = Command::new(folder.join("bin/python"));
        // Not beside the sources.
        alone.current_dir(&folder).stdin(Stdio::null());
        alone
    };
    let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index"];
    output(alone().args(install).arg(wheel))?;
    let page = fs::read_to_string(repository.join("python/README.md"))?;
    let programs = page.split("```python\n").skip(1).filter_map(|rest| rest.split("```").next());
    let programs: Vec<_> = programs.collect();
    if programs.is_empty() {
        return Err(Error::other("python/README.md has no program"));
    }
    for program in &programs {
        output(alone().args(["-W", "error", "-c", program]))?;
    }
    fs::remove_dir_all(&folder)?;
    Ok(programs.len())
}

/// Why no wheel is built.
const NO_PYTHON: &str = "because there is no Python with maturin and its packages (see above)";

/// The Python that builds wheels, if there is one.
fn python_with_maturin(repository: &Path) -> Option<OsString> {
    let python = python::prepare(repository)?;
    works(Path::new(&python), &["-m", "maturin", "--version"]).then_some(python)
}

/// The newest C library that a wheel may need, as CONTRIBUTING.md says: glibc 2 with this number.
const GLIBC: u32 = 34;

/// Whether the name of a wheel promises every Python 3 and all distributions since [`GLIBC`].
fn runs_widely(name: &str) -> bool {
    let Some((crate_, platform)) = name.split_once("-abi3-manylinux_2_") else { return false };
    let needs = platform.split('_').next().and_then(|minor| minor.parse::<u32>().ok());
    crate_.starts_with("homa_rpc-") && needs.is_some_and(|minor| minor <= GLIBC)
}

/// Builds the wheel twice; returns its name if both are the same.
fn two_wheels(repository: &Path, python: &OsStr) -> io::Result<PathBuf> {
    // maturin asks for the crates of every platform, and other platforms' may never have been
    // needed here. Without a network the builds, which are offline, say what they lack.
    let _ = cargo(repository).args(["fetch", "--quiet", "--locked"]).status();
    let folder = target(repository).join("wheels");
    let begin = |name| Build::begin(repository, python, folder.join(name));
    // Both at a time, on a core each.
    let [one, another] = [begin("one")?, begin("another")?];
    let [one, another] = [one.finish()?, another.finish()?];
    let same = one.0 == another.0 && one.1 == another.1;
    let different = one.1.iter().zip(&another.1).position(|(one, other)| one != other);
    match same {
        true => {
            for name in ["one", "another"] {
                leave_target(&folder.join(name))?;
            }
            Ok(one.0)
        }
        false => Err(Error::other(format!(
            "two builds differ (the first different byte: {different:?}): compare the folders \
             `out` of {}/one and {0}/another",
            folder.display()
        ))),
    }
}

/// Removes all of a build but what cargo keeps for the next one.
fn leave_target(folder: &Path) -> io::Result<()> {
    ["sources", "out", "home"].into_iter().try_for_each(|name| remove_folder(&folder.join(name)))
}

/// One build, in a separate folder.
struct Build {
    folder: PathBuf,
    process: Child,
}

impl Build {
    /// Copies the sources to `folder` and begins.
    fn begin(repository: &Path, python: &OsStr, folder: PathBuf) -> io::Result<Self> {
        leave_target(&folder)?;
        let sources = folder.join("sources");
        for path in tidy::files(repository)? {
            let copy = sources.join(&path);
            fs::create_dir_all(copy.parent().unwrap_or(&sources))?;
            fs::copy(repository.join(&path), copy)?;
        }
        symlink(LINK.1, sources.join(LINK.0))?;
        // As of another user, without what that user would download.
        let home = folder.join("home");
        fs::create_dir_all(&home)?;
        for downloaded in ["registry", "git", "config.toml"] {
            symlink(crate::cargo_home()?.join(downloaded), home.join(downloaded))?;
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
            // aws-lc-sys leaves its folder out of C code only if it is optimised, as releases are.
            .env("CFLAGS", format!("-ffile-prefix-map={}=/cargo", home.display()))
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

/// With the programs of Python's environment, among them maturin.
fn path_with(python: &OsStr) -> io::Result<OsString> {
    let before = std::env::var_os("PATH").unwrap_or_default();
    let own = Path::new(python).parent().map(Path::to_path_buf);
    std::env::join_paths(own.into_iter().chain(std::env::split_paths(&before)))
        .map_err(Error::other)
}

#[cfg(test)]
mod tests {
    use super::{GLIBC, fs, runs_widely};

    #[test]
    fn a_wheel_for_this_machine_alone_is_not_published() {
        for needs in ["2_17", "2_34"] {
            let name = format!("homa_rpc-0.1.0-cp310-abi3-manylinux_{needs}_x86_64.whl");
            assert!(runs_widely(&name), "{name}");
        }
        assert!(!runs_widely("homa_rpc-0.1.0-cp310-abi3-manylinux_2_36_x86_64.whl"));
        let promise = format!("glibc 2.{GLIBC} ");
        for page in ["CONTRIBUTING.md", "docs/operating/install.md"] {
            let text = fs::read_to_string(crate::repository().join(page)).unwrap();
            assert!(text.contains(&promise), "{page}: {promise}");
        }
        assert!(!runs_widely("homa_rpc-0.1.0-cp310-abi3-linux_x86_64.whl"));
        assert!(!runs_widely("homa_rpc-0.1.0-cp313-cp313-manylinux_2_34_x86_64.whl"));
    }
}
