//! What a name stands for: the text of a target, parsed.
//!
//! Left out: looking names up, which `resolve` does.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// What stands for a set of servers.
///
/// | text | servers |
/// |---|---|
/// | `homa:///HOST:PORT` | all addresses of a host's name, from the system (`getaddrinfo`) |
/// | `homa+srv://NAME` | the SRV records of a name in DNS; needs feature `srv` |
/// | `homa+srv://NAMESERVER:PORT/NAME` | the same, from one name server |
/// | `homa+file://PATH` | a file with an address `IP:PORT` in each line; `#` begins a comment |
///
/// [`Target::list`] has the addresses themselves.
///
/// ```
/// use homa::balance::Target;
///
/// let target: Target = "homa:///search.internal:4000".parse()?;
/// assert_eq!(target.to_string(), "homa:///search.internal:4000");
/// assert!("http://search.internal:4000".parse::<Target>().is_err());
/// # Ok::<(), homa::balance::TargetError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target(TargetKind);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TargetKind {
    /// Host names or IP addresses, each with a port.
    Names(Vec<(String, u16)>),
    /// The name of SRV records, and the name server that is asked instead of the system's.
    #[cfg_attr(not(feature = "srv"), allow(dead_code))]
    Srv { nameserver: Option<SocketAddr>, name: String },
    /// A file.
    File(PathBuf),
}

/// A text is not a target.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a target, because {fault}: write homa:///HOST:PORT, homa+srv://NAME or \
     homa+file://PATH"
)]
pub struct TargetError {
    /// The text.
    pub text: String,
    /// The mistake in it.
    pub fault: TargetFault,
}

/// A mistake in the text of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TargetFault {
    /// It has another scheme, or none.
    #[error("its scheme is not homa, homa+srv or homa+file")]
    Scheme,
    /// It has two slashes, as the URI of a single server has.
    #[error("two slashes name a single server, and three all servers of a name")]
    Slashes,
    /// It names no host.
    #[error("it names no host")]
    Host,
    /// It has no port, or one that is no number from 1 to 65535.
    #[error("it has no port from 1 to 65535")]
    Port,
    /// What stands before the name of SRV records is not the address of a name server.
    #[error("its name server is not an address IP:PORT")]
    Nameserver,
    /// The name of the SRV records is empty, or contains characters that no name has.
    #[error("it has no valid name of SRV records")]
    Name,
    /// It names no file.
    #[error("it names no file")]
    Path,
    /// The program was built without feature `srv`.
    #[error("this program was built without the feature `srv` of homa")]
    SrvFeature,
}

impl Target {
    /// These servers. Addresses that occur twice count once.
    pub fn list(servers: impl IntoIterator<Item = SocketAddr>) -> Self {
        let name = |at: SocketAddr| (at.ip().to_string(), at.port());
        Self(TargetKind::Names(servers.into_iter().map(name).collect()))
    }

    /// All addresses of several names `HOST:PORT`.
    ///
    /// # Errors
    /// [`TargetFault::Host`] or [`TargetFault::Port`].
    pub fn names<S: AsRef<str>>(names: impl IntoIterator<Item = S>) -> Result<Self, TargetError> {
        let parsed = names.into_iter().map(|name| {
            let name = name.as_ref();
            host_and_port(name).map_err(|fault| TargetError { text: name.to_owned(), fault })
        });
        Ok(Self(TargetKind::Names(parsed.collect::<Result<_, _>>()?)))
    }

    /// The servers whose addresses a file has, one a line.
    pub fn file(path: impl AsRef<Path>) -> Self {
        Self(TargetKind::File(path.as_ref().to_owned()))
    }

    pub(super) fn kind(&self) -> &TargetKind {
        &self.0
    }
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        parse(text).map(Self).map_err(|fault| TargetError { text: text.to_owned(), fault })
    }
}

fn parse(text: &str) -> Result<TargetKind, TargetFault> {
    let (scheme, rest) = text.split_once("://").ok_or(TargetFault::Scheme)?;
    match scheme {
        "homa" => {
            let name = rest.strip_prefix('/').ok_or(TargetFault::Slashes)?;
            Ok(TargetKind::Names(vec![host_and_port(name)?]))
        }
        "homa+srv" if cfg!(feature = "srv") => srv(rest),
        "homa+srv" => Err(TargetFault::SrvFeature),
        "homa+file" if rest.is_empty() => Err(TargetFault::Path),
        "homa+file" => Ok(TargetKind::File(rest.into())),
        _ => Err(TargetFault::Scheme),
    }
}

