//! Extensions of requests: deadlines that have passed, malformed lists, and clients that vanish.

use std::time::{Duration, Instant};

use homa::inline::{Completion, Engine, Wait};
use homa::proto::wire::datagram::{self, HEADER_LEN, RequestExtensions};
use homa::proto::{Acks, Body, Data, DropReason, MessageId, Packet, PeerId, RpcId, Span};
use homa::{Config, Server};

use super::host::{Host, control, part};

/// Reached only if the test fails.
const GIVE_UP: Duration = Duration::from_secs(60);
const ID: u64 = 0x8123_4567_0000_0000;

fn server() -> Engine {
    let mut server = Engine::bind("127.0.0.1:0".parse().unwrap(), Config::default()).unwrap();
    server.listen().unwrap();
    server
}

/// Builds a whole request whose client waits this long.
fn request(id: u64, left: homa::proto::Duration) -> Vec<u8> {
    let span = Span { message: MessageId(0), offset: 0, len: 100 };
    let (message_length, incoming) = (100, 100);
    let (ack, cutoff_version, retransmit, incast) = (None, 0, false, None);
    let data = Data { span, message_length, incoming, ack, cutoff_version, retransmit, incast };
    let (local_port, remote_port) = (1, 2);
    let (peer, priority, id, body) = (PeerId(0), 0, RpcId(id), Body::Data(data));
    let packet = Packet { peer, priority, local_port, remote_port, id, body };
    let told = RequestExtensions { left: Some(left), ..RequestExtensions::NONE };
    let mut bytes = vec![7; 300];
    let len = datagram::encode_request(&packet, &told, 1, &mut bytes).unwrap();
    bytes.truncate(len + 100);
    bytes[len..].fill(7);
    bytes
}

/// Makes the host known to the server, by a first request that is answered.
fn meet(server: &mut Engine, host: &mut Host) {
    host.send(&part(ID, 0, &[7; 100], 100));
    serve(server, host, |completion, server| match completion {
        Completion::Request { id, bytes, .. } => {
            server.reply(id, bytes).unwrap();
            true
        }
        _ => false,
    });
    host.send(&control(RpcId(ID), Body::Ack(Acks::default())));
}

/// Runs the server until a condition holds.
fn serve(
    server: &mut Engine,
    host: &mut Host,
    mut done: impl FnMut(Completion, &mut Engine) -> bool,
) {
    let begun = Instant::now();
    loop {
        assert!(begun.elapsed() < GIVE_UP);
        server.poll(Wait::No).unwrap();
        while let Some(completion) = server.next() {
            if done(completion, server) {
                return;
            }
        }
        host.answer();
    }
}

#[test]
fn an_expired_request_is_not_started() {
    let mut server = server();
    let mut host = Host::new(server.local_addr());
    meet(&mut server, &mut host);
    // The deadline passes on the wire.
    host.send(&request(ID + 2, homa::proto::Duration::ZERO));
    // The deadline passes while the request waits for the application, which does not accept it.
    host.send(&request(ID + 4, homa::proto::Duration::millis(200)));
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(300) {
        server.turn();
    }
    // The client of this request still waits.
    host.send(&request(ID + 6, homa::proto::Duration::secs(1_000)));
    let begun = Instant::now();
    while server.in_progress().1 < 1 || server.metrics().protocol.requests_delivered < 4 {
        server.turn();
        assert!(begun.elapsed() < GIVE_UP, "{:?}", server.metrics());
    }
    let mut left = Vec::new();
    while let Some(completion) = server.next() {
        if let Completion::Request { deadline, .. } = completion {
            left.push(deadline.unwrap() - Instant::now());
        }
    }
    assert!(matches!(left[..], [left] if left > Duration::from_secs(900)), "{left:?}");
    assert_eq!(server.metrics().engine.requests_expired, 2);
    // The host learns that no answer will come, and the server keeps nothing of the requests.
    assert_eq!(server.in_progress().1, 1);
}

#[test]
fn broken_lists_are_counted_drops_and_make_no_state() {
    let mut server = server();
    let mut host = Host::new(server.local_addr());
    let whole = request(ID + 2, homa::proto::Duration::secs(1));
    let mut datagrams = Vec::new();
    // A deadline of fewer than four bytes, and a trace of fewer than 26.
    for (kind, lengths) in [(3u8, 0..4), (4, 0..26)] {
        for length in lengths {
            let mut bytes = whole[..HEADER_LEN].to_vec();
            bytes[2..4].copy_from_slice(&(4 + length as u16).to_be_bytes());
            bytes.extend([0, kind, 0, length as u8]);
            bytes.resize(bytes.len() + length, 1);
            bytes.extend(&whole[HEADER_LEN + 8..]);
            datagrams.push(bytes);
        }
    }
    // An extension whose length exceeds the list.
    let mut beyond = whole.clone();
    beyond[HEADER_LEN + 3] = 5;
    datagrams.push(beyond);
    for datagram in &datagrams {
        host.send(datagram);
    }
    let dropped = |server: &Engine| server.metrics().protocol.dropped(DropReason::Truncated);
    let begun = Instant::now();
    while dropped(&server) < datagrams.len() as u64 {
        server.poll(Wait::No).unwrap();
        assert!(begun.elapsed() < GIVE_UP, "{:?}", server.metrics());
    }
    let metrics = server.metrics();
    assert_eq!((metrics.engine.peers, server.in_progress()), (0, (0, 0)));
    // Longer lists than necessary, and malformed traces, do no harm.
    let mut odd = whole[..HEADER_LEN].to_vec();
    let (times, traces) = (4 * 1_000, 26 * 100);
    odd[2..4].copy_from_slice(&((8 + times + traces) as u16).to_be_bytes());
    odd.extend([0, 3, (times >> 8) as u8, times as u8]);
    odd.resize(odd.len() + times, 0x7f);
    odd.extend([0, 4, (traces >> 8) as u8, traces as u8]);
    odd.resize(odd.len() + traces, 0);
    odd.extend(&whole[HEADER_LEN + 8..]);
    host.send(&odd);
    serve(&mut server, &mut host, |completion, _| match completion {
        Completion::Request { deadline, trace, .. } => {
            assert!(deadline.is_some() && trace.is_none());
            true
        }
        _ => false,
    });
}

#[test]
fn a_client_that_vanishes_is_noticed_when_its_time_is_over() {
    let server = Server::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let mut host = Host::new(server.local_addr());
    host.send(&request(ID + 2, homa::proto::Duration::millis(400)));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let begun = Instant::now();
        let request = loop {
            let accepted = tokio::time::timeout(Duration::from_millis(1), server.accept_async());
            if let Ok(request) = accepted.await {
                break request.unwrap();
            }
            // The host proves its address once, and then falls silent.
            host.answer();
            assert!(begun.elapsed() < GIVE_UP);
        };
        tokio::time::timeout(GIVE_UP, request.cancelled()).await.expect("its time is over");
        assert!(request.is_cancelled());
        assert_eq!(request.remaining(), Some(Duration::ZERO));
    });
}
