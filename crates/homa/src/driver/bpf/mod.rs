//! The bpf(2) commands that this project needs: maps, programs, what attaches them to an interface,
//! and an assembler, for the redirect of [`super::xdp`] and the phantom queues of the testbed.
//!
//! Raw, because loader libraries (aya, libbpf-rs) take object files as compilers write them, and
//! the programs here are assembled in code. Invariants: every descriptor made here is owned, and
//! closed when a process is replaced (exec); what the kernel reads or writes outlives the call.

mod assembler;

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

pub use assembler::{Assembler, op};

/// Commands (`enum bpf_cmd`).
const MAP_CREATE: libc::c_long = 0;
const MAP_LOOKUP_ELEM: libc::c_long = 1;
const MAP_UPDATE_ELEM: libc::c_long = 2;
const PROG_LOAD: libc::c_long = 5;
const MAP_DELETE_ELEM: libc::c_long = 3;
const PROG_TEST_RUN: libc::c_long = 10;
const MAP_GET_NEXT_ID: libc::c_long = 12;
const MAP_GET_FD_BY_ID: libc::c_long = 14;
const OBJ_GET_INFO_BY_FD: libc::c_long = 15;
const LINK_CREATE: libc::c_long = 28;

const MAP_TYPE_HASH: u32 = 1;
const MAP_TYPE_ARRAY: u32 = 2;
const MAP_TYPE_XSKMAP: u32 = 17;
const PROG_TYPE_SCHED_CLS: u32 = 3;
const PROG_TYPE_XDP: u32 = 6;
/// The program copes with frames in several pieces (Linux 5.18).
const XDP_HAS_FRAGS: u32 = 1 << 5;
/// Points of attachment (`enum bpf_attach_type`): before what the system does with frames that
/// arrive, after what it does with those that leave.
pub const TCX_INGRESS: u32 = 46;
/// See [`TCX_INGRESS`].
pub const TCX_EGRESS: u32 = 47;
/// Before anything else that the system does with frames that arrive.
pub const XDP: u32 = 37;

/// Room for what the verifier says of a program that it refuses.
const LOG_BYTES: usize = 64 << 10;

/// The argument of a command (`union bpf_attr`), by offset.
struct Attributes([u64; 18]);

impl Attributes {
    fn new() -> Self {
        Self([0; 18])
    }

    fn word(mut self, offset: usize, value: u32) -> Self {
        let shift = (offset % 8) * 8;
        let shift = if cfg!(target_endian = "big") { 32 - shift } else { shift };
        self.0[offset / 8] |= u64::from(value) << shift;
        self
    }

    fn long(mut self, offset: usize, value: u64) -> Self {
        self.0[offset / 8] = value;
        self
    }

    /// A name of an object, at most 15 bytes.
    fn name(self, offset: usize, name: &CStr) -> Self {
        let bytes = name.to_bytes();
        (0..16).step_by(4).fold(self, |attributes, at| {
            let byte = |i: usize| bytes.get(at + i).copied().unwrap_or(0);
            let word = u32::from_ne_bytes([byte(0), byte(1), byte(2), byte(3)]);
            attributes.word(offset + at, word)
        })
    }

    /// Reads back what the kernel wrote.
    fn read(&self, offset: usize) -> u32 {
        let shift = (offset % 8) * 8;
        let shift = if cfg!(target_endian = "big") { 32 - shift } else { shift };
        (self.0[offset / 8] >> shift) as u32
    }

    /// # Safety
    /// Every pointer among the attributes must be valid for what the command does with it
    /// until the call returns.
    unsafe fn call(&mut self, command: libc::c_long) -> io::Result<libc::c_int> {
        let size = size_of_val(&self.0);
        // SAFETY: the union outlives the call and its size is the one passed; the caller answers
        // for the pointers in it.
        let result = unsafe { libc::syscall(libc::SYS_bpf, command, self.0.as_mut_ptr(), size) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as libc::c_int) }
    }
}

fn address<T>(value: &T) -> u64 {
    std::ptr::from_ref(value) as u64
}

