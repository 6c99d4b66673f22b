//! An echo server and its client.
//!
//! ```text
//! cargo run -p homa-rpc --example echo serve 127.0.0.1:4000
//! cargo run -p homa-rpc --example echo call 127.0.0.1:4000 "some words"
//! ```

use std::env;
use std::error::Error;
use std::net::SocketAddr;
use std::time::Instant;

use homa::{Client, Server};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["serve", address] => serve(address.parse()?),
        ["call", address, text] => call(address.parse()?, text),
        _ => Err("usage: echo serve ADDRESS:PORT | echo call ADDRESS:PORT TEXT".into()),
    }
}

fn serve(at: SocketAddr) -> Result<(), Box<dyn Error>> {
    let server = Server::bind(at)?;
    println!("echoing at {}", server.local_addr());
    while let Some(mut request) = server.accept() {
        // The reply reuses the request's memory, so nothing is copied.
        let bytes = request.take_bytes();
        if let Err(error) = request.reply(bytes) {
            eprintln!("no reply: {error}");
        }
    }
    Ok(())
}

fn call(server: SocketAddr, text: &str) -> Result<(), Box<dyn Error>> {
    let client = Client::new()?;
    let started = Instant::now();
    let response = client.call(server, text)?;
    println!("{} after {:?}", String::from_utf8_lossy(&response), started.elapsed());
    Ok(())
}
