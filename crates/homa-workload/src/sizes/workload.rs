//! Naming a workload: `w1` to `w5`, `w1-analytic`, `web-search` and its like, the path of a table
//! (with words before it that say how to read it), one size in bytes, sizes with weights, or a
//! Pareto law.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use super::{MAX_BYTES, Reading, SizeDistribution, TableError, etc_model, packets, written};
use crate::nearest::nearest;
use crate::text;
use crate::units::Quantity;

/// How the name of a Pareto law begins.
const PARETO: &str = "pareto:";

/// A source of message sizes, as a user names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Memcached at Facebook: most bytes in messages below 1 kB.
    W1,
    /// W1 as its model gives it, with the tail above 100 kB (Homa §5.2 simulates this one).
    W1Analytic,
    /// A search application at Google.
    W2,
    /// All applications in one Google datacenter: RPCs.
    W3,
    /// Hadoop at Facebook.
    W4,
    /// Web search, the DCTCP workload: nearly all bytes in messages above 1 MB.
    W5,
    /// Web search as ns-2 draws it: the coarse table behind W5, in packets of 1460 bytes.
    WebSearch,
    /// Data mining (VL2), as ns-2 draws it.
    DataMining,
    /// A datacenter of the IMC 2010 study, as pHost's authors draw it.
    Imc10,
    /// A table of the user's own.
    File {
        /// Where it is.
        path: PathBuf,
        /// How it is to be read.
        reading: Reading,
    },
    /// Every message has this many bytes (at least 1).
    Constant(u32),
    /// Sizes in bytes, each with a weight: `1000:4,10000000:1`.
    Mixture(Vec<(u32, u32)>),
    /// The Pareto law: `pareto:1.05:100000`.
    Pareto {
        /// Its shape in thousandths, above 1000.
        shape: u32,
        /// Its mean, bytes.
        mean: u32,
    },
}

/// A workload that cannot be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum WorkloadError {
    /// The name is none of ours and looks like no file and no size.
    Unknown(String),
    /// A constant size that no message can have.
    Size(String),
    /// The file cannot be read.
    Read {
        /// The path as given.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is no size table.
    Table {
        /// The path as given.
        path: PathBuf,
        /// The line and the expected form.
        source: TableError,
    },
}

impl fmt::Display for WorkloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(name) => {
                let known: Vec<String> = Workload::named().map(ToString::to_string).collect();
                match nearest(name, known.iter().map(String::as_str)) {
                    Some(near) => write!(f, "unknown workload `{name}`; did you mean `{near}`?"),
                    None => write!(
                        f,
                        "unknown workload `{name}`; allowed: w1 to w5, w1-analytic, web-search, \
                         data-mining, imc10, the path of a table such as sizes.csv or ./cdf, a \
                         size in bytes such as 1000 or 2KB, sizes with weights such as \
                         1KB:4,10MB:1, or a Pareto law by shape and mean such as pareto:1.05:100KB"
                    ),
                }
            }
            Self::Size(text) => {
                write!(f, "`{text}` is not a size of a message: write 1 to {MAX_BYTES} bytes")
            }
            Self::Read { path, source } => write!(
                f,
                "cannot read the size table {}: {source}; check the path and its permissions",
                path.display()
            ),
            Self::Table { path, source } => write!(f, "{}: {source}", path.display()),
        }
    }
}

impl std::error::Error for WorkloadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Read { source, .. } => Some(source),
            Self::Table { source, .. } => Some(source),
            Self::Unknown(_) | Self::Size(_) => None,
        }
    }
}

impl Workload {
    /// The workloads of the Homa paper.
    pub const BUILT_IN: [Self; 5] = [Self::W1, Self::W2, Self::W3, Self::W4, Self::W5];

    /// Those of papers that it compares itself with, and the model of W1.
    pub const OTHERS: [Self; 4] =
        [Self::W1Analytic, Self::WebSearch, Self::DataMining, Self::Imc10];

