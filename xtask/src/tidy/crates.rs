//! Checks of manifests: the arrows between crates, the few dependencies of the inner ones, shared
//! lints.

use super::Findings;

/// Which of our crates a crate may depend on, by the names of their folders. Packages are called
/// `homa-rpc`, `homa-rpc-sim` and so on, because `homa` is taken. `homa` and `homa-sim` share only
/// the protocol, so that the simulated code is the deployed code, and neither depends on the
/// environment of the other.
const ARROWS: [(&str, &[&str]); 16] = [
    ("homa-proto", &[]),
    ("homa-workload", &[]),
    ("homa-bpf", &[]),
    ("homa", &["homa-bpf", "homa-proto", "homa-workload"]),
    ("homa-sim", &["homa-proto", "homa-workload"]),
    ("homa-lab", &["homa-proto", "homa-sim", "homa-workload"]),
    ("homa-testbed", &["homa", "homa-bpf", "homa-proto", "homa-sim", "homa-workload"]),
    (
        "homa-cli",
        &[
            "homa",
            "homa-lab",
            "homa-proto",
            "homa-sim",
            "homa-testbed",
            "homa-tonic",
            "homa-workload",
        ],
    ),
    ("homa-capi", &["homa"]),
    ("homa-tonic", &["homa"]),
    ("homa-python", &["homa", "homa-lab", "homa-sim"]),
    ("xtask", &[]),
    ("skip", &[]),
    ("homa-fuzz", &["homa", "homa-proto", "homa-tonic"]),
    ("generated", &[]),
    ("homa-traced", &["homa"]),
];

/// Crates that decide results, with all they may take from others: what changes there would change
/// here.
const FEW_DEPENDENCIES: [(&str, &[&str]); 4] = [
    ("homa-proto", &["hashbrown", "libm"]),
    ("homa-workload", &["libm", "strsim"]),
    ("xtask", &["skip"]),
    ("skip", &[]),
];

/// Rules for a `Cargo.toml`.
pub(super) fn check_manifest(text: &str, findings: &mut Findings<'_>) {
    let Some(package) = package_name(text) else {
        return;
    };
    let name = &package.replacen("homa-rpc", "homa", 1);
    let Some((_, allowed)) = ARROWS.iter().find(|(from, _)| *from == name) else {
        findings.add(0, format!("give `{name}` its row of ARROWS in xtask/src/tidy/crates.rs"));
        return;
    };
    let few = FEW_DEPENDENCIES.iter().find(|(from, _)| *from == name);
    for dependency in dependencies(text) {
        let Dependency { line, to, dev } = dependency;
        if to == "homa" || to.starts_with("homa-") {
            if !allowed.contains(&to) {
                let advice = "against the arrows of ARCHITECTURE.md: move the code instead";
                findings.add(line, format!("`{name}` must not depend on `{to}`, {advice}"));
            }
        } else if let Some((_, outside)) = few
            && !dev
            && !outside.contains(&to)
        {
            findings.add(line, format!("`{name}` decides results and must not depend on `{to}`"));
        }
    }
    if !text.lines().zip(text.lines().skip(1)).any(|pair| pair == ("[lints]", "workspace = true")) {
        findings.add(0, "add `[lints]` with `workspace = true`");
    }
}

fn package_name(text: &str) -> Option<&str> {
    let package = text.lines().skip_while(|line| line.trim() != "[package]");
    let name = package.skip(1).take_while(|line| !line.starts_with('['));
    name.filter_map(|line| line.split_once('='))
        .find(|(key, _)| key.trim() == "name")
        .map(|(_, value)| value.trim().trim_matches('"'))
}

/// One dependency as a manifest names it.
struct Dependency<'a> {
    line: usize,
    to: &'a str,
    dev: bool,
}

/// Dependencies of all kinds and platforms: keys of a table `…dependencies`, or tables of their
/// own.
fn dependencies(text: &str) -> Vec<Dependency<'_>> {
    let mut list = Vec::new();
    let mut section = "";
    for (line, content) in (1..).zip(text.lines().map(str::trim)) {
        let dev = section.ends_with("dev-dependencies");
        if let Some(header) = content.strip_prefix('[') {
            section = header.split(']').next().unwrap_or(header);
            if let Some((kind, to)) = section.split_once("dependencies.") {
                let dev = kind.ends_with("dev-");
                list.push(Dependency { line, to, dev });
            }
        } else if section.ends_with("dependencies")
            && let Some((key, _)) = content.split_once('=')
            && !content.starts_with('#')
        {
            let to = key.split('.').next().unwrap_or(key).trim();
            list.push(Dependency { line, to, dev });
        }
    }
    list
}
