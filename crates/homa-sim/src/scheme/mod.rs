//! Schemes: one row per host transport x switch queue x forwarding x NIC options.
//!
//! The table names what can be simulated; the commands, the documentation and the conformance suite
//! read it.

/// One row.
#[derive(Clone, Copy, Debug)]
pub struct Scheme {
    /// As plans and commands write it.
    pub name: &'static str,
    /// Where it is described.
    pub paper: &'static str,
    /// What runs on the hosts.
    pub host: &'static str,
    /// What the switch ports do.
    pub queue: &'static str,
    /// How packets find their way.
    pub forwarding: &'static str,
    /// What the NIC does.
    pub nic: &'static str,
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
    },
    Scheme {
        name: "homa-paper",
        paper: "Homa (SIGCOMM 2018), its text",
        host: "homa-proto, profile sigcomm18",
        queue: "strict priority",
        forwarding: "spray",
        nic: "pull",
    },
    Scheme {
        name: "homa",
        paper: "Homa, as users get it",
        host: "homa-proto, profile default",
        queue: "strict priority",
        forwarding: "spray",
        nic: "pull",
    },
];

/// The scheme of that name.
pub fn find(name: &str) -> Option<&'static Scheme> {
    SCHEMES.iter().find(|scheme| scheme.name == name)
}
