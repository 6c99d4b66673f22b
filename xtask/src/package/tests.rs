//! Packages say what they need, and their archives hold what tools expect.

use std::path::PathBuf;
use std::process::Command;

use super::{Inputs, Kind, VERSION, container, deb, folder, gzip, parse};
use crate::process::output;

/// A folder for one test, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("package-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn inputs(&self) -> Inputs<'_> {
        let out = self.0.clone();
        Inputs { repository: &self.0, debug: true, out, epoch: "1700000000".to_owned() }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn kinds_and_the_profile_are_chosen() {
    let of = |arguments: &[&str]| parse(arguments).map(|of| (of.debug, of.kinds, of.named));
    assert_eq!(of(&[]), Ok((false, vec![Kind::Debian, Kind::Container], false)));
    assert_eq!(of(&["--debug", "deb"]), Ok((true, vec![Kind::Debian], true)));
    assert_eq!(of(&["rpm"]).unwrap_err(), "no kind `rpm`; there are deb, container");
}

#[test]
fn packages_for_trying_out_replace_none_of_a_release() {
    let at = |debug| folder(crate::repository(), debug);
    assert!(!at(true).starts_with(at(false)) && !at(false).starts_with(at(true)));
}

#[test]
fn pages_name_the_packages_of_this_version() {
    let install = include_str!("../../../docs/operating/install.md");
    let kubernetes = include_str!("../../../contrib/container/kubernetes.yaml");
    let [package, archive, image] = [
        format!("homa_{VERSION}_"),
        format!("homa-{VERSION}-container"),
        format!("homa:{VERSION}"),
    ];
    for (page, name) in [
        (install, &package),
        (install, &archive),
        (install, &image),
        (kubernetes, &archive),
        (kubernetes, &image),
    ] {
        assert!(page.contains(name), "no {name} there: this is version {VERSION}");
    }
}

#[test]
fn what_gzip_compresses_comes_back() {
    let bytes: Vec<u8> = (0..2_000_000u32).flat_map(|n| n.wrapping_mul(n).to_le_bytes()).collect();
    let folder = Folder::new("gzip");
    let file = folder.0.join("bytes.gz");
    std::fs::write(&file, gzip(&bytes).unwrap()).unwrap();
    let back = Command::new("gzip").arg("-dc").arg(&file).output().unwrap();
    assert!(back.status.success() && back.stdout == bytes);
}

#[test]
fn the_newest_version_of_the_c_library_is_needed() {
    let program = b"..\0GLIBC_2.2.5\0GLIBC_2.34\0GLIBC_2.9\0libgcc_s.so.1\0..";
    assert_eq!(deb::needs(program), ["libc6 (>= 2.34)", "libgcc-s1"]);
    assert!(deb::needs(b"linked statically").is_empty());
}

#[test]
fn descriptions_are_folded_as_control_files_need() {
    let folded = deb::folded(&"word ".repeat(40));
    assert!(folded.lines().all(|line| line.starts_with(" word") && line.len() <= 76));
    assert_eq!(folded.matches("word").count(), 40);
}

#[test]
fn scripts_of_a_package_are_read_by_the_shell() {
    let folder = Folder::new("scripts");
    for (name, script) in deb::unit_scripts(&["a.service".to_owned(), "a.socket".to_owned()]) {
        let names = match name {
            "postinst" => "try-restart a.service ||",
            "prerm" => "a.service a.socket",
            _ => "daemon-reload",
        };
        assert!(script.contains(names), "{script}");
        let path = folder.0.join(name);
        std::fs::write(&path, &script).unwrap();
        assert!(Command::new("sh").arg("-n").arg(&path).status().unwrap().success(), "{script}");
        // As if systemd ran here; it refuses everything, and records what it was asked.
        let running = folder.0.to_string_lossy().into_owned();
        std::fs::write(&path, script.replace("/run/systemd/system", &running)).unwrap();
        let asked = folder.0.join("asked");
        let systemctl =
            format!("#!/bin/sh\necho \"$1\" >>{}\n[ $1 = daemon-reload ]\n", asked.display());
        deb::Staged::new(&folder.0).write("systemctl", systemctl.as_bytes(), 0o755).unwrap();
        let action = if name == "postinst" { "configure" } else { "remove" };
        // While an image is built (`DPKG_ROOT`), systemd is not asked.
        for (root, expected) in [("/image", false), ("", true)] {
            let _ = std::fs::remove_file(&asked);
            let mut run = Command::new("/bin/sh");
            run.arg(&path).args([action, "0.1.0"]).env("DPKG_ROOT", root).env("PATH", &folder.0);
            assert!(run.status().unwrap().success(), "{name}: {script}");
            assert_eq!(asked.exists(), expected, "{name} in {root:?}: {script}");
        }
    }
}

