//! The container image, as programs of others read and run it: umoci unpacks it, runc runs it on a
//! read-only file system as the user that the image names, a call is answered inside, and the
//! image's proxy for gRPC listens.
//!
//! The container has a network with loopback alone. Left out: registries and clusters.

use std::fs;
use std::io::{self, Error};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::program::RunningProgram;
use super::{Candidate, Outcome};
use crate::package::{VERSION, container_image};
use crate::process::{is_root, output, remove_folder, succeed, there};

pub(super) fn check(candidate: &Candidate<'_>) -> io::Result<Vec<Outcome>> {
    let repository = candidate.repository;
    if !is_root() {
        let why = "because only root runs it (run it with sudo)";
        return Ok(vec![Outcome::Skipped(why.to_owned())]);
    }
    if !["umoci", "runc"].into_iter().all(there) {
        let why = "umoci or runc is missing (apt-get install umoci runc)";
        return Ok(vec![Outcome::Skipped(why.to_owned())]);
    }
    let image = container_image(repository)?;
    let work = crate::target(repository).join("container");
    let bundle = unpack(&image, &work)?;
    let container = Container(format!("homa-check-{}", std::process::id()));
    candidate.expect_version(&container.call(&bundle)?)?;
    drop(container);
    fs::remove_dir_all(work)?;
    let what = "umoci reads the image of the release, and in runc, read-only and not as root, a \
                call is answered and a proxy listens";
    Ok(vec![Outcome::Passed(what.to_owned())])
}

/// Unpacks an image for runc, with a server that needs no key in place of its own command.
fn unpack(image: &Path, work: &Path) -> io::Result<PathBuf> {
    remove_folder(work)?;
    let (layout, bundle) = (work.join("image"), work.join("bundle"));
    fs::create_dir_all(&layout)?;
    succeed(Command::new("tar").arg("--extract").arg("--file").arg(image).arg("-C").arg(&layout))?;
    let tag = format!("{}:{VERSION}", layout.display());
    let mut config = Command::new("umoci");
    config.args(["config", "--image", &tag]);
    for argument in ["serve", "--bind", "127.0.0.1:4000", "--echo"] {
        config.arg(format!("--config.cmd={argument}"));
    }
    succeed(&mut config)?;
    succeed(Command::new("umoci").args(["unpack", "--image", &tag]).arg(&bundle))?;
    let file = bundle.join("config.json");
    let mut text = fs::read_to_string(&file)?;
    // There is no terminal here.
    for (given, wanted) in [
        ("\"terminal\": true", "\"terminal\": false"),
        ("\"path\": \"rootfs\"", "\"path\": \"rootfs\", \"readonly\": true"),
    ] {
        if !text.contains(given) {
            let why = format!("umoci wrote no {given} to {}", file.display());
            return Err(Error::other(why));
        }
        text = text.replace(given, wanted);
    }
    fs::write(file, text)?;
    Ok(bundle)
}

/// A container of runc, removed when it is dropped.
struct Container(String);

impl Container {
    /// Runs the image's server, and calls it from inside; returns the version that it prints.
    fn call(&self, bundle: &Path) -> io::Result<String> {
        let mut run = Command::new("runc");
        let (_server, address) =
            RunningProgram::serve(run.arg("run").arg("--bundle").arg(bundle).arg(&self.0))?;
        let user = output(Command::new("runc").args(["ps", &self.0]))?;
        if user.contains("root") {
            return Err(Error::other(format!("the server does not run as its own user:\n{user}")));
        }
        let mut call = Command::new("runc");
        output(call.args(["exec", &self.0, "/homa", "call", &address]))?;
        let mut proxy = Command::new("runc");
        proxy.args(["exec", &self.0, "/homa", "proxy", "--listen", "http://127.0.0.1:0", "--to"]);
        RunningProgram::start(proxy.arg(format!("homa://{address}")))?.line("listening on ")?;
        output(Command::new("runc").args(["exec", &self.0, "/homa", "--version"]))
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = Command::new("runc").args(["delete", "--force", &self.0]).output();
    }
}
