//! Debian packages in an empty root: dpkg installs them, a server and a client from there talk, a
//! gRPC call passes two proxies, each page of the documentation that something names is there, the
//! unit is valid and exposes little, a C program links, and purging leaves nothing.
//!
//! The root has dpkg's list, the libraries that the program loads and `/dev/null` (an empty file),
//! nothing else: no shell, no `/proc`, no `/etc`. So the scripts of the packages run outside it
//! (`DPKG_ROOT`), as they do when an image is built. Left out: a booted systemd.

use std::fs;
use std::io::{self, Error};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::program::RunningProgram;
use super::{Candidate, Outcome};
use crate::package::{deb, pages};
use crate::process::{output, remove_folder, there, works};

/// What is purged, in this order.
const PACKAGES: [&str; 3] = ["libhoma-dev", "libhoma0", "homa"];

/// Not asked of lintian: `DEBEMAIL` names the maintainer of what is published.
const UNCHECKED: &str = "bogus-mail-host,bogus-mail-host-in-debian-changelog";

/// Where the text of an error is from.
const ERROR: &str = "an error of `homa sim`";

/// The most that systemd may find exposed, of 100.
const EXPOSED: &str = "--threshold=30";

pub(super) fn check(candidate: &Candidate<'_>) -> io::Result<Vec<Outcome>> {
    let repository = candidate.repository;
    if let Some(why) = impossible() {
        return Ok(vec![Outcome::Skipped(why)]);
    }
    let packages = candidate.debian()?;
    let target = crate::target(repository);
    let root = Root::new(target.join("installed/root"), &target.join("release/homa"))?;
    let before = root.files()?;
    root.dpkg("--install", packages.iter().map(|path| path.as_os_str()))?;
    let installed = root.files()?.len() - before.len();
    let mut outcomes = vec![Outcome::Passed(format!("dpkg installed {installed} files"))];
    root.call()?;
    candidate.expect_version(&output(&mut root.homa(&["--version"]))?)?;
    outcomes.push(Outcome::Passed("the installed server answered the installed client".to_owned()));
    outcomes.push(root.documentation()?);
    outcomes.push(root.grpc()?);
    outcomes.push(root.unit()?);
    outcomes.push(root.links(repository)?);
    root.dpkg("--purge", PACKAGES)?;
    let after = root.files()?;
    if let Some(left) = after.iter().find(|file| !before.contains(file)) {
        return Err(Error::other(format!("purging the packages leaves {}", left.display())));
    }
    outcomes.push(Outcome::Passed("purging left nothing".to_owned()));
    outcomes.push(lint(packages)?);
    fs::remove_dir_all(target.join("installed"))?;
    Ok(outcomes)
}

/// Why packages cannot be installed here.
fn impossible() -> Option<String> {
    if there("dpkg") && there("dpkg-deb") {
        let may = works(Path::new("unshare"), &["--map-root-user", "true"]);
        return (!may).then(|| "this user may not make user namespaces (unshare -r)".to_owned());
    }
    Some("dpkg is missing (apt-get install dpkg)".to_owned())
}

/// A folder that stands for `/`.
struct Root {
    folder: PathBuf,
}

impl Root {
    /// An empty root with the libraries that `program` loads.
    fn new(folder: PathBuf, program: &Path) -> io::Result<Self> {
        remove_folder(&folder)?;
        for inner in ["info", "updates", "triggers"] {
            fs::create_dir_all(folder.join("var/lib/dpkg").join(inner))?;
        }
        fs::write(folder.join("var/lib/dpkg/status"), "")?;
        fs::create_dir(folder.join("dev"))?;
        fs::write(folder.join("dev/null"), "")?;
        let libraries = output(Command::new("ldd").arg(program))?;
        for library in libraries.split_whitespace().filter(|word| word.starts_with('/')) {
            let copy = folder.join(library.trim_start_matches('/'));
            fs::create_dir_all(copy.parent().unwrap_or(&folder))?;
            fs::copy(library, copy)?;
        }
        Ok(Self { folder })
    }

