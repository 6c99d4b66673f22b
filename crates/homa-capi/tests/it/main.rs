//! The integration tests of the C library in one program, because each program costs a build, a
//! link step and disk space.

mod certificates;
mod programs;
