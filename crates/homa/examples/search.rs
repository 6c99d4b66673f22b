//! A search service. A front end asks every shard of an index at once, and answers with the results
//! that arrive before its user's deadline. Its own calls inherit this deadline. Each shard has two
//! servers. If the first is slow or dead, the second is asked, too (a hedged call), and the slower
//! call is cancelled.
//!
//! ```text
//! cargo run -p homa-rpc --example search
//! ```

use std::error::Error;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use homa::{CallError, CallOptions, Client, Message, Request, Server};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// The time that a user waits.
const DEADLINE: Duration = Duration::from_secs(2);
/// After this time without an answer, the other server of a shard is asked, too.
const HEDGE: Duration = Duration::from_millis(50);
/// Counts requests that servers dropped because their clients no longer waited.
static CANCELLED: AtomicUsize = AtomicUsize::new(0);

/// The servers of a shard. The preferred one is first.
type Shard = [SocketAddr; 2];

/// Starts a server that needs `takes` for each search. Aborting its task simulates a crash.
fn start(shard: &'static str, takes: Duration) -> (SocketAddr, JoinHandle<()>) {
    let server = Server::bind(([127, 0, 0, 1], 0).into()).expect("a free port");
    let address = server.local_addr();
    let serving = async move {
        while let Some(request) = server.accept_async().await {
            tokio::select! {
                () = sleep(takes) => {}
                () = request.cancelled() => {
                    CANCELLED.fetch_add(1, Ordering::Relaxed);
                    continue; // Dropping a request is all there is to do.
                }
            }
            let found = format!(", {shard} on {}", String::from_utf8_lossy(&request));
            let _ = request.reply_async(found).await; // A client may be gone: no reason to stop.
        }
    };
    (address, tokio::spawn(serving))
}

/// Asks one server, and also the other one if the first fails or is slow. Dropping a call cancels
/// it.
async fn ask(client: &Client, shard: Shard, word: &[u8]) -> Result<Message, CallError> {
    let mut first = client.call_async(shard[0], word);
    match timeout(HEDGE, &mut first).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(_)) => client.call_async(shard[1], word).await,
        Err(_) => tokio::select! {
            Ok(answer) = first => Ok(answer),
            answer = client.call_async(shard[1], word) => answer,
        },
    }
}

/// The front end. It spends three quarters of the remaining time on its shards, and the rest on its
/// answer.
async fn search(request: Request, shards: [Shard; 2]) {
    let client = request.client(); // Its calls have the request's deadline.
    let within = request.remaining().unwrap_or(DEADLINE) * 3 / 4;
    let [a, b] = shards.map(|shard| timeout(within, ask(&client, shard, &request)));
    let (a, b) = tokio::join!(a, b);
    let heard: Vec<Vec<u8>> = [a, b].into_iter().flatten().flatten().map(Message::into).collect();
    let found = String::from_utf8_lossy(&heard.concat()).into_owned();
    let _ = request.reply_async(format!("{} of 2 shards{found}", heard.len())).await;
}

/// Searches while one server is slow, and after servers crashed.
#[tokio::main]
pub async fn main() -> Result<(), Box<dyn Error>> {
    let (slow_books, books) = (start("books", 100 * HEDGE), start("books", Duration::ZERO));
    let (films, more_films) = (start("films", Duration::ZERO), start("films", Duration::ZERO));
    let shards = [[slow_books.0, books.0], [films.0, more_films.0]];
    let server = Server::bind("127.0.0.1:0".parse()?)?;
    let front = server.local_addr();
    tokio::spawn(async move {
        while let Some(request) = server.accept_async().await {
            tokio::spawn(search(request, shards));
        }
    });
    let (user, options) = (Client::new()?, CallOptions::deadline(DEADLINE));
    let look = async |word: &str| {
        let answer = user.call_async_with(front, word, &options).await?;
        println!("{}", String::from_utf8_lossy(&answer));
        Ok::<Message, CallError>(answer)
    };
    assert_eq!(&*look("cats").await?, b"2 of 2 shards, books on cats, films on cats");
    while CANCELLED.load(Ordering::Relaxed) == 0 {
        sleep(HEDGE).await; // The slow server hears that nobody waits for it.
    }
    films.1.abort(); // The other server of the shard answers.
    assert_eq!(&*look("dogs").await?, b"2 of 2 shards, books on dogs, films on dogs");
    more_films.1.abort(); // Without servers a shard is missing from the answer.
    assert_eq!(&*look("birds").await?, b"1 of 2 shards, books on birds");
    Ok(())
}
