//! `cargo xtask package`: what users of Linux install, in `target/packages`: Debian packages of the
//! program and of libhoma, and a container image. Unoptimised ones are in `target/packages-debug`.
//!
//! Everything in a package comes from the tracked sources or from the program itself (man pages,
//! completions), with the time of the last commit, so that two builds of one commit are the same.
//! Left out: crates and Python wheels, which cargo and maturin make alone.

mod container;
pub(crate) mod deb;
pub(crate) mod notices;
pub(crate) mod pages;

use std::fs;
use std::io::{self, Error, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use crate::install;
use crate::process::{cargo, output, remove_folder};

pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What `package` makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `homa`, `libhoma0` and `libhoma-dev`.
    Debian,
    /// An image of the program, linked statically, and its licences.
    Container,
}

/// What the command line asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackageRequest {
    /// Quickly and unoptimised.
    debug: bool,
    /// The kinds that are named, or all.
    kinds: Vec<Kind>,
    /// True if kinds are named: a machine that cannot make one of them is an error.
    named: bool,
}

/// Reads the command line; an error names what is unknown.
pub fn parse(arguments: &[&str]) -> Result<PackageRequest, String> {
    let (mut debug, mut kinds) = (false, Vec::new());
    for argument in arguments {
        match *argument {
            "--debug" => debug = true,
            "deb" => kinds.push(Kind::Debian),
            "container" => kinds.push(Kind::Container),
            other => return Err(format!("no kind `{other}`; there are deb, container")),
        }
    }
    let named = !kinds.is_empty();
    if !named {
        kinds = vec![Kind::Debian, Kind::Container];
    }
    Ok(PackageRequest { debug, kinds, named })
}

/// Makes the packages that arguments ask for, and lists them.
pub fn run(repository: &Path, arguments: &[&str]) -> ExitCode {
    let made = match parse(arguments) {
        Ok(request) => make(repository, &request),
        Err(error) => {
            eprintln!("package: {error}");
            return ExitCode::from(2);
        }
    };
    match made {
        Ok(packages) => {
            for package in packages {
                let bytes = fs::metadata(&package).map_or(0, |file| file.len());
                println!("{:>9} kB  {}", bytes.div_ceil(1000), package.display());
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("cannot make the packages: {error}");
            ExitCode::from(2)
        }
    }
}

/// Makes the Debian packages of a release; returns their paths.
pub fn debian_packages(repository: &Path) -> io::Result<Vec<PathBuf>> {
    make(repository, &PackageRequest { debug: false, kinds: vec![Kind::Debian], named: true })
}

/// Makes the container image of a release; returns its path.
pub fn container_image(repository: &Path) -> io::Result<PathBuf> {
    let request = PackageRequest { debug: false, kinds: vec![Kind::Container], named: true };
    make(repository, &request)?.pop().ok_or_else(|| Error::other("no image was made"))
}

/// Makes the packages; returns their paths.
fn make(repository: &Path, request: &PackageRequest) -> io::Result<Vec<PathBuf>> {
    let PackageRequest { debug, ref kinds, named } = *request;
    let inputs =
        Inputs { repository, debug, out: folder(repository, debug), epoch: epoch(repository) };
    fs::create_dir_all(&inputs.out)?;
    let mut packages = Vec::new();
    if kinds.contains(&Kind::Debian) {
        packages.extend(debian(&inputs)?);
    }
    if kinds.contains(&Kind::Container) {
        match static_program(&inputs) {
            Ok(program) => packages.push(container::build(&inputs, &program)?),
            Err(error) => {
                let error = format!("no program can be linked statically for the image: {error}");
                if named {
                    return Err(Error::other(error));
                }
                eprintln!("no container image: {error}");
            }
        }
    }
    remove_folder(&inputs.out.join("stage")).map(|()| packages)
}

/// Where packages are written: unoptimised ones never replace those of a release.
pub(crate) fn folder(repository: &Path, debug: bool) -> PathBuf {
    crate::target(repository).join(if debug { "packages-debug" } else { "packages" })
}

/// What every package is made from.
struct Inputs<'a> {
    repository: &'a Path,
    debug: bool,
    out: PathBuf,
    /// Seconds since 1970 that files in packages carry.
    epoch: String,
}

impl Inputs<'_> {
    /// A file of the repository.
    fn file(&self, path: &str) -> PathBuf {
        self.repository.join(path)
    }

    /// An empty folder for the files of a package.
    fn stage(&self, name: &str) -> io::Result<PathBuf> {
        let root = self.out.join("stage").join(name);
        remove_folder(&root)?;
        fs::create_dir_all(&root).map(|()| root)
    }
}

