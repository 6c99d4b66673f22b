//! Messages as Python's buffers: read from whatever has one, and lent to Python without a copy.
//!
//! The buffer protocol belongs to the limited interface since Python 3.11 only. Its structure,
//! functions and slots are in 3.10 as they are there (PEP 3118, and `Doc/c-api/buffer.rst` of
//! both), so that one wheel serves both when they are named here.
//!
//! A message that was lent is freed with the last view of it. Its memory never changes.

use std::ffi::{c_char, c_int, c_void};
use std::mem::{MaybeUninit, size_of};
use std::ptr::{self, null_mut};

use homa::Message;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyMemoryView, PyType};

/// `Py_buffer`, as exporters fill it in.
#[repr(C)]
struct View {
    buf: *mut c_void,
    obj: *mut ffi::PyObject,
    len: ffi::Py_ssize_t,
    itemsize: ffi::Py_ssize_t,
    readonly: c_int,
    ndim: c_int,
    format: *mut c_char,
    shape: *mut ffi::Py_ssize_t,
    strides: *mut ffi::Py_ssize_t,
    suboffsets: *mut ffi::Py_ssize_t,
    internal: *mut c_void,
}

/// Bytes one after the other, nothing more.
const SIMPLE: c_int = 0;

unsafe extern "C" {
    fn PyObject_GetBuffer(object: *mut ffi::PyObject, view: *mut View, flags: c_int) -> c_int;
    fn PyBuffer_Release(view: *mut View);
    fn PyBuffer_FillInfo(
        view: *mut View,
        object: *mut ffi::PyObject,
        memory: *mut c_void,
        length: ffi::Py_ssize_t,
        readonly: c_int,
        flags: c_int,
    ) -> c_int;
}

/// The bytes of anything with one contiguous buffer: Python may change it as soon as this returns.
pub fn copied(object: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    let mut view = MaybeUninit::<View>::uninit();
    // SAFETY: the interpreter is attached, the object alive, and the view ours to be filled.
    if unsafe { PyObject_GetBuffer(object.as_ptr(), view.as_mut_ptr(), SIMPLE) } != 0 {
        return Err(PyErr::fetch(object.py()));
    }
    // SAFETY: it was filled: `len` bytes at `buf` (which may be null when there are none), in one
    // piece, until it is released, which happens once.
    unsafe {
        let filled = &*view.as_ptr();
        let length = filled.len as usize;
        let mut bytes = Vec::<u8>::with_capacity(length);
        if length > 0 {
            ptr::copy_nonoverlapping(filled.buf.cast(), bytes.as_mut_ptr(), length);
            bytes.set_len(length);
        }
        PyBuffer_Release(view.as_mut_ptr());
        Ok(bytes)
    }
}

/// An object whose buffer is a message.
#[repr(C)]
struct Lender {
    base: ffi::PyObject,
    message: Message,
}

/// A read-only view of a message, which it keeps.
pub fn lent(py: Python<'_>, message: Message) -> PyResult<Bound<'_, PyMemoryView>> {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let class = CLASS.get_or_try_init(py, || class(py))?.as_ptr().cast::<ffi::PyTypeObject>();
    // SAFETY: the class is ours, with room for a `Lender`; the allocation is a new reference or
    // null, and its message is written before any other code sees it.
    let lender = unsafe {
        let object = ffi::PyType_GenericAlloc(class, 0);
        if object.is_null() {
            return Err(PyErr::fetch(py));
        }
        (&raw mut (*object.cast::<Lender>()).message).write(message);
        Bound::from_owned_ptr(py, object)
    };
    PyMemoryView::from(&lender)
}

fn class(py: Python<'_>) -> PyResult<Py<PyType>> {
    let slot = |slot, function: *mut c_void| ffi::PyType_Slot { slot, pfunc: function };
    let mut slots = [
        slot(ffi::Py_tp_dealloc, dealloc as unsafe extern "C" fn(_) as *mut c_void),
        slot(ffi::Py_bf_getbuffer, lend as unsafe extern "C" fn(_, _, _) -> _ as *mut c_void),
        slot(0, null_mut()),
    ];
    let mut spec = ffi::PyType_Spec {
        name: c"homa._native.Lender".as_ptr(),
        basicsize: size_of::<Lender>() as c_int,
        itemsize: 0,
        // Python code can neither create one nor derive a class from it.
        flags: (ffi::Py_TPFLAGS_DEFAULT | ffi::Py_TPFLAGS_DISALLOW_INSTANTIATION) as _,
        slots: slots.as_mut_ptr(),
    };
    // SAFETY: the specification is complete and copied; the result a new reference to a class.
    let class = unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyType_FromSpec(&raw mut spec))? };
    Ok(class.cast_into::<PyType>()?.unbind())
}

/// Python calls it for a `Lender` that it owns, with room for a view.
unsafe extern "C" fn lend(object: *mut ffi::PyObject, view: *mut View, flags: c_int) -> c_int {
    // SAFETY: the message is there until `dealloc`, and the view keeps the object; it is read-only.
    unsafe {
        let message = &(*object.cast::<Lender>()).message;
        let memory = message.as_ptr().cast_mut().cast();
        PyBuffer_FillInfo(view, object, memory, message.len() as ffi::Py_ssize_t, 1, flags)
    }
}

/// Python calls it once, for a `Lender` without any reference left.
unsafe extern "C" fn dealloc(object: *mut ffi::PyObject) {
    // SAFETY: the message was written when the object was made and is dropped once; objects of
    // classes made by a specification hold a reference to their class.
    unsafe {
        let class = ffi::Py_TYPE(object);
        ptr::drop_in_place(&raw mut (*object.cast::<Lender>()).message);
        ffi::PyObject_Free(object.cast());
        ffi::Py_DECREF(class.cast());
    }
}
