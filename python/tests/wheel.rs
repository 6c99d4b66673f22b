//! Two builds of the same sources give the same wheel, byte for byte.
//!
//! Both go the way of `pip install ./python`: from copies of the sources in two folders, with two
//! target folders and two homes of cargo that share nothing but what was downloaded, so that every
//! crate is compiled twice. So it shows that no path, time or order of files gets into a wheel. It
//! does so without optimisation, which would take minutes: that of the compiler is left out, which
//! promises the same code for the same input and flags.
//!
//! Skipped where Python or maturin is missing.

mod common;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Debug information is as in releases, and no crate is optimised.
const ARGUMENTS: &str = "--profile dev --config profile.dev.opt-level=0 \
                         --config 'profile.dev.package.\"*\".opt-level=0'";

/// The folders of one build.
struct Build {
    folder: PathBuf,
    process: Child,
}

impl Build {
    /// Copies the sources to `folder` and begins.
    fn begin(python: &OsStr, folder: PathBuf) -> Self {
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let sources = folder.join("sources");
        let _ = std::fs::remove_dir_all(&sources);
        std::fs::create_dir_all(&sources).unwrap();
        for entry in ["Cargo.toml", "Cargo.lock", "crates", "examples", "python", "repro", "xtask"]
        {
            common::copy(&repository.join(entry), &sources.join(entry));
        }
        // As of another user, without what that would download.
        let home = folder.join("home");
        std::fs::create_dir_all(&home).unwrap();
        for downloaded in ["registry", "git", "config.toml"] {
            let _ =
                std::os::unix::fs::symlink(cargo_home().join(downloaded), home.join(downloaded));
        }
        let out = folder.join("out");
        let _ = std::fs::remove_dir_all(&out);
        let process = Command::new(python)
            .args(["-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"])
            .args(["--no-cache-dir", "--disable-pip-version-check", "--wheel-dir"])
            .args([out.as_path(), Path::new(".")])
            .current_dir(sources.join("python"))
            .env("PATH", path_with(python))
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
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self { folder, process }
    }

    /// The wheel's name and bytes.
    fn finish(self) -> (PathBuf, Vec<u8>) {
        let output = self.process.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let mut wheels = std::fs::read_dir(self.folder.join("out")).unwrap();
        let wheel = wheels.next().unwrap().unwrap();
        assert!(wheels.next().is_none());
        (wheel.file_name().into(), std::fs::read(wheel.path()).unwrap())
    }
}

fn cargo_home() -> PathBuf {
    let own = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    own.unwrap_or_else(|| std::env::home_dir().unwrap().join(".cargo"))
}

/// With the programs of Python's environment, of which maturin is one, and this cargo.
fn path_with(python: &OsStr) -> std::ffi::OsString {
    let before = std::env::var_os("PATH").unwrap_or_default();
    let own = Path::new(python).parent().map(Path::to_path_buf);
    std::env::join_paths(own.into_iter().chain(std::env::split_paths(&before))).unwrap()
}

/// Downloads what the builds, which are offline, ask for: maturin wants the crates of every
/// platform, of which others than this one's may never have been needed here.
fn download() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let fetch = Command::new(cargo)
        .args(["fetch", "--quiet", "--locked", "--manifest-path"])
        .arg(manifest)
        .status();
    // Without a network the builds say what they lack.
    let _ = fetch;
}

#[test]
fn two_builds_give_the_same_wheel() {
    let Some(python) = common::python_with("maturin") else { return };
    download();
    // Both at a time, on a core each.
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("wheels");
    let builds = ["one", "another"].map(|name| Build::begin(&python, folder.join(name)));
    let [one, another] = builds.map(Build::finish);
    assert_eq!(one.0, another.0);
    let different = one.1.iter().zip(&another.1).position(|(one, other)| one != other);
    assert_eq!(different, None, "they differ from this byte on: compare what {folder:?} holds");
    assert_eq!(one.1.len(), another.1.len());
}
