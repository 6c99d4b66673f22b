//! The commands of bpf(2) that Homa needs: maps, programs and their attachment to an interface, and
//! an assembler. The AF_XDP driver of `homa` and the phantom queues of `homa-testbed` use it.
//!
//! It calls the kernel directly because loader libraries (aya, libbpf-rs) take object files, which
//! a compiler would have to write first. The programs here are assembled in code.
//!
//! Invariants: every descriptor created here is owned, and closed on exec. Memory that the kernel
//! reads or writes outlives the call.

mod assembler;
mod capabilities;
mod command;
mod maps;
mod program;

pub use assembler::{Assembler, op};
pub use capabilities::Capabilities;
pub use maps::{BpfMap, WordMap};
pub use program::{ProgramKind, TCX_EGRESS, TCX_INGRESS, XDP, attach, load, test_run};
