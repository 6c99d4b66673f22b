//! Hosts of a second kind beside those of the scenario's scheme.

use serde::{Deserialize, Serialize};

use super::options::SchemeOptions;

/// A share of the hosts runs another scheme, over the same links and switches. They are spread
/// evenly over the racks, and messages go between hosts of one kind only.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Beside {
    /// A name in [`crate::scheme::SCHEMES`].
    pub scheme: String,
    /// Of the hosts, 0 to 1; rounded to whole hosts.
    #[serde(default = "half")]
    pub share: f64,
    /// As `options` of the scenario, for these hosts.
    #[serde(default)]
    pub options: SchemeOptions,
}

const fn half() -> f64 {
    0.5
}
