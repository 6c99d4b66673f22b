//! A network path that an attacker can read and write.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use homa::inline::{Completion, Engine};
use homa::{CallError, CallOptions, Config};

/// Reached only if the test fails.
const GIVE_UP: Duration = Duration::from_secs(20);

/// A client, a server, and the path between them.
pub struct Wire {
    pub client: Engine,
    pub server: Engine,
    /// The socket that the client calls, and the socket that calls the server.
    outer: UdpSocket,
    inner: UdpSocket,
    client_at: Option<SocketAddr>,
    server_at: SocketAddr,
    /// The client's datagrams.
    pub seen: Vec<Vec<u8>>,
    /// Requests that the server executed.
    pub executed: Vec<Vec<u8>>,
    /// Requests with these bytes are not answered yet.
    pub slow: Vec<u8>,
    /// The results of the client's calls, by cookie.
    pub ended: Vec<(u64, Result<Vec<u8>, CallError>)>,
}

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_nonblocking(true).unwrap();
    socket
}

fn serve(at: SocketAddr) -> Engine {
    let begun = Instant::now();
    loop {
        match Engine::bind(at, Config::default()) {
            Ok(mut server) => {
                server.listen().unwrap();
                return server;
            }
            Err(error) => assert!(begun.elapsed() < GIVE_UP, "{error}"),
        }
    }
}

impl Wire {
    pub fn new() -> Self {
        let server = serve("127.0.0.1:0".parse().unwrap());
        Self {
            client: Engine::bind("127.0.0.1:0".parse().unwrap(), Config::default()).unwrap(),
            outer: socket(),
            inner: socket(),
            client_at: None,
            server_at: server.local_addr(),
            server,
            seen: Vec::new(),
            executed: Vec::new(),
            slow: Vec::new(),
            ended: Vec::new(),
        }
    }

    /// Ends the server's process and starts another at the same address.
    pub fn restart(&mut self) {
        let at = self.server_at;
        let other = Engine::bind("127.0.0.1:0".parse().unwrap(), Config::default()).unwrap();
        drop(std::mem::replace(&mut self.server, other));
        self.server = serve(at);
    }

    /// Moves the client to another port, as a translator does that lost its table.
    pub fn rebind(&mut self) {
        self.inner = socket();
    }

    /// Sends bytes to the server as if they came from the client.
    pub fn inject(&mut self, bytes: &[u8]) {
        self.inner.send_to(bytes, self.server_at).unwrap();
    }

    pub fn call(&mut self, request: &[u8], cookie: u64) {
        let to = self.outer.local_addr().unwrap();
        let options = CallOptions::default();
        self.client.call(to, request.to_vec(), cookie, &options).unwrap();
    }

    /// Takes a turn with the client, the path and the server.
    pub fn turn(&mut self) {
        let mut buffer = vec![0; 65_536];
        self.client.turn();
        while let Some((len, from)) = receive(&self.outer, &mut buffer) {
            self.client_at = Some(from);
            self.seen.push(buffer[..len].to_vec());
            let _ = self.inner.send_to(&buffer[..len], self.server_at);
        }
        self.server.turn();
        while let Some(completion) = self.server.next() {
            if let Completion::Request { id, bytes, .. } = completion {
                self.executed.push(bytes.to_vec());
                if *bytes != *self.slow {
                    let _ = self.server.reply(id, bytes.to_vec());
                }
            }
        }
        self.server.turn();
        while let Some((len, _)) = receive(&self.inner, &mut buffer) {
            if let Some(client) = self.client_at {
                let _ = self.outer.send_to(&buffer[..len], client);
            }
        }
        self.client.turn();
        while let Some(completion) = self.client.next() {
            if let Completion::Response { cookie, result, .. } = completion {
                self.ended.push((cookie, result.map(|bytes| bytes.to_vec())));
            }
        }
    }

    /// Takes turns until the calls made so far have ended. Returns the result of the last one.
    pub fn finish(&mut self, calls: usize) -> Result<Vec<u8>, CallError> {
        let begun = Instant::now();
        while self.ended.len() < calls {
            self.turn();
            assert!(begun.elapsed() < GIVE_UP, "{:?}", self.server.metrics().protocol);
        }
        self.ended.last().unwrap().1.clone()
    }

    /// Takes turns until the server has executed this many requests.
    pub fn execute(&mut self, requests: usize) {
        let begun = Instant::now();
        while self.executed.len() < requests {
            self.turn();
            assert!(begun.elapsed() < GIVE_UP, "{:?}", self.server.metrics().protocol);
        }
    }

    /// Takes turns for a while, so that every answer arrives.
    pub fn settle(&mut self) {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(60) {
            self.turn();
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> Option<(usize, SocketAddr)> {
    loop {
        match socket.recv_from(buffer) {
            Ok(got) => return Some(got),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
            // An earlier datagram went to a closed port.
            Err(_) => {}
        }
    }
}
