//! Which ports lead to a host: by arithmetic in trees.

/// A switch of a tree: hosts below it have one way down, all others any way up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TreeSwitch {
    /// The first host below.
    pub first_host: u32,
    /// How many hosts are below.
    pub hosts: u32,
    /// Hosts below each port down.
    pub stride: u32,
    /// The first port down.
    pub down: u32,
    /// The first port up.
    pub up: u32,
    /// How many ports up.
    pub ups: u32,
}

/// The ports that a switch may choose from, which are numbered consecutively.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choices {
    /// The first.
    pub first: u32,
    /// How many; 0: no way.
    pub count: u32,
}

/// How switches choose. See [`super::Wiring::routes`].
#[derive(Clone, Debug)]
pub(crate) enum Routes {
    /// By arithmetic.
    Tree(Vec<TreeSwitch>),
}

impl Routes {
    /// The ports of `switch` (0 the first) on shortest paths to host `to`.
    #[inline]
    pub(crate) fn choices(&self, switch: u32, to: u32) -> Choices {
        match self {
            Self::Tree(switches) => {
                let at = &switches[switch as usize];
                let below = to.wrapping_sub(at.first_host);
                if below < at.hosts {
                    let child = if at.stride == 1 { below } else { below / at.stride };
                    Choices { first: at.down + child, count: 1 }
                } else {
                    Choices { first: at.up, count: at.ups }
                }
            }
        }
    }
}
