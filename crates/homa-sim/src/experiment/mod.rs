//! Runs scenarios. The outcome of [`run`] depends on the [`Scenario`] alone, except for the cost of
//! the run (CPU seconds and memory).
//!
//! | module | contents |
//! |---|---|
//! | `checks` | refuses scenarios that contradict themselves |
//! | `network`, `faults` | wiring, fabric and paths; faults of links and hosts |
//! | `demand` | traffic and limits |
//! | `tasks` | traffic of files and collectives, and how long it took |
//! | `offered`, `core_load` | loads of hosts' links, and of links between switches |
//! | `foresee` | warnings before a run |
//! | `parts`, `beside` | the hosts' configuration, for one scheme or two |
//! | `partitioned` | runs of a network in partitions, on several threads |
//! | `planned` | single messages, judged by the checker that works for every transport |
//! | `bound` | the scheme `ideal`, a bound that simulates no packets |
//! | `idle` | idle times, if latencies are divided by measured times, and prices of messages |
//! | `switches` | switches that pause their senders or queue at their inputs |
//! | `start` | builds simulations with concrete types from a scheme's hosts and queues |
//! | `fct` | completion times as HPCC's simulator writes them |
//! | `running` | a type-erased simulation, so that the modules below are compiled once |
//! | `run`, `assemble` | the phases of a run, and its outcome |
//! | [`limit`] | the highest sustained load |

mod applications;
mod assemble;
mod beside;
mod bound;
mod checks;
mod core_load;
mod demand;
mod faults;
mod fct;
mod foresee;
mod idle;
pub mod limit;
mod network;
mod offered;
mod partitioned;
mod parts;
mod permutation;
mod planned;
mod run;
mod running;
mod start;
mod switches;
mod tables;
mod tasks;

pub use foresee::foresee;
pub use planned::{Rehearsal, Times, rehearse};
pub use run::{
    Observers, Physics, Replay, RunProgress, Trace, replay, resolved, run, run_sampled,
    run_watched, validate,
};

use crate::scenario::Scenario;
use crate::scheme::{HostConfig, SwitchQueue};
use crate::traffic::rate::Price;

pub(crate) use start::{Start, Started};

use beside::SecondHosts;
use demand::Demand;
use network::ScenarioNetwork;

/// Everything that a simulation is built from.
#[derive(Clone, Copy)]
struct Experiment<'a> {
    scenario: &'a Scenario,
    network: &'a ScenarioNetwork,
    demand: &'a Demand,
    hosts: &'a HostConfig,
    /// What messages cost on the wire.
    price: &'a Price,
    /// The hosts that run a second scheme, if there are any.
    beside: Option<&'a SecondHosts>,
    queue: SwitchQueue,
}
