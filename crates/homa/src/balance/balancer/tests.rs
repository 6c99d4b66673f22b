//! A balancer in the child of a fork.

use super::*;
use crate::driver::fork::children;

#[test]
fn the_child_of_a_fork_waits_for_no_lock_of_its_parent() {
    let target = || Target::list([SocketAddr::from(([127, 0, 0, 1], 9))]);
    let open = || Balancer::detached(target(), Config::default()).unwrap();
    let balancer = open();
    detached::runtime().unwrap().block_on(balancer.connected(None)).unwrap();
    let lease = balancer.choose(&[], false).unwrap();
    // As if other threads were at work when the process forks.
    let set = balancer.0.set.clone();
    let locks = (lock(&set), detached::locked());
    let Some(child) = children::fork() else {
        let known = balancer.servers();
        drop((lease, balancer));
        let other = open();
        children::exit(known.is_empty() && other.0.process.is_this());
    };
    let passed = child.passed();
    drop(locks);
    assert!(passed, "the child waited for a lock, or used its parent's servers");
    assert_eq!(balancer.servers(), [lease.server()]);
}
