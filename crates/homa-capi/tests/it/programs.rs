//! Builds and runs C programs with the installed library, as a user would. The programs are the
//! examples and those in `c/`. They use real sockets on loopback, and run under valgrind if it is
//! installed.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;

use crate::certificates;

const STRICT: [&str; 5] = ["-g", "-Wall", "-Wextra", "-Werror", "-pedantic"];

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Names the folder of a libhoma that is built already, as it is for `cargo xtask test`.
const LIBRARIES: &str = "HOMA_LIBRARIES";

/// The folder in which `cargo xtask install-capi` installs libhoma for these tests.
fn prefix() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| {
        let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join("installed");
        let mut install = Command::new(env!("CARGO"));
        install.args(["xtask", "install-capi"]);
        match std::env::var_os(LIBRARIES) {
            Some(built) => install.arg("--built").arg(built),
            None => install.arg("--debug"),
        };
        install.arg("--prefix").arg(&prefix);
        succeed(install.current_dir(here()));
        prefix
    })
}

fn succeed(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{text}", output.status);
    output
}

fn installed(tool: &str) -> bool {
    let mut version = Command::new(tool);
    version.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    version.status().is_ok_and(|status| status.success())
}

/// True if the tool is installed. Otherwise prints what is left out.
fn found(tool: &str, purpose: &str) -> bool {
    let found = installed(tool);
    if !found {
        skip::part(&format!("{tool} (apt-get install {tool}): {purpose}"));
    }
    found
}

/// The flags from `pkg-config`, or from homa.pc if it is not installed.
fn flags(extra: &[&str]) -> Vec<String> {
    let lib = prefix().join("lib");
    if !found("pkg-config", "homa.pc is not tried") {
        let include = format!("-I{}", prefix().join("include").display());
        let (lib, rpath) =
            (format!("-L{}", lib.display()), format!("-Wl,-rpath,{}", lib.display()));
        return vec![include, lib, rpath, "-lhoma".into()];
    }
    let mut ask = Command::new("pkg-config");
    ask.args(["--cflags", "--libs"]).args(extra).arg("homa");
    let output = succeed(ask.env("PKG_CONFIG_PATH", lib.join("pkgconfig")));
    let text = String::from_utf8(output.stdout).unwrap();
    text.split_whitespace().map(str::to_owned).collect()
}

/// Compiles `source`, named by its path from this crate.
fn compile(source: &str) -> PathBuf {
    let name = Path::new(source).file_stem().unwrap();
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mut cc = Command::new("cc");
    cc.args(STRICT).args(["-std=c99", "-D_DEFAULT_SOURCE"]).arg(here().join(source));
    succeed(cc.arg("-o").arg(&program).args(flags(&[])).arg("-pthread"));
    program
}

/// Returns a command that runs a program, directly or under valgrind.
fn command(program: &Path, checked: bool) -> Command {
    let mut command = Command::new(if checked { Path::new("valgrind") } else { program });
    if checked {
        command.args(["--quiet", "--error-exitcode=9", "--leak-check=full"]);
        command.args(["--errors-for-leak-kinds=definite", "--show-leak-kinds=definite"]);
        command.args(["--child-silent-after-fork=yes"]);
        // Threads take turns. Otherwise one that is busy can keep the others waiting for long.
        command.arg("--fair-sched=yes");
        command.arg(program);
    }
    // The program finds the library without this variable, because homa.pc told the linker.
    command.env_remove("LD_LIBRARY_PATH");
    command
}

/// Runs a program directly, and then under valgrind if it is installed.
fn run_both(source: &str) {
    let program = compile(source);
    succeed(&mut command(&program, false));
    if found("valgrind", "a run under valgrind") {
        succeed(&mut command(&program, true));
    }
}

