//! Tables in Arrow's memory layout, handed to other libraries by the Arrow C stream interface: they
//! read our memory, which lives until the last of them releases it.
//!
//! The three structures are those of <https://arrow.apache.org/docs/format/CDataInterface.html>,
//! and so are the rules: the holder of a structure calls its `release` once and never uses it
//! again; a structure that was moved away has no `release` any more. They are written here because
//! the crates of Arrow would be twenty more to compile in place of two hundred lines.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::Arc;

/// Set in [`ArrowSchema::flags`] of columns whose values may be absent.
const NULLABLE: i64 = 2;

/// The values of a column, one after the other.
#[derive(Debug)]
pub enum Values {
    /// Text `n` is what lies from byte `ends[n]` to `ends[n + 1]`.
    Text {
        /// One more than there are texts.
        ends: Vec<i64>,
        /// UTF-8.
        bytes: Vec<u8>,
    },
    /// Signed counts; some may be absent.
    Integer(Vec<i64>, Presence),
    /// Measures; some may be absent.
    Real(Vec<f64>, Presence),
    /// Counts that are all there.
    Count(Vec<u32>),
}

/// Which values are there.
#[derive(Debug, Default)]
pub struct Presence {
    /// One bit for each, lowest first; empty when all are there.
    bits: Vec<u8>,
    absent: usize,
}

impl Presence {
    /// Of values in their order.
    pub fn of(present: impl ExactSizeIterator<Item = bool> + Clone) -> Self {
        let absent = present.clone().filter(|there| !there).count();
        if absent == 0 {
            return Self::default();
        }
        let mut bits = vec![0; present.len().div_ceil(8)];
        for (place, _) in present.enumerate().filter(|(_, there)| *there) {
            bits[place / 8] |= 1 << (place % 8);
        }
        Self { bits, absent }
    }

    /// The bits; none if all values are there.
    pub fn bits(&self) -> &[u8] {
        &self.bits
    }

    /// Whether the value at a place is there.
    pub fn has(&self, place: usize) -> bool {
        self.absent == 0 || self.bits[place / 8] & (1 << (place % 8)) != 0
    }
}

/// A named column.
#[derive(Debug)]
pub struct Column {
    /// Without a zero byte.
    pub name: String,
    /// As many as there are rows.
    pub values: Values,
}

/// Columns of one length.
#[derive(Debug, Default)]
pub struct Columns {
    /// From left to right.
    pub columns: Vec<Column>,
    /// Their length.
    pub rows: usize,
}

/// What a column or table is.
#[repr(C)]
struct ArrowSchema {
    format: *const c_char,
    name: *const c_char,
    metadata: *const c_char,
    flags: i64,
    n_children: i64,
    children: *mut *mut ArrowSchema,
    dictionary: *mut ArrowSchema,
    release: Option<unsafe extern "C" fn(*mut ArrowSchema)>,
    private_data: *mut c_void,
}

/// The values of a column or table.
#[repr(C)]
struct ArrowArray {
    length: i64,
    null_count: i64,
    offset: i64,
    n_buffers: i64,
    n_children: i64,
    buffers: *mut *const c_void,
    children: *mut *mut ArrowArray,
    dictionary: *mut ArrowArray,
    release: Option<unsafe extern "C" fn(*mut ArrowArray)>,
    private_data: *mut c_void,
}

/// A sequence of tables; ours have one.
#[repr(C)]
pub struct ArrowArrayStream {
    get_schema: Option<unsafe extern "C" fn(*mut ArrowArrayStream, *mut ArrowSchema) -> c_int>,
    get_next: Option<unsafe extern "C" fn(*mut ArrowArrayStream, *mut ArrowArray) -> c_int>,
    get_last_error: Option<unsafe extern "C" fn(*mut ArrowArrayStream) -> *const c_char>,
    release: Option<unsafe extern "C" fn(*mut ArrowArrayStream)>,
    private_data: *mut c_void,
}

/// What a stream keeps.
struct Stream {
    table: Arc<Columns>,
    given: bool,
}

// SAFETY: all that the pointers lead to is owned by the stream, or immutable behind an `Arc`.
unsafe impl Send for ArrowArrayStream {}

impl ArrowArrayStream {
    /// Of one table.
    pub fn new(table: Arc<Columns>) -> Self {
        let state = Box::new(Stream { table, given: false });
        Self {
            get_schema: Some(stream_schema),
            get_next: Some(stream_next),
            get_last_error: Some(stream_error),
            release: Some(stream_release),
            private_data: Box::into_raw(state).cast(),
        }
    }
}

impl Drop for ArrowArrayStream {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: the stream was not moved away, so it is ours to release, once.
            unsafe { release(self) };
        }
    }
}

/// The caller holds a stream that was not released, and room for a schema.
unsafe extern "C" fn stream_schema(stream: *mut ArrowArrayStream, out: *mut ArrowSchema) -> c_int {
    // SAFETY: the private data of a stream is the `Stream` of `new` until it is released.
    let state = unsafe { &*(*stream).private_data.cast::<Stream>() };
    let children = state.table.columns.iter().map(|column| {
        let (format, flags) = match &column.values {
            Values::Text { .. } => (c"U", 0),
            Values::Integer(..) => (c"l", NULLABLE),
            Values::Real(..) => (c"g", NULLABLE),
            Values::Count(_) => (c"I", 0),
        };
        schema(format, &column.name, flags, Vec::new())
    });
    // SAFETY: the caller's room is uninitialised, and large enough.
    unsafe { out.write(schema(c"+s", "", 0, children.collect())) };
    0
}

