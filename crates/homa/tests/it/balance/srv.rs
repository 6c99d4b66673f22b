//! SRV records from a name server on loopback.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use hickory_resolver::proto::op::{Message, ResponseCode};
use hickory_resolver::proto::rr::rdata::{A, SRV};
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};
use homa::CallOptions;
use homa::balance::{BalanceError, Balancer, Config, Members, ResolveError};
use tokio::net::UdpSocket;
use tower::discover::Change;

use super::members::next;
use super::{GIVE_UP, Serving, client, until};

/// Priority, weight and port.
type SrvRecord = (u16, u16, u16);

/// A name server for `search.test`, whose records are these. Their time is 1 s. `hosts.test` has
/// the same records, but only the first is for `host.test`, and the others for `other.test`.
struct NameServer {
    at: SocketAddr,
    records: Arc<Mutex<Vec<SrvRecord>>>,
    /// How it answers questions for the address of `host.test`.
    says: Arc<Mutex<ResponseCode>>,
    /// Such questions.
    asked: Arc<AtomicUsize>,
}

impl NameServer {
    async fn start(records: Vec<SrvRecord>) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let (at, records) = (socket.local_addr().unwrap(), Arc::new(Mutex::new(records)));
        let (known, says) = (records.clone(), Arc::new(Mutex::new(ResponseCode::NoError)));
        let (code, asked) = (says.clone(), Arc::<AtomicUsize>::default());
        let questions = asked.clone();
        tokio::spawn(async move {
            let mut buffer = [0; 1_500];
            while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
                let Ok(query) = Message::from_vec(&buffer[..length]) else { continue };
                if query.queries[0].query_type() == RecordType::A {
                    questions.fetch_add(1, Ordering::SeqCst);
                }
                let answer = answer(query, &known.lock().unwrap(), *code.lock().unwrap());
                let _ = socket.send_to(&answer.to_vec().unwrap(), from).await;
            }
        });
        Self { at, records, says, asked }
    }
}

fn answer(query: Message, records: &[SrvRecord], says: ResponseCode) -> Message {
    let asked = query.queries[0].clone();
    let mut answer = query.into_response();
    let name = asked.name().clone();
    let record = |data| Record::from_rdata(name.clone(), 1, data);
    match (name.to_utf8().as_str(), asked.query_type()) {
        ("search.test." | "hosts.test.", RecordType::SRV) => {
            for (n, &(priority, weight, port)) in records.iter().enumerate() {
                let other = n > 0 && name.to_utf8() == "hosts.test.";
                let host = Name::from_utf8(if other { "other.test." } else { "host.test." });
                let host = host.unwrap();
                answer.add_answer(record(RData::SRV(SRV::new(priority, weight, port, host))));
            }
        }
        ("host.test.", RecordType::A) if says != ResponseCode::NoError => {
            answer.metadata.response_code = says;
        }
        ("other.test." | "host.test.", RecordType::A) => {
            answer.add_answer(record(RData::A(A(Ipv4Addr::LOCALHOST))));
        }
        ("other.test." | "host.test.", _) => {}
        _ => answer.metadata.response_code = ResponseCode::NXDomain,
    }
    answer
}

#[tokio::test]
async fn servers_of_srv_records_are_called_while_these_are_good() {
    let (one, two) = (Serving::start(0), Serving::start(0));
    let (first, second) = (one.at.port(), two.at.port());
    let names = NameServer::start(vec![(5, 1, first), (9, 1, second)]).await;
    let target = format!("homa+srv://{}/search.test.", names.at).parse().unwrap();
    let balancer = Balancer::new(target, Config::default()).unwrap();
    let (client, options) = (client(), CallOptions::deadline(GIVE_UP));
    for _ in 0..10 {
        balancer.call(&client, "who?", &options).await.unwrap();
    }
    // Only those of the first priority.
    assert_eq!((one.executed(), two.executed()), (10, 0));
    *names.records.lock().unwrap() = vec![(5, 1, second)];
    until(|| balancer.servers() == [two.at]).await;
    balancer.call(&client, "who?", &options).await.unwrap();
    assert_eq!((one.executed(), two.executed()), (10, 1));
}

