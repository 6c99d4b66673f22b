//! When a server asks whether its client is there, and what it answers after the end of an RPC.

use std::cell::Cell;
use std::rc::Rc;

use homa_proto::{Body, Config, Duration, Packet, PeerId, Quoted, Rate, ResendLength, Unreachable};

use crate::common::{CLIENT, ClientAndServer, Observed, PORTS, SERVER};

fn users() -> Config {
    Config::for_users(Rate::gbps(10))
}

#[test]
fn a_new_process_in_its_clients_place_cancels_the_request() {
    let mut pair = ClientAndServer::new(users(), users());
    pair.reply = None;
    pair.call(100, 1);
    pair.run_for(Duration::millis(100));
    // Another process has its address.
    pair.restart(CLIENT, users(), 9);
    pair.run_for(Duration::secs(1));
    assert!(pair.seen[SERVER].contains(&Observed::Cancelled), "{}", pair.transcript);
    pair.assert_clean();
}

#[test]
fn a_closed_port_cancels_the_request_in_service() {
    let mut pair = ClientAndServer::new(users(), users());
    pair.reply = None;
    let asked = Rc::new(Cell::new(None));
    let seen = asked.clone();
    pair.call(100, 1);
    pair.run_for(Duration::millis(300));
    // The client's process ends: its host answers what arrives.
    pair.lose = Box::new(move |from, packet, _| {
        if from == SERVER {
            seen.set(Some(packet.id));
        }
        true
    });
    pair.run_for(Duration::millis(701));
    let id = asked.get().expect("the server asked within a second");
    let (port, quoted) = (Unreachable::Port(PORTS[CLIENT]), Quoted { id, begins: false });
    pair.ends[SERVER].unreachable(pair.now, PeerId(0), port, Some(quoted));
    pair.drain(SERVER);
    assert_eq!(pair.seen[SERVER].last(), Some(&Observed::Cancelled));
}

#[test]
fn a_resend_that_an_ack_overtook_gets_no_answer() {
    let mut pair = ClientAndServer::new(Config::linux(), Config::linux());
    let asked = Rc::new(Cell::new(None));
    let (seen, resend) = (asked.clone(), |priority| {
        let (offset, length) = (0, ResendLength::All);
        Body::Resend { offset, length, priority }
    });
    pair.lose = Box::new(move |from, packet, _| {
        if from == CLIENT && packet.begins_request() {
            seen.set(Some(Packet { body: resend(7), ..*packet }));
        }
        false
    });
    pair.call(100, 1);
    pair.run_for(Duration::millis(4));
    pair.assert_clean();
    let late = asked.get().expect("the request was sent");
    pair.deliver(SERVER, &late);
    assert_eq!(pair.ends[SERVER].counters().unknowns_sent, 0);
    pair.run_for(Duration::millis(10));
    pair.deliver(SERVER, &late);
    assert_eq!(pair.ends[SERVER].counters().unknowns_sent, 1, "the server has forgotten the call");
}
