//! How long after the last byte of an upload its answer comes, if the server hashes it while it
//! arrives, and if it hashes it when it is whole.
//!
//! `cargo run --release -p homa-rpc --example upload`

use std::error::Error;
use std::hash::{DefaultHasher, Hasher};
use std::thread;
use std::time::{Duration, Instant};

use homa::{Client, Server};

const LENGTH: usize = 1_000_000;
const CALLS: usize = 200;

/// Hashes requests as they arrive, and answers each with its hash and the time from its last byte
/// to the hash, in nanoseconds.
fn hash_requests(server: Server) -> Result<(), Box<dyn Error>> {
    while let Some(mut request) = server.accept() {
        let mut hasher = DefaultHasher::new();
        let mut last = Instant::now();
        while let Some(bytes) = request.arrived()? {
            last = Instant::now();
            hasher.write(&bytes);
        }
        let hash = hasher.finish().to_be_bytes();
        let late = last.elapsed().as_nanos() as u64;
        request.reply([hash, late.to_be_bytes()].concat())?;
    }
    Ok(())
}

/// The median and the 99th percentile.
fn quantiles(mut times: Vec<Duration>) -> [Duration; 2] {
    times.sort_unstable();
    [times.len() / 2, times.len() * 99 / 100].map(|at| times[at])
}

fn main() -> Result<(), Box<dyn Error>> {
    let upload: Vec<u8> = (0..LENGTH).map(|n| (n * 7) as u8).collect();
    let mut hasher = DefaultHasher::new();
    hasher.write(&upload);
    let expected = hasher.finish().to_be_bytes();
    for early in [true, false] {
        let server = Server::bind("127.0.0.1:0".parse()?)?;
        let server = if early { server.early(1 << 20) } else { server };
        let (client, to) = (Client::new()?, server.local_addr());
        thread::spawn(move || hash_requests(server).map_err(|error| eprintln!("{error}")));
        let (mut whole, mut after) = (Vec::new(), Vec::new());
        for _ in 0..CALLS {
            let begin = Instant::now();
            let answer = client.call(to, upload.clone())?;
            whole.push(begin.elapsed());
            let (hash, late) = answer.split_at(size_of::<u64>());
            assert_eq!(hash, expected, "the hash of other bytes");
            after.push(Duration::from_nanos(u64::from_be_bytes(late.try_into()?)));
        }
        let how = if early { "while it arrives" } else { "when it is whole" };
        let ([call, slow_call], [hash, slow_hash]) = (quantiles(whole), quantiles(after));
        println!("{LENGTH} bytes, hashed {how}:");
        println!("  hashed after the last byte  p50 {hash:?}, p99 {slow_hash:?}");
        println!("  whole call                  p50 {call:?}, p99 {slow_call:?}");
    }
    Ok(())
}
