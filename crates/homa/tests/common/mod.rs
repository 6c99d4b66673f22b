//! Functions shared by the integration tests.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use homa::{Config, Engine, Server};

/// Returns bytes that differ at every offset and for every `seed`.
#[allow(dead_code)] // Not every test file needs it.
pub fn message(len: usize, seed: u64) -> Vec<u8> {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        bytes.extend_from_slice(&x.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// Opens an engine over UDP at any port of `ip`.
#[allow(dead_code)] // Not every test file needs it.
pub fn engine(ip: &str, config: Config) -> Engine {
    Engine::bind(SocketAddr::new(ip.parse().unwrap(), 0), config).unwrap()
}

/// Echoes requests until the server's engine drains.
#[allow(dead_code)] // Not every test file needs it.
pub fn echo(server: Server) -> thread::JoinHandle<usize> {
    thread::spawn(move || {
        let mut served = 0;
        while let Some(mut request) = server.accept() {
            let bytes = request.take_bytes();
            // The reply fails if the client gave up. The server continues.
            let _ = request.reply(bytes);
            served += 1;
        }
        served
    })
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The smallest executor: a thread that belongs to no runtime, and parks between polls.
#[allow(dead_code)] // Not every test file needs it.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(result) => return result,
            Poll::Pending => thread::park(),
        }
    }
}