#[tokio::test]
async fn a_worse_priority_is_called_when_the_better_one_is_gone() {
    let (one, two) = (Serving::start(0), Serving::start(0));
    let records = vec![(5, 1, one.at.port()), (9, 1, two.at.port())];
    let names = NameServer::start(records).await;
    let target = format!("homa+srv://{}/search.test.", names.at).parse().unwrap();
    let balancer = Balancer::new(target, Config::default()).unwrap();
    let (client, options) = (client(), CallOptions::deadline(GIVE_UP));
    balancer.call(&client, "who?", &options).await.unwrap();
    assert_eq!((one.executed(), two.executed()), (1, 0));
    one.drain().await;
    for _ in 0..10 {
        balancer.call(&client, "who?", &options).await.unwrap();
    }
    assert_eq!((one.executed(), two.executed()), (1, 10));
}

#[tokio::test]
async fn a_balancer_of_tower_gets_only_the_best_priority() {
    let names = NameServer::start(vec![(9, 1, 4000), (5, 1, 4001), (5, 2, 4002)]).await;
    let target = format!("homa+srv://{}/search.test.", names.at).parse().unwrap();
    let mut members = Members::of(target, GIVE_UP).unwrap();
    let at = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
    for first in [4001, 4002] {
        assert!(matches!(next(&mut members).await, Change::Insert(new, ()) if new == at(first)));
    }
    // The others become the best when these are gone.
    *names.records.lock().unwrap() = vec![(9, 1, 4000)];
    assert!(matches!(next(&mut members).await, Change::Insert(new, ()) if new == at(4000)));
    for first in [4001, 4002] {
        assert!(matches!(next(&mut members).await, Change::Remove(old) if old == at(first)));
    }
}

#[tokio::test]
async fn calls_in_progress_follow_the_weights() {
    // Servers that hold their calls, because how fast real ones answer is up to the machine.
    let (one, two) = (Serving::holding(), Serving::holding());
    let records = vec![(5, 30, one.at.port()), (5, 10, two.at.port()), (5, 0, 9)];
    let names = NameServer::start(records).await;
    let target = format!("homa+srv://{}/search.test.", names.at).parse().unwrap();
    let balancer = Balancer::new(target, Config::default().seed(1)).unwrap();
    let (client, options) = (client(), CallOptions::deadline(GIVE_UP));
    let calls = (0..80).map(|_| {
        let (balancer, client) = (balancer.clone(), client.clone());
        tokio::spawn(async move { balancer.call(&client, "who?", &options).await.is_ok() })
    });
    let calls: Vec<_> = calls.collect();
    until(|| one.executed() + two.executed() == 80).await;
    // Of a weight of zero, a server gets no more than a try.
    assert!(one.executed().abs_diff(60) <= 2, "{} of 80", one.executed());
    for server in [&one, &two] {
        server.answers.add_permits(80);
    }
    for call in calls {
        assert!(call.await.unwrap());
    }
}

#[tokio::test]
async fn a_host_leaves_only_if_its_name_server_says_so() {
    let names = NameServer::start(vec![(5, 1, 4000), (5, 1, 4001)]).await;
    let target = format!("homa+srv://{}/hosts.test.", names.at).parse().unwrap();
    let balancer = Balancer::new(target, Config::default()).unwrap();
    let at = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
    until(|| balancer.servers() == [at(4000), at(4001)]).await;
    // The name server has no answer about the first one, only an error.
    *names.says.lock().unwrap() = ResponseCode::ServFail;
    let before = names.asked.load(Ordering::SeqCst);
    until(|| {
        assert_eq!(balancer.servers(), [at(4000), at(4001)]);
        names.asked.load(Ordering::SeqCst) > before + 6
    })
    .await;
    *names.says.lock().unwrap() = ResponseCode::NXDomain;
    until(|| balancer.servers() == [at(4001)]).await;
}

#[tokio::test]
async fn a_name_without_srv_records_is_a_typed_error() {
    let names = NameServer::start(Vec::new()).await;
    for name in ["search.test.", "other.test."] {
        let target = format!("homa+srv://{}/{name}", names.at).parse().unwrap();
        let balancer = Balancer::new(target, Config::default()).unwrap();
        let error = balancer.call(&client(), "who?", &CallOptions::deadline(GIVE_UP)).await;
        let Err(BalanceError::NoServers(reason)) = error else { panic!("{error:?}") };
        assert!(matches!(*reason, ResolveError::Srv { .. }), "{reason:?}");
    }
}
