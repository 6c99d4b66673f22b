//! `cargo xtask install-capi --prefix DIR`: builds libhoma and installs what C programs need:
//! libraries, header, pkg-config file and manual pages. With `--built`, it installs libraries that
//! another command has built.

use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::process::cargo;

/// The part of the version that programs are linked against; `build.rs` of the crate says the same.
pub(crate) const ABI: &str = "libhoma.so.0";
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What static programs have to link besides, as `rustc --print native-static-libs` tells.
const STATIC_LIBRARIES: &str = "-lgcc_s -lutil -lrt -lpthread -lm -ldl -lc";

/// Where the libraries come from.
pub enum Libraries<'a> {
    /// They are built with optimisation.
    Release,
    /// They are built quickly.
    Debug,
    /// They are in this folder.
    Built(&'a Path),
}

/// Installs below `prefix`.
pub fn run(repository: &Path, prefix: &Path, libraries: Libraries<'_>) -> ExitCode {
    match install(repository, prefix, libraries) {
        Ok(()) => {
            println!("installed libhoma {VERSION} below {}", prefix.display());
            println!("{}", how_it_is_found(prefix));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("cannot install below {}: {error}", prefix.display());
            ExitCode::from(2)
        }
    }
}

fn install(repository: &Path, prefix: &Path, libraries: Libraries<'_>) -> io::Result<()> {
    let built = match libraries {
        Libraries::Release => build(repository, false)?,
        Libraries::Debug => build(repository, true)?,
        Libraries::Built(folder) => folder.to_owned(),
    };
    let prefix = std::path::absolute(prefix)?;
    place(repository, &built, &prefix, &prefix, "lib")
}

/// Copies what was built to the folder `to`, which programs will see as `prefix`; `lib` is the
/// folder of libraries in it.
pub(crate) fn place(
    repository: &Path,
    built: &Path,
    to: &Path,
    prefix: &Path,
    lib: &str,
) -> io::Result<()> {
    let source = repository.join("crates/homa-capi");
    let folder = |name: &str| {
        let folder = to.join(name);
        std::fs::create_dir_all(&folder).map(|()| folder)
    };
    let pc = pkg_config(prefix, lib);
    std::fs::write(folder(&format!("{lib}/pkgconfig"))?.join("homa.pc"), pc)?;
    let lib = folder(lib)?;
    let shared = format!("libhoma.so.{VERSION}");
    replace(&built.join("libhoma.so"), &lib.join(&shared))?;
    link(&shared, &lib.join(ABI))?;
    link(ABI, &lib.join("libhoma.so"))?;
    replace(&built.join("libhoma.a"), &lib.join("libhoma.a"))?;
    replace(&source.join("include/homa.h"), &folder("include")?.join("homa.h"))?;
    for page in std::fs::read_dir(source.join("man"))? {
        let page = page?.path();
        let (Some(name), Some(section)) = (page.file_name(), page.extension()) else { continue };
        let section = folder(&format!("share/man/man{}", section.to_string_lossy()))?;
        replace(&page, &section.join(name))?;
    }
    Ok(())
}

/// Builds the libraries; returns the folder they are in.
pub(crate) fn build(repository: &Path, debug: bool) -> io::Result<PathBuf> {
    let mut command = cargo(repository);
    command.args(["build", "--quiet", "--package", "homa-rpc-capi"]);
    if !debug {
        command.arg("--release");
    }
    if !command.status()?.success() {
        return Err(io::Error::other("libhoma does not build: see the errors above"));
    }
    Ok(crate::target(repository).join(if debug { "debug" } else { "release" }))
}

/// A new file, so that programs that run keep theirs.
fn replace(from: &Path, to: &Path) -> io::Result<()> {
    remove(to)?;
    std::fs::copy(from, to).map(drop)
}

fn link(to: &str, at: &Path) -> io::Result<()> {
    remove(at)?;
    symlink(to, at)
}

fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Folders that the loader searches by default, after `ldconfig` has listed their contents.
const SYSTEM: [&str; 2] = ["/usr", "/usr/local"];

/// How programs find the shared library when they start.
fn how_it_is_found(prefix: &Path) -> String {
    let lib = prefix.join("lib");
    let (lib, pc) = (lib.display(), lib.join("pkgconfig"));
    if SYSTEM.iter().any(|system| prefix == Path::new(system)) {
        return "run `ldconfig` as root once, so that programs find it when they start".to_owned();
    }
    format!(
        "programs built with `PKG_CONFIG_PATH={} pkg-config --cflags --libs homa` find it there \
         when they start (rpath); others need LD_LIBRARY_PATH={lib}",
        pc.display()
    )
}

fn pkg_config(prefix: &Path, lib: &str) -> String {
    // If the loader does not search a folder by default, programs have to name it.
    let rpath = match SYSTEM.iter().any(|system| prefix == Path::new(system)) {
        true => "",
        false => " -Wl,-rpath,${libdir}",
    };
    format!(
        "prefix={}\nlibdir=${{prefix}}/{lib}\nincludedir=${{prefix}}/include\n\n\
         Name: homa\nDescription: RPCs with low tail latency, in user space\n\
         Version: {VERSION}\nCflags: -I${{includedir}}\nLibs: -L${{libdir}}{rpath} -lhoma\n\
         Libs.private: {STATIC_LIBRARIES}\n",
        prefix.display()
    )
}
