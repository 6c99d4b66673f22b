//! Names that stand for several servers: lookup, balancing, retries and hedging (feature
//! `balance`).
//!
//! A [`Target`] is the text that an operator writes. A [`Balancer`] looks it up, and calls the
//! servers that it has. [`Members`] is the lookup alone, for the balancers of `tower`.
//!
//! | file | what |
//! |---|---|
//! | `target` | the text of a target |
//! | `resolve`, `srv` | one lookup: the system's names, files, DNS |
//! | `members` | lookups repeated: servers come and go |
//! | `choose` | which of two servers gets a call |
//! | `health` | which servers get no calls for a while; which errors are retried |
//! | `budget` | how many attempts more; when a call is late |
//! | `servers` | all servers of a balancer |
//! | `balancer` | calls |
//! | `ended` | waits that end with the engine |
//! | `detached` | a runtime for programs that have none |
//!
//! Invariants: a call is executed more than once only if it is idempotent, and all attempts of a
//! call end at its deadline. An attempt in progress at a server that is removed is not disturbed.
//!
//! Left out: zones, subsets of large sets, and priorities and weights other than those of SRV
//! records.

mod balancer;
mod budget;
mod choose;
mod detached;
mod ended;
mod health;
mod members;
mod resolve;
mod servers;
#[cfg(feature = "srv")]
mod srv;
mod target;

use std::time::{Duration, Instant};

pub use balancer::{BalanceError, Balancer, Lease};
pub use members::Members;
pub use resolve::ResolveError;
pub use target::{Target, TargetError, TargetFault};

/// The time of the runtime, which its timers follow; a test may pause it.
fn now() -> Instant {
    ::tokio::time::Instant::now().into_std()
}

/// Parameters of a [`Balancer`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Config {
    /// Calls wait for a lookup of the target that has failed to succeed, until their deadline.
    /// Default: they fail at once with [`BalanceError::NoServers`]. The first lookup is waited for
    /// in any case.
    pub wait_for_ready: bool,
    /// How often names of hosts are looked up again. Default: 30 s. A server that is gone causes a
    /// lookup at once, but not more than one a second. Files are read every second, and SRV records
    /// are looked up when their time is over.
    pub refresh: Duration,
    /// Retries as a share of the calls. Default: 0.2. Ten retries a second are permitted in any
    /// case, unless it is zero, which means that there are none.
    pub retry_budget: f64,
    /// Hedges as a share of the calls. Default: 0.05. If it is zero, there are none.
    pub hedge_budget: f64,
    /// After how long an idempotent call is hedged. `None` (default): the time that 95 % of recent
    /// calls did not exceed, at most 12 % more; the first 100 calls are not hedged.
    pub hedge_after: Option<Duration>,
    /// Seed of the random choices. `None` (default): random.
    pub seed: Option<u64>,
}

homa_proto::setters!(Config {
    wait_for_ready: bool,
    refresh: Duration,
    retry_budget: f64,
    hedge_budget: f64,
    hedge_after: impl Into<Option<Duration>>,
    seed: impl Into<Option<u64>>,
});

impl Default for Config {
    fn default() -> Self {
        Self {
            wait_for_ready: false,
            refresh: Duration::from_secs(30),
            retry_budget: 0.2,
            hedge_budget: 0.05,
            hedge_after: None,
            seed: None,
        }
    }
}
