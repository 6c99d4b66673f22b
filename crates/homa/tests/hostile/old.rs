//! Builds from before addresses had to be proven. They know no extension, and confirm every
//! challenge. They can still call and serve.

use homa::inline::{Completion, Engine, Wait};
use homa::proto::{Acks, Body, Packet, RpcId};
use homa::{CallOptions, Config};

use super::host::{Host, control, packets, part};

fn open() -> Engine {
    Engine::bind("127.0.0.1:0".parse().unwrap(), Config::default()).unwrap()
}

/// Copies the payload of a datagram into a message. Returns its length.
fn collect(message: &mut [u8], bytes: &[u8]) -> usize {
    let mut got = 0;
    for packet in packets(bytes) {
        if let Body::Data(data) = packet.body {
            let len = data.span.len as usize;
            let (start, at) = (bytes.len() - len, data.span.offset as usize);
            message[at..at + len].copy_from_slice(&bytes[start..]);
            got += len;
        }
    }
    got
}

#[test]
fn an_old_client_is_served() {
    const LENGTH: usize = 50_000;
    let mut server = open();
    server.listen().unwrap();
    let mut client = Host::new(server.local_addr());
    let mut executed = 0;
    for n in 1..=20u64 {
        let id = 0x8123_4567_0000_0000 + 2 * n;
        client.send(&part(id, 0, &[n as u8; 100], 100));
        let mut response = vec![0; LENGTH];
        let mut got = 0;
        while got < LENGTH {
            server.poll(Wait::No).unwrap();
            while let Some(completion) = server.next() {
                if let Completion::Request { id, bytes, .. } = completion {
                    assert_eq!(*bytes, [n as u8; 100]);
                    server.reply(id, vec![n as u8; LENGTH]).unwrap();
                    executed += 1;
                }
            }
            for datagram in client.read() {
                got += collect(&mut response, &datagram);
                for packet in packets(&datagram) {
                    if matches!(packet.body, Body::NeedAck | Body::Challenge { .. }) {
                        let ack = Body::Ack(Acks::default());
                        client.send(&control(packet.id.client(), ack));
                    }
                }
            }
            let all = Body::Grant { offset: LENGTH as u32, priority: 0 };
            client.send(&control(RpcId(id), all));
        }
        assert!(response.iter().all(|&byte| byte == n as u8));
        client.send(&control(RpcId(id), Body::Ack(Acks::default())));
        // A copy of the request.
        client.send(&part(id, 0, &[n as u8; 100], 100));
    }
    for _ in 0..100 {
        server.poll(Wait::No).unwrap();
        assert!(server.next().is_none());
    }
    assert_eq!(executed, 20);
    assert_eq!(server.metrics().protocol.challenges_sent, 1);
}

#[test]
fn an_old_server_serves() {
    let mut client = open();
    // It answers every client, so it is not one of the attacker's hosts.
    let server = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = server.local_addr().unwrap();
    for n in 0..20 {
        client.call(to, vec![n; 100], u64::from(n), &CallOptions::default()).unwrap();
        client.poll(Wait::No).unwrap();
        let mut buffer = [0; 2_000];
        // Packets sent again on a slow machine, and acknowledgements, may arrive first.
        let (id, from) = loop {
            let (len, from) = server.recv_from(&mut buffer).unwrap();
            let request = |packet: &Packet| matches!(packet.body, Body::Data(_));
            match packets(&buffer[..len]).into_iter().find(request) {
                Some(packet) if buffer[len - 1] == n => break (packet.id, from),
                _ => {}
            }
        };
        server.send_to(&part(id.server().0, 0, &[n + 1; 50], 50), from).unwrap();
        loop {
            client.poll(Wait::No).unwrap();
            if let Some(Completion::Response { cookie, result, .. }) = client.next() {
                assert_eq!((cookie, result.unwrap().to_vec()), (u64::from(n), vec![n + 1; 50]));
                break;
            }
        }
    }
}
