//! The program `homa`.
fn main() {}
