//! Where the servers of a target come from.

use std::fs;
use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use homa::balance::{BalanceError, Balancer, Config, Members, ResolveError};
use homa::{CallError, CallOptions, Client, OpenError};
use tower::discover::{Change, Discover};

use super::{AddressFile, GIVE_UP, Serving, client, until};

#[tokio::test]
async fn all_addresses_of_a_name_are_called() {
    let server = Serving::start(0);
    let name = format!("homa:///localhost:{}", server.at.port());
    let balancer = Balancer::new(name.parse().unwrap(), Config::default()).unwrap();
    let client = client();
    // Where localhost is also ::1, nothing listens there, and its calls are repeated here.
    for _ in 0..20 {
        let answer = balancer.call(&client, "who?", &CallOptions::deadline(GIVE_UP)).await;
        assert_eq!(*answer.unwrap(), *server.at.port().to_string().as_bytes());
    }
    assert!(balancer.servers().contains(&server.at));
    assert_eq!(server.executed(), 20);
}

#[tokio::test]
async fn a_file_of_servers_is_read_again_when_it_changes() {
    let (file, old, new) = (AddressFile::new("read"), Serving::start(0), Serving::start(0));
    file.write(&["# the servers".to_owned(), format!("{} # the old one", old.at)]);
    let balancer = Balancer::new(file.target(), Config::default()).unwrap();
    let (client, options) = (client(), CallOptions::deadline(GIVE_UP));
    balancer.call(&client, "who?", &options).await.unwrap();
    assert_eq!((old.executed(), new.executed()), (1, 0));
    file.list(&[&new]);
    until(|| balancer.servers() == [new.at]).await;
    balancer.call(&client, "who?", &options).await.unwrap();
    assert_eq!((old.executed(), new.executed()), (1, 1));
    // A file that is broken, empty or gone leaves the servers that are known.
    for broken in [Some("10.0.0.1"), Some(""), None] {
        match broken {
            Some(text) => fs::write(&file.0, text).unwrap(),
            None => fs::remove_file(&file.0).unwrap(),
        }
        tokio::time::sleep(Duration::from_millis(1_200)).await;
        assert_eq!(balancer.servers(), [new.at]);
    }
    balancer.call(&client, "who?", &options).await.unwrap();
    file.list(&[&old, &new]);
    until(|| balancer.servers().len() == 2).await;
}

#[tokio::test]
async fn without_servers_calls_fail_at_once_or_wait() {
    let (file, server, client) = (AddressFile::new("wait"), Serving::start(0), client());
    let options = CallOptions::deadline(GIVE_UP);
    let fails = Balancer::new(file.target(), Config::default()).unwrap();
    let error = fails.call(&client, "who?", &options).await.unwrap_err();
    let BalanceError::NoServers(reason) = &error else { panic!("{error:?}") };
    assert!(matches!(**reason, ResolveError::File { .. }), "{reason:?}");
    assert!(error.to_string().contains(&file.0.display().to_string()), "{error}");

    let waits = Balancer::new(file.target(), Config::default().wait_for_ready(true)).unwrap();
    let short = CallOptions::deadline(Duration::from_millis(50));
    let error = waits.call(&client, "who?", &short).await.unwrap_err();
    assert!(matches!(error, BalanceError::Late), "{error:?}");
    // No server is known when the client's engine ends.
    let ends = Client::new().unwrap();
    let ending = async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        ends.engine().drain(Duration::ZERO).unwrap();
    };
    let (ended, ()) = tokio::join!(waits.call(&ends, "who?", &options), ending);
    assert!(matches!(ended, Err(BalanceError::Call(CallError::ShuttingDown))), "{ended:?}");
    let writes = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        file.list(&[&server]);
    };
    let (answer, ()) = tokio::join!(waits.call(&client, "who?", &options), writes);
    assert_eq!(*answer.unwrap(), *server.at.port().to_string().as_bytes());
    // The other one finds them, too.
    until(|| fails.servers() == [server.at]).await;
}

#[tokio::test]
async fn a_name_that_does_not_exist_is_a_typed_error() {
    // Reserved for this purpose (RFC 6761).
    let target = "homa:///nothing.invalid:4000".parse().unwrap();
    let balancer = Balancer::new(target, Config::default()).unwrap();
    let error = balancer.call(&client(), "who?", &CallOptions::deadline(GIVE_UP)).await;
    let Err(BalanceError::NoServers(reason)) = error else { panic!("{error:?}") };
    let ResolveError::Name { name, .. } = &*reason else { panic!("{reason:?}") };
    assert_eq!(name, "nothing.invalid:4000");
}

pub async fn next(members: &mut Members) -> Change<SocketAddr, ()> {
    let next = std::future::poll_fn(|context| Pin::new(&mut *members).poll_discover(context));
    let Ok(change) = tokio::time::timeout(GIVE_UP, next).await.unwrap().unwrap();
    change
}

#[tokio::test]
async fn members_are_discovered_as_they_come_and_go() {
    let (file, one, two) = (AddressFile::new("members"), Serving::start(0), Serving::start(0));
    file.list(&[&one]);
    let mut members = Members::of(file.target(), Duration::from_secs(30)).unwrap();
    assert!(matches!(next(&mut members).await, Change::Insert(at, ()) if at == one.at));
    file.list(&[&two]);
    // First the new one, so that there is always one.
    assert!(matches!(next(&mut members).await, Change::Insert(at, ()) if at == two.at));
    assert!(matches!(next(&mut members).await, Change::Remove(at) if at == one.at));
}

#[test]
fn a_balancer_needs_a_runtime() {
    let target = || "homa+file://none".parse().unwrap();
    let outside = Balancer::new(target(), Config::default());
    assert!(matches!(outside, Err(OpenError::NoRuntime)));
    let outside = Members::of(target(), Duration::from_secs(30));
    assert!(matches!(outside, Err(OpenError::NoRuntime)));
}
