//! Looks a target up once: its addresses, and how long they are good.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::choose::Rank;
use super::target::{Target, TargetKind};

/// How often a file is read.
const FILE_EVERY: Duration = Duration::from_secs(1);

/// A target is looked up again after this time at the latest if a part of its lookup failed.
pub(super) const SOON: Duration = Duration::from_secs(5);

/// Longest file of addresses, bytes.
const LONGEST_FILE: u64 = 1 << 20;

/// A target has no addresses.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResolveError {
    /// The system does not find a name.
    #[error("{name} cannot be resolved: {source}")]
    Name {
        /// Host and port.
        name: String,
        /// The system's reason.
        source: io::Error,
    },
    /// DNS has no answer for a name of SRV records, or for a host that they name.
    #[error("{name} cannot be resolved by DNS: {source}")]
    Srv {
        /// The name.
        name: String,
        /// The resolver's reason.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A file of addresses cannot be read.
    #[error("the addresses in {} cannot be read: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A line of a file is not an address.
    #[error("{}:{line}: {text:?} is not an address IP:PORT", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What it has, without the comment.
        text: String,
    },
    /// The target was looked up, and has no addresses.
    #[error("{target} has no addresses")]
    NoAddresses {
        /// The target.
        target: String,
    },
}

/// The addresses of a target.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Resolved {
    /// Never empty.
    pub(super) addresses: BTreeMap<SocketAddr, Rank>,
    /// When to look again.
    pub(super) again: Duration,
}

impl Resolved {
    /// Addresses without priorities and weights.
    fn equal(addresses: BTreeSet<SocketAddr>, again: Duration) -> Self {
        let ranked = addresses.into_iter().map(|address| (address, Rank::EQUAL));
        Self { addresses: ranked.collect(), again }
    }
}

/// Looks a target up, again and again.
pub(super) struct Resolver {
    target: Target,
    /// When to look again if the source of the addresses does not say it.
    refresh: Duration,
    /// The addresses that each name had last.
    last: Vec<Vec<SocketAddr>>,
    #[cfg(feature = "srv")]
    dns: super::srv::Dns,
}

impl Resolver {
    pub(super) fn new(target: Target, refresh: Duration) -> Self {
        #[cfg(feature = "srv")]
        let dns = super::srv::Dns::default();
        Self {
            target,
            refresh,
            last: Vec::new(),
            #[cfg(feature = "srv")]
            dns,
        }
    }

    pub(super) async fn resolve(&mut self) -> Result<Resolved, ResolveError> {
        let resolved = match self.target.kind() {
            TargetKind::Names(names) => {
                let (addresses, is_whole) = merge(of_names(names).await, &mut self.last)?;
                let again = if is_whole { self.refresh } else { self.refresh.min(SOON) };
                Resolved::equal(addresses, again)
            }
            TargetKind::File(path) => Resolved::equal(of_file(path.clone()).await?, FILE_EVERY),
            #[cfg(feature = "srv")]
            TargetKind::Srv { nameserver, name } => self.dns.resolve(*nameserver, name).await?,
            // Such a target is refused when it is parsed.
            #[cfg(not(feature = "srv"))]
            TargetKind::Srv { .. } => Resolved::equal(BTreeSet::new(), self.refresh),
        };
        match resolved.addresses.is_empty() {
            true => Err(ResolveError::NoAddresses { target: self.target.to_string() }),
            false => Ok(resolved),
        }
    }
}

/// What the lookup of one name found.
type Found = Result<Vec<SocketAddr>, ResolveError>;

/// The addresses of each name.
async fn of_names(names: &[(String, u16)]) -> Vec<Found> {
    let mut found = Vec::new();
    for (host, port) in names {
        #[cfg(feature = "testing")]
        if let Some(ips) = crate::testing::lookup(host) {
            found.push(Ok(ips.into_iter().map(|ip| SocketAddr::new(ip, *port)).collect()));
            continue;
        }
        let of_name = tokio::net::lookup_host((host.as_str(), *port)).await;
        let failed = |source| ResolveError::Name { name: format!("{host}:{port}"), source };
        found.push(of_name.map(Iterator::collect).map_err(failed));
    }
    found
}

