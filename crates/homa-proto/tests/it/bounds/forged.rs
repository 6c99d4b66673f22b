//! Packets that an attacker sends in the name of an honest peer without seeing packets of ours, and
//! tokens that a client makes up: found by a hostile host in the swarm.

use homa_proto::Proof;

use super::*;

/// Every host validates addresses, and is validated.
fn proving() -> Endpoint {
    endpoint(users().validate_addresses(true).unguessable_ids(true))
}

fn sent(endpoint: &mut Endpoint, now: Time) -> Vec<Packet> {
    std::iter::from_fn(|| endpoint.transmit(now)).collect()
}

/// A packet of one endpoint as the other receives it.
fn arrived(packet: Packet) -> Packet {
    Packet { local_port: packet.remote_port, remote_port: packet.local_port, ..packet }
}

#[test]
fn limits_in_a_servers_name_need_an_rpc_that_we_know_of() {
    let made_up = RpcId(0x8888_0000_0000_0002);
    for speaks_of in [made_up, made_up.server()] {
        let mut client = proving();
        let _ = client.receive(START, &data(made_up, 0, 100_000));
        let limits = Some(Limits { max_message: 1, max_unscheduled: 1 });
        let body = Body::Cutoffs { cutoffs: [0; 8], version: 1, limits };
        assert!(matches!(client.receive(START, &packet(speaks_of, body)), Receipt::Dropped(_)));
        client.submit(START, call(100_000, 1)).expect("as long as the server takes");
        let is_data = |packet: &Packet| matches!(packet.body, Body::Data(_));
        let unasked = sent(&mut client, START).into_iter().filter(is_data).count();
        assert!(unasked > 5, "{unasked} packets before a grant, as without that word");
    }
}

#[test]
fn forged_challenges_lose_no_call() {
    let (mut client, mut server) = (proving(), proving());
    client.submit(START, call(100, 1)).expect("accepted");
    let request = client.transmit(START).expect("the request");
    let _ = server.receive(START, &arrived(request));
    let question = sent(&mut server, START)
        .into_iter()
        .find(|packet| matches!(packet.body, Body::Challenge { .. }));
    let question = question.expect("who is it?");
    let Body::Challenge { boot, .. } = question.body else { return };
    // An attacker can learn a server's boot id by asking.
    let mut now = START;
    for boot in [1, boot, 1, boot] {
        let body = Body::Challenge { boot, remembered: Duration::ZERO };
        let id = RpcId(0x9999_0000_0000_0001);
        let _ = client.receive(now, &packet(id, body));
        sent(&mut client, now);
        now += Duration::millis(2);
    }
    let _ = client.receive(now, &arrived(question));
    for answer in sent(&mut client, now) {
        let _ = server.receive(now, &arrived(answer));
    }
    assert_eq!(server.counters().requests_delivered, 1);
}

/// Each time another token of the same host, and another epoch, so the server has to challenge it.
#[test]
fn a_client_with_ever_new_names_gets_no_more_than_its_share() {
    let config = users().validate_addresses(true).unguessable_ids(true).max_rpcs(16);
    let mut server = endpoint(config);
    for epoch in 1..=40_u32 {
        let id = RpcId(u64::from(epoch) << 32 | 8);
        let _ = server.receive(START, &data(id, 0, 100_000));
        let now = START + Duration::millis(2 * u64::from(epoch));
        server.expire(now);
        for question in sent(&mut server, now) {
            if let Body::Challenge { .. } = question.body {
                let proof = Proof { token: u64::from(epoch), epoch, first: 0, next: 5 };
                let _ = server.receive(now, &packet(question.id.client(), Body::Proof(proof)));
            }
        }
    }
    assert!((5..=9).contains(&server.rpcs().1), "{:?} of 16 places", server.rpcs());
}