#[test]
fn a_debian_package_lists_its_files_and_settings() {
    if let Err(error) = deb::check_tool() {
        return skip::test(&error.to_string());
    }
    let folder = Folder::new("deb");
    let inputs = folder.inputs();
    let root = inputs.stage("homa").unwrap();
    let stage = deb::Staged::new(&root);
    stage.write("usr/bin/homa", b"a program", 0o755).unwrap();
    stage.write("etc/default/homa-echo", b"# options\n", 0o644).unwrap();
    let package = deb::Package {
        name: "homa",
        section: "net",
        depends: vec!["libc6 (>= 2.34)".to_owned()],
        summary: "RPCs",
        description: "A transport.",
    };
    let platform = deb::Platform { name: "amd64", triplet: "x86_64-linux-gnu" };
    let path = package.build(&inputs, &stage, &platform).unwrap();
    let ask = |what: &[&str]| output(Command::new("dpkg-deb").args(what).arg(&path)).unwrap();
    let list = ask(&["--contents"]);
    let line = list.lines().find(|line| line.ends_with(" ./usr/bin/homa")).unwrap();
    assert!(line.starts_with("-rwxr-xr-x root/root"), "{list}");
    let settings =
        output(Command::new("dpkg-deb").args(["--info"]).arg(&path).args(["conffiles", "md5sums"]));
    let settings = settings.unwrap();
    assert!(settings.contains("/etc/default/homa-echo\n"), "{settings}");
    assert!(settings.contains("  usr/bin/homa\n"), "{settings}");
    let field = output(Command::new("dpkg-deb").arg("--field").arg(&path).arg("Depends"));
    assert_eq!(field.unwrap(), "libc6 (>= 2.34)\n");
    let first = std::fs::read(&path).unwrap();
    package.build(&inputs, &stage, &platform).unwrap();
    assert!(first == std::fs::read(&path).unwrap(), "two builds differ");
}

#[test]
fn an_image_refers_to_its_parts_by_their_digests() {
    let folder = Folder::new("image");
    let inputs = folder.inputs();
    let files = inputs.stage("container").unwrap();
    deb::Staged::new(&files).write("homa", b"a program", 0o755).unwrap();
    let archive = container::pack(&inputs, &files, "amd64").unwrap();
    let first = std::fs::read(&archive).unwrap();
    let unpacked = inputs.stage("unpacked").unwrap();
    let mut tar = Command::new("tar");
    output(tar.arg("--extract").arg("--file").arg(&archive).arg("-C").arg(&unpacked)).unwrap();
    let blobs = unpacked.join("blobs/sha256");
    let mut names = Vec::new();
    for blob in std::fs::read_dir(&blobs).unwrap() {
        let blob = blob.unwrap();
        let name = blob.file_name().into_string().unwrap();
        let sum = output(Command::new("sha256sum").arg(blob.path())).unwrap();
        assert!(sum.starts_with(&name), "{name}: {sum}");
        let bytes = std::fs::read(blob.path()).unwrap();
        names.push((name, bytes));
    }
    assert_eq!(names.len(), 3, "a manifest, a configuration, and a layer");
    let index = std::fs::read_to_string(unpacked.join("index.json")).unwrap();
    let find = |text: &str| names.iter().find(|(name, _)| text.contains(name.as_str())).unwrap();
    let (_, manifest) = find(&index);
    let manifest = String::from_utf8(manifest.clone()).unwrap();
    let parts = names.iter().filter(|(name, _)| manifest.contains(name.as_str())).count();
    assert_eq!(parts, 2, "{manifest}");
    let layer = names.iter().find(|(_, bytes)| bytes.starts_with(b"homa\0")).unwrap();
    let size = format!("\"digest\":\"sha256:{}\",\"size\":{}", layer.0, layer.1.len());
    assert!(manifest.contains(&size), "{manifest}");
    container::pack(&inputs, &files, "amd64").unwrap();
    assert!(first == std::fs::read(&archive).unwrap(), "two images of the same files differ");
}
