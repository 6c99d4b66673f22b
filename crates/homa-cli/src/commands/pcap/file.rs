//! Capture files: classic pcap (either byte order, micro- or nanoseconds) and pcapng, as a stream
//! of frames.
//!
//! Reads forwards only, one record at a time, so that a pipe will do; memory is one frame and the
//! interfaces of a section. What a record says about itself is not trusted: lengths are bounded,
//! bytes are taken as they come. A file that breaks off or contradicts itself yields every frame
//! before that place, then says where and how.
//!
//! Formats: the IETF drafts on PCAP and PCAPNG. Left out: blocks of pcapng without frames except
//! interface statistics, comments except the one that marks one-way messages.

use std::fmt;
use std::io::{self, BufReader, Read};

/// Longest record that is believed, bytes: libpcap's own limit is 256 KiB, jumbo trains included.
const MAX_RECORD: u32 = 16 << 20;
/// Bytes of a classic file's header after its magic number.
const PCAP_HEADER: usize = 20;
/// Interfaces of a section that are kept, a few bytes each.
const MAX_INTERFACES: usize = 65_536;
const NANOS: i128 = 1_000_000_000;
const ONE_WAY: &[u8] = homa_sim::trace::pcapng::ONE_WAY.as_bytes();

/// One captured frame; its bytes are in the reader's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Nanoseconds since 1970; none in pcapng's simple packet blocks.
    pub time: Option<i64>,
    /// Link type by the tcpdump.org registry; `None`: of an interface that was never described.
    pub link: Option<u16>,
    /// Bytes that the frame had on the wire; more than were captured when the capture cut it.
    pub original: u32,
    /// Its comment (pcapng) says that it belongs to a one-way message, as the simulator writes it.
    pub one_way: bool,
}

/// Why a stream of frames ended early.
#[derive(Debug)]
pub enum ReadError {
    /// The input could not be read.
    Io(io::Error),
    /// No capture: the first bytes are neither format's.
    NotACapture {
        /// A known kind of file that this is instead.
        instead: Option<&'static str>,
    },
    /// Broken at a byte offset.
    Damaged {
        /// Offset of the record that cannot be read.
        at: u64,
        /// The reason.
        what: String,
    },
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "{error}"),
            Self::NotACapture { instead: None } => f.write_str("neither pcap nor pcapng"),
            Self::NotACapture { instead: Some(kind) } => write!(f, "a {kind} file, no capture"),
            Self::Damaged { at, what } => write!(f, "damaged at byte {at}: {what}"),
        }
    }
}

impl std::error::Error for ReadError {}

/// Byte order of a file or section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Big,
    Little,
}

impl Order {
    fn u16(self, bytes: &[u8], at: usize) -> Option<u16> {
        let bytes = *bytes.get(at..)?.first_chunk()?;
        Some(if self == Self::Big { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) })
    }

    fn u32(self, bytes: &[u8], at: usize) -> Option<u32> {
        let bytes = *bytes.get(at..)?.first_chunk()?;
        Some(if self == Self::Big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    }

    fn u64(self, bytes: &[u8], at: usize) -> Option<u64> {
        let (high, low) = match self {
            Self::Big => (self.u32(bytes, at)?, self.u32(bytes, at + 4)?),
            Self::Little => (self.u32(bytes, at + 4)?, self.u32(bytes, at)?),
        };
        Some(u64::from(high) << 32 | u64::from(low))
    }
}

/// An interface of a pcapng section.
#[derive(Clone, Copy, Debug)]
struct Interface {
    link: u16,
    /// The resolution option: 10^-n s, or 2^-n s with the top bit set.
    resolution: u8,
    /// Seconds to be added.
    offset: i64,
    snap: u32,
    /// Frames lost by it and by the system, as its latest statistics say.
    dropped: Option<u64>,
}

#[derive(Debug)]
enum Format {
    Pcap { order: Order, link: u16, unit: i64 },
    PcapNg { order: Order, interfaces: Vec<Interface> },
}

/// Reads a capture.
#[derive(Debug)]
pub struct CaptureReader<R> {
    input: R,
    /// Bytes taken from the input.
    at: u64,
    format: Format,
    /// Frames lost on the interfaces of earlier sections.
    dropped: Option<u64>,
    /// Ended, properly or not.
    over: bool,
    record: Vec<u8>,
    /// Range of the frame's bytes in `record`.
    frame: std::ops::Range<usize>,
}