/// The time of the last commit, unless `SOURCE_DATE_EPOCH` names another.
fn epoch(repository: &Path) -> String {
    let given = std::env::var("SOURCE_DATE_EPOCH").ok();
    let commit = || {
        let mut git = Command::new("git");
        output(git.args(["log", "-1", "--format=%ct"]).current_dir(repository)).ok()
    };
    given.or_else(commit).map_or_else(|| "0".to_owned(), |time| time.trim().to_owned())
}

/// Compresses as Debian's policy asks, without name and time.
fn gzip(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut gzip = Command::new("gzip");
    let gzip = gzip.args(["-9n"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut gzip = gzip.map_err(|error| Error::other(format!("`gzip` does not run: {error}")))?;
    let mut pipe = gzip.stdin.take().ok_or_else(|| Error::other("`gzip` has no input"))?;
    let bytes = bytes.to_vec();
    // A second thread writes, because gzip stops reading while its output is not read.
    let writer = std::thread::spawn(move || pipe.write_all(&bytes));
    let packed = gzip.wait_with_output()?;
    if !packed.status.success() {
        return Err(Error::other(format!("`gzip` failed ({}): see above", packed.status)));
    }
    writer.join().map_err(|_| Error::other("`gzip` took no input"))??;
    Ok(packed.stdout)
}

/// The program as packages have it: with `homa proxy`.
const PROGRAM: [&str; 4] = ["--package", "homa-rpc-cli", "--features", "grpc"];

/// Builds the program for this machine; returns its path.
fn program(inputs: &Inputs<'_>, arguments: &[&str], folder: &str) -> io::Result<PathBuf> {
    let mut build = cargo(inputs.repository);
    build.args(["build", "--quiet", "--locked"]).args(PROGRAM).args(arguments);
    if !inputs.debug {
        build.arg("--release");
    }
    if arguments.is_empty() {
        // Messages name the pages of the Debian package.
        build.env("HOMA_DOCS", pages::FOLDER);
    } else {
        build.env("RUSTFLAGS", "-C target-feature=+crt-static").env_remove("HOMA_DOCS");
    }
    output(&mut build)?;
    let profile = if inputs.debug { "debug" } else { "release" };
    Ok(crate::target(inputs.repository).join(folder).join(profile).join("homa"))
}

/// Builds the program with everything in it, also the C library. Naming the target keeps the flag
/// from build scripts, which have to load libraries.
fn static_program(inputs: &Inputs<'_>) -> io::Result<PathBuf> {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    program(inputs, &["--target", &target], &target)
}

/// Makes the three Debian packages.
fn debian(inputs: &Inputs<'_>) -> io::Result<[PathBuf; 3]> {
    let platform = deb::Platform::of_this_machine()?;
    deb::check_tool()?;
    let homa = homa_package(inputs, &platform)?;
    let [library, development] = library_packages(inputs, &platform)?;
    Ok([homa, library, development])
}

/// The program, its manual, the unit, the dissector, and examples for what surrounds them.
fn homa_package(inputs: &Inputs<'_>, platform: &deb::Platform) -> io::Result<PathBuf> {
    let program = program(inputs, &[], "")?;
    let root = inputs.stage("homa")?;
    let stage = deb::Staged::new(&root);
    stage.copy(&program, "usr/bin/homa", 0o755)?;
    // For the key, which the unit expects there.
    fs::create_dir_all(root.join("etc/homa"))?;
    let pages = inputs.stage("pages")?;
    output(Command::new(&program).arg("man").arg(&pages))?;
    stage.manual(&pages)?;
    for (shell, at) in [
        ("bash", "usr/share/bash-completion/completions/homa"),
        ("zsh", "usr/share/zsh/vendor-completions/_homa"),
        ("fish", "usr/share/fish/vendor_completions.d/homa.fish"),
    ] {
        let script = output(Command::new(&program).args(["completions", shell]))?;
        stage.write(at, script.as_bytes(), 0o644)?;
    }
    let mut units = Vec::new();
    for file in fs::read_dir(inputs.file("contrib/systemd"))? {
        let file = file?.path();
        let Some(name) = file.file_name().and_then(|name| name.to_str()) else { continue };
        match name.strip_suffix(".default") {
            Some(service) => pages::copy(&stage, &file, &format!("etc/default/{service}"))?,
            None => {
                pages::copy(&stage, &file, &format!("usr/lib/systemd/system/{name}"))?;
                units.push(name.to_owned());
            }
        }
    }
    units.sort();
    let plugin = format!("usr/lib/{}/wireshark/plugins/homa.lua", platform.triplet);
    pages::copy(&stage, &inputs.file("contrib/wireshark/homa.lua"), &plugin)?;
    for folder in ["bpftrace", "container", "monitoring"] {
        for file in fs::read_dir(inputs.file("contrib").join(folder))? {
            let file = file?;
            let name = file.file_name();
            let to = format!("usr/share/doc/homa/examples/{folder}/{}", name.to_string_lossy());
            pages::copy(&stage, &file.path(), &to)?;
        }
    }
    pages::install(inputs.repository, &stage)?;
    let notices = notices::text(inputs.repository, &PROGRAM, false)?;
    documents(inputs, &stage, "homa", &notices)?;
    let needs = deb::needs(&fs::read(&program)?);
    let package = deb::Package {
        name: "homa",
        section: "net",
        depends: needs,
        summary: "RPCs with low tail latency in user space: program",
        description: "Homa is a transport for RPCs in data centers. This package has the program \
                      homa, which serves, calls and measures RPCs, carries those of gRPC programs \
                      (homa proxy), and simulates networks, a unit of systemd for its echo server \
                      (not started by itself), completions for shells, a dissector for Wireshark, \
                      the documentation, and examples for Prometheus, Grafana, bpftrace and \
                      Kubernetes.",
    };
    for (script, text) in deb::unit_scripts(&units) {
        stage.write(&format!("DEBIAN/{script}"), text.as_bytes(), 0o755)?;
    }
    package.build(inputs, &stage, platform)
}

/// The shared library, and what is needed to build with it.
fn library_packages(inputs: &Inputs<'_>, platform: &deb::Platform) -> io::Result<[PathBuf; 2]> {
    let built = install::build(inputs.repository, inputs.debug)?;
    let [library, development] = [inputs.stage("libhoma0")?, inputs.stage("libhoma-dev")?];
    let folder = format!("lib/{}", platform.triplet);
    let pages = inputs.stage("pages")?;
    let usr = development.join("usr");
    install::place(inputs.repository, &built, &usr, Path::new("/usr"), &folder)?;
    fs::rename(usr.join("share/man"), pages.join("man"))?;
    let lib = library.join("usr").join(&folder);
    fs::create_dir_all(&lib)?;
    for name in [install::ABI.to_owned(), format!("libhoma.so.{VERSION}")] {
        fs::rename(usr.join(&folder).join(&name), lib.join(&name))?;
    }
    let needs = deb::needs(&fs::read(built.join("libhoma.so"))?);
    let notices = notices::text(inputs.repository, &["--package", "homa-rpc-capi"], false)?;
    let text = "Homa is a transport for RPCs in data centers.";
    let stage = deb::Staged::new(&library);
    documents(inputs, &stage, "libhoma0", &notices)?;
    stage.write("DEBIAN/triggers", b"activate-noawait ldconfig\n", 0o644)?;
    // Packages of programs that link the library find what to depend on here.
    let shlibs = format!("libhoma 0 libhoma0 (>= {VERSION})\n");
    stage.write("DEBIAN/shlibs", shlibs.as_bytes(), 0o644)?;
    let library = deb::Package {
        name: "libhoma0",
        section: "libs",
        depends: needs,
        summary: "RPCs with low tail latency in user space: library for C",
        description: &format!("{text} This package has the shared library."),
    };
    let library = library.build(inputs, &stage, platform)?;
    let stage = deb::Staged::new(&development);
    for section in fs::read_dir(pages.join("man"))? {
        stage.manual(&section?.path())?;
    }
    documents(inputs, &stage, "libhoma-dev", &notices)?;
    let development = deb::Package {
        name: "libhoma-dev",
        section: "libdevel",
        depends: vec![format!("libhoma0 (= {VERSION})")],
        summary: "RPCs with low tail latency in user space: to build C programs",
        description: &format!(
            "{text} This package has the header, the static library, the file of pkg-config, and \
             the manual pages."
        ),
    };
    Ok([library, development.build(inputs, &stage, platform)?])
}

/// Licences and the lists of changes.
fn documents(
    inputs: &Inputs<'_>,
    stage: &deb::Staged<'_>,
    name: &str,
    notices: &str,
) -> io::Result<()> {
    let folder = format!("usr/share/doc/{name}");
    let mit = fs::read_to_string(inputs.file("LICENSE-MIT"))?;
    let copyright = format!(
        "Homa for everyone may be used under the terms of the MIT licence (below) or of the\n\
         Apache License, version 2.0 (/usr/share/common-licenses/Apache-2.0 on Debian), as\n\
         you choose. NOTICES.gz has the licences of the crates that are linked in.\n\n{mit}"
    );
    stage.write(&format!("{folder}/copyright"), copyright.as_bytes(), 0o644)?;
    let changes = deb::changelog(name, &inputs.epoch)?;
    stage.write(&format!("{folder}/changelog.gz"), &gzip(changes.as_bytes())?, 0o644)?;
    let changes = fs::read(inputs.file("CHANGELOG.md"))?;
    stage.write(&format!("{folder}/CHANGELOG.md.gz"), &gzip(&changes)?, 0o644)?;
    stage.write(&format!("{folder}/NOTICES.gz"), &gzip(notices.as_bytes())?, 0o644)
}

#[cfg(test)]
mod tests;
