//! A second reader of Homa packets, by the layout alone, because the judge must not trust the codec
//! that it judges. Strict about the fields that a kernel receiver or sender relies on.

/// A Homa packet as it is on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapturedPacket {
    pub level: u8,
    pub sport: u16,
    pub dport: u16,
    /// The id as its sender writes it.
    pub id: u64,
    pub kind: PacketKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PacketKind {
    Data(CapturedData),
    Grant {
        offset: u32,
        level: u8,
    },
    /// Length −1: everything sent so far.
    Resend {
        offset: u32,
        length: i32,
        level: u8,
    },
    Unknown,
    Busy,
    Cutoffs {
        cutoffs: [i32; 8],
        version: u16,
    },
    Freeze,
    NeedAck,
    Ack(Vec<(u64, u16)>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapturedData {
    pub start: u32,
    pub end: u32,
    pub length: u32,
    pub incoming: u32,
    pub ack: Option<(u64, u16)>,
    pub version: u16,
    pub again: bool,
}

impl CapturedPacket {
    pub fn by_server(&self) -> bool {
        self.id & 1 == 1
    }

    /// The RPC's number in its client's form.
    pub fn rpc(&self) -> u64 {
        self.id & !1
    }
}

fn number(bytes: &[u8], at: usize, len: usize) -> u64 {
    bytes[at..at + len].iter().fold(0, |n, &b| n << 8 | u64::from(b))
}

/// Reads a packet of `length` bytes on the wire, from the `bytes` that were captured.
pub fn read(bytes: &[u8], length: usize, level: u8) -> Result<CapturedPacket, String> {
    let least = match bytes.get(11) {
        Some(0x10) => 56,
        Some(0x11) => 33,
        Some(0x12) => 36,
        Some(0x13 | 0x14 | 0x16 | 0x17) => 28,
        Some(0x15) => 62,
        Some(0x18) => 80,
        other => return Err(format!("type {other:?}")),
    };
    if bytes.len() < least {
        return Err(format!("{} bytes, a kernel host wants {least}", bytes.len()));
    }
    let n = |at, len| number(bytes, at, len);
    let ack = |at: usize| (n(at, 8), n(at + 8, 2) as u16);
    let kind = match bytes[11] {
        0x10 => {
            let segment = n(52, 4) as u32;
            let start = if segment == u32::MAX { n(4, 4) as u32 } else { segment };
            PacketKind::Data(CapturedData {
                start,
                end: start + (length - 56) as u32,
                length: n(28, 4) as u32,
                incoming: n(32, 4) as u32,
                ack: Some(ack(36)).filter(|a| a.0 != 0),
                version: n(46, 2) as u16,
                again: bytes[48] != 0,
            })
        }
        0x11 => PacketKind::Grant { offset: n(28, 4) as u32, level: bytes[32] },
        0x12 => PacketKind::Resend {
            offset: n(28, 4) as u32,
            length: n(32, 4) as i32,
            level: bytes.get(36).copied().unwrap_or(7),
        },
        0x13 => PacketKind::Unknown,
        0x14 => PacketKind::Busy,
        0x15 => {
            let cutoffs = std::array::from_fn(|i| n(28 + 4 * i, 4) as i32);
            PacketKind::Cutoffs { cutoffs, version: n(60, 2) as u16 }
        }
        0x16 => PacketKind::Freeze,
        0x17 => PacketKind::NeedAck,
        _ => PacketKind::Ack((0..n(28, 2).min(5) as usize).map(|i| ack(30 + 10 * i)).collect()),
    };
    let (sport, dport) = (n(0, 2) as u16, n(2, 2) as u16);
    Ok(CapturedPacket { level, sport, dport, id: n(20, 8), kind })
}

/// Faults in a packet of ours that a kernel host, or its network card, would not accept.
pub fn faults(bytes: &[u8]) -> Vec<&'static str> {
    let n = |at, len| number(bytes, at, len);
    let data = bytes[11] == 0x10;
    let exact = match bytes[11] {
        0x10 => bytes.len(),
        0x11 if bytes.len() == 34 => 34,
        0x11 => 33,
        0x12 => 37,
        0x15 => 62,
        0x18 => 80,
        _ => 28,
    };
    let spare = match bytes[11] {
        0x10 => &bytes[49..52],
        0x18 => bytes.get(30 + 10 * n(28, 2).min(5) as usize..80).unwrap_or(&[]),
        _ => &[],
    };
    let checks = [
        ("its length", bytes.len() != exact),
        ("a port of 0", n(0, 2) == 0 || n(2, 2) == 0),
        ("an id of 0", n(20, 8) & !1 == 0),
        ("flags", bytes[13] != 0x06),
        ("urgent", n(18, 2) != 0xb97d),
        ("data offset", bytes[12] != if data { 0xe0 } else { 0x50 }),
        ("sequence", !data && n(4, 4) != 0),
        ("ack bytes or window", n(8, 3) != 0 || n(14, 2) != 0),
        ("bytes that nobody defined", spare.iter().any(|&b| b != 0)),
        ("no payload", data && bytes.len() <= 56),
        ("two different offsets", data && n(4, 4) != n(52, 4)),
        ("more than five acks", bytes[11] == 0x18 && n(28, 2) > 5),
    ];
    checks.into_iter().filter(|check| check.1).map(|check| check.0).collect()
}
