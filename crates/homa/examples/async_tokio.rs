//! Calls and requests as futures. This example uses tokio, but any other executor works.
//!
//! ```text
//! cargo run -p homa-rpc --example async_tokio
//! ```

use std::error::Error;
use std::time::Duration;

use homa::{CallError, CallOptions, Client, Server};
use tokio::time::{sleep, timeout};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = Server::bind("127.0.0.1:0".parse()?)?;
    let address = server.local_addr();
    let serving = tokio::spawn(async move {
        while let Some(request) = server.accept_async().await {
            // Requests are answered as they finish, in any order.
            tokio::spawn(async move {
                if request.starts_with(b"slow") {
                    sleep(Duration::from_millis(200)).await;
                }
                let reply = request.to_ascii_uppercase();
                match request.is_cancelled() {
                    true => println!("server: the client gave up, no need to answer"),
                    false => println!("server: {:?}", request.reply(reply)),
                }
            });
        }
    });

    let client = Client::new()?;
    // Calls start at once. Awaiting them only collects the responses.
    let calls: Vec<_> = ["one", "two", "three"].map(|text| client.call_async(address, text)).into();
    for call in calls {
        println!("client: {:?}", call.await?);
    }

    // Dropping a call cancels it. Therefore any combinator with a timeout cancels its call.
    let slow = client.call_async(address, "slow but wanted");
    println!("client: {:?}", timeout(Duration::from_secs(1), slow).await?);
    let unwanted = client.call_async(address, "slow and unwanted");
    println!("client: {:?}", timeout(Duration::from_millis(50), unwanted).await.is_err());
    sleep(Duration::from_millis(300)).await;

    // Every call has a deadline.
    let options = CallOptions::deadline(Duration::from_millis(20));
    let late = client.call_async_with(address, "slow for its deadline", &options).await;
    assert_eq!(late, Err(CallError::DeadlineExceeded));
    serving.abort();
    Ok(())
}
