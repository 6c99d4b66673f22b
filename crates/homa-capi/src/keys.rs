//! Keys that several sockets share, and the tickets that go with them.
//!
//! A handle owns one reference to [`Keys`], and each socket that was opened with it another one.
//! So a handle may be closed while sockets use it, and no socket changes the keys of another.

use std::ffi::{CStr, OsStr, c_char};
use std::os::unix::ffi::OsStrExt as _;
use std::ptr::null_mut;

use homa::Keys;

use crate::error::{Error, guard};

/// Flag of homa_keys_open: allows early data, so that a call to a server without a session takes
/// one round trip instead of two. An attacker on the path can have such a request executed twice.
// No other flag has this bit, so that a flag of another function is an error.
pub const HOMA_EARLY_DATA: u32 = 16;

/// Keys that several sockets share, with the tickets that servers have issued to them.
#[allow(non_camel_case_types)]
pub struct homa_keys(Keys);

/// Reads the key file of a cluster (`homa key new`), for the member `keys` in the options of any
/// number of sockets. Those sockets share the tickets of the servers that they have called, so the
/// next one begins a session with less work. A changed file is read by itself, and ends all
/// tickets.
///
/// With HOMA_EARLY_DATA in `flags` of both ends, a client with a ticket sends requests beside its
/// handshake: those with HOMA_SEND_IDEMPOTENT of at most about 1,000 bytes. The child of a fork may
/// open sockets with the keys of its parent, but has none of its tickets.
///
/// Returns the keys, or NULL with errno: EFAULT (`key_file` is null), EINVAL (an unknown flag, or
/// the file has no valid key), ENOENT, EACCES (the file cannot be read, or other users can read or
/// write it), and other errors of open(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_keys_open(key_file: *const c_char, flags: u32) -> *mut homa_keys {
    let mut opened = null_mut();
    guard(|| {
        if key_file.is_null() {
            return Err(Error::null("key_file"));
        }
        if flags & !HOMA_EARLY_DATA != 0 {
            let text = format!("`flags` is {flags}, with unknown bits: give HOMA_EARLY_DATA or 0");
            return Err(Error::invalid(text));
        }
        // SAFETY: not null, and the caller guarantees that it ends with a zero byte.
        let path = OsStr::from_bytes(unsafe { CStr::from_ptr(key_file) }.to_bytes());
        let mut keys = Keys::from_file(path).map_err(Error::keys)?;
        if flags & HOMA_EARLY_DATA != 0 {
            keys = keys.early_data();
        }
        opened = Box::into_raw(Box::new(homa_keys(keys)));
        Ok(0)
    });
    opened
}

/// Gives keys up. Sockets that were opened with them keep them until they are closed. Does nothing
/// if the pointer is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn homa_keys_close(keys: *mut homa_keys) {
    guard(|| {
        if !keys.is_null() {
            // SAFETY: `homa_keys_open` made it from a box, and the caller closes it once.
            drop(unsafe { Box::from_raw(keys) });
        }
        Ok(0)
    });
}

/// The keys of a socket that is opened with a handle; `None` without one.
///
/// # Safety
///
/// The handle is null or open.
pub unsafe fn shared(keys: *const homa_keys) -> Option<Keys> {
    // SAFETY: the caller guarantees the handle, and the reference ends with this function.
    unsafe { keys.as_ref() }.map(|keys| keys.0.clone())
}
