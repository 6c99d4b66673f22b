//! Debian packages, written with `dpkg-deb` alone: no debhelper, so that any machine that has dpkg
//! makes the same.

use std::fs;
use std::io::{self, Error};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{Inputs, VERSION, gzip};
use crate::process::output;

/// Names of this machine's architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Platform {
    /// Debian's name, for example amd64.
    pub(crate) name: &'static str,
    /// The folder of libraries below `/usr/lib`.
    pub(crate) triplet: &'static str,
}

impl Platform {
    pub(crate) fn of_this_machine() -> io::Result<Self> {
        match std::env::consts::ARCH {
            "x86_64" => Ok(Self { name: "amd64", triplet: "x86_64-linux-gnu" }),
            "aarch64" => Ok(Self { name: "arm64", triplet: "aarch64-linux-gnu" }),
            other => Err(Error::other(format!("no name of Debian is known for {other}: add it"))),
        }
    }
}

/// An error with the remedy, if `dpkg-deb` is not there.
pub(super) fn check_tool() -> io::Result<()> {
    let ran = Command::new("dpkg-deb").arg("--version").stdout(Stdio::null()).status();
    ran.map(drop).map_err(|error| {
        let remedy = "install the package dpkg, or ask for `container` alone";
        Error::other(format!(
            "`dpkg-deb`, which writes Debian packages, is missing: {remedy} ({error})"
        ))
    })
}

/// The files of a package before they are packed; paths are relative to the root.
pub(super) struct Staged<'a> {
    root: &'a Path,
}

impl<'a> Staged<'a> {
    pub(super) fn new(root: &'a Path) -> Self {
        Self { root }
    }

    pub(super) fn write(&self, to: &str, bytes: &[u8], mode: u32) -> io::Result<()> {
        let path = self.root.join(to);
        fs::create_dir_all(path.parent().unwrap_or(self.root))?;
        fs::write(&path, bytes)?;
        fs::set_permissions(path, fs::Permissions::from_mode(mode))
    }

    pub(super) fn copy(&self, from: &Path, to: &str, mode: u32) -> io::Result<()> {
        self.write(to, &fs::read(from)?, mode)
    }

    /// Compresses the manual pages of a folder to their sections.
    pub(super) fn manual(&self, pages: &Path) -> io::Result<()> {
        for page in fs::read_dir(pages)? {
            let page = page?.path();
            let (Some(name), Some(section)) = (page.file_name(), page.extension()) else {
                continue;
            };
            let (name, section) = (name.to_string_lossy(), section.to_string_lossy());
            let to = format!("usr/share/man/man{section}/{name}.gz");
            self.write(&to, &gzip(&fs::read(&page)?)?, 0o644)?;
        }
        Ok(())
    }

    /// Paths of the regular files outside `DEBIAN`, and the bytes that all take. Everything becomes
    /// readable for all, whatever the umask is, and libraries are not executable.
    fn files(&self) -> io::Result<(Vec<String>, u64)> {
        let (mut files, mut bytes) = (Vec::new(), 0);
        let mut folders = vec![self.root.to_path_buf()];
        while let Some(folder) = folders.pop() {
            fs::set_permissions(&folder, fs::Permissions::from_mode(0o755))?;
            for entry in fs::read_dir(&folder)? {
                let (path, kind) =
                    entry.and_then(|entry| Ok((entry.path(), entry.file_type()?)))?;
                if kind.is_dir() {
                    folders.push(path);
                } else {
                    bytes += path.symlink_metadata()?.len();
                    let inside = path.strip_prefix(self.root).unwrap_or(&path);
                    let inside = inside.to_string_lossy().into_owned();
                    if kind.is_file() && !inside.starts_with("DEBIAN/") {
                        let mode = if inside.starts_with("usr/bin/") { 0o755 } else { 0o644 };
                        fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
                        files.push(inside);
                    }
                }
            }
        }
        files.sort();
        Ok((files, bytes))
    }
}

/// What a package says about itself.
pub(super) struct Package<'a> {
    pub(super) name: &'a str,
    pub(super) section: &'a str,
    pub(super) depends: Vec<String>,
    pub(super) summary: &'a str,
    pub(super) description: &'a str,
}

