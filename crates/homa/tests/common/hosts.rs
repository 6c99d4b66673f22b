//! Hosts made of network namespaces, for tests in a network namespace of their own (`alone.rs`).

use std::fs::File;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, setns, unshare};

/// A host. Code that runs in it sees only its interfaces.
#[derive(Debug)]
pub struct Host(File);

impl Host {
    /// Creates a host that has only a loopback interface.
    pub fn new() -> Self {
        let made = thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            ip("link set lo up");
            File::open("/proc/thread-self/ns/net").unwrap()
        });
        Self(made.join().unwrap())
    }

    /// Creates two hosts and a cable between them, from `near` of the first host (10.8.0.1 and
    /// fd08::1) to `far` of the second (10.8.0.2 and fd08::2). `None` if the system allows no
    /// namespaces.
    pub fn pair() -> Option<[Self; 2]> {
        let pair = [Self::new(), Self::new()];
        if !pair[0].connect("near", &pair[1], "far") {
            return None;
        }
        for (host, (link, n)) in pair.iter().zip([("near", 1), ("far", 2)]) {
            host.ip(&format!("addr add 10.8.0.{n}/24 dev {link}"));
            host.add_v6(&format!("fd08::{n}"), link);
        }
        Some(pair)
    }

    /// Runs a function in this host. Threads that it starts stay in the host.
    pub fn run<T: Send>(&self, what: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let there = scope.spawn(|| {
                setns(&self.0, CloneFlags::CLONE_NEWNET).unwrap();
                what()
            });
            there.join().unwrap()
        })
    }

    /// Runs `ip` in this host.
    pub fn ip(&self, arguments: &str) {
        self.run(|| ip(arguments));
    }

    /// Gives an interface of this host an IPv6 address in a network of 64 bits. Returns when the
    /// kernel accepts packets for it, which is a little later than `ip` returns.
    pub fn add_v6(&self, address: &str, link: &str) {
        self.ip(&format!("addr add {address}/64 dev {link} nodad"));
        let is_there = || {
            let route = Command::new("ip").args(["-6", "route", "get", address]).output();
            route.is_ok_and(|route| route.stdout.starts_with(b"local"))
        };
        let end = Instant::now() + Duration::from_secs(60);
        while !self.run(is_there) {
            assert!(Instant::now() < end, "{address} did not come up");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Runs `tc` in this host. Returns false if this kernel lacks a feature that the command needs.
    pub fn tc(&self, arguments: &str) -> bool {
        self.run(|| Command::new("tc").args(arguments.split(' ')).status())
            .is_ok_and(|status| status.success())
    }

    /// Connects the interface `ours` with a cable to `theirs` of another host. Returns false if the
    /// system allows no cable.
    pub fn connect(&self, ours: &str, other: &Self, theirs: &str) -> bool {
        let place = format!("/proc/{}/fd/{}", std::process::id(), other.0.as_raw_fd());
        let link = format!("link add {ours} type veth peer name {theirs} netns {place}");
        let made = self.run(|| Command::new("ip").args(link.split(' ')).status());
        if !made.is_ok_and(|made| made.success()) {
            skip::test("veth pairs, and ip (apt-get install iproute2)");
            return false;
        }
        self.ip(&format!("link set {ours} up"));
        other.ip(&format!("link set {theirs} up"));
        true
    }
}

fn ip(arguments: &str) {
    let done = Command::new("ip").args(arguments.split(' ')).status().unwrap();
    assert!(done.success(), "ip {arguments}");
}
