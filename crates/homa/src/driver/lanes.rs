//! The sockets that send from one local address: one for each link that packets leave by.
//!
//! The kernel counts per socket what it has not sent yet. Through one socket nobody could tell
//! whose queue that is where packets leave by several links, and a slow link that fills the
//! socket's buffer would hold back the others. So the first link has the socket that receives,
//! and each further one, when it is first used, a socket of its own at the same address, which
//! only sends. Where the system refuses that, or the thread that would open it is in another
//! network namespace, links share the first; so do peers that no route is known to.
//!
//! What the network reports about packets may arrive at any of them over IP; over UDP it arrives at
//! the one that receives.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use homa_proto::LinkId;

/// After a socket was refused, for want of descriptors, say, until it is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// The link of the socket that receives.
const FIRST: LinkId = LinkId(0);

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct Lanes {
    /// Of each link but the first, or when it was refused.
    others: Vec<(LinkId, Result<OwnedFd, Instant>)>,
}

impl Lanes {
    /// The socket that sends by a link, where `main` receives; `open` opens another.
    pub fn socket(
        &mut self,
        main: RawFd,
        link: LinkId,
        open: impl FnOnce() -> io::Result<OwnedFd>,
    ) -> RawFd {
        if link == FIRST {
            return main;
        }
        let found = self.others.iter().position(|(other, _)| *other == link);
        match found.map(|at| &self.others[at].1) {
            Some(Ok(socket)) => return socket.as_raw_fd(),
            Some(Err(at)) if at.elapsed() < AGAIN => return main,
            _ => {}
        }
        let opened = open().map_err(|error| {
            tracing::info!(%error, "links share a socket, and what is queued there");
            Instant::now()
        });
        self.others.retain(|(other, _)| *other != link);
        self.others.push((link, opened));
        self.known(link).unwrap_or(main)
    }

    /// The socket that sent by a link, where `main` receives; `None` before the first time.
    pub fn sent_by(&self, main: RawFd, link: LinkId) -> Option<RawFd> {
        let shares = self.others.iter().any(|(other, own)| *other == link && own.is_err());
        match link == FIRST || shares {
            true => Some(main),
            false => self.known(link),
        }
    }

    fn known(&self, link: LinkId) -> Option<RawFd> {
        let (_, socket) = self.others.iter().find(|(other, _)| *other == link)?;
        socket.as_ref().ok().map(AsRawFd::as_raw_fd)
    }

    /// The sockets that only send.
    pub fn senders(&self) -> impl Iterator<Item = RawFd> {
        self.others.iter().filter_map(|(_, socket)| socket.as_ref().ok().map(AsRawFd::as_raw_fd))
    }
}
