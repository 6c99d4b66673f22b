//! Messages that are written while they are sent. Their length is declared at the beginning.
//!
//! A piece leaves as soon as it fills packets and the receiver has granted them, and is kept until
//! the message is acknowledged, because the receiver may ask for it again. So writing never blocks,
//! and the declared length counts as memory from the beginning. A writer that pauses delays no
//! other message.

use std::io;

use crate::call::Call;
use crate::error::{ReplyError, WriteError};
use crate::payload::Payload;
use crate::request::{RefusedReply, Request};
use crate::spans::RequestEnd;

/// The request of a call while it is written: see [`Client::call_writer`]. Dropping it before
/// [`Self::finish`] cancels the call, also at the server.
///
/// [`Client::call_writer`]: crate::Client::call_writer
#[derive(Debug)]
#[must_use = "dropping a writer cancels its call"]
pub struct CallWriter {
    call: Call,
    left: usize,
}

impl CallWriter {
    pub(crate) fn new(call: Call, left: usize) -> Self {
        Self { call, left }
    }

    /// Bytes of the declared length that were not written.
    pub fn left(&self) -> usize {
        self.left
    }

    /// Sends the next bytes. It never blocks.
    ///
    /// # Errors
    /// [`WriteError::TooLong`], or [`WriteError::Gone`] if the call has ended; [`Self::finish`]
    /// returns it with its result then.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        let left = left_after(self.left, bytes)?;
        self.call.push(bytes)?;
        self.left = left;
        Ok(())
    }

    /// Returns the call: await it, or [`wait`](Call::wait) for it.
    ///
    /// # Errors
    /// [`WriteError::Unfinished`] if the request is not whole and the call has not ended: it is
    /// cancelled.
    pub fn finish(self) -> Result<Call, WriteError> {
        match self.left {
            missing if missing > 0 && self.call.is_in_progress() => {
                Err(WriteError::Unfinished { missing })
            }
            _ => Ok(self.call),
        }
    }
}

/// The response to a request while it is written: see [`Request::reply_writer`]. If it is dropped
/// before its declared length was written, the call ends with
/// [`CallError::Abandoned`](crate::CallError::Abandoned).
#[derive(Debug)]
#[must_use = "dropping a writer gives the response up"]
pub struct ReplyWriter {
    request: Request,
    length: usize,
    left: usize,
}

impl Request {
    /// Answers the request with a response of `length` bytes that is written while it is sent. What
    /// has not arrived of the request does not come any more.
    ///
    /// # Errors
    /// As [`Self::reply`]; the returned response is empty.
    ///
    /// ```
    /// # use homa::{Client, Server};
    /// # let server = Server::bind("127.0.0.1:0".parse()?)?;
    /// # let call = Client::new()?.call_async(server.local_addr(), "a table");
    /// let request = server.accept().unwrap();
    /// let mut response = request.reply_writer(1_000_000)?;
    /// for n in 0..100 {
    ///     response.push(&[n; 10_000])?; // leaves while the next one is made
    /// }
    /// # assert_eq!(call.wait()?.len(), 1_000_000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reply_writer(mut self, length: usize) -> Result<ReplyWriter, Box<RefusedReply>> {
        let response = Payload::to_be_written(length);
        let (rpc, span) = (&mut self.rpc, &mut self.span);
        let result = match (*rpc, self.engine.here()) {
            (None, _) => Err(ReplyError::Gone),
            (_, None) => Err(ReplyError::Forked),
            (Some(handle), Some(mut access)) => {
                let result = access.core.reply(handle, response).map_err(|(error, _)| error);
                match result {
                    Err(ReplyError::Gone) => Self::end(rpc, span, access, RequestEnd::Gone),
                    Ok(()) if length == 0 => Self::end(rpc, span, access, RequestEnd::Replied),
                    _ => access.submitted(),
                }
                result
            }
        };
        match result {
            Ok(()) => Ok(ReplyWriter { request: self, length, left: length }),
            Err(error) => {
                let response = Payload::to_be_written(0);
                Err(Box::new(RefusedReply { error, request: self, response }))
            }
        }
    }
}

impl ReplyWriter {
    /// Bytes of the declared length that were not written.
    pub fn left(&self) -> usize {
        self.left
    }

    /// Sends the next bytes. It never blocks. With the last byte the response is complete.
    ///
    /// # Errors
    /// [`WriteError::TooLong`], or [`WriteError::Gone`] if the client gave up.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        let left = left_after(self.left, bytes)?;
        let Request { rpc, span, engine, .. } = &mut self.request;
        let Some(handle) = *rpc else {
            return if bytes.is_empty() { Ok(()) } else { Err(WriteError::Gone) };
        };
        let mut access = engine.here().ok_or(WriteError::Forked)?;
        if !access.core.write(handle, bytes) {
            Request::end(rpc, span, access, RequestEnd::Gone);
            return Err(WriteError::Gone);
        }
        self.left = left;
        match left {
            0 => {
                access.core.written(handle, self.length);
                Request::end(rpc, span, access, RequestEnd::Replied);
            }
            _ => access.submitted(),
        }
        Ok(())
    }

    /// Checks that the response is whole.
    ///
    /// # Errors
    /// [`WriteError::Unfinished`] if it is not: it is given up.
    pub fn finish(self) -> Result<(), WriteError> {
        match (self.left, self.request.rpc) {
            (0, _) => Ok(()),
            (_, None) => Err(WriteError::Gone),
            (missing, Some(_)) => Err(WriteError::Unfinished { missing }),
        }
    }
}

/// The bytes that are left after some were written.
pub(crate) fn left_after(left: usize, bytes: &[u8]) -> Result<usize, WriteError> {
    left.checked_sub(bytes.len()).ok_or(WriteError::TooLong { left })
}

/// Errors are of kind `Other` and contain the [`WriteError`].
impl io::Write for CallWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.push(bytes).map(|()| bytes.len()).map_err(io::Error::other)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Errors are of kind `Other` and contain the [`WriteError`].
impl io::Write for ReplyWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.push(bytes).map(|()| bytes.len()).map_err(io::Error::other)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
