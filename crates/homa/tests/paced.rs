//! On a paced link a thread that calls does not sleep before every packet: it would wake too late.

use homa::proto::{Rate, UnscheduledLimit};
use homa::{Config, Engine};

/// Bytes of a request, all of which may leave unasked: nothing but the link is waited for.
const LENGTH: u32 = 1_000_000;

/// Times that the calling thread gave up its processor by itself.
fn sleeps() -> i64 {
    // SAFETY: rusage is plain integers, for which zero is a value; the kernel only writes to it.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, &mut usage), 0);
        usage.ru_nvcsw
    }
}

#[test]
fn a_thread_does_not_sleep_before_every_packet_of_a_gigabit() {
    let mut config = Config { link_rate: Some(Rate::gbps(1)), ..Config::default() };
    config.protocol.unscheduled = UnscheduledLimit::Fixed(LENGTH);
    let at = "127.0.0.1:0".parse().unwrap();
    let server = Engine::bind(at, config.clone()).unwrap().serve().unwrap();
    let to = server.local_addr();
    std::thread::spawn(move || {
        while let Some(request) = server.accept() {
            request.reply("done").unwrap();
        }
    });
    let client = Engine::bind(at, config).unwrap().client();
    for _ in 0..3 {
        let before = (sleeps(), client.engine().metrics());
        assert_eq!(client.call(to, vec![1; LENGTH as usize]).unwrap(), b"done"[..]);
        let after = (sleeps(), client.engine().metrics());
        let waits = after.1.engine.pacer_waits - before.1.engine.pacer_waits;
        let slept = after.0 - before.0;
        assert!(waits > 200, "{waits} waits for the link");
        assert!(slept < 50, "slept {slept} times in {waits} waits for the link");
    }
}
