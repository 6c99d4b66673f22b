//! Messages of a [`Socket`] that are read while they arrive, or written while they are sent.

use std::net::SocketAddr;
use std::thread;

use super::{CallFailure, Id, SendOptions, Socket};
use crate::engine::wait::mailbox::{Selection, Unread};
use crate::engine::wait::shared::SharedState;
use crate::error::{CallError, OpenError, ReplyError, RequestError, WriteError};
use crate::message::Message;
use crate::payload::Payload;

/// Why no more of a message was read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// No more has arrived yet.
    #[error("no more of the message has arrived: wait until the descriptor is readable")]
    WouldBlock,
    /// The rest of the request will not come.
    #[error(transparent)]
    Ended(#[from] RequestError),
    /// The call failed.
    #[error(transparent)]
    Call(#[from] CallFailure),
    /// The request was not received from this socket, or its answer was given or begun; or the
    /// response is not read in pieces, or was read or received.
    #[error("no message with this id is read: it was answered, aborted, read, or never received")]
    Unknown,
    /// The socket was closed.
    #[error("the socket is closed: open another one")]
    Closed,
}

impl Socket {
    /// Accepts requests from now on, as [`Self::listen`], and receives those of more than one
    /// packet with their first bytes: see [`Server::early`](crate::Server::early), also for the
    /// meaning of `window`. [`Self::read`] returns their bytes.
    ///
    /// # Errors
    /// As [`Self::listen`].
    pub fn listen_early(&self, window: usize) -> Result<(), OpenError> {
        self.listen()?;
        let mut access = self.engine.here().ok_or(OpenError::Forked)?;
        let window = u32::try_from(window).unwrap_or(u32::MAX);
        access.core.listen_early(self.local_addr().port(), window);
        Ok(())
    }

    /// Takes the bytes of a message that have arrived since the last call, and blocks until there
    /// are some: of a request, or of a response with
    /// [`SendOptions::read_window`](method@SendOptions::read_window). `None` once all were taken,
    /// and for a request that was received whole. The peer may send about as many more bytes as
    /// were taken. A response need not be received: the call ends with the read that returns
    /// `None`, or fails.
    ///
    /// # Errors
    /// [`ReadError::Ended`] if the rest of a request will not come: what was taken may be
    /// incomplete. The request still has to be answered or [aborted](Self::abort).
    /// [`ReadError::Call`] if a call failed.
    ///
    /// ```
    /// use homa::Config;
    /// use homa::socket::{SendOptions, Socket, SocketEvent, Wanted};
    ///
    /// let server = Socket::bind("127.0.0.1:0".parse()?, Config::default())?;
    /// server.listen_early(1 << 20)?;
    /// let client = Socket::bind("127.0.0.1:0".parse()?, Config::default())?;
    /// client.send(server.local_addr(), vec![1; 300_000], &SendOptions::default())?;
    /// if let Ok(SocketEvent::Request { id, total, .. }) = server.receive(Wanted::Any) {
    ///     let mut sum = 0;
    ///     while let Some(bytes) = server.read(id)? {
    ///         sum += bytes.iter().map(|&byte| usize::from(byte)).sum::<usize>();
    ///     }
    ///     assert_eq!((sum, total), (300_000, 300_000));
    ///     server.reply(id, None, sum.to_be_bytes())?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn read(&self, id: Id) -> Result<Option<Message>, ReadError> {
        self.read_piece(id, true)
    }

    /// As [`Self::read`], but fails with [`ReadError::WouldBlock`] instead of blocking. Then a
    /// receive returns [`SocketEvent::More`](super::SocketEvent::More), and the descriptor is
    /// readable, once more has arrived or the message has ended, unless the call is private.
    pub fn try_read(&self, id: Id) -> Result<Option<Message>, ReadError> {
        self.read_piece(id, false)
    }

    fn read_piece(&self, id: Id, wait: bool) -> Result<Option<Message>, ReadError> {
        let rpc = id.rpc;
        let selection =
            Selection { requests: false, responses: false, call: None, piece: Some(rpc) };
        let Some(mut access) = self.engine.here() else {
            return Err(ReadError::Ended(RequestError::Forked));
        };
        let known = access.waiters.mailbox().filter(|_| id.request);
        let known = known.and_then(|(mailbox, _)| mailbox.client_of(rpc));
        let deadline = known.and_then(|(until, _)| access.core.instant(until));
        let (mut ticket, mut wants_report) = (None, false);
        let piece = access.block(deadline, |state| {
            let SharedState { waiters, core, .. } = state;
            let (mailbox, wakes) = waiters.mailbox()?;
            if let Some(ticket) = ticket.take() {
                mailbox.stop_waiting(ticket);
            }
            let read = match id.request {
                true => mailbox.read(rpc, core, wakes),
                false => mailbox.read_response(rpc, core, wakes),
            };
            match read {
                Err(Unread::NotYet) if wait => {
                    ticket = Some(mailbox.wait(selection, thread::current()));
                    None
                }
                Err(Unread::NotYet) => {
                    match id.request {
                        true => mailbox.want_report(rpc),
                        false => mailbox.want_more(rpc),
                    }
                    wants_report = true;
                    Some(Err(Unread::NotYet))
                }
                piece => Some(piece),
            }
        });
        if let (Some(ticket), Some((mailbox, _))) = (ticket, access.waiters.mailbox()) {
            mailbox.stop_waiting(ticket);
        }
        if wants_report {
            access.watched();
        }
        access.accepted();
        drop(access);
        let late = Err(Unread::Ended(RequestError::DeadlineExceeded));
        piece.unwrap_or(late).map_err(ReadError::from)
    }

    /// Sends a request of `length` bytes that is [written](Self::write) while it is sent. The
    /// options' deadline includes the writing. [Aborting](Self::abort) the call gives it up.
    ///
    /// # Errors
    /// As [`Self::send`]: the declared length counts against
    /// [`send_memory`](crate::Config::send_memory) until the request is acknowledged.
    pub fn begin_send(
        &self,
        to: SocketAddr,
        length: usize,
        options: &SendOptions,
    ) -> Result<Id, CallError> {
        self.send(to, Payload::to_be_written(length), options)
    }

    /// Answers a request with a response of `length` bytes that is [written](Self::write) while it
    /// is sent. What has not arrived of the request does not come any more.
    /// [Aborting](Self::abort) the request gives the response up.
    ///
    /// # Errors
    /// As [`Self::reply`].
    pub fn begin_reply(
        &self,
        id: Id,
        to: Option<SocketAddr>,
        length: usize,
    ) -> Result<(), ReplyError> {
        self.reply(id, to, Payload::to_be_written(length))
    }

    /// Sends the next bytes of a request or a response that was begun. It never blocks. With the
    /// last byte the message is whole.
    ///
    /// ```
    /// # use homa::Config;
    /// # use homa::socket::{SendOptions, Socket, SocketEvent, Wanted};
    /// # let at = "127.0.0.1:0".parse()?;
    /// # let client = Socket::bind(at, Config::default())?;
    /// # let server = Socket::bind(at, Config::default())?;
    /// # server.listen()?;
    /// let call = client.begin_send(server.local_addr(), 1_000_000, &SendOptions::default())?;
    /// for n in 0..100 {
    ///     client.write(call, &[n; 10_000])?; // leaves while the next one is made
    /// }
    /// # let received = server.receive(Wanted::Any);
    /// # assert!(matches!(received, Ok(SocketEvent::Request { total: 1_000_000, .. })));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`WriteError::TooLong`]; [`WriteError::Gone`] if the call has ended, the client gave up, or
    /// no such message is being written.
    pub fn write(&self, id: Id, bytes: &[u8]) -> Result<(), WriteError> {
        let Some(mut access) = self.engine.here() else { return Err(WriteError::Forked) };
        let SharedState { waiters, core, .. } = &mut *access;
        let (mailbox, wakes) = waiters.mailbox().ok_or(WriteError::Gone)?;
        let written = match id.request {
            true => mailbox.write_reply(id.rpc, bytes, core, wakes),
            false => mailbox.write_request(id.rpc, bytes, core),
        };
        access.submitted();
        written
    }
}

impl From<Unread> for ReadError {
    fn from(unread: Unread) -> Self {
        match unread {
            Unread::NotYet => Self::WouldBlock,
            Unread::Ended(error) => Self::Ended(error),
            Unread::Failed(failure) => Self::Call(failure),
            Unread::Unknown => Self::Unknown,
            Unread::Closed => Self::Closed,
        }
    }
}
