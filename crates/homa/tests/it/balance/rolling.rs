//! A rolling restart of servers that drain, with real processes, under load.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use homa::balance::{BalanceError, Balancer, Config, Target};
use homa::{CallError, CallOptions};

use crate::graceful::Server;

use super::{GIVE_UP, client};

const SERVERS: usize = 4;
const ROUNDS: usize = 2;
const CALLERS: usize = 8;

/// How the calls that were not answered ended.
#[derive(Default)]
struct Ends {
    not_executed: Vec<u64>,
    in_doubt: Vec<u64>,
}

/// Every second call is idempotent; such a call is always answered.
async fn call_until(
    over: Arc<AtomicBool>,
    next: Arc<AtomicU64>,
    ends: Arc<Mutex<Ends>>,
    balancer: Balancer,
) {
    let client = client();
    while !over.load(Ordering::Relaxed) {
        let id = next.fetch_add(1, Ordering::Relaxed);
        let mut options = CallOptions::deadline(GIVE_UP);
        options.idempotent = id.is_multiple_of(2);
        match balancer.call(&client, id.to_be_bytes().to_vec(), &options).await {
            Ok(_) => {}
            Err(error) if options.idempotent => panic!("call {id}: {error}"),
            Err(BalanceError::Call(CallError::Indeterminate)) => {
                ends.lock().unwrap().in_doubt.push(id);
            }
            Err(BalanceError::Call(error)) if error.not_executed() => {
                ends.lock().unwrap().not_executed.push(id);
            }
            Err(error) => panic!("call {id}: {error}"),
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_restart_loses_no_call_and_says_what_ran() {
    let start = |at: &str| Server::start(at);
    let (servers, addresses): (Vec<_>, Vec<_>) = (0..SERVERS).map(|_| start("127.0.0.1:0")).unzip();
    let balancer = Balancer::new(Target::list(addresses.clone()), Config::default()).unwrap();
    let (over, next) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let ends = Arc::new(Mutex::new(Ends::default()));
    let callers: Vec<_> = (0..CALLERS)
        .map(|_| {
            let (over, next, ends) = (over.clone(), next.clone(), ends.clone());
            tokio::spawn(call_until(over, next, ends, balancer.clone()))
        })
        .collect();
    let so_far = next.clone();
    let restarts = tokio::task::spawn_blocking(move || {
        let mut executed = Vec::new();
        let mut servers: Vec<Option<Server>> = servers.into_iter().map(Some).collect();
        for number in (0..ROUNDS).flat_map(|_| 0..SERVERS) {
            // As many calls as show a difference, whatever the speed of this machine.
            let begun = so_far.load(Ordering::Relaxed);
            while so_far.load(Ordering::Relaxed) < begun + 10 * CALLERS as u64 {
                std::thread::sleep(Duration::from_millis(1));
            }
            executed.extend(servers[number].take().unwrap().end());
            servers[number] = Some(start(&addresses[number].to_string()).0);
        }
        (executed, servers)
    });
    let (mut executed, servers) = restarts.await.unwrap();
    over.store(true, Ordering::Relaxed);
    for caller in callers {
        caller.await.unwrap();
    }
    let last = tokio::task::spawn_blocking(|| {
        servers.into_iter().flatten().flat_map(Server::end).collect::<Vec<_>>()
    });
    executed.extend(last.await.unwrap());
    let Ends { not_executed, in_doubt } = std::mem::take(&mut *ends.lock().unwrap());
    let (calls, all) = (next.load(Ordering::Relaxed), executed.len());
    println!("{calls} calls, {} not executed, {} in doubt", not_executed.len(), in_doubt.len());
    let once: Vec<u64> = executed.into_iter().filter(|id| !id.is_multiple_of(2)).collect();
    let ran: HashSet<u64> = once.iter().copied().collect();
    assert_eq!(ran.len(), once.len(), "a call that is not idempotent ran twice");
    assert!(not_executed.iter().all(|id| !ran.contains(id)), "{not_executed:?}");
    // A request may be in the queue of a socket when its server ends. Then it was not executed, and
    // its client cannot know. That is rare.
    let unread = in_doubt.iter().filter(|id| !ran.contains(id)).count();
    assert!(unread <= SERVERS * ROUNDS, "{unread} of {in_doubt:?} were not executed");
    // All others were answered, so they ran.
    let ends = ran.len() + not_executed.len() + unread;
    assert_eq!(ends as u64, calls / 2, "{all} executions");
}
