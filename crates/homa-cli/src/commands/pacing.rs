//! `--link-rate`: the rate to which an engine paces what it sends.

use homa::Config;
use homa::proto::Rate;

use crate::values;

/// The rate of the link, if the operator gives it.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct Pacing {
    /// Rate of the link, such as 10Gbps, or the smaller one that a cloud allows. What is sent waits
    /// here, where short messages overtake, and not in the network. [default: the rate that the
    /// interface reports; interfaces of virtual machines often report none, see `homa doctor`]
    #[arg(long, value_name = "RATE", value_parser = values::rate)]
    link_rate: Option<u64>,
}

impl Pacing {
    /// A configuration with this rate.
    pub fn apply(self, config: Config) -> Config {
        config.link_rate(self.link_rate.map(Rate))
    }
}
