//! Text in a buffer of the caller, as snprintf writes it.

use std::ffi::{c_char, c_int};
use std::ptr;

use crate::error::Error;

/// Writes `text` and a zero byte, at most `len` bytes in total; returns the length of the text.
///
/// # Safety
///
/// `buf` is null, or writable for `len` bytes.
pub unsafe fn write(text: &str, buf: *mut c_char, len: usize) -> Result<c_int, Error> {
    if len > 0 {
        if buf.is_null() {
            return Err(Error::null("buf"));
        }
        let fits = text.len().min(len - 1);
        // SAFETY: the caller guarantees `len` bytes, and these are fewer.
        unsafe {
            ptr::copy_nonoverlapping(text.as_ptr().cast(), buf, fits);
            *buf.add(fits) = 0;
        }
    }
    Ok(c_int::try_from(text.len()).unwrap_or(c_int::MAX))
}
