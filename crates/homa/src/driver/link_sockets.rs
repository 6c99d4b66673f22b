//! The sockets that send from one local address: one for each link that packets leave by.
//!
//! The kernel counts unsent bytes per socket. If several links shared one socket, their queues
//! could not be distinguished, and a slow link that fills the socket's buffer would delay the
//! others. So the first link uses the socket that receives, and each further link gets a socket at
//! the same address when it is first used, which only sends. If the system refuses that, or the
//! thread that would open it is in another network namespace, links share the first socket; so do
//! peers without a known route. An engine may have many sockets: a socket that has sent nothing
//! since the kernel's count was zero is not queried.
//!
//! Network reports about packets may arrive at any of the sockets over raw IP; over UDP they arrive
//! at the one that receives.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use homa_proto::LinkId;

use super::udp::class::DefaultClass;

/// Time until a refused socket is tried again; for example, there may have been no descriptor left.
const AGAIN: Duration = Duration::from_secs(1);

/// The link of the socket that receives.
const FIRST: LinkId = LinkId(0);

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct LinkSockets {
    /// Whether the socket that receives may hold unsent bytes.
    holds: Cell<bool>,
    /// The default traffic class of the socket that receives.
    default_class: DefaultClass,
    /// The socket of each link but the first, or when it was refused.
    others: Vec<(LinkId, Result<LinkSocket, Instant>)>,
}

/// A socket that only sends.
#[derive(Debug)]
struct LinkSocket {
    socket: OwnedFd,
    holds: Cell<bool>,
    default_class: DefaultClass,
}

impl LinkSockets {
    /// The socket to send by a link, and its default class. `main` is the socket that receives;
    /// `open` opens another.
    pub fn socket(
        &mut self,
        main: RawFd,
        link: LinkId,
        open: impl FnOnce() -> io::Result<OwnedFd>,
    ) -> (RawFd, &mut DefaultClass) {
        let known = self.others.iter().position(|(other, _)| *other == link);
        let shares = match known.map(|at| &self.others[at].1) {
            Some(Ok(_)) => false,
            Some(Err(at)) => at.elapsed() < AGAIN || !self.open(link, open),
            None => link == FIRST || !self.open(link, open),
        };
        let link_socket =
            if shares { None } else { self.others.iter_mut().find(|(of, _)| *of == link) };
        match link_socket {
            Some((_, Ok(LinkSocket { socket, holds, default_class }))) => {
                holds.set(true);
                (socket.as_raw_fd(), default_class)
            }
            _ => {
                self.holds.set(true);
                (main, &mut self.default_class)
            }
        }
    }

    /// Opens a socket for a link; false if it is refused.
    #[cold]
    fn open(&mut self, link: LinkId, open: impl FnOnce() -> io::Result<OwnedFd>) -> bool {
        let link_socket = |socket| LinkSocket {
            socket,
            holds: Cell::new(true),
            default_class: DefaultClass::default(),
        };
        let opened = open().map(link_socket).map_err(|error| {
            tracing::info!(%error, "links share a socket and its queue");
            Instant::now()
        });
        let done = opened.is_ok();
        self.others.retain(|(other, _)| *other != link);
        self.others.push((link, opened));
        done
    }

    /// Unsent bytes of the socket that sends by a link; `ask` queries a socket. `main` is the
    /// socket that receives.
    pub fn queued(
        &self,
        main: RawFd,
        link: LinkId,
        ask: impl Fn(RawFd) -> Option<u32>,
    ) -> Option<u32> {
        let found = self.others.iter().find(|(other, _)| *other == link);
        let (fd, holds) = match found {
            Some((_, Ok(link_socket))) => (link_socket.socket.as_raw_fd(), &link_socket.holds),
            None if link != FIRST => return Some(0),
            _ => (main, &self.holds),
        };
        let queued = if holds.get() { ask(fd)? } else { 0 };
        holds.set(queued > 0);
        Some(queued)
    }

    /// The sockets that only send.
    pub fn senders(&self) -> impl Iterator<Item = RawFd> {
        let opened = self.others.iter().filter_map(|(_, link_socket)| link_socket.as_ref().ok());
        opened.map(|link_socket| link_socket.socket.as_raw_fd())
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn a_socket_is_asked_from_when_it_sends_until_it_holds_nothing() {
        const MAIN: RawFd = 77;
        let open = || File::open("/dev/null").map(OwnedFd::from);
        let (mut link_sockets, link) = (LinkSockets::default(), LinkId(3));
        let no_query = |_| -> Option<u32> { panic!("the kernel was asked") };
        assert_eq!(link_sockets.queued(MAIN, FIRST, no_query), Some(0));
        assert_eq!(link_sockets.queued(MAIN, link, no_query), Some(0));
        let own = link_sockets.socket(MAIN, link, open).0;
        assert_eq!(link_sockets.socket(MAIN, FIRST, open).0, MAIN);
        for (link, fd) in [(link, own), (FIRST, MAIN)] {
            let holds = |bytes| move |asked| (asked == fd).then_some(bytes);
            for bytes in [9, 5, 0] {
                assert_eq!(link_sockets.queued(MAIN, link, holds(bytes)), Some(bytes));
            }
            assert_eq!(link_sockets.queued(MAIN, link, no_query), Some(0));
        }
        assert_eq!(link_sockets.socket(MAIN, link, open).0, own);
        assert_eq!(link_sockets.queued(MAIN, link, |_| None), None, "the kernel refuses");
        assert_eq!(link_sockets.queued(MAIN, link, |_| Some(1)), Some(1));
        // A link whose socket was refused shares the first.
        link_sockets.socket(MAIN, LinkId(4), || Err(io::ErrorKind::Other.into()));
        for shares in [LinkId(4), FIRST] {
            assert_eq!(link_sockets.queued(MAIN, shares, |fd| Some(fd as u32)), Some(77));
        }
    }
}
