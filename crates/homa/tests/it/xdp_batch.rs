//! System calls for a batch of AF_XDP frames, on a veth pair between network namespaces.

use std::net::{Ipv4Addr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use homa::OpenError;
use homa::driver::{Driver, Gather, Outbox, Train, TrainPiece};
use homa::proto::{LinkId, Span};

use crate::kernel::has_a_budget;
use crate::xdp::Net;

/// Reached only if the test fails.
const GIVE_UP: Duration = Duration::from_secs(20);
const PORT: u16 = 4000;
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 8, 0, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 8, 0, 2);

/// No trains of these tests gather from messages.
struct NoMessages;

impl Gather for NoMessages {
    fn bytes(&self, _: Span) -> &[u8] {
        &[]
    }
}

#[test]
fn a_batch_of_frames_takes_one_system_call_if_the_kernel_can() {
    const FRAMES: usize = 256;
    let Some(net) = Net::new() else { return };
    let begun = Instant::now();
    // The system may still use the interface for the driver with which `Net` tried it: processes
    // that other tests start have copies of descriptors for a moment.
    let mut driver = net.client.run(|| {
        loop {
            match <dyn Driver>::xdp(SocketAddr::from((CLIENT, 0)), 1 << 20) {
                Err(OpenError::Xdp { .. }) if begun.elapsed() < GIVE_UP => {
                    thread::sleep(Duration::from_millis(1));
                }
                opened => break opened.unwrap(),
            }
        }
    });
    let (to, source) = (SocketAddr::from((SERVER, PORT)), None);
    let train = || Train {
        to,
        link: LinkId(0),
        socket: 0,
        source,
        tos: 0,
        datagram: 100,
        len: 100,
        pieces: 0..1,
    };
    let (bytes, pieces) = (vec![0; 100], vec![TrainPiece::Buffered(0..100)]);
    let outbox = Outbox { bytes, pieces, trains: (0..FRAMES).map(|_| train()).collect() };
    let begun = Instant::now();
    loop {
        assert!(begun.elapsed() < GIVE_UP);
        let before = *driver.counters();
        driver.send(&outbox, &NoMessages);
        let after = driver.counters();
        let frames = (after.frames_sent - before.frames_sent) as usize;
        let calls = after.send_calls - before.send_calls;
        // At first the next hop is not known, and the system sends the packets.
        if frames < FRAMES {
            thread::sleep(Duration::from_millis(1));
            continue;
        }
        println!("{calls} system calls for {frames} frames");
        // The queue of the socket may hold fewer; without the option, 32 are copied at a time.
        let most = if has_a_budget() { 3 } else { FRAMES as u64 / 32 + 1 };
        return assert!((1..=most).contains(&calls), "{calls} system calls for {frames} frames");
    }
}