/// All addresses of all names, and whether all lookups succeeded. A name whose lookup failed has
/// those that it had last, because the system does not say whether the name is gone or its name
/// server is late. If all failed, or nothing was found, it is an error.
fn merge(
    found: Vec<Found>,
    last: &mut Vec<Vec<SocketAddr>>,
) -> Result<(BTreeSet<SocketAddr>, bool), ResolveError> {
    last.resize(found.len(), Vec::new());
    let (mut failures, mut failed) = (0, None);
    for (last, found) in last.iter_mut().zip(found) {
        match found {
            Ok(addresses) => *last = addresses,
            Err(error) => (failures, failed) = (failures + 1, Some(error)),
        }
    }
    let addresses: BTreeSet<_> = last.iter().flatten().copied().collect();
    match failed {
        Some(error) if failures == last.len() || addresses.is_empty() => Err(error),
        failed => Ok((addresses, failed.is_none())),
    }
}

async fn of_file(path: PathBuf) -> Result<BTreeSet<SocketAddr>, ResolveError> {
    let reading = path.clone();
    let text = tokio::task::spawn_blocking(move || {
        use std::io::Read;
        let mut text = String::new();
        let file = std::fs::File::open(&reading)?;
        if file.take(LONGEST_FILE + 1).read_to_string(&mut text)? as u64 > LONGEST_FILE {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "more than 1 MiB"));
        }
        Ok(text)
    });
    let text = text.await.unwrap_or_else(|ended| Err(io::Error::other(ended)));
    let text = text.map_err(|source| ResolveError::File { path: path.clone(), source })?;
    addresses_in(&text, &path)
}

/// The addresses in the text of a file.
fn addresses_in(text: &str, path: &Path) -> Result<BTreeSet<SocketAddr>, ResolveError> {
    // Some editors begin a file with a byte order mark.
    let text = text.trim_start_matches('\u{feff}');
    let lines = (1..).zip(text.lines().map(|line| line.split('#').next().unwrap_or(line).trim()));
    let addresses = lines.filter(|(_, text)| !text.is_empty()).map(|(line, text)| {
        let address = text.parse::<SocketAddr>().ok().filter(|address| address.port() != 0);
        let wrong = || ResolveError::Line { path: path.to_owned(), line, text: text.to_owned() };
        address.ok_or_else(wrong)
    });
    addresses.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_whose_lookup_fails_keeps_its_addresses() {
        let at = |n: u8| SocketAddr::from(([10, 0, 0, n], 1));
        let late = || {
            let source = io::Error::other("the name server is late");
            Err(ResolveError::Name { name: "late:1".into(), source })
        };
        let mut last = Vec::new();
        let all = merge(vec![Ok(vec![at(1)]), Ok(vec![at(2), at(3)])], &mut last);
        assert_eq!(all.unwrap(), ([1, 2, 3].map(at).into(), true));
        let kept = merge(vec![Ok(vec![at(4)]), late()], &mut last);
        assert_eq!(kept.unwrap(), ([2, 3, 4].map(at).into(), false));
        assert!(merge(vec![late(), late()], &mut last).is_err());
        let gone = merge(vec![Ok(vec![at(1)]), Ok(vec![])], &mut last);
        assert_eq!(gone.unwrap(), ([at(1)].into(), true));
        assert!(merge(vec![Ok(vec![]), late()], &mut last).is_err());
    }

    #[test]
    fn a_file_has_an_address_a_line_and_comments() {
        let text =
            "\u{feff}# servers\n10.0.0.1:4000\n\n  [::1]:4000 # the old one\n10.0.0.1:4000\n";
        let addresses = addresses_in(text, Path::new("f")).unwrap();
        let expected = ["10.0.0.1:4000", "[::1]:4000"].map(|text| text.parse().unwrap());
        assert_eq!(addresses, BTreeSet::from(expected));
        for (text, wrong) in [("10.0.0.1", "10.0.0.1"), ("#\nsearch:4000 #", "search:4000")] {
            let error = addresses_in(text, Path::new("f")).unwrap_err();
            let lines = text.lines().count();
            assert_eq!(
                error.to_string(),
                format!("f:{lines}: {wrong:?} is not an address IP:PORT")
            );
        }
    }
}
