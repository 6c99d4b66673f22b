//! The little of Parquet that a flat table needs: one row group, one plain uncompressed page per
//! column, absent values by definition levels.
//!
//! Written here because the `parquet` crate, features off, brings twenty others and a minute of
//! compilation for these lines. Numbers of fields and enumerations are those of the format's
//! `parquet.thrift`, in Thrift's compact protocol.

use super::{Column, Table, Values};

const MAGIC: &[u8; 4] = b"PAR1";
const CREATED_BY: &str = concat!("homa-lab version ", env!("CARGO_PKG_VERSION"));

const TYPE_INT64: i64 = 2;
const TYPE_DOUBLE: i64 = 5;
const TYPE_BYTE_ARRAY: i64 = 6;
const REQUIRED: i64 = 0;
const OPTIONAL: i64 = 1;
const CONVERTED_UTF8: i64 = 0;
const ENCODING_PLAIN: i64 = 0;
const ENCODING_RLE: i64 = 3;
const UNCOMPRESSED: i64 = 0;
const DATA_PAGE: i64 = 0;

/// Position of a column in the file.
struct Chunk {
    offset: usize,
    bytes: usize,
}

pub(super) fn write(table: &Table) -> Vec<u8> {
    let mut file = MAGIC.to_vec();
    let mut chunks = Vec::new();
    for column in table.columns() {
        let page = page(&column.values);
        let offset = file.len();
        file.extend(page_header(page.len(), table.rows()));
        file.extend(page);
        chunks.push(Chunk { offset, bytes: file.len() - offset });
    }
    let metadata = metadata(table, &chunks);
    file.extend(&metadata);
    file.extend((metadata.len() as u32).to_le_bytes());
    file.extend(MAGIC);
    file
}

/// Levels and values of a column.
fn page(values: &Values) -> Vec<u8> {
    let mut out = Vec::new();
    match values {
        Values::Text(values) => {
            for value in values {
                out.extend((value.len() as u32).to_le_bytes());
                out.extend(value.as_bytes());
            }
        }
        Values::Integer(values) => {
            levels(&mut out, values.iter().map(Option::is_some));
            values.iter().flatten().for_each(|value| out.extend(value.to_le_bytes()));
        }
        Values::Real(values) => {
            levels(&mut out, values.iter().map(Option::is_some));
            values.iter().flatten().for_each(|value| out.extend(value.to_le_bytes()));
        }
    }
    out
}

/// Definition levels of one bit as runs, after their length in bytes.
fn levels(out: &mut Vec<u8>, present: impl Iterator<Item = bool>) {
    let mut runs: Vec<(u64, bool)> = Vec::new();
    for present in present {
        match runs.last_mut() {
            Some((length, value)) if *value == present => *length += 1,
            _ => runs.push((1, present)),
        }
    }
    let mut encoded = Vec::new();
    for (length, value) in runs {
        varint(&mut encoded, length << 1);
        encoded.push(u8::from(value));
    }
    out.extend((encoded.len() as u32).to_le_bytes());
    out.extend(encoded);
}

fn page_header(bytes: usize, rows: usize) -> Vec<u8> {
    let mut header = Struct::new();
    header.i32(1, DATA_PAGE);
    header.i32(2, bytes as i64);
    header.i32(3, bytes as i64);
    header.group(5, |data| {
        data.i32(1, rows as i64);
        data.i32(2, ENCODING_PLAIN);
        data.i32(3, ENCODING_RLE);
        data.i32(4, ENCODING_RLE);
    });
    header.end()
}

fn metadata(table: &Table, chunks: &[Chunk]) -> Vec<u8> {
    let columns = table.columns();
    let mut file = Struct::new();
    file.i32(1, 1);
    file.list(2, STRUCT, columns.len() + 1, |out| {
        let mut root = Struct::new();
        root.text(4, "table");
        root.i32(5, columns.len() as i64);
        out.extend(root.end());
        columns.iter().for_each(|column| out.extend(schema(column)));
    });
    file.i64(3, table.rows() as i64);
    file.list(4, STRUCT, 1, |out| {
        let mut group = Struct::new();
        group.list(1, STRUCT, columns.len(), |out| {
            for (column, chunk) in columns.iter().zip(chunks) {
                out.extend(column_chunk(column, chunk));
            }
        });
        group.i64(2, chunks.iter().map(|chunk| chunk.bytes).sum::<usize>() as i64);
        group.i64(3, table.rows() as i64);
        out.extend(group.end());
    });
    file.text(6, CREATED_BY);
    file.end()
}

fn physical_type(values: &Values) -> i64 {
    match values {
        Values::Text(_) => TYPE_BYTE_ARRAY,
        Values::Integer(_) => TYPE_INT64,
        Values::Real(_) => TYPE_DOUBLE,
    }
}

