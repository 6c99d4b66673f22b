//! Schemes: one row per host transport x switch queue x forwarding x NIC options.
//!
//! The table names what can be simulated; the commands, the documentation and the conformance suite
//! read it. `docs/adding-a-scheme.md` shows how a row is made.

pub mod homa;

/// One row.
#[derive(Clone, Copy, Debug)]
pub struct Scheme {
    /// As plans and commands write it.
    pub name: &'static str,
    /// Where it is described.
    pub paper: &'static str,
    /// What runs on the hosts, in words.
    pub host: &'static str,
    /// What the switch ports do.
    pub queue: &'static str,
    /// How packets find their way, unless the scenario says otherwise.
    pub forwarding: &'static str,
    /// What the NIC does.
    pub nic: &'static str,
    /// Knows messages without answer only.
    pub one_way_only: bool,
    /// What runs on the hosts.
    pub hosts: Hosts,
}

/// Host transports. The one place where a name becomes a type is `scenario::run`.
#[derive(Clone, Copy, Debug)]
pub enum Hosts {
    /// Homa's own protocol code under a profile.
    Homa(homa::Build),
}

/// Every scheme.
pub const SCHEMES: &[Scheme] = &[
    Scheme {
        name: "homa-sim",
        paper: "Homa (SIGCOMM 2018) §5.2, as its authors' simulator has it",
        host: "homa-proto, profile sigcomm18-sim",
        queue: "strict priority",
        forwarding: "spray",
        nic: "pull",
        one_way_only: true,
        hosts: Hosts::Homa(homa::simulator),
    },
    Scheme {
        name: "homa-paper",
        paper: "Homa (SIGCOMM 2018), its text",
        host: "homa-proto, profile sigcomm18",
        queue: "strict priority",
        forwarding: "spray",
        nic: "pull",
        one_way_only: false,
        hosts: Hosts::Homa(homa::paper),
    },
    Scheme {
        name: "homa",
        paper: "Homa, as users get it",
        host: "homa-proto, profile default",
        queue: "strict priority",
        forwarding: "spray",
        nic: "pull",
        one_way_only: false,
        hosts: Hosts::Homa(homa::default),
    },
    Scheme {
        name: "homa-p4",
        paper: "HomaP4 of Homa (SIGCOMM 2018) Figure 8: the levels merged to four",
        host: "homa-proto, profile sigcomm18",
        queue: "strict priority",
        forwarding: "spray",
        nic: "pull",
        one_way_only: false,
        hosts: Hosts::Homa(homa::merged::<4>),
    },
    Scheme {
        name: "homa-p2",
        paper: "HomaP2 of Homa (SIGCOMM 2018) Figure 8: the levels merged to two",
        host: "homa-proto, profile sigcomm18",
        queue: "strict priority",
        forwarding: "spray",
        nic: "pull",
        one_way_only: false,
        hosts: Hosts::Homa(homa::merged::<2>),
    },
    Scheme {
        name: "homa-p1",
        paper: "HomaP1 of Homa (SIGCOMM 2018) Figure 8: the levels merged to one",
        host: "homa-proto, profile sigcomm18",
        queue: "strict priority",
        forwarding: "spray",
        nic: "pull",
        one_way_only: false,
        hosts: Hosts::Homa(homa::merged::<1>),
    },
    Scheme {
        name: "basic",
        paper: "Basic of Homa (SIGCOMM 2018) Figure 8: RAMCloud's BasicTransport",
        host: "homa-proto, profile basic",
        queue: "strict priority",
        forwarding: "spray",
        nic: "pull",
        one_way_only: false,
        hosts: Hosts::Homa(homa::basic),
    },
];

/// The scheme of that name.
pub fn find(name: &str) -> Option<&'static Scheme> {
    SCHEMES.iter().find(|scheme| scheme.name == name)
}
