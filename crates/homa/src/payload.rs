//! The bytes of a message to send.

use bytes::Bytes;

use crate::message::Message;

/// The bytes of a message to send, made by `into()` from whatever holds them. Vectors, strings,
/// received [`Message`]s and [`Bytes`] are taken over without a copy; slices and arrays are copied.
/// To send the same bytes more than once, keep them in [`Bytes`].
///
/// ```
/// # use homa::{Client, Server};
/// # let server = Server::bind("127.0.0.1:0".parse()?)?;
/// # let address = server.local_addr();
/// # std::thread::spawn(move || while let Some(request) = server.accept() {
/// #     let _ = request.reply("done");
/// # });
/// let client = Client::new()?;
/// let picture = bytes::Bytes::from(vec![7; 1_000_000]);
/// for _ in 0..3 {
///     client.call(address, picture.clone())?;
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Payload(Held);

#[derive(Clone, Debug)]
enum Held {
    Alone(Vec<u8>),
    Shared(Bytes),
}

impl Payload {
    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.as_ref().len()
    }

    /// True without bytes: such a message is refused.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The vector, for its memory, unless the bytes are shared.
    pub(crate) fn into_memory(self) -> Option<Vec<u8>> {
        match self.0 {
            Held::Alone(bytes) => Some(bytes),
            Held::Shared(_) => None,
        }
    }
}

impl AsRef<[u8]> for Payload {
    fn as_ref(&self) -> &[u8] {
        match &self.0 {
            Held::Alone(bytes) => bytes,
            Held::Shared(bytes) => bytes,
        }
    }
}

impl From<Bytes> for Payload {
    fn from(bytes: Bytes) -> Self {
        Self(Held::Shared(bytes))
    }
}

impl From<Vec<u8>> for Payload {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Held::Alone(bytes))
    }
}

impl From<Message> for Payload {
    fn from(message: Message) -> Self {
        message.into_vec().into()
    }
}

impl From<String> for Payload {
    fn from(text: String) -> Self {
        text.into_bytes().into()
    }
}

impl From<Box<[u8]>> for Payload {
    fn from(bytes: Box<[u8]>) -> Self {
        bytes.into_vec().into()
    }
}

impl From<&[u8]> for Payload {
    fn from(bytes: &[u8]) -> Self {
        bytes.to_vec().into()
    }
}

impl From<&str> for Payload {
    fn from(text: &str) -> Self {
        text.as_bytes().into()
    }
}

impl<const N: usize> From<[u8; N]> for Payload {
    fn from(bytes: [u8; N]) -> Self {
        bytes.as_slice().into()
    }
}

impl<const N: usize> From<&[u8; N]> for Payload {
    fn from(bytes: &[u8; N]) -> Self {
        bytes.as_slice().into()
    }
}
