//! The laboratory's integration tests, in one program: each costs a build, a link and disk.

#[path = "../common/page.rs"]
mod page;
mod pandas;
mod reference;
mod sweep;
mod tasks;
