//! Calls to several servers: ejection, retries, hedges, and servers that come and go.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use homa::balance::{BalanceError, Balancer, Config, Target};
use homa::{CallError, CallOptions};
use tokio::sync::Semaphore;

use crate::restart;

use super::{AddressFile, GIVE_UP, Serving, client, list, until};

fn options() -> CallOptions {
    CallOptions::deadline(GIVE_UP)
}

#[tokio::test]
async fn a_dead_server_costs_no_call_and_returns() {
    let (dying, other) = (Serving::start(0), Serving::start(0));
    let (client, balancer) = (client(), list(&[&dying, &other], Config::default()));
    for _ in 0..50 {
        balancer.call(&client, "who?", &options()).await.unwrap();
    }
    assert!(dying.executed() > 0 && other.executed() > 0, "both are called");
    let at = dying.at;
    dying.drain().await;
    drop(dying);
    for _ in 0..50 {
        balancer.call(&client, "who?", &options()).await.unwrap();
    }
    let back = Serving::start(at.port());
    while back.executed() == 0 {
        balancer.call(&client, "who?", &options()).await.unwrap();
    }
}

#[tokio::test]
async fn the_error_of_a_single_dead_server_is_kept() {
    let dead = Serving::start(0);
    let at = dead.at;
    dead.drain().await;
    drop(dead);
    let never = Config::default().retry_budget(0.0);
    for config in [Config::default(), never] {
        let balancer = Balancer::new(Target::list([at]), config).unwrap();
        let short = CallOptions::deadline(Duration::from_millis(300));
        let error = balancer.call(&client(), "who?", &short).await.unwrap_err();
        let BalanceError::Call(error) = error else { panic!("{error:?}") };
        assert!(matches!(error, CallError::PortUnreachable | CallError::DeadlineExceeded));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_come_and_go_under_load_without_a_lost_call() {
    let file = AddressFile::new("resize");
    let mut servers: Vec<Serving> = (0..4).map(|_| Serving::start(0)).collect();
    file.list(&servers.iter().collect::<Vec<_>>());
    let balancer = Balancer::new(file.target(), Config::default()).unwrap();
    let (client, ends) = (client(), Arc::new(AtomicBool::new(false)));
    let callers = (0..16).map(|_| {
        let (balancer, client, ends) = (balancer.clone(), client.clone(), ends.clone());
        tokio::spawn(async move {
            let mut calls = 0;
            while !ends.load(Ordering::Relaxed) {
                // Not idempotent: what may have been executed is not repeated.
                balancer.call(&client, "who?", &options()).await.expect("no call is lost");
                calls += 1;
            }
            calls
        })
    });
    let callers: Vec<_> = callers.collect();
    for _ in 0..3 {
        // Two more, then the two oldest leave: first the file, then the servers.
        servers.push(Serving::start(0));
        servers.push(Serving::start(0));
        file.list(&servers.iter().collect::<Vec<_>>());
        until(|| balancer.servers().len() == servers.len()).await;
        until(|| servers.iter().all(|server| server.executed() > 0)).await;
        let leaving: Vec<Serving> = servers.drain(..2).collect();
        // One of them ends before clients know.
        leaving[0].drain().await;
        file.list(&servers.iter().collect::<Vec<_>>());
        until(|| balancer.servers().len() == servers.len()).await;
        leaving[1].drain().await;
    }
    ends.store(true, Ordering::Relaxed);
    for caller in callers {
        assert!(caller.await.unwrap() > 0);
    }
}

/// A balancer that hedges after a delay, its slow server, and one that answers.
fn slow_and_fast(delay: Duration) -> (Serving, Serving, Balancer) {
    let (slow, fast) = (Serving::holding(), Serving::start(0));
    let config = Config::default().hedge_after(delay).hedge_budget(1.0).seed(1);
    let balancer = list(&[&slow, &fast], config);
    (slow, fast, balancer)
}

#[tokio::test]
async fn a_slow_idempotent_call_is_hedged_and_the_loser_ends() {
    let (slow, fast, balancer) = slow_and_fast(Duration::from_millis(20));
    let (client, options) = (client(), options().idempotent());
    // Until the slow server gets one; each of its calls is answered by the other.
    while slow.executed() == 0 {
        let answer = balancer.call(&client, "who?", &options).await.unwrap();
        assert_eq!(*answer, *fast.at.port().to_string().as_bytes());
    }
    until(|| slow.cancelled.load(Ordering::SeqCst) == slow.executed()).await;
}

#[tokio::test]
async fn a_call_that_is_not_idempotent_is_never_hedged() {
    let (slow, fast, balancer) = slow_and_fast(Duration::from_millis(1));
    let client = client();
    let mut calls = Vec::new();
    for _ in 0..40 {
        let (balancer, client) = (balancer.clone(), client.clone());
        calls.push(tokio::spawn(async move {
            balancer.call(&client, "who?", &options()).await.unwrap();
        }));
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    until(|| slow.executed() + fast.executed() == 40 && slow.executed() > 0).await;
    // Long after the delay, no call is at both.
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(slow.executed() + fast.executed(), 40);
    slow.answers.add_permits(Semaphore::MAX_PERMITS);
    for call in calls {
        call.await.unwrap();
    }
    assert_eq!(slow.executed() + fast.executed(), 40);
}

#[tokio::test]
async fn hedges_are_a_share_of_the_calls() {
    let (slow, fast) = (Serving::holding(), Serving::start(0));
    let config = Config::default().hedge_after(Duration::from_millis(1)).hedge_budget(0.1).seed(1);
    let balancer = list(&[&slow, &fast], config);
    let client = client();
    let calls = (0..100).map(|_| {
        let (balancer, client) = (balancer.clone(), client.clone());
        tokio::spawn(async move {
            let options = options().idempotent();
            balancer.call(&client, "who?", &options).await.unwrap();
        })
    });
    let calls: Vec<_> = calls.collect();
    until(|| slow.executed() + fast.executed() >= 100).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(slow.executed() + fast.executed() <= 110);
    slow.answers.add_permits(Semaphore::MAX_PERMITS);
    for call in calls {
        call.await.unwrap();
    }
}

#[tokio::test]
async fn both_attempts_have_the_deadline_of_the_call() {
    let delay = Duration::from_secs(2);
    let (one, two) = (Serving::holding(), Serving::holding());
    let config = Config::default().hedge_after(delay).hedge_budget(1.0);
    let balancer = list(&[&one, &two], config);
    let options = CallOptions::deadline(2 * delay).idempotent();
    let error = balancer.call(&client(), "who?", &options).await.unwrap_err();
    assert!(matches!(error, BalanceError::Call(CallError::DeadlineExceeded)), "{error:?}");
    assert_eq!((one.executed(), two.executed()), (1, 1));
    let [one, two] = [one, two].map(|server| server.deadline.lock().unwrap().unwrap());
    let apart = one.max(two) - one.min(two);
    assert!(apart < delay / 2, "{apart:?}: the second attempt has the time that is left");
}

#[tokio::test]
async fn a_call_that_was_lost_is_repeated_only_if_it_is_idempotent() {
    for idempotent in [false, true] {
        let (file, other) = (AddressFile::new("lost"), Serving::start(0));
        let mut killed = restart::Server::start("127.0.0.1:0", false);
        file.write(&[killed.at.to_string()]);
        let balancer = Balancer::new(file.target(), Config::default()).unwrap();
        let (client, calling, mut options) = (client(), balancer.clone(), options());
        options.idempotent = idempotent;
        let call = tokio::spawn(async move { calling.call(&client, "who?", &options).await });
        let killed = tokio::task::spawn_blocking(move || {
            killed.wait_for_request();
            killed
        });
        let killed = killed.await.unwrap();
        file.write(&[killed.at.to_string(), other.at.to_string()]);
        until(|| balancer.servers().len() == 2).await;
        drop(killed);
        let result = tokio::time::timeout(GIVE_UP, call).await.unwrap().unwrap();
        match result {
            Ok(_) => assert!(idempotent),
            Err(BalanceError::Call(CallError::Indeterminate)) => assert!(!idempotent),
            other => panic!("{other:?}"),
        }
        assert_eq!(other.executed() > 0, idempotent);
    }
}
