//! One call of bpf(2): its attributes, and ownership of the descriptor that it returns.

use std::ffi::CStr;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// The attributes of a command (`union bpf_attr`), set by their offsets.
pub(crate) struct Attributes([u64; 18]);

impl Attributes {
    pub(crate) fn new() -> Self {
        Self([0; 18])
    }

    pub(crate) fn word(mut self, offset: usize, value: u32) -> Self {
        let shift = (offset % 8) * 8;
        let shift = if cfg!(target_endian = "big") { 32 - shift } else { shift };
        self.0[offset / 8] |= u64::from(value) << shift;
        self
    }

    pub(crate) fn long(mut self, offset: usize, value: u64) -> Self {
        self.0[offset / 8] = value;
        self
    }

    /// The name of an object, at most 15 bytes.
    pub(crate) fn name(self, offset: usize, name: &CStr) -> Self {
        let bytes = name.to_bytes();
        (0..16).step_by(4).fold(self, |attributes, at| {
            let byte = |i: usize| bytes.get(at + i).copied().unwrap_or(0);
            let word = u32::from_ne_bytes([byte(0), byte(1), byte(2), byte(3)]);
            attributes.word(offset + at, word)
        })
    }

    /// Reads a word that the kernel wrote.
    pub(crate) fn read(&self, offset: usize) -> u32 {
        let shift = (offset % 8) * 8;
        let shift = if cfg!(target_endian = "big") { 32 - shift } else { shift };
        (self.0[offset / 8] >> shift) as u32
    }

    /// # Safety
    /// Every pointer among the attributes must be valid, for the access that the command makes,
    /// until the call returns.
    pub(crate) unsafe fn call(&mut self, command: libc::c_long) -> io::Result<libc::c_int> {
        let size = size_of_val(&self.0);
        // SAFETY: the union outlives the call and its size is the one passed; the caller guarantees
        // that the pointers in it are valid.
        let result = unsafe { libc::syscall(libc::SYS_bpf, command, self.0.as_mut_ptr(), size) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as libc::c_int) }
    }
}

pub(crate) fn address<T>(value: &T) -> u64 {
    std::ptr::from_ref(value) as u64
}

/// # Safety
/// `descriptor` must be new and must not have an owner.
pub(crate) unsafe fn owned(descriptor: libc::c_int) -> OwnedFd {
    // SAFETY: the caller guarantees it.
    unsafe { OwnedFd::from_raw_fd(descriptor) }
}
