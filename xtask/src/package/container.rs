//! A container image, written by `tar` alone: no daemon, no registry. The archive has the layout of
//! the Open Container Initiative (image-spec, image-layout.md) and the list that `docker load` of
//! older versions reads, so that docker, podman and containerd all load it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::deb::{Platform, Staged};
use super::{Inputs, VERSION, notices};
use crate::process::output;

/// An unprivileged user and group, as numbers: the image has no list of users.
const USER: &str = "65534:65534";

/// What runs if no arguments are given, as in `contrib/container/Containerfile`.
const COMMAND: &str = r#"["serve","--bind","0.0.0.0:4000","--echo","--key","/cluster.key"]"#;

/// Packs a program that is linked statically; returns the archive's path.
pub(super) fn build(inputs: &Inputs<'_>, program: &Path) -> io::Result<PathBuf> {
    let files = inputs.stage("container")?;
    let stage = Staged::new(&files);
    stage.copy(program, "homa", 0o755)?;
    let notices = notices::text(inputs.repository, &super::PROGRAM, true)?;
    stage.write("licenses/NOTICES", notices.as_bytes(), 0o644)?;
    for name in ["LICENSE-MIT", "LICENSE-APACHE"] {
        stage.copy(&inputs.file(name), &format!("licenses/{name}"), 0o644)?;
    }
    pack(inputs, &files, Platform::of_this_machine()?.name)
}

/// Writes the image of a folder with the program.
pub(super) fn pack(inputs: &Inputs<'_>, files: &Path, architecture: &str) -> io::Result<PathBuf> {
    let image = inputs.stage("image")?;
    let blobs = image.join("blobs/sha256");
    fs::create_dir_all(&blobs)?;
    let layer = image.join("layer");
    tar(inputs, files, &layer)?;
    let layer = Blob::take(&layer, &blobs)?;
    let config = format!(
        "{{\"architecture\":\"{architecture}\",\"os\":\"linux\",\"config\":{{\"User\":\"{USER}\",\
         \"Entrypoint\":[\"/homa\"],\"Cmd\":{COMMAND},\"Labels\":{{\
         \"org.opencontainers.image.version\":\"{VERSION}\",\
         \"org.opencontainers.image.licenses\":\"MIT OR Apache-2.0\"}}}},\
         \"rootfs\":{{\"type\":\"layers\",\"diff_ids\":[\"sha256:{}\"]}}}}",
        layer.digest
    );
    let config = Blob::write(&config, &image, &blobs)?;
    let manifest = format!(
        "{{\"schemaVersion\":2,\"mediaType\":\"application/vnd.oci.image.manifest.v1+json\",\
         \"config\":{},\"layers\":[{}]}}",
        config.described("application/vnd.oci.image.config.v1+json"),
        layer.described("application/vnd.oci.image.layer.v1.tar")
    );
    let manifest = Blob::write(&manifest, &image, &blobs)?;
    let named = manifest.described("application/vnd.oci.image.manifest.v1+json");
    let named = named.trim_end_matches('}');
    let index = format!(
        "{{\"schemaVersion\":2,\"manifests\":[{named},\"annotations\":{{\
         \"io.containerd.image.name\":\"docker.io/library/homa:{VERSION}\",\
         \"org.opencontainers.image.ref.name\":\"{VERSION}\"}}}}]}}"
    );
    fs::write(image.join("index.json"), index)?;
    fs::write(image.join("oci-layout"), "{\"imageLayoutVersion\":\"1.0.0\"}")?;
    let older = format!(
        "[{{\"Config\":\"blobs/sha256/{}\",\"RepoTags\":[\"homa:{VERSION}\"],\
         \"Layers\":[\"blobs/sha256/{}\"]}}]",
        config.digest, layer.digest
    );
    fs::write(image.join("manifest.json"), older)?;
    let out = inputs.out.join(format!("homa-{VERSION}-container.tar"));
    tar(inputs, &image, &out)?;
    Ok(out)
}

/// A part of an image, stored by its digest.
struct Blob {
    digest: String,
    bytes: u64,
}

impl Blob {
    /// Moves a file among the blobs.
    fn take(file: &Path, blobs: &Path) -> io::Result<Self> {
        let sum = output(Command::new("sha256sum").arg("--").arg(file))?;
        let digest = sum.split(' ').next().unwrap_or_default().to_owned();
        let bytes = fs::metadata(file)?.len();
        fs::rename(file, blobs.join(&digest)).map(|()| Self { digest, bytes })
    }

    fn write(text: &str, image: &Path, blobs: &Path) -> io::Result<Self> {
        let file = image.join("part");
        fs::write(&file, text)?;
        Self::take(&file, blobs)
    }

    /// As others refer to it.
    fn described(&self, kind: &str) -> String {
        let Self { digest, bytes } = self;
        format!("{{\"mediaType\":\"{kind}\",\"digest\":\"sha256:{digest}\",\"size\":{bytes}}}")
    }
}

/// Archives the contents of a folder, with nothing of this machine in it.
fn tar(inputs: &Inputs<'_>, folder: &Path, to: &Path) -> io::Result<()> {
    let mut tar = Command::new("tar");
    tar.args(["--create", "--format=ustar", "--sort=name", "--numeric-owner"]);
    tar.args(["--owner=0", "--group=0", "--mode=u+rw,go+r,go-w,a+X"]);
    tar.arg(format!("--mtime=@{}", inputs.epoch)).arg("--file").arg(to);
    let mut names: Vec<_> = fs::read_dir(folder)?
        .map(|entry| entry.map(|entry| entry.file_name()))
        .collect::<io::Result<_>>()?;
    // The archive of a layer is written beside them.
    names.retain(|name| folder.join(name) != to);
    names.sort();
    output(tar.arg("--directory").arg(folder).arg("--").args(names)).map(drop)
}
