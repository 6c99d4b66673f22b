//! SRV records (RFC 2782), with the time that their servers say they are good for.
//!
//! Records of the lowest priority count. Their weights do not, because the balancer measures which
//! server is fast.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{NameServerConfig, ResolverConfig};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::RData;

use super::resolve::{ResolveError, Resolved};

/// Records are not asked for more often than this, even if their time is zero.
const OFTEN: Duration = Duration::from_secs(1);

/// Records are asked for at least this often, even if their time is longer.
const SELDOM: Duration = Duration::from_secs(300);

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
        let records: Vec<_> = records.collect();
        let first = records.iter().map(|record| record.priority).min();
        let mut addresses = BTreeSet::new();
        for record in records.iter().filter(|record| Some(record.priority) == first) {
            // The root as the target means that there is no server.
            if record.port == 0 || record.target.is_root() {
                continue;
            }
            let hosts = resolver.lookup_ip(record.target.clone()).await;
            let hosts = hosts.map_err(|error| failed(&record.target.to_utf8(), error))?;
            until = until.min(hosts.valid_until());
            addresses.extend(hosts.iter().map(|ip| SocketAddr::new(ip, record.port)));
        }
        let again = until.saturating_duration_since(Instant::now()).clamp(OFTEN, SELDOM);
        Ok(Resolved { addresses, again })
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
