//! A path between a client and a server that records what it carries.

use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::thread;

/// UDP payloads in their order; `true` for those of the client.
pub type Recorded = Arc<Mutex<Vec<(bool, Vec<u8>)>>>;

/// Carries the datagrams of one client to a server and back. Returns the address to call.
pub fn relay(server: SocketAddr) -> (SocketAddr, Recorded) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let at = socket.local_addr().expect("an address");
    let recorded = Recorded::default();
    let record = Arc::clone(&recorded);
    thread::spawn(move || {
        let (mut client, mut buffer) = (None, vec![0; 65_536]);
        while let Ok((length, from)) = socket.recv_from(&mut buffer) {
            let from_client = from != server;
            if from_client {
                client = Some(from);
            }
            record.lock().unwrap().push((from_client, buffer[..length].to_vec()));
            if let Some(to) = if from_client { Some(server) } else { client } {
                let _ = socket.send_to(&buffer[..length], to);
            }
        }
    });
    (at, recorded)
}
