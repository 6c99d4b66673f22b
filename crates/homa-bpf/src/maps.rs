//! Maps that a program and this process share.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::command::{Attributes, address, owned};

const MAP_CREATE: libc::c_long = 0;
const MAP_LOOKUP_ELEM: libc::c_long = 1;
const MAP_UPDATE_ELEM: libc::c_long = 2;
const MAP_DELETE_ELEM: libc::c_long = 3;
const MAP_GET_NEXT_ID: libc::c_long = 12;
const MAP_GET_FD_BY_ID: libc::c_long = 14;
const OBJ_GET_INFO_BY_FD: libc::c_long = 15;

const MAP_TYPE_HASH: u32 = 1;
const MAP_TYPE_ARRAY: u32 = 2;
const MAP_TYPE_XSKMAP: u32 = 17;

/// A map with one value of `N` words under key 0.
#[derive(Debug)]
pub struct WordMap<const N: usize>(OwnedFd);

impl<const N: usize> WordMap<N> {
    /// Creates a map of that name, all zero.
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

    /// All maps of that name, also those of other processes.
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
                // It was removed in the meantime.
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// True if the map has that name, and values of this size.
    fn is_ours(&self, name: &CStr) -> io::Result<bool> {
        // `struct bpf_map_info`: type, id, key size, value size, entries, flags, name.
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

    /// The value.
    pub fn read(&self) -> io::Result<[u64; N]> {
        let (key, mut value) = (0_u32, [0; N]);
        let mut attributes = self.element(&key, value.as_mut_ptr() as u64);
        // SAFETY: key and value have the sizes with which the map was created or found.
        unsafe { attributes.call(MAP_LOOKUP_ELEM)? };
        Ok(value)
    }

    /// Replaces the value.
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

    /// The descriptor by which a program refers to the map.
    pub fn descriptor(&self) -> i32 {
        self.0.as_raw_fd()
    }
}

/// A map from keys of `K` bytes to a word of 32 bits.
#[derive(Debug)]
pub struct BpfMap<const K: usize>(OwnedFd);

impl<const K: usize> BpfMap<K> {
    /// A hash table in which a program looks up keys.
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

    /// Sets the word of a key.
    pub fn insert(&self, key: &[u8; K], word: u32) -> io::Result<()> {
        let map = self.0.as_raw_fd() as u32;
        let mut attributes =
            Attributes::new().word(0, map).long(8, address(key)).long(16, address(&word));
        // SAFETY: key and word have the sizes with which the map was created; the kernel only
        // reads.
        unsafe { attributes.call(MAP_UPDATE_ELEM).map(drop) }
    }

    /// Removes a key.
    pub fn remove(&self, key: &[u8; K]) -> io::Result<()> {
        let map = self.0.as_raw_fd() as u32;
        let mut attributes = Attributes::new().word(0, map).long(8, address(key));
        // SAFETY: the key has the size with which the map was created; the kernel only reads.
        unsafe { attributes.call(MAP_DELETE_ELEM).map(drop) }
    }

    /// The descriptor by which a program refers to the map.
    pub fn descriptor(&self) -> i32 {
        self.0.as_raw_fd()
    }
}

impl BpfMap<4> {
    /// AF_XDP sockets by queue, to which a program redirects frames (XSKMAP).
    pub fn sockets(name: &CStr, queues: u32) -> io::Result<Self> {
        Self::create(MAP_TYPE_XSKMAP, name, queues)
    }
}
