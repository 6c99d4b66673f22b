//! How many system calls a batch of frames takes over AF_XDP in copy mode
//! (XDP_MAX_TX_SKB_BUDGET).

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use homa::driver::{Driver, Outbox, Train, TrainPiece};
use homa::proto::LinkId;

use crate::xdp::{CLIENT, GIVE_UP, Net, NoMessages, PORT, SERVER};

/// True if this kernel copies as many frames as it is asked to in one system call.
fn has_a_budget() -> bool {
    // SAFETY: the calls take no pointers but one to a number of the length passed.
    unsafe {
        let socket = libc::socket(libc::AF_XDP, libc::SOCK_RAW, 0);
        let (frames, length) = (64u32, 4);
        let refused =
            libc::setsockopt(socket, libc::SOL_XDP, 9, (&raw const frames).cast(), length) < 0;
        let error = std::io::Error::last_os_error().raw_os_error();
        libc::close(socket);
        // Without a ring, kernels that know the option refuse its value.
        !refused || error == Some(libc::EACCES)
    }
}

#[test]
fn a_batch_of_frames_takes_one_system_call_if_the_kernel_can() {
    const FRAMES: usize = 256;
    let Some(net) = Net::new() else { return };
    let mut driver =
        net.client.run(|| <dyn Driver>::xdp(SocketAddr::from((CLIENT, 0)), 1 << 20).unwrap());
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
