//! Errors of the application: a code and a message in place of an answer.
//!
//! Homa carries bytes, so both ends have to agree on it: the server answers with [`Reply`]s, and
//! the client sets [`CallOptions::status`](method@crate::CallOptions::status). A reply then ends
//! with four bytes: `H`, `S`, the version 1, and the code. In front of them are the bytes of the
//! answer if the code is 0, and otherwise the message in UTF-8.
//!
//! Left out: details of other types, which an application puts into its answers.

use bytes::Bytes;

use crate::error::CallError;
use crate::message::Message;
use crate::payload::Payload;

/// What the end of a reply begins with.
const MARK: [u8; 3] = *b"HS\x01";
/// Bytes at the end of a reply.
const END: usize = MARK.len() + 1;

/// Defines the codes with their names.
macro_rules! codes {
    ($($(#[doc = $doc:literal])* $Code:ident = $number:literal, $name:literal;)*) => {
        /// Why the application did not do what was asked: the codes of gRPC without 0, which is the
        /// answer itself.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum StatusCode { $($(#[doc = $doc])* $Code = $number,)* }

        impl StatusCode {
            /// The name that gRPC gives it, such as `NOT_FOUND`.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$Code => $name,)* }
            }

            const fn from_number(number: u8) -> Option<Self> {
                match number { $($number => Some(Self::$Code),)* _ => None }
            }
        }
    };
}

codes! {
    /// The operation was cancelled, typically by the caller.
    Cancelled = 1, "CANCELLED";
    /// None of the others, or one that this version does not know.
    Unknown = 2, "UNKNOWN";
    /// The request makes no sense, whatever the state of the server.
    InvalidArgument = 3, "INVALID_ARGUMENT";
    /// The server's own deadline passed.
    DeadlineExceeded = 4, "DEADLINE_EXCEEDED";
    /// The requested entity does not exist.
    NotFound = 5, "NOT_FOUND";
    /// The entity that the request creates exists already.
    AlreadyExists = 6, "ALREADY_EXISTS";
    /// The caller may not do it.
    PermissionDenied = 7, "PERMISSION_DENIED";
    /// A quota or a resource is used up.
    ResourceExhausted = 8, "RESOURCE_EXHAUSTED";
    /// The state of the server does not allow it. It does not help to try again before that was
    /// changed.
    FailedPrecondition = 9, "FAILED_PRECONDITION";
    /// It was interrupted, for example by a concurrent transaction.
    Aborted = 10, "ABORTED";
    /// It is beyond the valid range.
    OutOfRange = 11, "OUT_OF_RANGE";
    /// The server does not implement it.
    Unimplemented = 12, "UNIMPLEMENTED";
    /// Something that must not happen.
    Internal = 13, "INTERNAL";
    /// The service is not available now: try again later.
    Unavailable = 14, "UNAVAILABLE";
    /// Data is lost or damaged.
    DataLoss = 15, "DATA_LOSS";
    /// The caller has not proved who it is.
    Unauthenticated = 16, "UNAUTHENTICATED";
}

/// An error of the application, at the server and at the client:
/// [`CallError::Status`](crate::CallError::Status).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {message}", code.name())]
pub struct Status {
    code: StatusCode,
    message: String,
}

impl Status {
    /// A code, and a message for the engineer who reads it.
    pub fn new(code: StatusCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// The code.
    pub fn code(&self) -> StatusCode {
        self.code
    }

    /// The message.
    pub fn message(&self) -> &str {
        &self.message
    }
}

/// An answer or a [`Status`], for clients that set
/// [`CallOptions::status`](method@crate::CallOptions::status).
///
/// ```
/// use homa::{CallError, CallOptions, Client, Reply, Server, Status, StatusCode};
///
/// let server = Server::bind("127.0.0.1:0".parse()?)?;
/// # let to = server.local_addr();
/// std::thread::spawn(move || {
///     while let Some(request) = server.accept() {
///         let found = match &*request {
///             b"7" => Ok("seven"),
///             _ => Err(Status::new(StatusCode::NotFound, "there is only 7")),
///         };
///         let _ = request.reply(Reply::from(found));
///     }
/// });
/// let (client, options) = (Client::new()?, CallOptions::default().status());
/// assert_eq!(client.call_with(to, "7", &options)?, *b"seven");
/// let error = client.call_with(to, "8", &options).unwrap_err();
/// assert!(matches!(&error, CallError::Status(status) if status.code() == StatusCode::NotFound));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "it is no answer until it is given to `Request::reply`"]
pub struct Reply(Payload);

impl Reply {
    /// An answer.
    pub fn answer(bytes: impl Into<Payload>) -> Self {
        /// Bytes that cost less to copy than a second piece of the answer.
        const SHORT: usize = 1000;
        let end = [MARK[0], MARK[1], MARK[2], 0];
        let (bytes, end_alone) = match bytes.into().into_memory() {
            // A long answer without room for the end would be copied.
            Ok(bytes) if bytes.len() > SHORT && bytes.capacity() - bytes.len() < end.len() => {
                (Bytes::from(bytes), Bytes::copy_from_slice(&end))
            }
            Ok(mut bytes) => {
                bytes.extend_from_slice(&end);
                return Self(bytes.into());
            }
            Err(shared) => (Bytes::from(shared), Bytes::copy_from_slice(&end)),
        };
        Self([bytes, end_alone].into())
    }
}

impl From<Status> for Reply {
    fn from(status: Status) -> Self {
        let mut bytes = status.message.into_bytes();
        bytes.extend_from_slice(&MARK);
        bytes.push(status.code as u8);
        Self(bytes.into())
    }
}

impl<P: Into<Payload>> From<Result<P, Status>> for Reply {
    fn from(result: Result<P, Status>) -> Self {
        result.map_or_else(Self::from, Self::answer)
    }
}

impl From<Reply> for Payload {
    fn from(reply: Reply) -> Self {
        reply.0
    }
}

/// The answer in a reply, or its status.
pub(crate) fn read(reply: Message) -> Result<Message, CallError> {
    let mut bytes = reply.into_vec();
    let status = |code, message: String| CallError::Status(Box::new(Status::new(code, message)));
    let code = match bytes.last_chunk::<END>() {
        Some([mark @ .., code]) if *mark == MARK => *code,
        _ => {
            let text = "the server replies without a status: answer with `homa::Reply` there, or \
                        call without `CallOptions::status`";
            return Err(status(StatusCode::Unknown, text.to_owned()));
        }
    };
    bytes.truncate(bytes.len() - END);
    if code == 0 {
        return Ok(bytes.into());
    }
    let code = StatusCode::from_number(code).unwrap_or(StatusCode::Unknown);
    Err(status(code, String::from_utf8_lossy(&bytes).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(reply: Reply) -> Message {
        Payload::from(reply).parts().collect::<Vec<_>>().concat().into()
    }

    #[test]
    fn an_answer_of_any_kind_arrives_as_it_was_given() {
        let list = [Bytes::from("in "), Bytes::from("parts")];
        let shared = Bytes::from_static(b"shared");
        for (given, expected) in [
            (Payload::from(list), "in parts"),
            (shared.into(), "shared"),
            ("a string".into(), "a string"),
            (Vec::<u8>::new().into(), ""),
        ] {
            assert_eq!(read(sent(Reply::answer(given))).unwrap(), *expected.as_bytes());
        }
    }

    #[test]
    fn every_code_keeps_its_number_name_and_message() {
        let mut names = Vec::new();
        for number in 1..=16 {
            let code = StatusCode::from_number(number).unwrap();
            assert_eq!(code as u8, number);
            let given = Status::new(code, "for a reason");
            assert_eq!(given.to_string(), format!("{}: for a reason", code.name()));
            let reply = sent(Reply::from(given.clone()));
            assert_eq!(reply[reply.len() - 4..], [b'H', b'S', 1, number]);
            assert_eq!(read(reply), Err(CallError::Status(Box::new(given))));
            names.push(code.name());
        }
        assert_eq!((names[4], names[15]), ("NOT_FOUND", "UNAUTHENTICATED"));
        assert_eq!(StatusCode::from_number(0).or(StatusCode::from_number(17)), None);
    }

    #[test]
    fn replies_of_other_servers_are_a_status_too() {
        let unknown = |bytes: &[u8], text: &str| {
            let error = read(bytes.to_vec().into()).unwrap_err();
            let CallError::Status(status) = error else { panic!("{error}") };
            assert_eq!(status.code(), StatusCode::Unknown);
            assert!(status.message().contains(text), "{status}");
        };
        for bytes in [&b""[..], b"plain", b"HS\x01", b"HS\x02\x00", b"\x00HS\x01"] {
            unknown(bytes, "without a status");
        }
        unknown(b"later HS\x01\x63", "later");
        unknown(b"\xff\xfeHS\x01\x02", "\u{fffd}");
    }
}
