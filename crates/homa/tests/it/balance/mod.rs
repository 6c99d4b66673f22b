//! Names that stand for several servers, with real servers, files and lookups.

mod calls;
mod detached;
mod members;
mod rolling;
#[cfg(feature = "srv")]
mod srv;

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use homa::balance::{Balancer, Config, Target};
use homa::{Client, Engine};
use tokio::sync::Semaphore;

/// Reached only if a test fails.
const GIVE_UP: Duration = Duration::from_secs(60);

/// A server that answers with the last digits of its port.
struct Serving {
    engine: Engine,
    at: SocketAddr,
    /// Requests that it has begun to answer.
    executed: Arc<AtomicUsize>,
    /// Requests whose clients gave up while they waited.
    cancelled: Arc<AtomicUsize>,
    /// Requests wait for one of these before they are answered.
    answers: Arc<Semaphore>,
    /// The deadline of the last request.
    deadline: Arc<std::sync::Mutex<Option<Instant>>>,
}

impl Serving {
    /// At any port if `port` is 0.
    fn start(port: u16) -> Self {
        let at = SocketAddr::from(([127, 0, 0, 1], port));
        let engine = Engine::bind(at, homa::Config::default()).unwrap();
        engine.drive_on_tokio().unwrap();
        let serving = Self {
            at: engine.local_addr(),
            executed: Arc::default(),
            cancelled: Arc::default(),
            answers: Arc::new(Semaphore::new(Semaphore::MAX_PERMITS)),
            deadline: Arc::default(),
            engine,
        };
        let server = serving.engine.serve().unwrap();
        let (executed, cancelled) = (serving.executed.clone(), serving.cancelled.clone());
        let (answers, deadline) = (serving.answers.clone(), serving.deadline.clone());
        let word = serving.at.port().to_string();
        tokio::spawn(async move {
            while let Some(request) = server.accept_async().await {
                executed.fetch_add(1, Ordering::SeqCst);
                *deadline.lock().unwrap() = request.deadline();
                let (word, cancelled) = (word.clone(), cancelled.clone());
                let answers = answers.clone();
                tokio::spawn(async move {
                    tokio::select! {
                        answer = answers.acquire() => answer.unwrap().forget(),
                        () = request.cancelled() => {
                            cancelled.fetch_add(1, Ordering::SeqCst);
                            return;
                        }
                    }
                    let _ = request.reply_async(word).await;
                });
            }
        });
        serving
    }

    /// One that answers nothing until it is given permits.
    fn holding() -> Self {
        let serving = Self::start(0);
        serving.answers.forget_permits(Semaphore::MAX_PERMITS);
        serving
    }

    fn executed(&self) -> usize {
        self.executed.load(Ordering::SeqCst)
    }

    /// Ends as a server does that is asked to.
    async fn drain(&self) {
        let engine = self.engine.clone();
        let drained = tokio::task::spawn_blocking(move || engine.drain(Duration::from_secs(10)));
        drained.await.unwrap().unwrap();
    }
}

fn client() -> Client {
    let client = Client::new().unwrap();
    client.engine().drive_on_tokio().unwrap();
    client
}

fn list(servers: &[&Serving], config: Config) -> Balancer {
    Balancer::new(Target::list(servers.iter().map(|server| server.at)), config).unwrap()
}

/// A file in the folder for tests, without content from earlier runs.
struct AddressFile(PathBuf);

impl AddressFile {
    fn new(name: &str) -> Self {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("{name}-{}", std::process::id()));
        let _ = fs::remove_file(&path);
        Self(path)
    }

    fn target(&self) -> Target {
        format!("homa+file://{}", self.0.display()).parse().unwrap()
    }

    /// Replaces it as an operator's tool does: readers see the old or the new content.
    fn write(&self, lines: &[String]) {
        let new = self.0.with_extension("new");
        fs::write(&new, lines.join("\n")).unwrap();
        fs::rename(new, &self.0).unwrap();
    }

    fn list(&self, servers: &[&Serving]) {
        let lines: Vec<String> = servers.iter().map(|server| server.at.to_string()).collect();
        self.write(&lines);
    }
}

impl Drop for AddressFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

async fn until(what: impl Fn() -> bool) {
    let wait = async {
        while !what() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(GIVE_UP, wait).await.expect("it happens");
}
