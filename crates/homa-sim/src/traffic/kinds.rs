//! Division of hosts into two kinds. Hosts of the second kind are spread evenly, so that every rack
//! has its share of both.

/// The numbers of hosts of both kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kinds {
    hosts: u32,
    second: u32,
}

impl Kinds {
    /// `second` of `hosts` hosts are of the second kind, at most all.
    pub const fn new(hosts: u32, second: u32) -> Self {
        Self { hosts, second }
    }

    /// The kind of a host: 0 or 1.
    pub const fn of(self, host: u32) -> u8 {
        (self.before(host + 1, 1) - self.before(host, 1)) as u8
    }

    /// Number of hosts of a kind.
    pub const fn count(self, kind: u8) -> u32 {
        self.before(self.hosts, kind)
    }

    /// Number of hosts of a kind before this one.
    const fn before(self, host: u32, kind: u8) -> u32 {
        let second = host as u64 * self.second as u64 / self.hosts as u64;
        if kind == 0 { host - second as u32 } else { second as u32 }
    }

    /// The `n`-th host of a kind, from 0; it must exist.
    const fn nth(self, n: u32, kind: u8) -> u32 {
        // The last host that has `n` hosts of the kind before it.
        let (n, hosts, count) = (n as u64, self.hosts as u64, self.count(kind) as u64);
        let host = if kind == 0 { n * hosts / count } else { ((n + 1) * hosts - 1) / count };
        host as u32
    }

    /// The `n`-th of the other hosts of a host's kind, from 0.
    pub const fn other(self, host: u32, n: u32) -> u32 {
        let kind = self.of(host);
        self.nth(if n < self.before(host, kind) { n } else { n + 1 }, kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_are_spread_evenly_and_others_are_found() {
        for (hosts, second) in [(2, 0), (8, 4), (16, 5), (144, 36), (7, 7), (9, 2)] {
            let kinds = Kinds::new(hosts, second);
            assert_eq!((kinds.count(0), kinds.count(1)), (hosts - second, second));
            let half = (0..hosts / 2).filter(|host| kinds.of(*host) == 1).count() as u32;
            assert!(half.abs_diff(second * (hosts / 2) / hosts) <= 1, "{hosts} {second} {half}");
            for host in 0..hosts {
                let others = 0..kinds.count(kinds.of(host)) - 1;
                let found: Vec<u32> = others.map(|n| kinds.other(host, n)).collect();
                let alike = |other: &u32| *other != host && kinds.of(*other) == kinds.of(host);
                assert_eq!(found, (0..hosts).filter(alike).collect::<Vec<u32>>(), "{kinds:?}");
            }
        }
    }
}
