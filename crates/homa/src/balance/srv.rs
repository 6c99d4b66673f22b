//! SRV records (RFC 2782), with the time that their servers say they are good for.
//!
//! All priorities and weights of the records are kept, because the balancer needs them: those of a
//! worse priority are called if no server of a better one is healthy.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{NameServerConfig, ResolverConfig};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::RData;
use hickory_resolver::proto::rr::rdata::SRV;

use super::choose::Rank;
use super::resolve::{ResolveError, Resolved};

/// Records are not asked for more often than this, even if their time is zero.
const OFTEN: Duration = Duration::from_secs(1);

/// Records are asked for at least this often, even if their time is longer.
const SELDOM: Duration = Duration::from_secs(300);

/// What a weight of zero is beside others.
const ZERO_WEIGHT: f64 = 1.0 / 256.0;

/// A resolver, opened at its first use.
#[derive(Default)]
pub(super) struct Dns(Option<TokioResolver>);

impl Dns {
    pub(super) async fn resolve(
        &mut self,
        nameserver: Option<SocketAddr>,
        name: &str,
    ) -> Result<Resolved, ResolveError> {
        let failed = |name: &str, error: NetError| ResolveError::Srv {
            name: name.to_owned(),
            source: Box::new(error),
        };
        let resolver = match &mut self.0 {
            Some(resolver) => resolver,
            none => none.insert(open(nameserver).map_err(|error| failed(name, error))?),
        };
        let found = resolver.srv_lookup(name).await.map_err(|error| failed(name, error))?;
        let mut until = found.valid_until();
        let records = found.answers().iter().filter_map(|record| match &record.data {
            RData::SRV(record) => Some(record),
            _ => None,
        });
        let records: Vec<&SRV> = records.collect();
        let (mut addresses, mut unknown) = (BTreeMap::new(), None);
        for record in records {
            // The root as the target means that there is no server.
            if record.port == 0 || record.target.is_root() {
                continue;
            }
            match resolver.lookup_ip(record.target.clone()).await {
                Ok(hosts) => {
                    until = until.min(hosts.valid_until());
                    let hosts = hosts.iter().map(|ip| SocketAddr::new(ip, record.port));
                    add(&mut addresses, record.priority, record.weight, &hosts.collect::<Vec<_>>());
                }
                Err(error) => unknown = Some(failed(&record.target.to_utf8(), error)),
            }
        }
        // A host that has no address does not hide the others.
        if let Some(error) = unknown.filter(|_| addresses.is_empty()) {
            return Err(error);
        }
        let again = until.saturating_duration_since(Instant::now()).clamp(OFTEN, SELDOM);
        Ok(Resolved { addresses, again })
    }
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

fn open(nameserver: Option<SocketAddr>) -> Result<TokioResolver, NetError> {
    let mut builder = match nameserver {
        None => TokioResolver::builder_tokio()?,
        Some(at) => {
            let mut server = NameServerConfig::udp_and_tcp(at.ip());
            server.connections.iter_mut().for_each(|connection| connection.port = at.port());
            let config = ResolverConfig::from_parts(None, Vec::new(), vec![server]);
            TokioResolver::builder_with_config(config, TokioRuntimeProvider::default())
        }
    };
    // We ask again when the records' time is over, and then not a cache.
    builder.options_mut().cache_size = 0;
    builder.build()
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
