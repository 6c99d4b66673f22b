//! `cargo xtask generated`: compares code that is generated, and committed so that users need no
//! generator, with what its sources give. `--write` writes it anew.
//!
//! The C header is cbindgen's, and the code for gRPC is what tonic generates, by a compiler of
//! definitions in Rust, so that no `protoc` is needed. Left out: the list of public items and
//! README's numbers, which have tasks of their own.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs};

/// The definitions of services, and the folder and name of their code, all in crates/homa-tonic.
const SERVICES: [(&str, &str, &str); 2] = [
    ("interop.proto", "tests/it/generated", "grpc.testing.rs"),
    ("search.proto", "examples/search/generated", "search.rs"),
];

/// The modules of crates/homa-capi whose functions C programs call, in the header's order.
const FUNCTIONS: [&str; 8] =
    ["options", "keys", "open", "send", "receive", "pieces", "balance", "error"];

/// A committed file and what its sources give today.
struct Generated {
    path: PathBuf,
    text: String,
}

fn main() -> ExitCode {
    let write = match env::args().skip(1).collect::<Vec<_>>().as_slice() {
        [] => false,
        [write] if write == "--write" => true,
        _ => {
            eprintln!("usage: cargo xtask generated [--write]");
            return ExitCode::from(2);
        }
    };
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates");
    match generate(&crates).and_then(|files| settle(&files, write)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            println!("run `cargo xtask generated --write` and commit what it wrote");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("cannot generate: {error}");
            ExitCode::from(2)
        }
    }
}

fn generate(crates: &Path) -> Result<Vec<Generated>, Box<dyn Error>> {
    let mut files = vec![header(&crates.join("homa-capi"))?];
    for (definitions, folder, name) in SERVICES {
        let tonic = crates.join("homa-tonic");
        let text = service(&tonic.join("proto"), definitions, name)?;
        files.push(Generated { path: tonic.join(folder).join(name), text });
    }
    Ok(files)
}

/// Writes the files that differ, or names them and returns false.
fn settle(files: &[Generated], write: bool) -> Result<bool, Box<dyn Error>> {
    let mut fresh = true;
    for Generated { path, text } in files {
        if fs::read_to_string(path).is_ok_and(|committed| committed == *text) {
            continue;
        }
        if write {
            fs::write(path, text)?;
        } else {
            println!("{} is stale", path.canonicalize().as_ref().unwrap_or(path).display());
            fresh = false;
        }
    }
    Ok(fresh)
}

/// The header of libhoma.
fn header(library: &Path) -> Result<Generated, Box<dyn Error>> {
    let config = cbindgen::Config::from_file(library.join("cbindgen.toml"))?;
    let mut builder = cbindgen::Builder::new().with_config(config);
    for source in FUNCTIONS {
        builder = builder.with_src(library.join("src").join(source).with_extension("rs"));
    }
    let mut made = Vec::new();
    builder.generate()?.write(&mut made);
    // C90 has no such comments.
    let text = String::from_utf8(made)?.replace("// __cplusplus", "/* __cplusplus */");
    Ok(Generated { path: library.join("include/homa.h"), text })
}

/// The code of the services that a file defines.
fn service(folder: &Path, definitions: &str, name: &str) -> Result<String, Box<dyn Error>> {
    let descriptors = protox::compile([definitions], [folder])?;
    let made = env::current_exe()?.with_file_name("services");
    fs::create_dir_all(&made)?;
    let builder = tonic_prost_build::configure().build_transport(false);
    builder.emit_rerun_if_changed(false).out_dir(&made).compile_fds(descriptors)?;
    Ok(fs::read_to_string(made.join(name))?)
}