/// # Safety
/// `descriptor` must be new and owned by nobody.
unsafe fn owned(descriptor: libc::c_int) -> OwnedFd {
    // SAFETY: the caller says so.
    unsafe { OwnedFd::from_raw_fd(descriptor) }
}

/// A map with one value of `N` words under key 0.
#[derive(Debug)]
pub struct WordMap<const N: usize>(OwnedFd);

impl<const N: usize> WordMap<N> {
    /// Makes a map of that name, all zero.
    pub fn create(name: &CStr) -> io::Result<Self> {
        let mut attributes = Attributes::new()
            .word(0, MAP_TYPE_ARRAY)
            .word(4, 4)
            .word(8, 8 * N as u32)
            .word(12, 1)
            .name(28, name);
        // SAFETY: no pointers; the descriptor is new.
        unsafe { attributes.call(MAP_CREATE).map(|fd| Self(owned(fd))) }
    }

    /// The maps of that name, whoever made them.
    pub fn find(name: &CStr) -> io::Result<Vec<Self>> {
        let (mut found, mut id) = (Vec::new(), 0);
        loop {
            let mut next = Attributes::new().word(0, id);
            // SAFETY: no pointers.
            match unsafe { next.call(MAP_GET_NEXT_ID) } {
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(found),
                result => result?,
            };
            id = next.read(4);
            // SAFETY: no pointers; the descriptor is new.
            let map = unsafe {
                Attributes::new().word(0, id).call(MAP_GET_FD_BY_ID).map(|fd| Self(owned(fd)))
            };
            match map {
                Ok(map) => found.extend(map.is_ours(name)?.then_some(map)),
                // It went meanwhile.
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// It has that name, and values of this size.
    fn is_ours(&self, name: &CStr) -> io::Result<bool> {
        // `struct bpf_map_info`: type, id, size of a key, size of a value, entries, flags, name.
        let mut info = [0_u8; 40];
        let mut attributes = Attributes::new()
            .word(0, self.0.as_raw_fd() as u32)
            .word(4, info.len() as u32)
            .long(8, info.as_mut_ptr() as u64);
        // SAFETY: the kernel writes at most the length passed into a buffer of that length.
        unsafe { attributes.call(OBJ_GET_INFO_BY_FD)? };
        let value = u32::from_ne_bytes([info[12], info[13], info[14], info[15]]);
        let named = info[24..].split(|&byte| byte == 0).next() == Some(name.to_bytes());
        Ok(named && value as usize == 8 * N)
    }

    /// What is in it.
    pub fn read(&self) -> io::Result<[u64; N]> {
        let (key, mut value) = (0_u32, [0; N]);
        let mut attributes = self.element(&key, value.as_mut_ptr() as u64);
        // SAFETY: key and value have the sizes with which the map was made, or was found to have.
        unsafe { attributes.call(MAP_LOOKUP_ELEM)? };
        Ok(value)
    }

    /// Writes all of it.
    pub fn write(&self, value: &[u64; N]) -> io::Result<()> {
        let key = 0_u32;
        let mut attributes = self.element(&key, address(value));
        // SAFETY: as for `read`; the kernel only reads.
        unsafe { attributes.call(MAP_UPDATE_ELEM).map(drop) }
    }

    fn element(&self, key: &u32, value: u64) -> Attributes {
        let map = self.0.as_raw_fd() as u32;
        Attributes::new().word(0, map).long(8, address(key)).long(16, value)
    }

    /// The number by which a program names it.
    pub fn descriptor(&self) -> i32 {
        self.0.as_raw_fd()
    }
}

/// A map from keys of `K` bytes to a word.
#[derive(Debug)]
pub struct BpfMap<const K: usize>(OwnedFd);

impl<const K: usize> BpfMap<K> {
    /// A table in which a program looks keys up.
    pub fn hash(name: &CStr, entries: u32) -> io::Result<Self> {
        Self::create(MAP_TYPE_HASH, name, entries)
    }

    fn create(kind: u32, name: &CStr, entries: u32) -> io::Result<Self> {
        let mut attributes = Attributes::new()
            .word(0, kind)
            .word(4, K as u32)
            .word(8, 4)
            .word(12, entries)
            .name(28, name);
        // SAFETY: no pointers; the descriptor is new.
        unsafe { attributes.call(MAP_CREATE).map(|fd| Self(owned(fd))) }
    }

    /// Adds a key, or gives it another word.
    pub fn insert(&self, key: &[u8; K], word: u32) -> io::Result<()> {
        let map = self.0.as_raw_fd() as u32;
        let mut attributes =
            Attributes::new().word(0, map).long(8, address(key)).long(16, address(&word));
        // SAFETY: key and word have the sizes with which the map was made; the kernel only reads.
        unsafe { attributes.call(MAP_UPDATE_ELEM).map(drop) }
    }

    /// Takes a key out.
    pub fn remove(&self, key: &[u8; K]) -> io::Result<()> {
        let map = self.0.as_raw_fd() as u32;
        let mut attributes = Attributes::new().word(0, map).long(8, address(key));
        // SAFETY: the key has the size with which the map was made; the kernel only reads.
        unsafe { attributes.call(MAP_DELETE_ELEM).map(drop) }
    }

    /// The number by which a program names it.
    pub fn descriptor(&self) -> i32 {
        self.0.as_raw_fd()
    }
}

impl BpfMap<4> {
    /// A table of AF_XDP sockets by queue, to which a program redirects frames.
    pub fn sockets(name: &CStr, queues: u32) -> io::Result<Self> {
        Self::create(MAP_TYPE_XSKMAP, name, queues)
    }
}

/// What a program is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramKind {
    /// A classifier of traffic control.
    Classifier,
    /// XDP.
    Xdp {
        /// It copes with frames in several pieces.
        frags: bool,
    },
}

/// Loads a program; what the verifier said is part of the error.
pub fn load(kind: ProgramKind, code: &[u64], name: &CStr) -> io::Result<OwnedFd> {
    // Helpers of this kind are for programs under the GPL or a licence compatible with it.
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

/// Attaches a program to a point ([`TCX_INGRESS`], [`TCX_EGRESS`]: Linux 6.6; [`XDP`]: 5.9) of an
/// interface of the calling thread's network; it goes with the descriptor, and so with the process,
/// however that ends.
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

/// Runs a program on a frame that nobody sent; gives the frame as it left it, and its verdict.
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

/// Effective capabilities of this process (capabilities(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities(u64);

impl Capabilities {
    /// To configure the network, and to attach programs to it.
    pub const NET_ADMIN: u32 = 12;
    /// To open sockets that see frames or IP packets.
    pub const NET_RAW: u32 = 13;
    /// To lock any amount of memory.
    pub const IPC_LOCK: u32 = 14;
    /// To do anything to the system; before Linux 5.8, to load programs.
    pub const SYS_ADMIN: u32 = 21;
    /// To load programs.
    pub const BPF: u32 = 39;

    /// All, where /proc does not tell: the kernel will.
    pub fn of_this_process() -> Self {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
        Self(Self::parse(&status).unwrap_or(u64::MAX))
    }

    fn parse(status: &str) -> Option<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
        u64::from_str_radix(line.trim(), 16).ok()
    }

    /// True when this one is among them.
    pub fn has(self, capability: u32) -> bool {
        self.0 >> capability & 1 != 0
    }

    /// True when programs may be loaded.
    pub fn has_bpf(self) -> bool {
        self.has(Self::BPF) || self.has(Self::SYS_ADMIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_bits_of_one_line() {
        let parsed =
            Capabilities::parse("CapPrm:\tff\nCapEff:\t0000008000001000\n").map(Capabilities);
        let has = |bit| parsed.is_some_and(|all| all.has(bit));
        let [bpf, net_admin, sys_admin] =
            [Capabilities::BPF, Capabilities::NET_ADMIN, Capabilities::SYS_ADMIN].map(has);
        assert_eq!([bpf, net_admin, sys_admin], [true, true, false]);
        assert!(Capabilities::parse("nothing").is_none());
    }
}
