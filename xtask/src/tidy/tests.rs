//! Each check finds what it is for, says where, and leaves good text alone; and the repository is
//! tidy.

use std::process::Command;

use super::check_file;

/// Findings as text, in a file of the given path.
fn findings(path: &str, text: &str) -> Vec<String> {
    check_file(path, text.as_bytes()).iter().map(ToString::to_string).collect()
}

/// Claims that there is exactly one finding, that it begins with `place`, and contains `advice`.
fn one(path: &str, text: &str, place: &str, advice: &str) {
    let found = findings(path, text);
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(found[0].starts_with(place) && found[0].contains(advice), "{}", found[0]);
}

#[test]
fn the_repository_is_tidy() {
    let findings = super::check(crate::repository()).unwrap();
    let list: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert!(list.is_empty(), "{} to do:\n{}", list.len(), list.join("\n"));
}

#[test]
fn what_lies_about_in_a_checkout_is_not_the_repositorys() {
    let root = std::env::temp_dir().join(format!("tidy-{}", std::process::id()));
    std::fs::create_dir_all(&root).unwrap();
    std::fs::write(root.join("README.md"), "# A\n").unwrap();
    std::fs::write(root.join("sim.pcapng"), vec![0xFF; 400_001]).unwrap();
    let files = || super::files(&root).unwrap();
    let without_git = files();
    let git = |arguments: &[&str]| {
        let ran = Command::new("git").args(arguments).current_dir(&root).output();
        ran.is_ok_and(|output| output.status.success())
    };
    let with_git = (git(&["init"]) && git(&["add", "README.md"])).then(files);
    std::fs::remove_dir_all(&root).unwrap();
    assert_eq!(without_git, ["README.md", "sim.pcapng"]);
    if let Some(files) = with_git {
        assert_eq!(files, ["README.md"]);
    }
}

#[test]
fn good_code_has_no_findings() {
    let text = "//! A header.\n\nuse std::collections::BTreeMap;\n\nfn f() {\n    g();\n}\n";
    assert!(findings("crates/homa-sim/src/a.rs", text).is_empty());
}

#[test]
fn modules_from_outside_of_a_crate_are_found() {
    let text = |to: &str| format!("//! H.\n\n#[path = \"{to}\"]\nmod other;\n");
    let outside = text("../../homa-tonic/examples/other.rs");
    one("crates/a/src/b.rs", &outside, "crates/a/src/b.rs:3: ", "a package lacks files");
    for (path, to) in [
        ("crates/a/src/b.rs", "../build.rs"),
        ("crates/a/src/b/c.rs", "../../build.rs"),
        ("crates/a/tests/it/main.rs", "../../../b/tests/common.rs"),
    ] {
        assert!(findings(path, &text(to)).is_empty(), "{path}: {to}");
    }
}

#[test]
fn long_files_functions_and_lines_are_found() {
    let long = format!("//! H.\n{}", "\n".repeat(500));
    one("a.rs", &long, "a.rs: ", "501 lines");
    let function = |lines: usize| {
        let body = "        g();\n".repeat(lines - 2);
        format!("//! H.\nimpl A {{\n    pub(crate) const fn f(\n{body}    }}\n}}\n")
    };
    assert!(findings("a.rs", &function(70)).is_empty());
    one("a.rs", &function(71), "a.rs:3: ", "71 lines");
    let line = |chars: usize| format!("//! {}\n", "é".repeat(chars - 4));
    assert!(findings("a.rs", &line(100)).is_empty());
    one("a.rs", &line(101), "a.rs:1: ", "101 characters");
    assert!(findings("a.md", &line(101)).is_empty(), "prose wraps itself");
}

#[test]
fn declarations_without_a_body_are_no_functions() {
    let many = "    fn f(&self);\n    fn g(\n        a: u8,\n    ) -> u8;\n".repeat(80);
    let text = format!("//! H.\ntrait A {{\n{many}}}\n");
    assert!(findings("a.rs", &text).is_empty());
}

#[test]
fn a_module_without_a_header_is_found() {
    one("a.rs", "fn f() {}\n", "a.rs:1: ", "begin with `//!`");
    one("a.rs", "", "a.rs:1: ", "begin with `//!`");
}

