//! A second scheme that shares the network with the scenario's scheme.

use serde::{Deserialize, Serialize};

use super::options::SchemeOptions;

/// A share of the hosts runs another scheme over the same links and switches. These hosts are
/// spread evenly over the racks, and a host only sends to hosts of its scheme.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SecondScheme {
    /// A name in [`crate::scheme::SCHEMES`].
    pub scheme: String,
    /// Share of the hosts, 0 to 1, rounded to whole hosts. Default: 0.5.
    #[serde(default = "half")]
    pub share: f64,
    /// Options of this scheme, as `options` of the scenario.
    #[serde(default)]
    pub options: SchemeOptions,
}

const fn half() -> f64 {
    0.5
}
