//! Messages that are written while they are sent: nothing leaves before it exists, a pause delays
//! no other message, and no pause ends the call.

use std::cell::Cell;
use std::rc::Rc;

use homa_proto::{
    Body, Config, Duration, Rate, RefusalReason, Request, RpcError, RpcHandle, Submit,
};

use crate::common::{CLIENT, ClientAndServer, Observed, PORTS, SERVER};

const LENGTH: u32 = 1_000_000;
const MS: fn(u64) -> Duration = Duration::millis;

fn users() -> Config {
    Config::for_users(Rate::gbps(10))
}

/// A pair, and the end of the last DATA of `from` for the message of [`LENGTH`].
fn pair(config: fn() -> Config, from: usize, modulus: u64) -> (ClientAndServer, Rc<Cell<u32>>) {
    let (mut pair, end) = (ClientAndServer::new(config(), config()), Rc::new(Cell::new(0)));
    let seen = Rc::clone(&end);
    pair.lose = Box::new(move |sender, packet, ordinal| {
        if let Body::Data(data) = packet.body
            && sender == from
            && data.message_length == LENGTH
        {
            seen.set(seen.get().max(data.span.offset + data.span.len));
        }
        modulus > 0 && ordinal % modulus == 1
    });
    (pair, end)
}

fn write(pair: &mut ClientAndServer, end: usize, rpc: RpcHandle, bytes: u32) {
    let now = pair.now;
    pair.ends[end].written(now, rpc, bytes).unwrap();
}

/// A call that is written from the beginning on.
fn call(pair: &mut ClientAndServer) -> RpcHandle {
    let deadline = pair.now + Duration::secs(300);
    let request = Request { deadline, ..pair.request(LENGTH, 1) };
    let rpc = pair.submit(CLIENT, Submit::Request(request));
    write(pair, CLIENT, rpc, 0);
    rpc
}

/// A call whose response is written from the beginning on.
fn response(pair: &mut ClientAndServer) -> RpcHandle {
    pair.reply = None;
    let deadline = pair.now + Duration::secs(300);
    let request = Request { deadline, ..pair.request(100, 1) };
    pair.submit(CLIENT, Submit::Request(request));
    pair.run_for(MS(100));
    let [Observed::Request(rpc, _)] = pair.seen[SERVER][..] else { panic!("{:?}", pair.seen) };
    pair.submit(SERVER, Submit::Response { rpc, length: LENGTH });
    write(pair, SERVER, rpc, 0);
    rpc
}

#[test]
fn only_written_bytes_leave_and_all_arrive() {
    for config in [users, Config::linux] {
        for modulus in [0, 7] {
            for (from, start) in
                [(CLIENT, call as fn(&mut ClientAndServer) -> _), (SERVER, response)]
            {
                let (mut pair, end) = pair(config, from, modulus);
                let rpc = start(&mut pair);
                for bytes in (0..LENGTH).step_by(77_777) {
                    write(&mut pair, from, rpc, bytes);
                    pair.run_for(MS(3));
                    assert!(end.get() <= bytes, "{} of {bytes} left", end.get());
                }
                write(&mut pair, from, rpc, LENGTH);
                pair.run_for(Duration::secs(20));
                let length = if from == CLIENT { 100 } else { LENGTH };
                assert_eq!(pair.seen[CLIENT], [Observed::Response(1, length)]);
                pair.assert_clean();
            }
        }
    }
}

#[test]
fn a_writer_may_pause_for_as_long_as_its_call_lasts() {
    for (from, start) in [(CLIENT, call as fn(&mut ClientAndServer) -> _), (SERVER, response)] {
        for written in [0, 1, 40_000, 500_000] {
            let (mut pair, end) = pair(users, from, 0);
            let rpc = start(&mut pair);
            write(&mut pair, from, rpc, written);
            pair.run_for(Duration::secs(60));
            assert!(end.get() <= written && end.get() + 1_400 > written, "{written}");
            let credit = pair.ends[1 - from].credit();
            assert_eq!(credit.expected, 0, "granted bytes are not held for ever: {credit:?}");
            assert!(credit.memory <= u64::from(written), "{credit:?}");
            let before = pair.sent;
            pair.run_for(Duration::secs(60));
            let more: u64 = pair.sent.iter().sum::<u64>() - before.iter().sum::<u64>();
            assert!(more <= 60 * 16, "{more} packets in a minute");
            write(&mut pair, from, rpc, LENGTH);
            pair.run_for(Duration::secs(2));
            assert!(matches!(pair.seen[CLIENT][..], [Observed::Response(1, _)]), "{:?}", pair.seen);
            pair.assert_clean();
        }
    }
}

#[test]
fn a_writer_that_pauses_delays_no_other_message() {
    let (mut pair, _) = pair(users, CLIENT, 0);
    let rpc = call(&mut pair);
    write(&mut pair, CLIENT, rpc, 990_000);
    pair.run_for(MS(20));
    // Its few bytes left come first in the order of SRPT.
    for cookie in 2..12 {
        pair.call(400_000, cookie);
    }
    pair.run_for(MS(30));
    assert_eq!(pair.executions(), 10, "{:?}", pair.seen);
    write(&mut pair, CLIENT, rpc, LENGTH);
    pair.run_for(MS(50));
    assert_eq!(pair.executions(), 11);
}

#[test]
fn a_response_that_is_given_up_ends_its_call() {
    for written in [0, 70_000, 700_000] {
        let (mut pair, _) = pair(users, SERVER, 0);
        let rpc = response(&mut pair);
        write(&mut pair, SERVER, rpc, written);
        pair.run_for(MS(10));
        pair.submit(SERVER, Submit::Refuse { rpc, reason: RefusalReason::Abandoned });
        pair.run_for(MS(10));
        assert_eq!(pair.seen[CLIENT], [Observed::Failed(1, RpcError::Abandoned)]);
        pair.assert_clean();
        let now = pair.now;
        assert!(pair.ends[SERVER].written(now, rpc, LENGTH).is_err());
    }
}

#[test]
fn a_request_that_is_given_up_ends_at_its_server() {
    for written in [0, 70_000, 700_000] {
        let (mut pair, _) = pair(users, CLIENT, 0);
        pair.ends[SERVER].listen_early(PORTS[SERVER], 100_000);
        let rpc = call(&mut pair);
        write(&mut pair, CLIENT, rpc, written);
        pair.run_for(MS(10));
        pair.submit(CLIENT, Submit::Cancel { rpc });
        pair.run_for(MS(10));
        let told = written > 0;
        assert_eq!(pair.seen[SERVER].last() == Some(&Observed::Cancelled), told);
        pair.assert_clean();
    }
}
