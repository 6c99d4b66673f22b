//! The committed code is what tonic generates from `proto/interop.proto`, by a compiler in Rust, so
//! that no `protoc` is needed. `HOMA_WRITE_GRPC=1` writes it.

use std::path::Path;
use std::{env, fs};

const GENERATED: &str = "grpc.testing.rs";

#[test]
fn the_generated_code_is_fresh() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let descriptors = protox::compile(["interop.proto"], [root.join("proto")]).unwrap();
    let committed = root.join("tests/it/generated");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("generated");
    fs::create_dir_all(&folder).unwrap();
    let builder =
        tonic_prost_build::configure().build_transport(false).emit_rerun_if_changed(false);
    builder.out_dir(&folder).compile_fds(descriptors).unwrap();
    let code = fs::read_to_string(folder.join(GENERATED)).unwrap();
    if env::var_os("HOMA_WRITE_GRPC").is_some() {
        fs::write(committed.join(GENERATED), &code).unwrap();
    }
    let kept = fs::read_to_string(committed.join(GENERATED)).unwrap();
    assert!(kept == code, "run HOMA_WRITE_GRPC=1 cargo test -p homa-tonic --test it fresh");
}
