//! The capabilities of this process (capabilities(7)).

/// Effective capabilities of this process (capabilities(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities(u64);

impl Capabilities {
    /// Configuring the network, and attaching programs to it.
    pub const NET_ADMIN: u32 = 12;
    /// Opening sockets for raw frames or IP packets.
    pub const NET_RAW: u32 = 13;
    /// Locking any amount of memory.
    pub const IPC_LOCK: u32 = 14;
    /// Administering the system; before Linux 5.8, also loading programs.
    pub const SYS_ADMIN: u32 = 21;
    /// Loading programs.
    pub const BPF: u32 = 39;

    /// The effective capabilities. All of them if /proc cannot be read: the kernel then refuses.
    pub fn of_this_process() -> Self {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
        Self(Self::parse(&status).unwrap_or(u64::MAX))
    }

    fn parse(status: &str) -> Option<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
        u64::from_str_radix(line.trim(), 16).ok()
    }

    /// True if the process has this capability.
    pub fn has(self, capability: u32) -> bool {
        self.0 >> capability & 1 != 0
    }

    /// True if the process may load programs.
    pub fn has_bpf(self) -> bool {
        self.has(Self::BPF) || self.has(Self::SYS_ADMIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_bits_of_one_line() {
        let parsed =
            Capabilities::parse("CapPrm:\tff\nCapEff:\t0000008000001000\n").map(Capabilities);
        let has = |bit| parsed.is_some_and(|all| all.has(bit));
        let [bpf, net_admin, sys_admin] =
            [Capabilities::BPF, Capabilities::NET_ADMIN, Capabilities::SYS_ADMIN].map(has);
        assert_eq!([bpf, net_admin, sys_admin], [true, true, false]);
        assert!(Capabilities::parse("nothing").is_none());
    }
}