#[test]
fn leftovers_and_machine_paths_are_found_in_any_text() {
    let todo = concat!("see TO", "DO list\n");
    one("README.md", todo, "README.md:1: ", "open an issue");
    for name in [concat!("TO", "DOS"), concat!("NO_TO", "DO")] {
        assert!(findings("README.md", name).is_empty(), "{name} is a word of its own");
    }
    one("a.toml", concat!("\npath = \"/ro", "ot/x\"\n"), "a.toml:2: ", "one machine");
    let macros = [
        concat!("dbg", "!(1)"),
        concat!("todo", "!()"),
        concat!("unimplemented", "!()"),
        concat!("#[ign", "ore]"),
        concat!("#[ign", "ore = \"slow\"]"),
    ];
    for leftover in macros {
        let text = format!("//! H.\n{leftover}\n");
        one("a.rs", &text, "a.rs:2: ", "`");
        assert!(findings("a.md", &text).is_empty());
    }
}

#[test]
fn unchecked_code_belongs_to_drivers_and_the_testbed() {
    let text = concat!("//! H.\nuns", "afe { f() }\n");
    one("crates/homa-sim/src/a.rs", text, "crates/homa-sim/src/a.rs:2: ", "driver");
    one("crates/homa/src/pacer.rs", text, "crates/homa/src/pacer.rs:2: ", "driver");
    assert!(findings("crates/homa/src/driver/udp.rs", text).is_empty());
    assert!(findings("crates/homa-testbed/src/a.rs", text).is_empty());
    let attribute = concat!("//! H.\n#![forbid(uns", "afe_code)] // no uns", "afe\n");
    assert!(findings("crates/homa/src/lib.rs", attribute).is_empty());
}

#[test]
fn clocks_and_hash_maps_are_found_where_results_must_repeat() {
    let path = "crates/homa-sim/src/a.rs";
    let in_line_2 = "crates/homa-sim/src/a.rs:2: ";
    for line in ["let t = Instant::now();", "let s: SystemTime;", "let r = thread_rng();"] {
        one(path, &format!("//! H.\n{line}\n"), in_line_2, "as arguments");
    }
    for line in ["use std::collections::{BTreeMap, HashMap};", "let s: HashSet<u8>;"] {
        one(path, &format!("//! H.\n{line}\n"), in_line_2, "BTreeMap");
    }
    let elsewhere = "//! H.\nuse std::collections::HashMap;\nlet t = Instant::now();\n";
    assert!(findings("crates/homa/src/a.rs", elsewhere).is_empty());
    let own = "//! H.\nuse hashbrown::HashMap;\nlet t: HashMap<u8, u8, Fixed>;\n";
    assert!(findings("crates/homa-proto/src/a.rs", own).is_empty());
}

#[test]
fn arrows_between_crates_hold_in_every_kind_of_dependency() {
    let manifest = |name: &str, rest: &str| {
        format!("[package]\nname = \"{name}\"\n[lints]\nworkspace = true\n{rest}")
    };
    let path = "crates/x/Cargo.toml";
    let kinds = [
        "[dependencies]\nhoma-sim.workspace = true\n",
        "[dev-dependencies]\nhoma-sim = { path = \"../homa-sim\" }\n",
        "[target.'cfg(unix)'.dependencies]\nhoma-sim = \"1\"\n",
    ];
    for kind in kinds {
        one(path, &manifest("homa", kind), "crates/x/Cargo.toml:6: ", "must not depend on");
        assert!(findings(path, &manifest("homa-cli", kind)).is_empty());
    }
    let table = manifest("homa-sim", "[dependencies.homa]\nversion = \"1\"\n");
    one(path, &table, "crates/x/Cargo.toml:5: ", "`homa-sim` must not depend on `homa`");
    one(path, &manifest("other", ""), path, "row of ARROWS");
    let heavy = manifest("homa-proto", "[dependencies]\nserde = \"1\"\n");
    one(path, &heavy, "crates/x/Cargo.toml:6: ", "decides results");
    let tested = manifest("homa-proto", "[dev-dependencies]\ninsta = \"1\"\n");
    assert!(findings(path, &tested).is_empty());
}

#[test]
fn a_crate_without_the_shared_lints_is_found() {
    one("x/Cargo.toml", "[package]\nname = \"homa\"\n", "x/Cargo.toml: ", "[lints]");
    assert!(findings("Cargo.toml", "[workspace]\nresolver = \"3\"\n").is_empty());
}

#[test]
fn large_files_of_no_text_are_found() {
    let blob = vec![0xFF; 400_001];
    assert_eq!(check_file("a.bin", &blob).len(), 1);
    assert!(check_file("a.bin", &blob[1..]).is_empty());
}