fn srv(rest: &str) -> Result<TargetKind, TargetFault> {
    let (nameserver, name) = match rest.split_once('/') {
        Some(("", name)) => (None, name),
        Some((at, name)) => (Some(at.parse().map_err(|_| TargetFault::Nameserver)?), name),
        None => (None, rest),
    };
    let valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    match !name.is_empty() && name.bytes().all(valid) {
        true => Ok(TargetKind::Srv { nameserver, name: name.to_owned() }),
        false => Err(TargetFault::Name),
    }
}

/// `HOST:PORT`; an IPv6 address stands in brackets.
fn host_and_port(name: &str) -> Result<(String, u16), TargetFault> {
    let (host, port) = name.rsplit_once(':').ok_or(TargetFault::Port)?;
    let port = port.parse().ok().filter(|port| *port != 0).ok_or(TargetFault::Port)?;
    let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let host = bracketed.unwrap_or(host);
    let named = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let is_host = match bracketed {
        Some(host) => {
            host.split('%').next().is_some_and(|ip| ip.parse::<std::net::Ipv6Addr>().is_ok())
        }
        None => !host.is_empty() && host.chars().all(named),
    };
    if is_host { Ok((host.to_owned(), port)) } else { Err(TargetFault::Host) }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            TargetKind::Names(names) => {
                f.write_str("homa:///")?;
                for (n, (host, port)) in names.iter().enumerate() {
                    let comma = if n > 0 { "," } else { "" };
                    match host.contains(':') {
                        true => write!(f, "{comma}[{host}]:{port}")?,
                        false => write!(f, "{comma}{host}:{port}")?,
                    }
                }
                Ok(())
            }
            TargetKind::Srv { nameserver: Some(at), name } => write!(f, "homa+srv://{at}/{name}"),
            TargetKind::Srv { nameserver: None, name } => write!(f, "homa+srv://{name}"),
            TargetKind::File(path) => write!(f, "homa+file://{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_shown_as_they_are_written() {
        let mut good = vec![
            "homa:///search:4000",
            "homa:///10.0.0.1:1",
            "homa:///[fe80::1%eth0]:65535",
            "homa+file:///etc/servers",
            "homa+file://servers",
        ];
        if cfg!(feature = "srv") {
            good.push("homa+srv://_homa._udp.search.internal");
            good.push("homa+srv://127.0.0.1:53/search");
        }
        for text in good {
            assert_eq!(text.parse::<Target>().map(|target| target.to_string()), Ok(text.into()));
        }
        let list = Target::list(["10.0.0.1:1".parse().unwrap(), "[::1]:2".parse().unwrap()]);
        assert_eq!(list.to_string(), "homa:///10.0.0.1:1,[::1]:2");
    }

    #[test]
    fn a_bad_target_is_refused_with_what_is_wrong() {
        let bad = [
            ("http://a:1", TargetFault::Scheme),
            ("a:1", TargetFault::Scheme),
            ("homa://a:1", TargetFault::Slashes),
            ("homa:///a", TargetFault::Port),
            ("homa:///a:0", TargetFault::Port),
            ("homa:///a:65536", TargetFault::Port),
            ("homa:///a:x", TargetFault::Port),
            ("homa:///:1", TargetFault::Host),
            ("homa:///::1:1", TargetFault::Host),
            ("homa:///[a]:1", TargetFault::Host),
            ("homa:///a b:1", TargetFault::Host),
            ("homa:///a/b:1", TargetFault::Host),
            ("homa+file://", TargetFault::Path),
        ];
        let srv = [
            ("homa+srv://", TargetFault::Name),
            ("homa+srv://a:53", TargetFault::Name),
            ("homa+srv://dns/search", TargetFault::Nameserver),
            ("homa+srv://127.0.0.1:53/", TargetFault::Name),
        ];
        for (text, fault) in bad.into_iter().chain(srv) {
            let without = text.starts_with("homa+srv") && cfg!(not(feature = "srv"));
            let fault = if without { TargetFault::SrvFeature } else { fault };
            let error = text.parse::<Target>().unwrap_err();
            assert_eq!(error, TargetError { text: text.into(), fault });
            assert!(error.to_string().contains("write homa:///HOST:PORT"), "{error}");
        }
    }
}