    /// Those with a name.
    fn named() -> impl Iterator<Item = &'static Self> {
        Self::BUILT_IN.iter().chain(&Self::OTHERS)
    }

    /// Understands `w3` and `web-search` (in any case), a path that contains `/` or ends with a dot
    /// and letters, or that has words of [`Reading`] before it, or a size in bytes such as `1000`
    /// or `2KB`. Files are not opened before [`Workload::sizes`].
    pub fn parse(text: &str) -> Result<Self, WorkloadError> {
        let text = text.trim();
        let name = text.to_ascii_lowercase();
        if let Some(known) = Self::named().find(|known| known.to_string() == name) {
            return Ok(known.clone());
        }
        if name.starts_with(PARETO) {
            return pareto(&text[PARETO.len()..])
                .ok_or_else(|| WorkloadError::Unknown(text.to_owned()));
        }
        if let Some(mixture) = mixture(text) {
            return Ok(mixture);
        }
        let (reading, path) = Reading::split(text);
        let is_size = || Quantity::Bytes.parse(text).is_ok();
        if path.len() < text.len() || text.contains('/') || has_extension(text) && !is_size() {
            return Ok(Self::File { path: PathBuf::from(path), reading });
        }
        match Quantity::Bytes.parse(text).map(u32::try_from) {
            Ok(Ok(bytes @ 1..=MAX_BYTES)) => Ok(Self::Constant(bytes)),
            Ok(_) => Err(WorkloadError::Size(text.to_owned())),
            Err(_) => Err(WorkloadError::Unknown(text.to_owned())),
        }
    }

    /// What it is, for people.
    pub fn description(&self) -> &'static str {
        match self {
            Self::W1 => "memcached at Facebook (ETC)",
            Self::W1Analytic => "memcached at Facebook (ETC), the model behind W1",
            Self::W2 => "search application at Google",
            Self::W3 => "Google RPCs",
            Self::W4 => "Facebook Hadoop",
            Self::W5 => "web search (DCTCP)",
            Self::WebSearch => "web search (DCTCP), in ns-2",
            Self::DataMining => "data mining (VL2), in ns-2",
            Self::Imc10 => "a datacenter (IMC 2010), pHost",
            Self::File { .. } => "a table of message sizes",
            Self::Constant(_) => "one size",
            Self::Mixture(_) => "sizes with weights",
            Self::Pareto { .. } => "a Pareto law, cut at the largest message",
        }
    }

    /// The distribution; reads and checks the file of a [`Workload::File`].
    pub fn sizes(&self) -> Result<SizeDistribution, WorkloadError> {
        let built_in = match self {
            Self::W1Analytic => return Ok(SizeDistribution::of_steps(etc_model::steps())),
            Self::WebSearch => return Ok(in_packets(packets::WEB_SEARCH)),
            Self::DataMining => return Ok(in_packets(packets::DATA_MINING)),
            Self::Imc10 => return Ok(in_packets(packets::IMC10)),
            Self::W1 => include_str!("../../data/w1.csv"),
            Self::W2 => include_str!("../../data/w2.csv"),
            Self::W3 => include_str!("../../data/w3.csv"),
            Self::W4 => include_str!("../../data/w4.csv"),
            Self::W5 => include_str!("../../data/w5.csv"),
            Self::File { path, reading } => {
                let text = text::read(path)
                    .map_err(|source| WorkloadError::Read { path: path.clone(), source })?;
                return SizeDistribution::from_table(&text, *reading)
                    .map_err(|source| WorkloadError::Table { path: path.clone(), source });
            }
            Self::Mixture(parts) => {
                return written::mixture(parts)
                    .ok_or_else(|| WorkloadError::Unknown(self.to_string()));
            }
            Self::Pareto { shape, mean } => {
                return written::pareto(*shape, *mean)
                    .ok_or_else(|| WorkloadError::Unknown(self.to_string()));
            }
            Self::Constant(bytes) => {
                return SizeDistribution::constant(*bytes)
                    .ok_or_else(|| WorkloadError::Size(bytes.to_string()));
            }
        };
        let sizes = SizeDistribution::from_csv(built_in).map_err(|source| {
            WorkloadError::Table { path: PathBuf::from(self.to_string()), source }
        })?;
        Ok(SizeDistribution::of_steps(sizes.steps))
    }
}

/// Whether a name ends with a dot and an extension that is no part of a number.
fn has_extension(name: &str) -> bool {
    let extension =
        name.rsplit_once('.').map_or("", |(stem, end)| if stem.is_empty() { "" } else { end });
    extension.starts_with(|first: char| first.is_ascii_alphabetic())
}

fn in_packets(points: &[(u32, f64)]) -> SizeDistribution {
    SizeDistribution::of_steps(packets::steps(points))
}

/// `1KB:4,10000000:1`.
fn mixture(text: &str) -> Option<Workload> {
    let part = |part: &str| {
        let (bytes, weight) = part.split_once(':')?;
        Some((size(bytes)?, weight.trim().parse().ok()?))
    };
    text.split(',').map(part).collect::<Option<_>>().map(Workload::Mixture)
}

fn size(text: &str) -> Option<u32> {
    Quantity::Bytes.parse(text).ok().and_then(|bytes| u32::try_from(bytes).ok())
}

/// `1.05:100000`.
fn pareto(text: &str) -> Option<Workload> {
    let (shape, mean) = text.split_once(':')?;
    let shape = shape.parse::<f64>().ok().filter(|shape| (1.0..1e3).contains(shape))?;
    Some(Workload::Pareto { shape: (shape * 1e3).round() as u32, mean: size(mean)? })
}

impl FromStr for Workload {
    type Err = WorkloadError;

    fn from_str(text: &str) -> Result<Self, WorkloadError> {
        Self::parse(text)
    }
}

/// The name that [`Workload::parse`] understands.
impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::W1 => f.write_str("w1"),
            Self::W1Analytic => f.write_str("w1-analytic"),
            Self::W2 => f.write_str("w2"),
            Self::W3 => f.write_str("w3"),
            Self::W4 => f.write_str("w4"),
            Self::W5 => f.write_str("w5"),
            Self::WebSearch => f.write_str("web-search"),
            Self::DataMining => f.write_str("data-mining"),
            Self::Imc10 => f.write_str("imc10"),
            Self::File { path, reading } => write!(f, "{reading}{}", path.display()),
            Self::Constant(bytes) => bytes.fmt(f),
            Self::Mixture(parts) => {
                let parts: Vec<String> = parts.iter().map(|(b, w)| format!("{b}:{w}")).collect();
                f.write_str(&parts.join(","))
            }
            Self::Pareto { shape, mean } => {
                write!(f, "pareto:{}:{mean}", f64::from(*shape) / 1e3)
            }
        }
    }
}
