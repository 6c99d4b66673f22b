//! A client, a front server and the server behind it in one process, each with its own engine. One
//! call is one trace with four spans, which go to the collector that `OTEL_EXPORTER_OTLP_ENDPOINT`
//! names (by default <http://localhost:4318>) by OTLP over HTTP.
//!
//! `cargo run --manifest-path contrib/opentelemetry/Cargo.toml`

use std::error::Error;
use std::net::SocketAddr;
use std::thread;

use homa::{Client, Server};
use opentelemetry::global;
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;

/// Answers in upper case.
fn behind(server: &Server) {
    while let Some(request) = server.accept() {
        let reply = request.to_ascii_uppercase();
        let _ = request.reply(reply);
    }
}

/// Asks the server behind it. A call of `request.client()` belongs to the request's trace.
fn front(server: &Server, behind: SocketAddr) {
    while let Some(request) = server.accept() {
        let answer = request.client().call(behind, request.to_vec());
        // Without an answer, the request is dropped: the client's span then says `abandoned`.
        if let Ok(answer) = answer {
            let _ = request.reply(answer);
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    // This is all that tracing needs: homa looks for the global provider.
    let exporter = SpanExporter::builder().with_http().build()?;
    let resource = Resource::builder().with_service_name("homa-traced").build();
    let provider =
        SdkTracerProvider::builder().with_resource(resource).with_batch_exporter(exporter).build();
    global::set_tracer_provider(provider.clone());

    let [one, other] = ["127.0.0.1:0"; 2].map(|any| Server::bind(any.parse().expect("an address")));
    let (one, other) = (one?, other?);
    let (address, last) = (one.local_addr(), other.local_addr());
    thread::spawn(move || behind(&other));
    thread::spawn(move || front(&one, last));

    let answer = Client::new()?.call(address, "hello")?;
    println!("{}", String::from_utf8_lossy(&answer));
    // The server's spans end after the answer is on its way.
    thread::sleep(std::time::Duration::from_millis(100));
    provider.shutdown()?;
    Ok(())
}
