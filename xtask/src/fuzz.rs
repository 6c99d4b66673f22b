//! Runs the fuzz targets with the stable compiler: `fuzz/standalone.c` stands in for libFuzzer, and
//! draws inputs without regard to the paths that they take. The messages that it damages are the
//! test vectors of `docs/udp-encapsulation.md` and `docs/wire-grpc.md`.
//!
//! Left out: coverage, which takes cargo-fuzz and a nightly compiler (`fuzz/Cargo.toml`).

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use crate::process::{cargo, succeed};

/// A target.
struct Target {
    name: &'static str,
    /// Bytes of its longest inputs.
    longest: u64,
    /// Inputs are messages like the test vectors of this page; otherwise the choices of this many
    /// steps.
    vectors: Option<&'static str>,
}

const TARGETS: [Target; 4] = [
    Target { name: "wire_decode", longest: 2_048, vectors: Some("docs/udp-encapsulation.md") },
    Target { name: "endpoint_ops", longest: 8_192, vectors: None },
    Target { name: "grpc_decode", longest: 1_024, vectors: Some("docs/wire-grpc.md") },
    Target { name: "handshake", longest: 1_024, vectors: None },
];

/// Which inputs a target gets.
struct Inputs {
    runs: u64,
    seed: u64,
    first: u64,
}

/// `fuzz TARGET [--runs N] [--seed N] [--first N]`.
pub fn run(repository: &Path, arguments: &[&str]) -> ExitCode {
    let parsed = match arguments {
        [target, rest @ ..] => known(target).and_then(|target| Ok((target, inputs(rest)?))),
        [] => Err("which target?".to_owned()),
    };
    let ran = parsed.and_then(|(target, inputs)| {
        let program = build(repository, target.name).map_err(|error| error.to_string())?;
        go(repository, &program, target, &inputs)
    });
    match ran {
        Ok(code) => code,
        Err(why) => {
            eprintln!("fuzz: {why}");
            ExitCode::from(2)
        }
    }
}

fn known(name: &str) -> Result<&'static Target, String> {
    let found = TARGETS.iter().find(|target| target.name == name);
    let names = TARGETS.each_ref().map(|target| target.name).join(", ");
    found.ok_or_else(|| format!("no target `{name}`; there are {names}"))
}

fn inputs(arguments: &[&str]) -> Result<Inputs, String> {
    let mut inputs = Inputs { runs: 1_000_000, seed: 1, first: 0 };
    for pair in arguments.chunks(2) {
        let [name, value] = pair else { return Err(format!("{} asks for a number", pair[0])) };
        let number = value.replace('_', "").parse().map_err(|_| {
            format!("{name} asks for a whole number below 2^64, such as 1_000_000; not `{value}`")
        })?;
        match *name {
            "--runs" => inputs.runs = number,
            "--seed" => inputs.seed = number,
            "--first" => inputs.first = number,
            _ => return Err(format!("no option `{name}`; there are --runs, --seed, --first")),
        }
    }
    Ok(inputs)
}

/// Builds a target; returns the program.
fn build(repository: &Path, target: &str) -> io::Result<PathBuf> {
    let folder = crate::target(repository).join("fuzz");
    fs::create_dir_all(&folder)?;
    let (object, archive) = (folder.join("standalone.o"), folder.join("libstandalone.a"));
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let source = repository.join("fuzz/standalone.c");
    let mut compile = Command::new(compiler);
    compile.args(["-std=c11", "-D_POSIX_C_SOURCE=200809L", "-O2", "-Wall", "-Wextra", "-Werror"]);
    succeed(compile.arg("-c").arg(source).arg("-o").arg(&object))?;
    succeed(Command::new("ar").arg("crs").arg(&archive).arg(&object))?;
    let mut build = cargo(repository);
    build.args(["build", "--quiet", "--release", "--bin", target, "--manifest-path"]);
    build.arg(repository.join("fuzz/Cargo.toml")).arg("--target-dir").arg(&folder);
    succeed(build.env("CUSTOM_LIBFUZZER_PATH", &archive))?;
    Ok(folder.join("release").join(target))
}

fn go(
    repository: &Path,
    program: &Path,
    target: &Target,
    inputs: &Inputs,
) -> Result<ExitCode, String> {
    let numbers = [inputs.runs, inputs.seed, inputs.first, target.longest];
    let child = Command::new(program)
        .args(numbers.map(|number| number.to_string()))
        .stdin(Stdio::piped())
        .spawn();
    let mut child = child.map_err(|error| format!("{}: {error}", program.display()))?;
    let examples = match target.vectors {
        Some(page) => examples(&repository.join(page)).map_err(|error| error.to_string())?,
        None => String::new(),
    };
    if let Some(mut to) = child.stdin.take() {
        to.write_all(examples.as_bytes()).map_err(|error| error.to_string())?;
    }
    let status = child.wait().map_err(|error| error.to_string())?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The test vectors, a line of hexadecimal digits each.
fn examples(page: &Path) -> io::Result<String> {
    let page = fs::read_to_string(page)?;
    let mut lines = String::new();
    for line in page.lines() {
        let digits: String = line.split_whitespace().collect();
        let is_hex = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        match line.strip_prefix("    ") {
            Some(_) if is_hex => lines += &digits,
            _ => lines += "\n",
        }
    }
    Ok(lines + "\n")
}