    /// Everything in it but dpkg's records, sorted.
    fn files(&self) -> io::Result<Vec<PathBuf>> {
        let (mut files, mut folders) = (Vec::new(), vec![self.folder.clone()]);
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder)? {
                let (path, kind) =
                    entry.and_then(|entry| Ok((entry.path(), entry.file_type()?)))?;
                if kind.is_dir() && !path.ends_with("var/lib/dpkg") {
                    folders.push(path);
                } else if !kind.is_dir() {
                    files.push(path);
                }
            }
        }
        files.sort();
        Ok(files)
    }

    /// Lets dpkg change it. The libraries are there without their packages.
    fn dpkg<I>(&self, action: &str, arguments: I) -> io::Result<()>
    where
        I: IntoIterator<Item: AsRef<std::ffi::OsStr>>,
    {
        let mut dpkg = Command::new("unshare");
        dpkg.args(["--map-root-user", "dpkg", "--log=/dev/null", "--force-depends"]);
        dpkg.args(["--force-script-chrootless", "--force-not-root"]);
        dpkg.arg("--root").arg(&self.folder).arg(action).args(arguments);
        output(&mut dpkg).map(drop)
    }

    /// The installed program, which sees nothing outside.
    fn homa(&self, arguments: &[&str]) -> Command {
        let mut homa = Command::new("unshare");
        homa.arg("--map-root-user").arg("--root").arg(&self.folder).arg("/usr/bin/homa");
        homa.args(arguments).stdin(Stdio::null());
        homa
    }

    /// Calls an echo server of this root.
    fn call(&self) -> io::Result<()> {
        // `unshare` becomes the program, so it is the process itself.
        let mut serve = self.homa(&["serve", "--bind", "127.0.0.1:0", "--echo"]);
        let (_serve, address) = RunningProgram::serve(&mut serve)?;
        output(&mut self.homa(&["call", &address])).map(drop)
    }

    /// Makes a gRPC call through two installed proxies, the second in front of a port without a
    /// server. Its status, which the second one gives, comes back through both.
    fn grpc(&self) -> io::Result<Outcome> {
        let curl = output(Command::new("curl").arg("--version")).unwrap_or_default();
        if !curl.split_whitespace().any(|feature| feature == "HTTP2") {
            let why = "there is no curl with HTTP/2 to make a gRPC call (apt-get install curl)";
            return Ok(Outcome::Skipped(why.to_owned()));
        }
        let proxy = |listen, to: &str| {
            let arguments = ["proxy", "--listen", listen, "--to", to];
            let mut proxy = RunningProgram::start(&mut self.homa(&arguments))?;
            proxy.line("listening on ").map(|at| (proxy, at))
        };
        let (_back, homa) = proxy("homa://127.0.0.1:0", "http://127.0.0.1:1")?;
        let (_front, http) = proxy("http://127.0.0.1:0", &homa)?;
        // A message of no bytes has a header of five zeros.
        let message = self.folder.with_file_name("message");
        fs::write(&message, [0; 5])?;
        let mut call = Command::new("curl");
        call.args(["--silent", "--show-error", "--http2-prior-knowledge", "--max-time", "30"]);
        call.args(["--noproxy", "*", "--header", "content-type: application/grpc"]);
        call.args(["--header", "te: trailers", "--data-binary"]);
        call.arg(format!("@{}", message.display())).args(["--dump-header", "-"]);
        let answer = output(call.arg(format!("{http}/homa.Check/Call")))?;
        fs::remove_file(message)?;
        let refused =
            answer.contains("grpc-status: 14") && answer.contains("cannot%20be%20reached");
        match refused {
            true => Ok(Outcome::Passed("a gRPC call passed two installed proxies".to_owned())),
            false => Err(Error::other(format!("no status came through two proxies: {answer}"))),
        }
    }

    /// Whether each page is there that an installed file, help or an error names.
    fn documentation(&self) -> io::Result<Outcome> {
        let there = |page: &str| {
            self.folder.join(pages::FOLDER.trim_start_matches('/')).join(page).is_file()
        };
        let program = self.folder.join("usr/bin/homa");
        let mut named = 0;
        for (from, text) in self.texts()? {
            let installed = pages::named(&text, &format!("{}/", pages::FOLDER));
            // The program has names of the repository, and prints others.
            let of_repository = pages::named(&text, "docs/");
            let lost = installed.iter().chain(&of_repository).find(|page| !there(page));
            let lost = lost.or(of_repository.first().filter(|_| from != program));
            if let Some(page) = lost {
                let from = from.display();
                return Err(Error::other(format!("{from} names {page}, which is not there")));
            }
            if from.starts_with(ERROR) && installed.is_empty() {
                return Err(Error::other(format!("no page is named by the error: {text}")));
            }
            named += installed.len() + of_repository.len();
        }
        Ok(Outcome::Passed(format!("{named} names of pages lead to installed ones")))
    }

    /// Installed files apart from the documentation, and an error of the program.
    fn texts(&self) -> io::Result<Vec<(PathBuf, String)>> {
        let mistake = self.homa(&["sim", "--set", "nonsense=1"]).output()?.stderr;
        let mut texts = vec![(PathBuf::from(ERROR), mistake)];
        let documents = self.folder.join("usr/share/doc");
        let examples = documents.join("homa/examples");
        for file in self.files()? {
            if file.starts_with(&documents) && !file.starts_with(&examples) {
                continue;
            }
            let bytes = match file.extension().is_some_and(|ending| ending == "gz") {
                true => Command::new("gzip").arg("-dc").arg(&file).output()?.stdout,
                false => fs::read(&file)?,
            };
            texts.push((file, bytes));
        }
        // Manual pages have `\-` for a hyphen.
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).replace("\\-", "-");
        Ok(texts.into_iter().map(|(from, bytes)| (from, text(bytes))).collect())
    }

    /// Whether systemd accepts the installed units, and what they expose.
    fn unit(&self) -> io::Result<Outcome> {
        if !there("systemd-analyze") {
            let why = "systemd-analyze is missing (apt-get install systemd)";
            return Ok(Outcome::Skipped(why.to_owned()));
        }
        // A copy of the units names the installed program, since this root has none of the units
        // of a system that they refer to.
        let units = self.folder.join("usr/lib/systemd/system");
        let program = self.folder.join("usr/bin/homa").to_string_lossy().into_owned();
        let copies = self.folder.with_file_name("units");
        fs::create_dir_all(&copies)?;
        for unit in fs::read_dir(units)? {
            let unit = unit?;
            let text = fs::read_to_string(unit.path())?.replace("/usr/bin/homa", &program);
            fs::write(copies.join(unit.file_name()), text)?;
        }
        let service = copies.join("homa-echo.service");
        for arguments in [&["verify"][..], &["security", "--offline=true", EXPOSED]] {
            output(Command::new("systemd-analyze").args(arguments).arg(&service))?;
        }
        fs::remove_dir_all(copies)?;
        Ok(Outcome::Passed("systemd accepts the unit, and finds little exposed".to_owned()))
    }

    /// Builds a C program with the installed header and library, as pkg-config says.
    fn links(&self, repository: &Path) -> io::Result<Outcome> {
        if !there("pkg-config") || !there("cc") {
            return Ok(Outcome::Skipped("pkg-config or a C compiler is missing".to_owned()));
        }
        let triplet = deb::Platform::of_this_machine()?.triplet;
        let lib = self.folder.join("usr/lib").join(triplet);
        let mut flags = Command::new("pkg-config");
        flags.args(["--cflags", "--libs", "homa"]).env("PKG_CONFIG_SYSROOT_DIR", &self.folder);
        // Otherwise the folders that compilers search anyway are left out, and these are elsewhere.
        flags.env("PKG_CONFIG_ALLOW_SYSTEM_CFLAGS", "1").env("PKG_CONFIG_ALLOW_SYSTEM_LIBS", "1");
        let flags = output(flags.env("PKG_CONFIG_LIBDIR", lib.join("pkgconfig")))?;
        let client = self.folder.with_file_name("echo_client");
        let mut compile = Command::new("cc");
        compile
            .arg("-o")
            .arg(&client)
            .arg(repository.join("crates/homa-capi/examples/echo_client.c"));
        output(compile.args(flags.split_whitespace()))?;
        let loaded = output(Command::new("ldd").arg(&client).env("LD_LIBRARY_PATH", &lib))?;
        fs::remove_file(client)?;
        match loaded.contains(&lib.join("libhoma.so.0").to_string_lossy().into_owned()) {
            true => Ok(Outcome::Passed("a C program links and finds libhoma.so.0".to_owned())),
            false => Err(Error::other(format!("a C program does not find libhoma.so.0: {loaded}"))),
        }
    }
}

/// Debian's own check of packages.
fn lint(packages: &[PathBuf]) -> io::Result<Outcome> {
    if !there("lintian") {
        let why = "lintian is missing (apt-get install lintian)";
        return Ok(Outcome::Skipped(why.to_owned()));
    }
    let mut lintian = Command::new("lintian");
    lintian.args(["--fail-on", "error", "--allow-root", "--suppress-tags", UNCHECKED]);
    output(lintian.args(packages))?;
    Ok(Outcome::Passed("lintian finds no error".to_owned()))
}