impl<R: Read> CaptureReader<R> {
    /// Reads the beginning of the input, which decides the format.
    pub fn new(mut input: R) -> Result<Self, ReadError> {
        let mut magic = Vec::new();
        (&mut input).take(4).read_to_end(&mut magic).map_err(ReadError::Io)?;
        let pcap = |order, unit| Format::Pcap { order, link: 0, unit };
        let format = match magic[..] {
            [0xa1, 0xb2, 0xc3, 0xd4] => pcap(Order::Big, 1_000),
            [0xd4, 0xc3, 0xb2, 0xa1] => pcap(Order::Little, 1_000),
            [0xa1, 0xb2, 0x3c, 0x4d] => pcap(Order::Big, 1),
            [0x4d, 0x3c, 0xb2, 0xa1] => pcap(Order::Little, 1),
            [0x0a, 0x0d, 0x0d, 0x0a] => {
                Format::PcapNg { order: Order::Big, interfaces: Vec::new() }
            }
            // The file is compressed twice, for example gzip in zstd; one layer was removed.
            [0x1f, 0x8b, ..] => return Err(ReadError::NotACapture { instead: Some("gzip") }),
            [0x28, 0xb5, 0x2f, 0xfd] => {
                return Err(ReadError::NotACapture { instead: Some("zstd") });
            }
            [0xfd, b'7', b'z', b'X'] => return Err(ReadError::NotACapture { instead: Some("xz") }),
            [b'B', b'Z', b'h', _] => return Err(ReadError::NotACapture { instead: Some("bzip2") }),
            [0x04, 0x22, 0x4d, 0x18] => {
                return Err(ReadError::NotACapture { instead: Some("lz4") });
            }
            _ => return Err(ReadError::NotACapture { instead: None }),
        };
        let (record, frame) = (Vec::new(), 0..0);
        let mut reader = Self { input, at: 4, format, dropped: None, over: false, record, frame };
        match &mut reader.format {
            Format::Pcap { .. } => reader.pcap_header()?,
            Format::PcapNg { .. } => reader.section(0)?,
        }
        Ok(reader)
    }

