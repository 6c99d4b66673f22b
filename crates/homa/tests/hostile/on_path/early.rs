//! Attacks on early data: an attacker on the path repeats, delays and forges the first flight of a
//! client with a ticket. A request may run twice only if its caller allows it, and never by a
//! flight that was recorded.

use super::*;

/// True for early data.
fn is_early(datagram: &[u8]) -> bool {
    datagram[4..8] == [0; 4] && datagram[1] & 4 != 0 && datagram[16 + 29] == 2
}

/// A client that has a ticket of a server, that server, and the attacker between them. Both ends
/// allow early data.
fn with_a_ticket() -> (Engine, Engine, Attacker) {
    let keys = || Keys::cluster([1; 32]).unwrap().early_data();
    let (of_client, mut server) = (keys(), open_with(&keys()));
    server.listen().unwrap();
    let mut attacker = Attacker::new(server.local_addr());
    let forward = |attacker: &mut Attacker, to_server: bool, datagram: Vec<u8>| {
        attacker.send(to_server, &datagram);
    };
    call_through(&mut attacker, (&mut open_with(&of_client), &mut server), 1, forward);
    // The server knows the address, and accepts no early data from it.
    attacker.to_server = Attacker::new(server.local_addr()).to_server;
    attacker.seen.clear();
    (open_with(&of_client), server, attacker)
}

/// The client makes an idempotent call.
fn begin_early(attacker: &Attacker, client: &mut Engine) {
    let options = CallOptions::deadline(GIVE_UP).idempotent();
    client.call(attacker.to_client.local_addr().unwrap(), "early", 0, &options).unwrap();
}

/// Waits for the response. Returns how often the server executed the request.
fn end_early(
    attacker: &mut Attacker,
    (client, server): (&mut Engine, &mut Engine),
    mut how: impl FnMut(&mut Attacker, bool, Vec<u8>),
) -> usize {
    let (began, mut executed) = (Instant::now(), 0);
    loop {
        assert!(began.elapsed() < GIVE_UP, "the call is not answered");
        client.poll(Wait::For(Duration::from_millis(1))).unwrap();
        attacker.pass(&mut how);
        server.poll(Wait::No).unwrap();
        while let Some(completion) = server.next() {
            if let Completion::Request { id, .. } = completion {
                executed += 1;
                server.reply(id, "response").unwrap();
            }
        }
        attacker.pass(&mut how);
        while let Some(completion) = client.next() {
            if let Completion::Response { result, .. } = completion {
                assert_eq!(&result.unwrap()[..], b"response");
                return executed;
            }
        }
    }
}

#[test]
fn on_the_path_recorded_early_data_run_never_again() {
    let (mut client, mut server, mut attacker) = with_a_ticket();
    begin_early(&attacker, &mut client);
    let executed = end_early(&mut attacker, (&mut client, &mut server), |attacker, to, bytes| {
        attacker.send(to, &bytes);
    });
    assert_eq!(executed, 1);
    let opened = |server: &Engine| server.metrics().driver.early_datagrams_opened;
    assert_eq!(opened(&server), 1);
    let flight: Vec<Vec<u8>> =
        attacker.seen.iter().filter(|(to, _)| *to).map(|(_, bytes)| bytes.clone()).collect();
    assert!(flight.iter().any(|bytes| is_early(bytes)));
    // From the client's address, from another one, and to a server that has restarted.
    let mut restarted = open_with(&Keys::cluster([1; 32]).unwrap().early_data());
    restarted.listen().unwrap();
    for _ in 0..2 {
        for bytes in &flight {
            attacker.send(true, bytes);
        }
        assert_eq!(settle(&mut [&mut server]), 0, "it ran again");
    }
    for server in [&mut server, &mut restarted] {
        let before = opened(server);
        let mut host = Host::new(server.local_addr());
        for _ in 0..3 {
            for bytes in &flight {
                host.send(bytes);
                assert_eq!(settle(&mut [server]), 0, "it ran for another address");
                host.read();
                assert!(host.sent.cover(&host.got), "{:?} for {:?}", host.got, host.sent);
            }
        }
        assert_eq!(opened(server), before);
    }
}

#[test]
fn on_the_path_forged_early_data_never_count() {
    let (mut client, mut server, mut attacker) = with_a_ticket();
    begin_early(&attacker, &mut client);
    let executed = end_early(&mut attacker, (&mut client, &mut server), |attacker, to, bytes| {
        if is_early(&bytes) {
            // Every bit, so also that which says that the request may run twice.
            for at in 16 + 40..bytes.len() {
                let mut forged = bytes.clone();
                forged[at] ^= 4;
                attacker.send(to, &forged);
            }
            forgeries(&bytes).iter().for_each(|forged| attacker.send(to, forged));
        }
        attacker.send(to, &bytes);
    });
    // Its caller allows that it runs again, which happens if the response takes long.
    assert!(executed > 0);
    let driver = server.metrics().driver;
    assert_eq!((driver.early_datagrams_opened, driver.early_datagrams_refused), (1, 0));
    assert!(driver.handshake_fragments_dropped > 50, "{driver:?}");
}

/// The attacker overtakes the client from its own address. So the request may run twice, as its
/// caller allows, but the attacker gets no more than three times its bytes, and nothing later.
#[test]
fn on_the_path_early_data_that_overtake_run_at_most_twice() {
    let (mut client, mut server, mut attacker) = with_a_ticket();
    let mut host = Host::new(server.local_addr());
    let mut held = Vec::new();
    begin_early(&attacker, &mut client);
    settle(&mut [&mut client]);
    attacker.pass(&mut |_: &mut Attacker, _: bool, bytes: Vec<u8>| held.push(bytes));
    assert!(held.iter().any(|bytes| is_early(bytes)));
    held.iter().for_each(|bytes| host.send(bytes));
    let mut executed = 0;
    for _ in 0..20 {
        server.poll(Wait::For(Duration::from_millis(5))).unwrap();
        while let Some(completion) = server.next() {
            if let Completion::Request { id, .. } = completion {
                executed += 1;
                server.reply(id, vec![9; 100_000]).unwrap();
            }
        }
        host.read();
        assert!(host.sent.cover(&host.got), "{:?} for {:?}", host.got, host.sent);
    }
    assert_eq!(executed, 1, "the attacker was faster");
    // Now the client's own datagrams arrive.
    let executed = end_early(&mut attacker, (&mut client, &mut server), |attacker, to, bytes| {
        attacker.send(to, &bytes);
    });
    assert_eq!(executed, 1, "the ticket is used");
    assert_eq!(server.metrics().driver.early_datagrams_opened, 1);
}
