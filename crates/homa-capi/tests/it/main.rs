//! The C library's integration tests, in one program: each costs a build, a link and disk.

mod header;
mod programs;
