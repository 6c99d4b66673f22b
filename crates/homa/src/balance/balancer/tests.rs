//! Hedges, and a balancer in the child of a fork.

use std::sync::atomic::{AtomicUsize, Ordering};

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

/// How an attempt ends: after these milliseconds, if at all, with success or this error.
type End = Option<(u64, Result<(), CallError>)>;

/// A hedged call to as many servers as there are attempts. The delay is 5 ms, the deadline 60 s.
/// Returns its result, the milliseconds it took, and the attempts that it made.
async fn hedged(ends: &[End]) -> (Result<(), BalanceError>, u64, usize) {
    let servers = (1..=ends.len() as u16).map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    let delay = Duration::from_millis(5);
    let config = Config::default().hedge_after(delay).hedge_budget(1.0);
    let balancer = Balancer::new(Target::list(servers), config).unwrap();
    let (made, began) = (AtomicUsize::new(0), now());
    let result = balancer.run(Some(began + Duration::from_secs(60)), true, |_| {
        let end = ends[made.fetch_add(1, Ordering::Relaxed)].clone();
        async move {
            let (after, result) = end.unwrap_or((60_000, Err(CallError::DeadlineExceeded)));
            sleep(Duration::from_millis(after)).await;
            result
        }
    });
    let result = result.await;
    (result, (now() - began).as_millis() as u64, made.into_inner())
}

#[tokio::test(start_paused = true)]
async fn a_call_never_waits_for_a_silent_server_alone() {
    let refused = |after| Some((after, Err(CallError::PortUnreachable)));
    let answer = |after| Some((after, Ok(())));
    let silent = None;
    let table: [(&[End], u64, usize); 6] = [
        // The hedge answers; the first does.
        (&[silent.clone(), answer(1)], 6, 2),
        (&[answer(20), silent.clone()], 20, 2),
        // The hedge is refused at once, then another one.
        (&[silent.clone(), refused(1), refused(1), answer(1)], 8, 4),
        // The first is refused after the hedge has begun, and then another one.
        (&[refused(10), silent.clone(), answer(1)], 11, 3),
        (&[refused(10), silent.clone(), refused(3), answer(1)], 14, 4),
        // Both are refused.
        (&[refused(10), refused(10), silent, answer(1)], 16, 4),
    ];
    for (ends, took, made) in table {
        let (result, took_ms, attempts) = hedged(ends).await;
        assert!(result.is_ok(), "{result:?} after {took_ms} ms: {ends:?}");
        assert_eq!((took_ms, attempts), (took, made), "{ends:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_that_no_retry_mends_leaves_the_other_attempt() {
    let refused = || CallError::NewerPeer { kind: 9 };
    let (result, took, attempts) =
        hedged(&[Some((10, Err(refused()))), Some((30, Ok(()))), Some((1, Ok(())))]).await;
    assert!(result.is_ok(), "{result:?}");
    assert_eq!((took, attempts), (35, 2));
    let both = [Some((10, Err(refused()))), Some((30, Err(refused()))), Some((1, Ok(())))];
    let (result, took, attempts) = hedged(&both).await;
    assert!(matches!(result, Err(BalanceError::Call(error)) if error == refused()));
    assert_eq!((took, attempts), (35, 2));
}

#[tokio::test(start_paused = true)]
async fn the_first_answer_counts_also_one_that_is_an_error() {
    let answer = || CallError::ResponseTooLong { length: 2, max: 1 };
    for ends in [[Some((10, Err(answer()))), None], [None, Some((10, Err(answer())))]] {
        let (result, took, attempts) = hedged(&ends).await;
        assert!(matches!(result, Err(BalanceError::Call(error)) if error == answer()));
        assert!(took <= 15 && attempts == 2, "{took} ms: {ends:?}");
    }
}
