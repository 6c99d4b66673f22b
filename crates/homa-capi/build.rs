//! Names the ABI in the shared library: programs find `libhoma.so.0` at run time.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libhoma.so.0");
    println!("cargo:rerun-if-changed=build.rs");
}
