//! The Debian package in a Debian that is booted: the unit starts, restarts and upgrades lose no
//! call, and its watchdog ends a process that hangs (`boot.sh`). It then checks the program of
//! `docs/operating/upgrade.md` in the same way, with the units under another name.
//!
//! The system is the least that debootstrap makes of the stable release, booted by systemd-nspawn
//! in namespaces. It is kept in `target/boot` for the next check. The upgrade is one to the same
//! version. Left out: one from the package of an earlier release.

use std::fs;
use std::io::{self, Error};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{Candidate, Outcome, user};
use crate::process::{is_root, remove_folder, succeed, there};

/// What runs inside, and the unit that runs it once the system is up, and ends the system.
const SCRIPT: &str = include_str!("boot.sh");
const UNIT: &str = "[Unit]
After=multi-user.target
SuccessAction=poweroff-force
FailureAction=poweroff-force
[Service]
Type=oneshot
ExecStart=/bin/sh /check.sh
StandardOutput=append:/check.log
StandardError=append:/check.log
";

/// The longest that the system may run. On a busy machine of two cores it takes half a minute.
const SECONDS: &str = "300";

pub(super) fn check(candidate: &Candidate<'_>) -> io::Result<Vec<Outcome>> {
    let repository = candidate.repository;
    if let Some(why) = impossible() {
        return Ok(vec![Outcome::Skipped(why.to_owned())]);
    }
    let folder = crate::target(repository).join("boot");
    let Some(base) = base(&folder)? else {
        let why = "debootstrap could not fetch Debian (see above)";
        return Ok(vec![Outcome::Skipped(why.to_owned())]);
    };
    let packages = candidate.debian()?;
    let package = packages.iter().find(|path| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("homa_"))
    });
    let package = package.ok_or_else(|| Error::other("there is no package of the program"))?;
    let service = user::build(repository, "my-service", &documented(repository)?)?;
    let root = copy(&base, &folder.join("root"))?;
    install(&root, package, &service)?;
    let log = boot(&root)?;
    if !log.trim_end().ends_with("\nPASSED") {
        return Err(Error::other(format!("the check in the booted system failed:\n{log}")));
    }
    fs::remove_dir_all(&root)?;
    let what = "in a booted Debian the units start, restarts and upgrades lose no call, and the \
                watchdog ends a process that hangs";
    Ok(vec![
        Outcome::Passed(what.to_owned()),
        Outcome::Passed("the documented service does the same under another name".to_owned()),
    ])
}

/// The service that the operators' page prints.
fn documented(repository: &Path) -> io::Result<String> {
    let page = fs::read_to_string(repository.join("docs/operating/upgrade.md"))?;
    let program = page.split("```rust,no_run\n").nth(1).and_then(|rest| rest.split("```").next());
    program.map(str::to_owned).ok_or_else(|| Error::other("upgrade.md has no program"))
}

/// Why no system can be booted here.
fn impossible() -> Option<&'static str> {
    if !is_root() {
        return Some("because only root boots a system (run it with sudo)");
    }
    let all = ["debootstrap", "systemd-nspawn"].into_iter().all(there);
    (!all).then_some(
        "debootstrap or systemd-nspawn is missing (apt-get install debootstrap systemd-container)",
    )
}

/// A Debian that has not been booted; `None` if it cannot be fetched.
fn base(folder: &Path) -> io::Result<Option<PathBuf>> {
    let base = folder.join("base");
    // It is renamed when it is whole.
    if !base.exists() {
        let part = folder.join("part");
        remove_folder(&part)?;
        fs::create_dir_all(folder)?;
        let mut debootstrap = Command::new("debootstrap");
        debootstrap.args(["--variant=minbase", "--include=systemd,systemd-sysv,dbus", "stable"]);
        if succeed(debootstrap.arg(&part).stdout(Stdio::null())).is_err() {
            return Ok(None);
        }
        fs::rename(part, &base)?;
    }
    Ok(Some(base))
}

/// Copies a system with owners and devices.
fn copy(base: &Path, root: &Path) -> io::Result<PathBuf> {
    remove_folder(root)?;
    succeed(Command::new("cp").arg("--archive").arg(base).arg(root))?;
    Ok(root.to_owned())
}

/// Lays the package, a user's service and the check into the system.
fn install(root: &Path, package: &Path, service: &Path) -> io::Result<()> {
    fs::copy(package, root.join("homa.deb"))?;
    fs::copy(service, root.join("my-service"))?;
    fs::write(root.join("check.sh"), SCRIPT)?;
    let units = root.join("etc/systemd/system");
    fs::write(units.join("homa-check.service"), UNIT)?;
    let wanted = units.join("graphical.target.wants");
    fs::create_dir_all(&wanted)?;
    std::os::unix::fs::symlink("../homa-check.service", wanted.join("homa-check.service"))
}

/// Boots it until it powers off; returns what the check printed.
fn boot(root: &Path) -> io::Result<String> {
    let mut nspawn = Command::new("timeout");
    nspawn.args(["--kill-after=10", SECONDS, "systemd-nspawn", "--quiet", "--boot"]);
    nspawn.args(["--register=no", "--keep-unit", "--directory"]).arg(root);
    nspawn.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let status = nspawn.status()?;
    let log = root.join("check.log");
    fs::read_to_string(log).map_err(|_| {
        Error::other(format!(
            "the system did not boot as far as the check: systemd-nspawn {status}"
        ))
    })
}