/// Starts an echo server for `count` requests. Also returns its port.
fn echo_server(count: usize, checked: bool) -> (Child, String) {
    static SERVER: OnceLock<PathBuf> = OnceLock::new();
    let program = SERVER.get_or_init(|| compile("examples/echo_server.c"));
    let mut server = command(program, checked);
    server.args(["0", &count.to_string()]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut server = server.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let port = line.trim().rsplit(' ').next().unwrap().to_owned();
    (server, port)
}

fn ends_well(mut server: Child) {
    let status = server.wait().unwrap();
    let mut text = String::new();
    server.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(status.success(), "server: {status}\n{text}");
}

#[test]
fn the_echo_server_and_client_understand_each_other() {
    let client = compile("examples/echo_client.c");
    for checked in [false, found("valgrind", "the echo example under valgrind")] {
        let (server, port) = echo_server(5, checked);
        let output = succeed(command(&client, checked).args(["127.0.0.1", &port]));
        assert!(String::from_utf8_lossy(&output.stdout).ends_with("500000 bytes\n"));
        ends_well(server);
    }
}

#[test]
fn the_guides_program_in_c_runs_as_printed() {
    let page = std::fs::read_to_string(here().join("../../docs/guide/c.md")).unwrap();
    let blocks: Vec<&str> = page.split("```c\n").skip(1).collect();
    assert!(!blocks.is_empty());
    for block in blocks {
        let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join("readme.c");
        let code = block.split("```").next().unwrap();
        let is_program = code.contains("int main(");
        let main = if is_program { "" } else { "int main(void) { return 0; }\n" };
        std::fs::write(&source, format!("{code}{main}")).unwrap();
        let client = compile(&source.display().to_string());
        if !is_program {
            continue;
        }
        let (server, port) = echo_server(1, false);
        let output = succeed(command(&client, false).args(["127.0.0.1", &port]));
        assert_eq!(String::from_utf8_lossy(&output.stdout), "ping\n");
        ends_well(server);
    }
}

#[test]
fn an_epoll_loop_keeps_hundreds_of_calls_in_progress() {
    let client = compile("examples/epoll.c");
    let valgrind = found("valgrind", "the epoll example under valgrind");
    for (calls, checked) in [(20_000, false), (1_000, valgrind)] {
        let (server, port) = echo_server(calls, false);
        let calls = calls.to_string();
        succeed(command(&client, checked).args(["127.0.0.1", &port, &calls, "300"]));
        ends_well(server);
    }
}

#[test]
fn code_in_the_style_of_the_slides_compiles_unchanged_and_runs() {
    run_both("examples/slides.c");
}

#[test]
fn failures_set_the_errno_that_the_manual_promises() {
    run_both("tests/c/errors.c");
}

#[test]
fn certificates_name_peers_and_a_policy_refuses_one() {
    let program = compile("tests/c/certificates.c");
    let folder = certificates::folder(&["reader", "writer"]);
    for checked in [false, found("valgrind", "certificates under valgrind")] {
        succeed(command(&program, checked).arg(&folder));
    }
}

#[test]
fn clients_that_share_keys_send_calls_early() {
    run_both("tests/c/early.c");
}

#[test]
fn messages_fit_every_kind_of_buffer_over_every_driver() {
    run_both("tests/c/messages.c");
    let alone = ["-Urn", "sh", "-c", "ip link set lo up && exec \"$@\"", "sh"];
    let mut unshare = Command::new("unshare");
    if !unshare.args(["-Urn", "ip", "link"]).output().is_ok_and(|tried| tried.status.success()) {
        skip::part("user namespaces and ip (apt-get install iproute2): raw IP");
        return;
    }
    for driver in ["udp", "raw-ip"] {
        let mut unshare = command(Path::new("unshare"), false);
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("messages");
        succeed(unshare.args(alone).arg(program).arg(driver));
    }
}

#[test]
fn messages_are_read_and_written_in_pieces() {
    run_both("tests/c/pieces.c");
}

#[test]
fn an_upload_is_hashed_while_it_arrives() {
    let program = compile("examples/upload.c");
    for (calls, checked) in [("20", false), ("2", found("valgrind", "uploads under valgrind"))] {
        succeed(command(&program, checked).arg(calls));
    }
}

#[test]
fn a_name_with_a_silent_and_a_dead_server_answers_every_call() {
    run_both("tests/c/balance.c");
}

#[test]
fn threads_share_sockets() {
    run_both("tests/c/threads.c");
}

#[test]
fn the_header_is_clean_in_c_and_cplusplus_of_several_standards() {
    let include = format!("-I{}", here().join("include").display());
    let try_it = |compiler: &str, language: &str, standard: &str| {
        let mut cc = Command::new(compiler);
        cc.args(STRICT).args(["-fsyntax-only", "-x", language, standard, &include]);
        let uses = "#include <homa.h>\nint main(void) {\n    \
                    struct homa_options o = HOMA_OPTIONS_INIT;\n    \
                    struct homa_send_options s = HOMA_SEND_OPTIONS_INIT;\n    \
                    struct homa_balance_options b = HOMA_BALANCE_OPTIONS_INIT;\n    \
                    return o.size == s.size + b.size;\n}\n";
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{language}{standard}.txt"));
        std::fs::write(&file, uses).unwrap();
        succeed(cc.arg(file));
    };
    for standard in ["-std=c90", "-std=c99", "-std=c11", "-std=c17"] {
        try_it("cc", "c", standard);
    }
    if found("c++", "the header in C++") {
        for standard in ["-std=c++11", "-std=c++17"] {
            try_it("c++", "c++", standard);
        }
    }
}

#[test]
fn the_shared_library_only_exports_homa_functions_and_its_abi() {
    let library = prefix().join("lib/libhoma.so");
    if !found("nm", "the list of exported symbols") {
        return;
    }
    let mut nm = Command::new("nm");
    let output = succeed(nm.args(["--dynamic", "--defined-only"]).arg(&library));
    let text = String::from_utf8(output.stdout).unwrap();
    let names: Vec<_> = text.lines().filter_map(|line| line.rsplit(' ').next()).collect();
    assert!(names.len() > 10, "{text}");
    assert!(names.iter().all(|name| name.starts_with("homa_")), "{text}");
    let header = std::fs::read_to_string(here().join("include/homa.h")).unwrap();
    for name in names {
        assert!(header.contains(&format!("{name}(")), "{name} is missing in homa.h");
    }
    let mut objdump = Command::new("objdump");
    let output = succeed(objdump.arg("-p").arg(&library));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let soname = text.lines().find(|line| line.contains("SONAME")).unwrap_or_default();
    assert!(soname.trim_end().ends_with(" libhoma.so.0"), "{soname}");
}

#[test]
fn a_program_can_be_linked_statically_with_libhoma() {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("static_slides");
    let mut cc = Command::new("cc");
    cc.arg(here().join("examples/slides.c")).arg("-o").arg(&program);
    cc.arg(format!("-I{}", prefix().join("include").display()));
    cc.arg(prefix().join("lib/libhoma.a"));
    let pc = std::fs::read_to_string(prefix().join("lib/pkgconfig/homa.pc")).unwrap();
    let private = pc.lines().find_map(|line| line.strip_prefix("Libs.private: ")).unwrap();
    succeed(cc.args(private.split_whitespace()));
    succeed(&mut Command::new(program));
}

#[test]
fn every_function_has_a_manual_page_without_mistakes() {
    let pages = prefix().join("share/man");
    let header = std::fs::read_to_string(here().join("include/homa.h")).unwrap();
    let declared = header.lines().filter_map(|line| line.split_once('('));
    let name = |before: &str| Some(before.rsplit([' ', '*']).next()?.to_owned());
    let functions = declared.filter_map(|(before, _)| name(before));
    let functions: Vec<_> = functions.filter(|name| name.starts_with("homa_")).collect();
    assert!(functions.len() > 10, "{functions:?}");
    for function in functions {
        let page = pages.join("man3").join(format!("{function}.3"));
        assert!(page.exists(), "{function} has no page: write one, or a link to one, in man/");
    }
    if !found("groff", "the check of the manual pages") {
        return;
    }
    for section in ["man3", "man7"] {
        for page in std::fs::read_dir(pages.join(section)).unwrap() {
            let mut groff = Command::new("groff");
            groff.args(["-man", "-Tutf8", "-ww", "-z"]).arg(page.unwrap().path());
            let output = succeed(groff.current_dir(&pages));
            assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        }
    }
}
