//! How a table of sizes is read, and how it was understood.
//!
//! What the table leaves open is decided by words before its path, the same ones on the command
//! line, in plans and in Python: `steps:cdf.txt`, `packets=1500:percent:cdf.txt`.

use std::fmt;

use super::PACKET_BYTES;

/// What lies between two rows of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Between {
    /// Sizes are spread evenly from one row to the next, as generators of HPCC, ns-3 and pFabric
    /// studies draw them.
    Lines,
    /// Nothing: only the sizes of the rows occur, as in the tables of this project.
    Steps,
}

impl fmt::Display for Between {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lines => "linear between points",
            Self::Steps => "steps",
        })
    }
}

/// The unit of cumulative shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shares {
    /// From 0 to 1.
    Fractions,
    /// From 0 to 100.
    Percent,
}

impl Shares {
    /// The share of all messages.
    pub(super) fn whole(self) -> f64 {
        match self {
            Self::Fractions => 1.0,
            Self::Percent => 100.0,
        }
    }
}

/// How a table is to be read; `None`: as the table itself says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// What lies between its rows. Decided by the header: that of our own tables means steps,
    /// anything else lines.
    pub between: Option<Between>,
    /// The unit of its shares. Decided by the last one, which is 1 or 100.
    pub shares: Option<Shares>,
    /// Bytes of a packet, if sizes are packets; 1 if they are bytes. Decided by the number of
    /// columns: three are pFabric's form, in packets of 1460 bytes.
    pub packet: Option<u32>,
}

impl Reading {
    /// The words before a path, and the path: `steps:percent:cdf.txt`.
    pub fn split(text: &str) -> (Self, &str) {
        let mut reading = Self::default();
        let mut rest = text;
        while let Some((word, behind)) = rest.split_once(':') {
            match word.trim().to_ascii_lowercase().as_str() {
                "steps" => reading.between = Some(Between::Steps),
                "linear" => reading.between = Some(Between::Lines),
                "fraction" => reading.shares = Some(Shares::Fractions),
                "percent" => reading.shares = Some(Shares::Percent),
                "bytes" => reading.packet = Some(1),
                "packets" => reading.packet = Some(PACKET_BYTES),
                word => match word.strip_prefix("packets=").map(str::parse) {
                    Some(Ok(bytes @ 2..=65_536)) => reading.packet = Some(bytes),
                    _ => break,
                },
            }
            rest = behind;
        }
        (reading, rest)
    }
}

/// The words that [`Reading::split`] reads, each followed by a colon.
impl fmt::Display for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.between {
            Some(Between::Steps) => f.write_str("steps:")?,
            Some(Between::Lines) => f.write_str("linear:")?,
            None => {}
        }
        match self.shares {
            Some(Shares::Fractions) => f.write_str("fraction:")?,
            Some(Shares::Percent) => f.write_str("percent:")?,
            None => {}
        }
        match self.packet {
            Some(1) => f.write_str("bytes:"),
            Some(PACKET_BYTES) => f.write_str("packets:"),
            Some(bytes) => write!(f, "packets={bytes}:"),
            None => Ok(()),
        }
    }
}

/// How a table was understood.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TableForm {
    /// What lies between its rows.
    pub between: Between,
    /// The unit of its shares.
    pub shares: Shares,
    /// Bytes of the unit of its sizes: 1, or those of a packet.
    pub packet: u32,
    /// Number of rows.
    pub points: usize,
    /// The mean that its first line states, in its unit of sizes.
    pub stated: Option<f64>,
}

impl TableForm {
    /// Whether the mean that the first line states is `mean_bytes`, to 1 %.
    pub fn agrees(&self, mean_bytes: f64) -> bool {
        self.stated.is_none_or(|stated| {
            let stated = stated * f64::from(self.packet);
            (mean_bytes - stated).abs() <= 0.01 * stated
        })
    }
}

/// For people: `12 points, linear between points, shares in per cent, sizes in bytes`.
impl fmt::Display for TableForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = if self.points == 1 { "" } else { "s" };
        let shares = match self.shares {
            Shares::Fractions => "fractions",
            Shares::Percent => "per cent",
        };
        write!(f, "{} point{s}, {}, shares in {shares}, ", self.points, self.between)?;
        match self.packet {
            1 => f.write_str("sizes in bytes"),
            bytes => write!(f, "sizes in packets of {bytes} B"),
        }
    }
}
