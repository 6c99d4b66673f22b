//! System calls that the system refuses: for one destination, because of a packet filter, for want
//! of memory.
//!
//! A filter of system calls (seccomp) refuses with any error number. It applies to the thread of
//! the test and to the threads that it starts.

use std::net::SocketAddr;
use std::time::Duration;

use homa::{CallError, CallOptions, Client, Config, Engine};
use libc::c_long;

use crate::alone::is_alone;
use crate::common::{echo, engine, message};
use crate::hosts::Host;
use crate::kernel::refuse;
use crate::net::Way;

/// The system calls that send messages, and those that receive them.
const SENDS: [c_long; 2] = [libc::SYS_sendmsg, libc::SYS_sendmmsg];
const RECEIVES: [c_long; 2] = [libc::SYS_recvmsg, libc::SYS_recvmmsg];

/// Calls a server whose thread is not affected by what is refused here.
fn call_while_refused(calls: &[c_long], errno: i32, deadline: Duration) -> Result<(), CallError> {
    let server = engine("127.0.0.1", Config::default());
    let serving = echo(server.serve().unwrap());
    let to = server.local_addr();
    // The filter stays for as long as the thread, so each call has its own.
    let result = std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            refuse(calls, errno);
            let client = engine("127.0.0.1", Config::default()).client();
            client.call_with(to, message(3_000, 1), &CallOptions::deadline(deadline))
        });
        client.join().unwrap()
    });
    server.drain(Duration::from_secs(5)).unwrap();
    serving.join().unwrap();
    result.map(|answer| assert!(answer == message(3_000, 1)[..]))
}

/// Longer than a test may take.
const NEVER: Duration = Duration::from_secs(600);
const SOON: Duration = Duration::from_millis(300);

#[test]
fn a_send_that_is_refused_for_good_ends_the_call_as_not_sent() {
    for errno in [libc::EINVAL, libc::EADDRNOTAVAIL, libc::EACCES] {
        let result = call_while_refused(&SENDS, errno, NEVER);
        assert_eq!(result, Err(CallError::NotSent { errno }));
    }
}

#[test]
fn a_refusal_that_may_pass_is_named_when_the_deadline_ends() {
    for errno in [libc::EPERM, libc::ENOBUFS, libc::ENOMEM] {
        let result = call_while_refused(&SENDS, errno, SOON);
        assert_eq!(result, Err(CallError::SendRefused { errno }));
    }
    let words = CallError::SendRefused { errno: libc::EPERM }.to_string();
    assert!(words.contains("Operation not permitted"), "{words}");
}

#[test]
fn receiving_that_is_refused_is_named_or_ends_the_engine() {
    let errno = libc::ENOMEM;
    let passing = call_while_refused(&RECEIVES, errno, SOON);
    assert_eq!(passing, Err(CallError::SendRefused { errno }));
    let errno = libc::EACCES;
    let lasting = call_while_refused(&RECEIVES, errno, NEVER);
    assert_eq!(lasting, Err(CallError::EngineFailed { errno }));
}

#[test]
fn calls_for_one_message_do_what_refused_ones_for_several_do() {
    for errno in [libc::EPERM, libc::ENOSYS] {
        let several = [libc::SYS_sendmmsg, libc::SYS_recvmmsg];
        assert_eq!(call_while_refused(&several, errno, NEVER), Ok(()));
    }
}

#[test]
fn destinations_that_the_system_refuses_end_calls_at_once() {
    if !is_alone() {
        return;
    }
    let (host, other) = (Host::new(), Host::new());
    if !host.connect("near", &other, "far") {
        return;
    }
    host.ip("addr add 10.71.0.1/24 dev near");
    host.ip("route add prohibit 10.72.0.0/16");
    host.run(|| {
        for way in Way::ALL {
            let client = way.open("0.0.0.0:0".parse().unwrap(), None).client();
            for to in ["10.71.0.255:4000", "10.72.0.1:4000"] {
                let to: SocketAddr = to.parse().unwrap();
                let result = client.call_with(to, "hello", &CallOptions::deadline(NEVER));
                let errno = libc::EACCES;
                assert_eq!(result, Err(CallError::NotSent { errno }), "{way:?} {to}");
            }
        }
    });
}

/// The server remembers nothing of a call that was never sent, and the call of an engine that
/// recovers is answered.
#[test]
fn a_call_is_sent_once_the_route_allows_it() {
    if !is_alone() {
        return;
    }
    let Some([client, server]) = Host::pair() else { return };
    client.ip("route add prohibit 10.8.0.2/32");
    let engine = server.run(|| engine("10.8.0.2", Config::default().plaintext()));
    let serving = echo(engine.serve().unwrap());
    let to = engine.local_addr();
    client.run(|| {
        let own =
            Engine::bind("10.8.0.1:0".parse().unwrap(), Config::default().plaintext()).unwrap();
        let caller: Client = own.client();
        let errno = libc::EACCES;
        assert_eq!(caller.call(to, "first"), Err(CallError::NotSent { errno }));
        client.ip("route del prohibit 10.8.0.2/32");
        assert_eq!(caller.call(to, "second").unwrap(), *b"second");
    });
    engine.drain(Duration::from_secs(5)).unwrap();
    assert_eq!(serving.join().unwrap(), 1);
}
