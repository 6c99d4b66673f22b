//! Which connections have a place, and which one gives its place to a new one.
//!
//! Invariants: a client that sends no request, or does not read the response, keeps no other client
//! from the page, however many such connections there are. Threads are bounded, also if what
//! composes the page does not return. Left out: time limits.

use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

/// Connections at a time that keep their place.
const MOST: usize = 16;
/// Threads at a time: those of connections that were closed end soon.
const MOST_THREADS: usize = 2 * MOST;
/// How long a new connection waits for such threads, in pauses.
const PAUSE: Duration = Duration::from_millis(1);
const PAUSES: u32 = 100;

/// What the thread of a connection does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Doing {
    /// It waits for a complete request.
    Read,
    /// It composes the response. Closing the connection does not end that.
    Compose,
    /// It writes the response, or waits until the client closes.
    Write,
}

/// The connection of a client, which has a place until it is dropped.
#[derive(Debug)]
pub struct PageClient {
    stream: TcpStream,
    doing: AtomicU8,
}

impl PageClient {
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// What its thread does from now on.
    pub fn does(&self, doing: Doing) {
        self.doing.store(doing as u8, Ordering::Relaxed);
    }

    fn doing(&self) -> Doing {
        let now = self.doing.load(Ordering::Relaxed);
        let all = [Doing::Read, Doing::Compose, Doing::Write];
        all.into_iter().find(|doing| *doing as u8 == now).unwrap_or(Doing::Compose)
    }
}

/// The connections whose threads have not ended, in the order in which they came.
#[derive(Debug, Default)]
pub struct Places {
    all: Vec<PagePlace>,
}

#[derive(Debug)]
struct PagePlace {
    client: Weak<PageClient>,
    closed: bool,
}

/// What happens to a new connection.
#[derive(Debug, PartialEq, Eq)]
enum Admission {
    Admit,
    /// The one with this index is closed for it.
    Instead(usize),
    /// Threads of closed connections have to end first.
    Wait,
    Refuse,
}

/// Decides about a new connection. The others, in the order in which they came: what they do;
/// `None` if they were closed.
fn turn(others: &[Option<Doing>]) -> Admission {
    let open = others.iter().flatten().count();
    if others.len() >= MOST_THREADS {
        if open < others.len() {
            return Admission::Wait;
        }
    } else if open < MOST {
        return Admission::Admit;
    }
    let oldest = |wanted| others.iter().position(|doing| *doing == Some(wanted));
    oldest(Doing::Read)
        .or_else(|| oldest(Doing::Write))
        .map_or(Admission::Refuse, Admission::Instead)
}

impl Places {
    /// Gives a new connection a place; `None` if there is none, and it is closed.
    pub fn take(&mut self, stream: TcpStream) -> Option<Arc<PageClient>> {
        let mut turn = self.turn();
        for _ in 0..PAUSES {
            if turn != Admission::Wait {
                break;
            }
            thread::sleep(PAUSE);
            turn = self.turn();
        }
        match turn {
            Admission::Admit => {}
            Admission::Instead(index) => self.all[index].close(),
            Admission::Wait | Admission::Refuse => return None,
        }
        let client = PageClient { stream, doing: AtomicU8::new(Doing::Read as u8) };
        let client = Arc::new(client);
        self.all.push(PagePlace { client: Arc::downgrade(&client), closed: false });
        Some(client)
    }

    fn turn(&mut self) -> Admission {
        self.all.retain(|place| place.client.strong_count() > 0);
        let others: Vec<Option<Doing>> = self.all.iter().map(PagePlace::doing).collect();
        turn(&others)
    }
}

impl PagePlace {
    /// What its thread does; `None` if the connection was closed.
    fn doing(&self) -> Option<Doing> {
        let client = self.client.upgrade().filter(|_| !self.closed);
        client.map(|client| client.doing())
    }

    /// Its thread finds that the client has gone, and ends.
    fn close(&mut self) {
        self.closed = true;
        if let Some(client) = self.client.upgrade() {
            let _ = client.stream.shutdown(Shutdown::Both);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_that_waits_for_its_client_gives_its_place() {
        use Doing::{Compose, Read, Write};
        let of = |parts: &[(usize, Option<Doing>)]| {
            let all = parts.iter().flat_map(|&(count, doing)| vec![doing; count]);
            turn(&all.collect::<Vec<_>>())
        };
        let table = [
            (&[(15, Some(Read))][..], Admission::Admit),
            (&[(16, Some(Read))], Admission::Instead(0)),
            // The first was closed for another one, and its thread has not ended.
            (&[(1, None), (15, Some(Read))], Admission::Admit),
            (&[(1, None), (16, Some(Read))], Admission::Instead(1)),
            (&[(3, Some(Write)), (5, Some(Compose)), (8, Some(Read))], Admission::Instead(8)),
            (&[(5, Some(Compose)), (11, Some(Write))], Admission::Instead(5)),
            (&[(16, Some(Compose))], Admission::Refuse),
            (&[(16, None), (15, Some(Read))], Admission::Admit),
            (&[(16, None), (16, Some(Read))], Admission::Wait),
            (&[(32, None)], Admission::Wait),
        ];
        for (others, expected) in table {
            assert_eq!(of(others), expected, "{others:?}");
        }
    }
}
