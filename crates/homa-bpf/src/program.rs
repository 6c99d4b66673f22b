//! Programs: loaded, attached to an interface, and run for a test.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use crate::command::{Attributes, owned};

const PROG_LOAD: libc::c_long = 5;
const PROG_TEST_RUN: libc::c_long = 10;
const LINK_CREATE: libc::c_long = 28;

const PROG_TYPE_SCHED_CLS: u32 = 3;
const PROG_TYPE_XDP: u32 = 6;
/// The program can process frames that consist of several fragments (Linux 5.18).
const XDP_HAS_FRAGS: u32 = 1 << 5;

/// Attachment point (`enum bpf_attach_type`): received frames, before the system processes them.
pub const TCX_INGRESS: u32 = 46;
/// Attachment point: frames to be sent, after the system processed them.
pub const TCX_EGRESS: u32 = 47;
/// Attachment point: received frames, before anything else in the system sees them.
pub const XDP: u32 = 37;

/// Room for the verifier's message about a program that it refuses, bytes.
const LOG_BYTES: usize = 64 << 10;

/// The type of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramKind {
    /// A classifier for traffic control.
    Classifier,
    /// A program for XDP.
    Xdp {
        /// It can process frames that consist of several fragments.
        frags: bool,
    },
}

/// Loads a program.
///
/// # Errors
/// The kernel's error, with the last line of the verifier's message.
pub fn load(kind: ProgramKind, code: &[u64], name: &CStr) -> io::Result<OwnedFd> {
    // The kernel offers some helpers only to programs under a GPL-compatible licence.
    const LICENCE: &CStr = c"Dual MIT/GPL";
    let (kind, flags) = match kind {
        ProgramKind::Classifier => (PROG_TYPE_SCHED_CLS, 0),
        ProgramKind::Xdp { frags } => (PROG_TYPE_XDP, if frags { XDP_HAS_FRAGS } else { 0 }),
    };
    let mut log = vec![0_u8; LOG_BYTES];
    let mut attributes = Attributes::new()
        .word(0, kind)
        .word(4, code.len() as u32)
        .long(8, code.as_ptr() as u64)
        .long(16, LICENCE.as_ptr() as u64)
        .word(24, 1)
        .word(28, log.len() as u32)
        .long(32, log.as_mut_ptr() as u64)
        .word(44, flags)
        .name(48, name);
    // SAFETY: code, licence and log outlive the call, with the lengths passed; the descriptor is
    // new.
    match unsafe { attributes.call(PROG_LOAD) } {
        // SAFETY: as above.
        Ok(fd) => Ok(unsafe { owned(fd) }),
        Err(error) => {
            let said = log.split(|&byte| byte == 0).next().unwrap_or_default();
            let said = String::from_utf8_lossy(said);
            match said.trim().lines().rfind(|line| !line.starts_with("processed")) {
                Some(line) => Err(io::Error::new(error.kind(), format!("{error} ({line})"))),
                None => Err(error),
            }
        }
    }
}

/// Attaches a program to a point of an interface in the calling thread's network namespace:
/// [`TCX_INGRESS`] or [`TCX_EGRESS`] (Linux 6.6), or [`XDP`] (5.9). The program is detached when
/// the descriptor is closed, and thus at the latest when the process ends.
pub fn attach(
    program: BorrowedFd<'_>,
    (interface, point): (u32, u32),
    flags: u32,
) -> io::Result<OwnedFd> {
    let mut attributes = Attributes::new()
        .word(0, program.as_raw_fd() as u32)
        .word(4, interface)
        .word(8, point)
        .word(12, flags);
    // SAFETY: no pointers; the descriptor is new.
    unsafe { attributes.call(LINK_CREATE).map(|fd| owned(fd)) }
}

/// Runs a program on a test frame; returns the frame afterwards, and the program's verdict.
pub fn test_run(program: BorrowedFd<'_>, frame: &[u8]) -> io::Result<(Vec<u8>, u32)> {
    let mut out = vec![0; frame.len() + 64];
    let mut attributes = Attributes::new()
        .word(0, program.as_raw_fd() as u32)
        .word(8, frame.len() as u32)
        .word(12, out.len() as u32)
        .long(16, frame.as_ptr() as u64)
        .long(24, out.as_mut_ptr() as u64);
    // SAFETY: both buffers outlive the call, with the lengths passed.
    unsafe { attributes.call(PROG_TEST_RUN)? };
    out.truncate(attributes.read(12) as usize);
    Ok((out, attributes.read(4)))
}