impl Package<'_> {
    /// Packs the staged files; returns the package's path.
    pub(super) fn build(
        &self,
        inputs: &Inputs<'_>,
        stage: &Staged<'_>,
        platform: &Platform,
    ) -> io::Result<PathBuf> {
        let (files, bytes) = stage.files()?;
        let mut sums = Command::new("md5sum");
        let sums = output(sums.arg("--").args(&files).current_dir(stage.root))?;
        stage.write("DEBIAN/md5sums", sums.as_bytes(), 0o644)?;
        let settings: String = files
            .iter()
            .filter(|path| path.starts_with("etc/"))
            .map(|path| format!("/{path}\n"))
            .collect();
        if !settings.is_empty() {
            stage.write("DEBIAN/conffiles", settings.as_bytes(), 0o644)?;
        }
        let control = self.control(platform.name, bytes.div_ceil(1024));
        stage.write("DEBIAN/control", control.as_bytes(), 0o644)?;
        fs::set_permissions(stage.root.join("DEBIAN"), fs::Permissions::from_mode(0o755))?;
        let path = inputs.out.join(format!("{}_{VERSION}_{}.deb", self.name, platform.name));
        // A debug build is ten times as large, and xz would take a minute.
        let compression: &[&str] = if inputs.debug { &["-Zgzip", "-z1"] } else { &["-Zxz"] };
        let mut pack = Command::new("dpkg-deb");
        pack.arg("--root-owner-group").args(compression).arg("--build").arg(stage.root).arg(&path);
        output(pack.env("SOURCE_DATE_EPOCH", &inputs.epoch))?;
        Ok(path)
    }

    /// The control file.
    fn control(&self, architecture: &str, kilobytes: u64) -> String {
        let maintainer = maintainer();
        let depends = match &self.depends[..] {
            [] => String::new(),
            list => format!("Depends: {}\n", list.join(", ")),
        };
        format!(
            "Package: {}\nVersion: {VERSION}\nArchitecture: {architecture}\n\
             Maintainer: {maintainer}\nInstalled-Size: {kilobytes}\n{depends}\
             Section: {}\nPriority: optional\nDescription: {}\n{}",
            self.name,
            self.section,
            self.summary,
            folded(self.description)
        )
    }
}

/// Who builds the package, as Debian's tools are told.
fn maintainer() -> String {
    let given = |name: &str, otherwise: &str| {
        std::env::var(name)
            .ok()
            .filter(|given| !given.is_empty() && !given.contains('\n'))
            .unwrap_or_else(|| otherwise.to_owned())
    };
    let name = given("DEBFULLNAME", "The contributors to Homa for everyone");
    format!("{name} <{}>", given("DEBEMAIL", "homa@localhost"))
}

/// The changelog in Debian's format, which apt reads. Its only entry names this version and points
/// to CHANGELOG.md.
pub(super) fn changelog(name: &str, epoch: &str) -> io::Result<String> {
    let mut date = Command::new("date");
    let date = output(date.args(["--utc", "--rfc-email", "--date"]).arg(format!("@{epoch}")))?;
    Ok(format!(
        "{name} ({VERSION}) unstable; urgency=medium\n\n  * CHANGELOG.md.gz lists the changes.\n\n \
         -- {}  {date}",
        maintainer()
    ))
}

/// Lines of at most 76 letters that begin with a space, as control files continue a field.
pub(super) fn folded(text: &str) -> String {
    let (mut lines, mut line) = (String::new(), String::new());
    for word in text.split_whitespace() {
        if line.len() + 1 + word.len() > 76 {
            lines.push_str(&line);
            lines.push('\n');
            line.clear();
        }
        line.push(' ');
        line.push_str(word);
    }
    lines + &line + "\n"
}

/// What a program needs from the C library and from the compiler's, as the names of symbol versions
/// in the file say; nothing if it is linked statically.
pub(super) fn needs(program: &[u8]) -> Vec<String> {
    let digits = |bytes: &[u8]| -> Option<u32> {
        let number: Vec<u8> = bytes.iter().copied().take_while(u8::is_ascii_digit).collect();
        String::from_utf8(number).ok()?.parse().ok()
    };
    let version = b"GLIBC_2.";
    let places = program.windows(version.len()).enumerate().filter(|(_, part)| part == version);
    let newest = places.filter_map(|(at, _)| digits(program.get(at + version.len()..)?)).max();
    let libc = newest.map(|minor| format!("libc6 (>= 2.{minor})"));
    let unwinder = b"\0libgcc_s.so.1\0";
    let unwinder = program.windows(unwinder.len()).any(|part| part == unwinder);
    libc.into_iter().chain(unwinder.then(|| "libgcc-s1".to_owned())).collect()
}

/// Scripts that tell systemd about new, changed and removed units. They do nothing while an image
/// is built (`DPKG_ROOT`), or without systemd. The units are not enabled: that is the
/// administrator's decision. An upgrade restarts services, whose sockets stay open. A service that
/// does not start, for example without its key, does not stop dpkg halfway.
pub(super) fn unit_scripts(units: &[String]) -> [(&'static str, String); 3] {
    let services: Vec<&str> =
        units.iter().map(String::as_str).filter(|unit| unit.ends_with(".service")).collect();
    let (units, services) = (units.join(" "), services.join(" "));
    let script = |action: &str, what: &str, more: &str| {
        format!(
            "#!/bin/sh\nset -e\nif [ \"$1\" = {action} ] && [ -z \"$DPKG_ROOT\" ] && \
             [ -d /run/systemd/system ]; then\n    {what}\n{more}fi\n"
        )
    };
    let restart =
        format!("    if [ -n \"$2\" ]; then systemctl try-restart {services} || true; fi\n");
    let disable = format!("systemctl disable --now {units} || true");
    [
        ("postinst", script("configure", "systemctl daemon-reload", &restart)),
        ("prerm", script("remove", &disable, "")),
        ("postrm", script("remove", "systemctl daemon-reload", "")),
    ]
}
