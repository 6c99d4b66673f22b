//! SRV records from a name server on loopback.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use hickory_resolver::proto::op::{Message, ResponseCode};
use hickory_resolver::proto::rr::rdata::{A, SRV};
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};
use homa::CallOptions;
use homa::balance::{BalanceError, Balancer, Config, ResolveError};
use tokio::net::UdpSocket;

use super::{GIVE_UP, Serving, client, until};

/// A name server for `search.test`, whose records are these: priority and port. Their time is 1 s.
struct NameServer {
    at: SocketAddr,
    records: Arc<Mutex<Vec<(u16, u16)>>>,
}

impl NameServer {
    async fn start(records: Vec<(u16, u16)>) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let (at, records) = (socket.local_addr().unwrap(), Arc::new(Mutex::new(records)));
        let known = records.clone();
        tokio::spawn(async move {
            let mut buffer = [0; 1_500];
            while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
                let Ok(query) = Message::from_vec(&buffer[..length]) else { continue };
                let answer = answer(query, &known.lock().unwrap());
                let _ = socket.send_to(&answer.to_vec().unwrap(), from).await;
            }
        });
        Self { at, records }
    }
}

fn answer(query: Message, records: &[(u16, u16)]) -> Message {
    let asked = query.queries[0].clone();
    let mut answer = query.into_response();
    let name = asked.name().clone();
    let record = |data| Record::from_rdata(name.clone(), 1, data);
    match (name.to_utf8().as_str(), asked.query_type()) {
        ("search.test.", RecordType::SRV) => {
            for &(priority, port) in records {
                let host = Name::from_utf8("host.test.").unwrap();
                answer.add_answer(record(RData::SRV(SRV::new(priority, 1, port, host))));
            }
        }
        ("host.test.", RecordType::A) => {
            answer.add_answer(record(RData::A(A(Ipv4Addr::LOCALHOST))));
        }
        ("host.test.", _) => {}
        _ => answer.metadata.response_code = ResponseCode::NXDomain,
    }
    answer
}

#[tokio::test]
async fn servers_of_srv_records_are_called_while_these_are_good() {
    let (one, two) = (Serving::start(0), Serving::start(0));
    let (first, second) = (one.at.port(), two.at.port());
    let names = NameServer::start(vec![(5, first), (9, second)]).await;
    let target = format!("homa+srv://{}/search.test.", names.at).parse().unwrap();
    let balancer = Balancer::new(target, Config::default()).unwrap();
    let (client, options) = (client(), CallOptions::deadline(GIVE_UP));
    for _ in 0..10 {
        balancer.call(&client, "who?", &options).await.unwrap();
    }
    // Only those of the first priority.
    assert_eq!((one.executed(), two.executed()), (10, 0));
    *names.records.lock().unwrap() = vec![(5, second)];
    until(|| balancer.servers() == [two.at]).await;
    balancer.call(&client, "who?", &options).await.unwrap();
    assert_eq!((one.executed(), two.executed()), (10, 1));
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
