//! A search service over Homa and over TCP, from the same generated code: a root that asks 20
//! leaves at once, with deadlines and hedged calls.
//!
//! ```text
//! cargo run --release -p homa-rpc-tonic --example search -- [--transport homa|tcp] [--seconds 5]
//! ```
//!
//! It prints latencies and CPU time at three rates. Without `--transport` both transports take
//! turns. `homa bench --grpc` repeats the measurement and adds overload.

mod load;
mod service;

use std::time::Duration;

use service::GrpcTransport;
use tower::BoxError;

const RATES: [f64; 3] = [200.0, 800.0, 1_600.0];

fn arguments() -> Result<(Vec<GrpcTransport>, Duration), BoxError> {
    let (mut transports, mut seconds) = (vec![GrpcTransport::Homa, GrpcTransport::Tcp], 5.0);
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().unwrap_or_default();
        match (name.as_str(), value.as_str()) {
            ("--transport", "homa") => transports = vec![GrpcTransport::Homa],
            ("--transport", "tcp") => transports = vec![GrpcTransport::Tcp],
            ("--seconds", value) => seconds = value.parse()?,
            _ => return Err("usage: search [--transport homa|tcp] [--seconds 5]".into()),
        }
    }
    Ok((transports, Duration::try_from_secs_f64(seconds)?))
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let (transports, time) = arguments()?;
    println!(
        "{:>10} {:>10} {:>8} {:>8} {:>14}",
        "searches/s", "", "p50 ms", "p99 ms", "CPU us/answer"
    );
    let mut running = Vec::new();
    for transport in transports {
        let service = service::start(transport).await?;
        load::capacity(&service.client, Duration::from_millis(500)).await;
        running.push((transport, service));
    }
    for rate in RATES {
        for (transport, service) in &running {
            let figures = load::at_rate(&service.client, rate, time).await;
            let load::Figures { answered, offered, p50_ms, p99_ms, cpu_us } = figures;
            let name = format!("{transport:?}");
            print!("{rate:>10.0} {name:>10} {p50_ms:>8.2} {p99_ms:>8.2} {cpu_us:>14.0}");
            println!("  {:.2} % in time", 100.0 * answered / offered);
        }
    }
    Ok(())
}