fn schema(column: &Column) -> Vec<u8> {
    let text = matches!(column.values, Values::Text(_));
    let mut element = Struct::new();
    element.i32(1, physical_type(&column.values));
    element.i32(3, if text { REQUIRED } else { OPTIONAL });
    element.text(4, &column.name);
    if text {
        element.i32(6, CONVERTED_UTF8);
    }
    element.end()
}

fn column_chunk(column: &Column, chunk: &Chunk) -> Vec<u8> {
    let mut out = Struct::new();
    out.i64(2, chunk.offset as i64);
    out.group(3, |data| {
        data.i32(1, physical_type(&column.values));
        data.list(2, I32, 2, |out| {
            varint(out, zigzag(ENCODING_PLAIN));
            varint(out, zigzag(ENCODING_RLE));
        });
        data.list(3, BINARY, 1, |out| binary(out, &column.name));
        data.i32(4, UNCOMPRESSED);
        data.i64(5, column.values.len() as i64);
        data.i64(6, chunk.bytes as i64);
        data.i64(7, chunk.bytes as i64);
        data.i64(9, chunk.offset as i64);
    });
    out.end()
}

const I32: u8 = 5;
const I64: u8 = 6;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const STRUCT: u8 = 12;

/// A struct in Thrift's compact protocol; fields come in ascending order.
struct Struct {
    bytes: Vec<u8>,
    last: u8,
}

impl Struct {
    fn new() -> Self {
        Self { bytes: Vec::new(), last: 0 }
    }

    fn field(&mut self, id: u8, kind: u8) {
        self.bytes.push((id - self.last) << 4 | kind);
        self.last = id;
    }

    fn i32(&mut self, id: u8, value: i64) {
        self.field(id, I32);
        varint(&mut self.bytes, zigzag(value));
    }

    fn i64(&mut self, id: u8, value: i64) {
        self.field(id, I64);
        varint(&mut self.bytes, zigzag(value));
    }

    fn text(&mut self, id: u8, value: &str) {
        self.field(id, BINARY);
        binary(&mut self.bytes, value);
    }

    fn group(&mut self, id: u8, fill: impl FnOnce(&mut Self)) {
        self.field(id, STRUCT);
        let mut inner = Self::new();
        fill(&mut inner);
        self.bytes.extend(inner.end());
    }

    fn list(&mut self, id: u8, kind: u8, length: usize, fill: impl FnOnce(&mut Vec<u8>)) {
        self.field(id, LIST);
        if length < 15 {
            self.bytes.push((length as u8) << 4 | kind);
        } else {
            self.bytes.push(0xf0 | kind);
            varint(&mut self.bytes, length as u64);
        }
        fill(&mut self.bytes);
    }

    fn end(mut self) -> Vec<u8> {
        self.bytes.push(0);
        self.bytes
    }
}

fn binary(out: &mut Vec<u8>, text: &str) {
    varint(out, text.len() as u64);
    out.extend(text.as_bytes());
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::default();
        table.text("name", ["a", "bc"].map(String::from).into_iter());
        table.real("p99", [Some(1.5), None].into_iter());
        table
    }

    #[test]
    fn the_file_has_the_bytes_that_other_readers_read() {
        let file = write(&table());
        assert_eq!(&file[..4], MAGIC);
        assert_eq!(&file[file.len() - 4..], MAGIC);
        // Page header of the names: type 0, 11 bytes twice, then 2 values, plain, levels as runs.
        let header = [0x15, 0, 0x15, 22, 0x15, 22, 0x2c, 0x15, 4, 0x15, 0, 0x15, 6, 0x15, 6, 0, 0];
        assert_eq!(&file[4..21], header);
        assert_eq!(&file[21..32], [1, 0, 0, 0, b'a', 2, 0, 0, 0, b'b', b'c']);
        // Levels of the measures: a run of one present, a run of one absent.
        let values = 32 + header.len();
        assert_eq!(&file[values..values + 8], [4, 0, 0, 0, 2, 1, 2, 0]);
        assert_eq!(&file[values + 8..values + 16], 1.5f64.to_le_bytes());
        let length = u32::from_le_bytes(file[file.len() - 8..file.len() - 4].try_into().unwrap());
        assert_eq!(values + 16 + length as usize + 8, file.len());
    }

    #[test]
    fn numbers_take_as_many_bytes_as_they_need() {
        let encoded = |value| {
            let mut out = Vec::new();
            varint(&mut out, value);
            out
        };
        assert_eq!(encoded(0), [0]);
        assert_eq!(encoded(300), [0xac, 0x02]);
        assert_eq!((zigzag(-1), zigzag(1), zigzag(i64::MIN)), (1, 2, u64::MAX));
    }
}
