//! From a description to its outcome: [`run`] is a function of the [`Scenario`] alone, except for
//! what the run cost (CPU seconds, memory).
//!
//! | module | what it does |
//! |---|---|
//! | `checks` | refuses scenarios that contradict themselves |
//! | `network`, `faults` | wiring, fabric, paths; what goes wrong with links |
//! | `demand` | traffic, limits, loads |
//! | `parts`, `beside` | what runs on hosts, of one kind or two |
//! | `planned` | messages planned one by one, under the checker of any transport |
//! | `bound` | the scheme `ideal`, a bound that simulates no packets |
//! | `idle` | what messages take alone, where latencies are divided by measured times |
//! | `start` | the one `match` that turns a scheme into types |
//! | `running` | a simulation whose types are forgotten: everything below is compiled once |
//! | `run`, `assemble` | the phases of a run, and its outcome |
//! | [`limit`] | the highest load that is sustained |

mod applications;
mod assemble;
mod beside;
mod bound;
mod checks;
mod demand;
mod faults;
mod idle;
pub mod limit;
mod network;
mod parts;
mod permutation;
mod planned;
mod run;
mod running;
mod start;

pub use planned::{Rehearsal, Times, rehearse};
pub use run::{
    Observers, Physics, Progress, Replay, Trace, replay, run, run_sampled, run_watched, validate,
};

use crate::scenario::Scenario;
use crate::scheme::{HostConfig, Queue};

use beside::Beside;
use demand::Demand;
use network::Network;

/// Everything that a simulation is made of.
#[derive(Clone, Copy)]
struct Experiment<'a> {
    scenario: &'a Scenario,
    network: &'a Network,
    demand: &'a Demand,
    hosts: &'a HostConfig,
    /// Hosts of a second kind.
    beside: Option<&'a Beside>,
    queue: Queue,
}