    /// `pcap` or `pcapng`.
    pub fn format(&self) -> &'static str {
        match self.format {
            Format::Pcap { .. } => "pcap",
            Format::PcapNg { .. } => "pcapng",
        }
    }

    /// Frames that were lost while the capture was made, as far as it says so up to here.
    pub fn dropped(&self) -> Option<u64> {
        let interfaces: &[Interface] = match &self.format {
            Format::Pcap { .. } => &[],
            Format::PcapNg { interfaces, .. } => interfaces,
        };
        let counts = interfaces.iter().map(|interface| interface.dropped).chain([self.dropped]);
        counts.flatten().reduce(u64::saturating_add)
    }

    /// The next frame; `None` at the end of the capture and after an error.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, ReadError> {
        if self.over {
            return Ok(None);
        }
        let result = match &self.format {
            &Format::Pcap { order, link, unit } => self.next_of_pcap(order, link, unit),
            Format::PcapNg { .. } => self.next_of_pcapng(),
        };
        self.over = !matches!(result, Ok(Some(_)));
        result
    }

    /// The bytes of the last frame, as far as they were captured.
    pub fn bytes(&self) -> &[u8] {
        &self.record[self.frame.clone()]
    }

    fn pcap_header(&mut self) -> Result<(), ReadError> {
        self.fill(PCAP_HEADER, 0)?;
        if let Format::Pcap { order, link, .. } = &mut self.format {
            // The upper half says how long the frame check sequences are.
            *link = order.u32(&self.record, 16).unwrap_or(0) as u16;
        }
        Ok(())
    }

    fn next_of_pcap(
        &mut self,
        order: Order,
        link: u16,
        unit: i64,
    ) -> Result<Option<Frame>, ReadError> {
        let start = self.at;
        if !self.begin(16)? {
            return Ok(None);
        }
        let field = |at| order.u32(&self.record, at).unwrap_or(0);
        let [seconds, fraction, captured, original] = [field(0), field(4), field(8), field(12)];
        self.believe(captured, start)?;
        self.fill(captured as usize, start)?;
        self.frame = 0..captured as usize;
        let time = Some(i64::from(seconds) * 1_000_000_000 + i64::from(fraction) * unit);
        let original = original.max(captured);
        Ok(Some(Frame { time, link: Some(link), original, one_way: false }))
    }

    fn next_of_pcapng(&mut self) -> Result<Option<Frame>, ReadError> {
        loop {
            let start = self.at;
            if !self.begin(4)? {
                return Ok(None);
            }
            // The section header's type reads the same in both orders, and sets the order.
            if self.record == [0x0a, 0x0d, 0x0d, 0x0a] {
                self.section(start)?;
                continue;
            }
            let Format::PcapNg { order, .. } = self.format else { return Ok(None) };
            let kind = order.u32(&self.record, 0).unwrap_or(0);
            self.fill(4, start)?;
            let length = order.u32(&self.record, 0).unwrap_or(0);
            self.body(length, 8, start)?;
            if kind == 1 {
                self.interface(order, start)?;
            } else if kind == 5 {
                self.statistics(order);
            } else if let Some(frame) = self.block(kind, order) {
                return Ok(Some(frame));
            }
        }
    }

    /// Reads a section header block behind its type.
    fn section(&mut self, start: u64) -> Result<(), ReadError> {
        self.fill(8, start)?;
        let order = match self.record[4..8] {
            [0x1a, 0x2b, 0x3c, 0x4d] => Order::Big,
            [0x4d, 0x3c, 0x2b, 0x1a] => Order::Little,
            _ => return damaged(start, "a section header without its byte-order mark"),
        };
        let length = order.u32(&self.record, 0).unwrap_or(0);
        self.dropped = self.dropped();
        self.format = Format::PcapNg { order, interfaces: Vec::new() };
        self.body(length, 12, start)
    }

    /// Reads the rest of a block after its first `read` bytes: its body, and its length again.
    fn body(&mut self, length: u32, read: u32, start: u64) -> Result<(), ReadError> {
        self.believe(length, start)?;
        if length < read + 4 || !length.is_multiple_of(4) {
            return damaged(start, &format!("a block of {length} bytes"));
        }
        self.fill((length - read) as usize, start)?;
        let end = self.record.len() - 4;
        let Format::PcapNg { order, .. } = &self.format else { return Ok(()) };
        if order.u32(&self.record, end) != Some(length) {
            return damaged(start, "a block whose two lengths differ");
        }
        self.record.truncate(end);
        Ok(())
    }

    /// Adds the interface of the block that began at `start`.
    fn interface(&mut self, order: Order, start: u64) -> Result<(), ReadError> {
        let Format::PcapNg { interfaces, .. } = &mut self.format else { return Ok(()) };
        if interfaces.len() == MAX_INTERFACES {
            return damaged(start, &format!("more than {MAX_INTERFACES} interfaces"));
        }
        match describe(order, &self.record) {
            Some(interface) => interfaces.push(interface),
            None => return damaged(start, "an interface block without its fields"),
        }
        Ok(())
    }

    /// Notes what an interface statistics block says of lost frames.
    fn statistics(&mut self, order: Order) {
        let Format::PcapNg { interfaces, .. } = &mut self.format else { return };
        let body = &self.record[..];
        let id = order.u32(body, 0).unwrap_or(u32::MAX);
        let Some(interface) = interfaces.get_mut(id as usize) else { return };
        // Dropped by the interface, and by the operating system.
        let counts = options(order, body, 12).filter(|(code, _)| [5, 7].contains(code));
        let counts = counts.filter_map(|(_, at)| order.u64(body, at));
        interface.dropped = counts.reduce(u64::saturating_add).or(interface.dropped);
    }

    /// The frame of a block.
    fn block(&mut self, kind: u32, order: Order) -> Option<Frame> {
        let body = &self.record[..];
        let Format::PcapNg { interfaces, .. } = &self.format else { return None };
        let (id, ticks, at, captured, original) = match kind {
            2 => {
                let field = |at| order.u32(body, at);
                let id = u32::from(order.u16(body, 0)?);
                (id, Some((field(4)?, field(8)?)), 20, field(12)?, field(16)?)
            }
            3 => {
                let original = order.u32(body, 0)?;
                let snap = interfaces.first().map_or(0, |first| first.snap);
                let captured = if snap == 0 { original } else { original.min(snap) };
                (0, None, 4, captured, original)
            }
            6 => {
                let field = |at| order.u32(body, at);
                (field(0)?, Some((field(4)?, field(8)?)), 20, field(12)?, field(16)?)
            }
            _ => return None,
        };
        let interface = interfaces.get(id as usize);
        let end = body.len().min((at + captured as usize).max(at));
        self.frame = at..end;
        let time =
            ticks.map(|(high, low)| nanoseconds(u64::from(high) << 32 | u64::from(low), interface));
        let original = original.max((end - at) as u32);
        let one_way = kind == 6
            && options(order, body, end.next_multiple_of(4)).any(|(code, value)| {
                code == 1 && body.get(value..).is_some_and(|text| text.starts_with(ONE_WAY))
            });
        Some(Frame { time, link: interface.map(|i| i.link), original, one_way })
    }

    /// Reads the beginning of a record; `false` at the end of the input.
    fn begin(&mut self, bytes: usize) -> Result<bool, ReadError> {
        match self.take(bytes)? {
            0 => Ok(false),
            read if read == bytes => Ok(true),
            read => damaged(self.at - read as u64, "the file ends inside this record"),
        }
    }

    /// Reads exactly `bytes` into the record that began at `start`.
    fn fill(&mut self, bytes: usize, start: u64) -> Result<(), ReadError> {
        match self.take(bytes)? {
            read if read == bytes => Ok(()),
            _ => damaged(start, "the file ends inside this record"),
        }
    }

    /// Memory grows with the bytes that are there, not with the announced length.
    fn take(&mut self, bytes: usize) -> Result<usize, ReadError> {
        self.record.clear();
        let input = (&mut self.input).take(bytes as u64);
        let read = { input }.read_to_end(&mut self.record).map_err(ReadError::Io)?;
        self.at += read as u64;
        Ok(read)
    }

    fn believe(&self, length: u32, start: u64) -> Result<(), ReadError> {
        if length > MAX_RECORD {
            return damaged(start, &format!("a record of {length} bytes"));
        }
        Ok(())
    }
}

