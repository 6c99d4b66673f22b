//! Key files: `homa-key-v1`, a space, and 32 bytes in base64, one key a line. The first key is
//! presented and all are accepted, so a rotation is three edits (docs/encryption.md).
//!
//! Empty lines and lines that begin with `#` are comments. No error contains a part of a key.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use super::KeysError;

/// The first word of a line.
const FORMAT: &str = "homa-key-v1";

/// Most keys in a file: two during a rotation, and one that was forgotten.
const KEYS_MAX: usize = 4;

/// The byte order mark with which some editors begin a file.
const MARK: &[u8] = "\u{feff}".as_bytes();

/// Longest file, bytes.
const LENGTH_MAX: u64 = 16_384;

/// Bits of the mode that expose a key: others may read or write the file, or its group may write.
const EXPOSED: u32 = 0o026;

/// Distinguishes a file from what it was before, without reading it: its identity, its length, and
/// when its content or its mode last changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Version([i64; 4]);

impl Version {
    fn of(metadata: &Metadata) -> Self {
        let (file, length) = (metadata.ino() as i64, metadata.size() as i64);
        Self([file, length, metadata.ctime(), metadata.ctime_nsec()])
    }
}

/// The version of a file, if there is one.
pub(super) fn version(path: &Path) -> Option<Version> {
    std::fs::metadata(path).ok().map(|metadata| Version::of(&metadata))
}

/// The mode of a file with a secret that others may read or write, or that its group may write.
pub(super) fn exposure(file: &File) -> io::Result<Option<u32>> {
    let mode = file.metadata()?.mode() & 0o7777;
    Ok((mode & EXPOSED != 0).then_some(mode))
}

/// The bytes of a text file, at most `max`, without a byte order mark.
pub(super) fn read_whole(file: File, max: u64) -> io::Result<Vec<u8>> {
    // With this room, no shorter buffer leaves a copy of a secret behind.
    let mut bytes = Vec::with_capacity(file.metadata()?.len().min(max) as usize);
    file.take(max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max {
        return Err(io::Error::other(format!("it is longer than {max} bytes")));
    }
    if bytes.starts_with(MARK) {
        bytes.drain(..MARK.len());
    }
    Ok(bytes)
}

/// The keys of a file, at least one.
pub(super) fn read(path: &Path) -> Result<Zeroizing<Vec<[u8; 32]>>, KeysError> {
    let failed = |source| KeysError::Read { path: path.to_owned(), source };
    let file = File::open(path).map_err(failed)?;
    if let Some(mode) = exposure(&file).map_err(failed)? {
        return Err(KeysError::Exposed { path: path.to_owned(), mode });
    }
    let text = Zeroizing::new(read_whole(file, LENGTH_MAX).map_err(failed)?);
    let text = str::from_utf8(&text).map_err(|error| failed(io::Error::other(error)))?;
    let keys = parse(text).map_err(|(line, problem)| {
        let path = path.to_owned();
        KeysError::Line { path, line, problem }
    })?;
    if keys.is_empty() {
        return Err(KeysError::Empty { path: path.to_owned() });
    }
    Ok(Zeroizing::new(keys))
}

/// The keys of a text, or the line that is none and why.
fn parse(text: &str) -> Result<Vec<[u8; 32]>, (usize, &'static str)> {
    let mut keys: Vec<[u8; 32]> = Vec::new();
    for (line, content) in (1..).zip(text.lines().map(str::trim)) {
        if content.is_empty() || content.starts_with('#') {
            continue;
        }
        let key = key(content).map_err(|problem| (line, problem))?;
        if keys.contains(&key) {
            return Err((line, "the key is there twice"));
        }
        if keys.len() == KEYS_MAX {
            return Err((line, "there are more than four keys: remove old ones"));
        }
        keys.push(key);
    }
    Ok(keys)
}

fn key(line: &str) -> Result<[u8; 32], &'static str> {
    let mut words = line.split_whitespace();
    if words.next() != Some(FORMAT) {
        return Err("it does not begin with `homa-key-v1`");
    }
    let digits = words.next().ok_or("the key is missing")?;
    if words.next().is_some() {
        return Err("something follows the key");
    }
    let bytes = STANDARD.decode(digits).map_err(|_| "the key is not base64")?;
    let key: [u8; 32] = bytes.try_into().map_err(|_| "the key does not have 32 bytes")?;
    if key == [0; 32] { Err("the key is all zeroes") } else { Ok(key) }
}

/// Writes a file with one key, which must not exist yet.
pub(super) fn create(path: &Path, key: &[u8; 32]) -> Result<(), KeysError> {
    let line = Zeroizing::new(format!("{FORMAT} {}\n", STANDARD.encode(key)));
    let created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let written = created.and_then(|mut file| file.write_all(line.as_bytes()));
    written.map_err(|source| KeysError::Write { path: path.to_owned(), source })
}