/// As [`stream_schema`]: the table the first time, then a released array, which says that there is
/// no more.
unsafe extern "C" fn stream_next(stream: *mut ArrowArrayStream, out: *mut ArrowArray) -> c_int {
    // SAFETY: as above; consumers call from one thread at a time.
    let state = unsafe { &mut *(*stream).private_data.cast::<Stream>() };
    let mut table = array(&state.table);
    if std::mem::replace(&mut state.given, true) {
        // SAFETY: it is ours, and released once.
        unsafe { array_release(&mut table) };
    }
    // SAFETY: the caller's room is uninitialised, and large enough.
    unsafe { out.write(table) };
    0
}

/// Nothing fails.
unsafe extern "C" fn stream_error(_: *mut ArrowArrayStream) -> *const c_char {
    null()
}

/// The caller holds a stream that was not released.
unsafe extern "C" fn stream_release(stream: *mut ArrowArrayStream) {
    // SAFETY: as in `stream_schema`; the box of `new` is taken back once.
    unsafe {
        drop(Box::from_raw((*stream).private_data.cast::<Stream>()));
        (*stream).release = None;
    }
}

/// What a schema keeps.
struct SchemaParts {
    name: CString,
    children: Vec<*mut ArrowSchema>,
}

fn schema(format: &'static CStr, name: &str, flags: i64, inner: Vec<ArrowSchema>) -> ArrowSchema {
    let children = inner.into_iter().map(|child| Box::into_raw(Box::new(child)));
    let name = CString::new(name).unwrap_or_default();
    let mut parts = Box::new(SchemaParts { name, children: children.collect() });
    ArrowSchema {
        format: format.as_ptr(),
        name: parts.name.as_ptr(),
        metadata: null(),
        flags,
        n_children: parts.children.len() as i64,
        children: parts.children.as_mut_ptr(),
        dictionary: null_mut(),
        release: Some(schema_release),
        private_data: Box::into_raw(parts).cast(),
    }
}

/// The caller holds a schema that was not released.
unsafe extern "C" fn schema_release(schema: *mut ArrowSchema) {
    // SAFETY: the private data are the parts of `schema`, taken back once; so are the children's
    // boxes, whose content is released unless a consumer moved it away.
    unsafe {
        let parts = Box::from_raw((*schema).private_data.cast::<SchemaParts>());
        for child in parts.children {
            let mut child = Box::from_raw(child);
            if let Some(release) = child.release {
                release(&mut *child);
            }
        }
        (*schema).release = None;
    }
}

/// What an array keeps: above all the memory that its buffers are in.
struct ArrayParts {
    _table: Arc<Columns>,
    buffers: Vec<*const c_void>,
    children: Vec<*mut ArrowArray>,
}

/// The array of a whole table: its columns side by side.
fn array(table: &Arc<Columns>) -> ArrowArray {
    let children = table.columns.iter().map(|column| {
        let (absent, buffers) = buffers_of(&column.values);
        Box::into_raw(Box::new(part(table, absent, (buffers, Vec::new()))))
    });
    part(table, 0, (vec![null()], children.collect()))
}

fn part(
    table: &Arc<Columns>,
    absent: usize,
    (buffers, children): (Vec<*const c_void>, Vec<*mut ArrowArray>),
) -> ArrowArray {
    let mut parts = Box::new(ArrayParts { _table: table.clone(), buffers, children });
    ArrowArray {
        length: table.rows as i64,
        null_count: absent as i64,
        offset: 0,
        n_buffers: parts.buffers.len() as i64,
        n_children: parts.children.len() as i64,
        buffers: parts.buffers.as_mut_ptr(),
        children: parts.children.as_mut_ptr(),
        dictionary: null_mut(),
        release: Some(array_release),
        private_data: Box::into_raw(parts).cast(),
    }
}

/// Number of absent values, and addresses of the column's memory: presence first.
fn buffers_of(values: &Values) -> (usize, Vec<*const c_void>) {
    fn presence(presence: &Presence) -> *const c_void {
        match presence.absent {
            0 => null(),
            _ => presence.bits.as_ptr().cast(),
        }
    }
    match values {
        Values::Text { ends, bytes } => {
            (0, vec![null(), ends.as_ptr().cast(), bytes.as_ptr().cast()])
        }
        Values::Integer(values, there) => {
            (there.absent, vec![presence(there), values.as_ptr().cast()])
        }
        Values::Real(values, there) => {
            (there.absent, vec![presence(there), values.as_ptr().cast()])
        }
        Values::Count(values) => (0, vec![null(), values.as_ptr().cast()]),
    }
}

/// The caller holds an array that was not released.
unsafe extern "C" fn array_release(array: *mut ArrowArray) {
    // SAFETY: the private data are the parts of `part`, taken back once; children as in
    // `schema_release`. Columns that were moved away keep the table alive by their own parts.
    unsafe {
        let parts = Box::from_raw((*array).private_data.cast::<ArrayParts>());
        for child in parts.children {
            let mut child = Box::from_raw(child);
            if let Some(release) = child.release {
                release(&mut *child);
            }
        }
        (*array).release = None;
    }
}