fn damaged<T>(at: u64, what: &str) -> Result<T, ReadError> {
    Err(ReadError::Damaged { at, what: what.to_owned() })
}

impl<R: Read> CaptureReader<BufReader<R>> {
    /// Whether the next record is there already; else to read it may take as long as the network
    /// takes.
    pub fn is_ready(&self) -> bool {
        let buffer = self.input.buffer();
        let length = match self.format {
            Format::Pcap { order, .. } => order.u32(buffer, 8).map(|bytes| u64::from(bytes) + 16),
            Format::PcapNg { order, .. } => order.u32(buffer, 4).map(u64::from),
        };
        length.is_some_and(|length| length <= buffer.len() as u64)
    }
}

/// Reads an interface description block. An option that is cut keeps its default: the frames say
/// by number which interface is theirs, so each block counts.
fn describe(order: Order, body: &[u8]) -> Option<Interface> {
    let (link, snap) = (order.u16(body, 0)?, order.u32(body, 4)?);
    let mut interface = Interface { link, resolution: 6, offset: 0, snap, dropped: None };
    for (code, at) in options(order, body, 8) {
        match code {
            9 => interface.resolution = body.get(at).copied().unwrap_or(6),
            14 => interface.offset = order.u64(body, at).unwrap_or(0) as i64,
            _ => {}
        }
    }
    Some(interface)
}

/// The options of a block from an offset on: their codes, and the offsets of their values.
fn options(order: Order, body: &[u8], mut next: usize) -> impl Iterator<Item = (u16, usize)> {
    std::iter::from_fn(move || {
        let (code, length) = (order.u16(body, next)?, order.u16(body, next + 2)?);
        let at = next + 4;
        next = at + usize::from(length).next_multiple_of(4);
        (code != 0).then_some((code, at))
    })
}

/// A time stamp in nanoseconds, whatever the interface counts in.
fn nanoseconds(ticks: u64, interface: Option<&Interface>) -> i64 {
    let (resolution, offset) = interface.map_or((6, 0), |i| (i.resolution, i.offset));
    let exponent = u32::from(resolution & 0x7f);
    let ticks = i128::from(ticks);
    let nanos = if resolution & 0x80 != 0 {
        ticks.checked_mul(NANOS).and_then(|scaled| scaled.checked_shr(exponent)).unwrap_or(0)
    } else if exponent <= 9 {
        ticks * 10_i128.pow(9 - exponent)
    } else {
        10_i128.checked_pow(exponent - 9).map_or(0, |divisor| ticks / divisor)
    };
    let nanos = nanos.saturating_add(i128::from(offset) * NANOS);
    nanos.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
}
