//! The committed code is what tonic generates from the files in `proto`, by a compiler in Rust, so
//! that no `protoc` is needed. `HOMA_WRITE_GRPC=1` writes it.

use std::path::Path;
use std::{env, fs};

/// The definitions, and where their code is.
const GENERATED: [(&str, &str, &str); 2] = [
    ("interop.proto", "tests/it/generated", "grpc.testing.rs"),
    ("search.proto", "examples/search/generated", "search.rs"),
];

#[test]
fn the_generated_code_is_fresh() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (definitions, committed, name) in GENERATED {
        let descriptors = protox::compile([definitions], [root.join("proto")]).unwrap();
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("generated");
        fs::create_dir_all(&folder).unwrap();
        let builder =
            tonic_prost_build::configure().build_transport(false).emit_rerun_if_changed(false);
        builder.out_dir(&folder).compile_fds(descriptors).unwrap();
        let code = fs::read_to_string(folder.join(name)).unwrap();
        let committed = root.join(committed).join(name);
        if env::var_os("HOMA_WRITE_GRPC").is_some() {
            fs::write(&committed, &code).unwrap();
        }
        let kept = fs::read_to_string(&committed).unwrap_or_default();
        assert!(kept == code, "run HOMA_WRITE_GRPC=1 cargo test -p homa-rpc-tonic --test it fresh");
    }
}
