//! SRV records (RFC 2782), with the time that their servers say they are good for.
//!
//! All priorities and weights of the records are kept, because the balancer needs them: those of a
//! worse priority are called if no server of a better one is healthy.
//!
//! A host has no addresses only if its name server says so. If it has no answer, for example
//! because it is late, the host keeps the addresses that it had.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use ::tokio::task::JoinSet;
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{LookupIpStrategy, NameServerConfig, ResolverConfig};
use hickory_resolver::lookup_ip::LookupIp;
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::rdata::SRV;
use hickory_resolver::proto::rr::{Name, RData};

use super::choose::Rank;
use super::resolve::{ResolveError, Resolved, SOON};

/// Records are not asked for more often than this, even if their time is zero.
const OFTEN: Duration = Duration::from_secs(1);

/// Records are asked for at least this often, even if their time is longer.
const SELDOM: Duration = Duration::from_secs(300);

/// What a weight of zero is beside others.
const ZERO_WEIGHT: f64 = 1.0 / 256.0;

/// A host of a record, and the kind of its addresses: a number in [`KINDS`].
type HostKind = (Name, usize);

/// Addresses of IPv4 and of IPv6 are looked up apart, because a resolver for both hides the error
/// of one of them.
const KINDS: [LookupIpStrategy; 2] = [LookupIpStrategy::Ipv4Only, LookupIpStrategy::Ipv6Only];

/// Resolvers, opened at their first use.
#[derive(Default)]
pub(super) struct Dns {
    /// One for each of [`KINDS`].
    resolvers: Option<[TokioResolver; 2]>,
    /// The addresses that the hosts had last.
    last: BTreeMap<HostKind, Vec<IpAddr>>,
}

impl Dns {
    pub(super) async fn resolve(
        &mut self,
        nameserver: Option<SocketAddr>,
        name: &str,
    ) -> Result<Resolved, ResolveError> {
        let failed = |error: NetError, name: &str| ResolveError::Srv {
            name: name.to_owned(),
            source: Box::new(error),
        };
        let resolvers = match &mut self.resolvers {
            Some(resolvers) => resolvers,
            none => none.insert(open(nameserver).map_err(|error| failed(error, name))?),
        };
        let found = resolvers[0].srv_lookup(name).await.map_err(|error| failed(error, name))?;
        let mut until = found.valid_until();
        let records = found.answers().iter().filter_map(|record| match &record.data {
            // The root as the target means that there is no server.
            RData::SRV(srv) if srv.port != 0 && !srv.target.is_root() => Some(srv),
            _ => None,
        });
        let records: Vec<&SRV> = records.collect();
        let mut lookups = host_lookups(resolvers, &records);
        let (mut hosts, mut unknown) = (BTreeMap::new(), None);
        while let Some(ended) = lookups.join_next().await {
            // They end in no other way: nothing stops them, and they do not panic.
            let Ok((host, found)) = ended else { continue };
            let ips = match found {
                Ok(ips) => {
                    until = until.min(ips.valid_until());
                    ips.iter().collect()
                }
                Err(error) => {
                    let has_none = error.is_no_records_found();
                    unknown = Some(failed(error, &host.0.to_utf8()));
                    if has_none {
                        continue;
                    }
                    // A name server that has no answer now does not say that the host is gone.
                    until = until.min(Instant::now() + SOON);
                    self.last.remove(&host).unwrap_or_default()
                }
            };
            hosts.insert(host, ips);
        }
        let mut addresses = BTreeMap::new();
        for record in records {
            let of_kind = |kind| hosts.get(&(record.target.clone(), kind));
            let ips = (0..KINDS.len()).filter_map(of_kind).flatten();
            let servers = ips.map(|ip| SocketAddr::new(*ip, record.port)).collect::<Vec<_>>();
            add(&mut addresses, record.priority, record.weight, &servers);
        }
        // A host that has no address does not hide the others.
        if let Some(error) = unknown.filter(|_| addresses.is_empty()) {
            return Err(error);
        }
        self.last = hosts;
        let again = until.saturating_duration_since(Instant::now()).clamp(OFTEN, SELDOM);
        Ok(Resolved { addresses, again })
    }
}

/// Looks up all hosts of some records at once.
fn host_lookups(
    resolvers: &[TokioResolver; 2],
    records: &[&SRV],
) -> JoinSet<(HostKind, Result<LookupIp, NetError>)> {
    let mut lookups = JoinSet::new();
    for host in records.iter().map(|record| &record.target).collect::<BTreeSet<_>>() {
        for (kind, resolver) in resolvers.iter().enumerate() {
            let (host, resolver) = (host.clone(), resolver.clone());
            lookups.spawn(async move {
                let found = resolver.lookup_ip(host.clone()).await;
                ((host, kind), found)
            });
        }
    }
    lookups
}

/// Adds the addresses of a record. They share its weight. An address of several records has the
/// best of their priorities, and the sum of the weights that it has there.
fn add(
    addresses: &mut BTreeMap<SocketAddr, Rank>,
    priority: u16,
    weight: u16,
    hosts: &[SocketAddr],
) {
    // Zero is a very small chance, not none (RFC 2782, "Weight").
    let weight = if weight == 0 { ZERO_WEIGHT } else { f64::from(weight) };
    let weight = weight / hosts.len() as f64;
    for host in hosts {
        let rank = addresses.entry(*host).or_insert(Rank { priority, weight: 0.0 });
        if priority < rank.priority {
            *rank = Rank { priority, weight: 0.0 };
        }
        if priority == rank.priority {
            rank.weight += weight;
        }
    }
}

fn open(nameserver: Option<SocketAddr>) -> Result<[TokioResolver; 2], NetError> {
    let [v4, v6] = KINDS.map(|kind| {
        let mut builder = match nameserver {
            None => TokioResolver::builder_tokio()?,
            Some(at) => {
                let mut server = NameServerConfig::udp_and_tcp(at.ip());
                server.connections.iter_mut().for_each(|connection| connection.port = at.port());
                let config = ResolverConfig::from_parts(None, Vec::new(), vec![server]);
                TokioResolver::builder_with_config(config, TokioRuntimeProvider::default())
            }
        };
        builder.options_mut().ip_strategy = kind;
        // We ask again when the records' time is over, and then not a cache.
        builder.options_mut().cache_size = 0;
        builder.build()
    });
    Ok([v4?, v6?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_share_weights_and_have_their_best_priority() {
        let host = |n: u8| SocketAddr::from(([10, 0, 0, n], 1));
        let mut addresses = BTreeMap::new();
        add(&mut addresses, 5, 10, &[host(1), host(2)]);
        add(&mut addresses, 9, 70, &[host(1), host(3)]);
        add(&mut addresses, 5, 4, &[host(1)]);
        add(&mut addresses, 1, 0, &[host(3)]);
        add(&mut addresses, 9, 70, &[]);
        let rank = |priority, weight| Rank { priority, weight };
        let expected =
            [(host(1), rank(5, 9.0)), (host(2), rank(5, 5.0)), (host(3), rank(1, ZERO_WEIGHT))];
        assert_eq!(addresses, BTreeMap::from(expected));
    }
}
