//! A search service: a front end asks every shard of an index at once and answers with what it
//! heard before its user's deadline, which its own calls inherit. Each shard has two servers; the
//! second one is asked when the first one takes long or is dead (a hedged call), and whoever is
//! slower is cancelled.
//!
//! ```text
//! cargo run --example search
//! ```

use std::error::Error;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use homa::{CallError, CallOptions, Client, Request, Server};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// What each shard knows.
const SHARDS: [&[&str]; 3] =
    [&["short messages", "long messages"], &["short queues"], &["short tails", "fat trees"]];
/// How long a user waits.
const DEADLINE: Duration = Duration::from_secs(2);
/// After so long without an answer the other server of a shard is asked, too.
const HEDGE: Duration = Duration::from_millis(50);

/// A server of one shard, and where it is.
struct Replica {
    address: SocketAddr,
    serving: JoinHandle<()>,
    /// Requests that it dropped because nobody waited for them any more.
    cancelled: Arc<AtomicUsize>,
}

impl Replica {
    /// Knows `documents`, and takes its time.
    fn start(documents: &'static [&'static str], takes: Duration) -> Result<Self, Box<dyn Error>> {
        let server = Server::bind("127.0.0.1:0".parse()?)?;
        let (address, cancelled) = (server.local_addr(), Arc::new(AtomicUsize::new(0)));
        let count = Arc::clone(&cancelled);
        let serving = tokio::spawn(async move {
            while let Some(request) = server.accept_async().await {
                tokio::select! {
                    () = sleep(takes) => {}
                    () = request.cancelled() => {
                        count.fetch_add(1, Ordering::Relaxed);
                        continue; // Dropping a request is all there is to do.
                    }
                }
                let word = String::from_utf8_lossy(&request).into_owned();
                let found = documents.iter().filter(|document| document.contains(&word));
                let found: String = found.map(|document| format!("{document}\n")).collect();
                // A message has at least one byte. A client that is gone is its own affair.
                let _ = request.reply_async(format!("{found}.")).await;
            }
        });
        Ok(Self { address, serving, cancelled })
    }

    /// As a crash would: nobody answers what it had accepted.
    fn kill(&self) {
        self.serving.abort();
    }
}

/// Where the servers of all shards are.
type Shards = [[SocketAddr; 2]; 3];

/// Asks one server, and the other one if that fails or takes long. Whoever loses is cancelled when
/// its call is dropped. Searching twice does no harm.
async fn ask(client: &Client, shard: [SocketAddr; 2], word: &str) -> Result<String, CallError> {
    let mut first = client.call_async(shard[0], word);
    let early = timeout(HEDGE, &mut first).await;
    let found = match early {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(_)) => client.call_async(shard[1], word).await,
        Err(_) => tokio::select! {
            Ok(answer) = first => Ok(answer),
            answer = client.call_async(shard[1], word) => answer,
        },
    };
    found.map(|found| String::from_utf8_lossy(&found).replace('.', ""))
}

/// Answers a user with how many shards were heard and what they found. Its calls end with the
/// user's patience, and what is left of that must do for the answer, too.
async fn search(request: Request, shards: Shards) {
    let client = request.client();
    let word = String::from_utf8_lossy(&request).into_owned();
    let within = request.remaining().unwrap_or(DEADLINE) * 3 / 4;
    let [a, b, c] = shards.map(|shard| timeout(within, ask(&client, shard, &word)));
    let (a, b, c) = tokio::join!(a, b, c);
    let heard: Vec<String> = [a, b, c].into_iter().filter_map(|shard| shard.ok()?.ok()).collect();
    let _ = request.reply_async(format!("{}\n{}", heard.len(), heard.concat())).await;
}

/// What a user sees.
async fn look(user: &Client, front: SocketAddr, word: &str) -> (usize, String) {
    let options = CallOptions::deadline(DEADLINE);
    let answer = user.call_async_with(front, word, &options).await.expect("the front end is there");
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (heard, found) = answer.split_once('\n').expect("a number and texts");
    (heard.parse().expect("a number"), found.to_owned())
}

/// Searches while all is well, while a server is slow, and after servers died.
#[tokio::main]
pub async fn main() -> Result<(), Box<dyn Error>> {
    let quick = Duration::ZERO;
    let mut replicas = Vec::new();
    for documents in SHARDS {
        replicas.push([Replica::start(documents, quick)?, Replica::start(documents, quick)?]);
    }
    let places = |replicas: &[[Replica; 2]]| {
        [0, 1, 2].map(|shard| [&replicas[shard][0], &replicas[shard][1]].map(|one| one.address))
    };
    let shards = Arc::new(Mutex::new(places(&replicas)));
    let server = Server::bind("127.0.0.1:0".parse()?)?;
    let (front, known) = (server.local_addr(), Arc::clone(&shards));
    tokio::spawn(async move {
        while let Some(request) = server.accept_async().await {
            let shards = *known.lock().expect("nobody panics");
            tokio::spawn(search(request, shards));
        }
    });
    let user = Client::new()?;
    let (heard, found) = look(&user, front, "short").await;
    println!("{heard} of 3 shards:\n{found}");
    assert_eq!((heard, found.lines().count()), (3, 3));

    // A server that is slow costs the hedge, and hears that its answer is not wanted.
    replicas[1][0] = Replica::start(SHARDS[1], 100 * HEDGE)?;
    *shards.lock().expect("nobody panics") = places(&replicas);
    let (heard, _) = look(&user, front, "short").await;
    assert_eq!(heard, 3);
    while replicas[1][0].cancelled.load(Ordering::Relaxed) == 0 {
        sleep(HEDGE).await;
    }
    println!("{heard} of 3 shards; the slow server was told to stop");

    // One that dies costs nothing but the hedge; a shard without servers is missing.
    replicas[2][0].kill();
    let (heard, _) = look(&user, front, "fat").await;
    println!("{heard} of 3 shards with a dead server");
    assert_eq!(heard, 3);
    replicas[2][1].kill();
    let (heard, found) = look(&user, front, "fat").await;
    println!("{heard} of 3 shards without the third");
    assert_eq!((heard, found.as_str()), (2, ""));
    Ok(())
}
