//! The output: packets at once, RPCs behind them.
//!
//! RPCs that end before the capture does would stand between the packets. They wait in an unnamed
//! temporary file, so that memory stays bounded for a capture of any length.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};

/// Text that waits on disk. Nothing is created before the first byte.
#[derive(Debug, Default)]
pub struct Spool {
    file: Option<BufWriter<File>>,
}

impl Spool {
    /// Copies everything to `out`.
    pub fn replay(self, out: &mut impl Write) -> io::Result<()> {
        let Some(file) = self.file else { return Ok(()) };
        let mut file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.seek(SeekFrom::Start(0))?;
        let mut buffer = vec![0; 65_536];
        loop {
            match file.read(&mut buffer)? {
                0 => return Ok(()),
                read => out.write_all(&buffer[..read])?,
            }
        }
    }
}

impl Write for Spool {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.file.is_none() {
            self.file = Some(BufWriter::new(nameless()?));
        }
        self.file.as_mut().map_or(Ok(0), |file| file.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), Write::flush)
    }
}

/// A file that goes away with its last handle.
fn nameless() -> io::Result<File> {
    let name = format!("homa-pcap-{}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}
