//! Checks that `include/homa.h` matches the sources. `HOMA_WRITE_HEADER=1 cargo test -p
//! homa-rpc-capi --test it header` generates it again.

use std::path::Path;

#[test]
fn the_committed_header_is_up_to_date() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(here.join("cbindgen.toml")).unwrap();
    let mut builder = cbindgen::Builder::new().with_config(config);
    for source in ["options", "keys", "open", "send", "receive", "pieces", "balance", "error"] {
        builder = builder.with_src(here.join("src").join(source).with_extension("rs"));
    }
    let mut made = Vec::new();
    builder.generate().unwrap().write(&mut made);
    // C90 has no such comments.
    let made = String::from_utf8(made).unwrap();
    let made = made.replace("// __cplusplus", "/* __cplusplus */").into_bytes();
    let path = here.join("include/homa.h");
    if std::env::var_os("HOMA_WRITE_HEADER").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let committed = std::fs::read(&path).unwrap_or_default();
    assert!(committed == made, "include/homa.h is stale: cargo xtask header writes it anew");
}
