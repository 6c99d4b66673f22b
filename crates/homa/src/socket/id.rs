//! The ids of a socket's RPCs.

use homa_proto::RpcHandle;

/// An RPC of a socket. Its number is never 0; it is even for calls and odd for requests.
// The protocol's generations have 31 bits, which leaves one bit for the kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Id {
    pub(super) rpc: RpcHandle,
    pub(super) request: bool,
}

impl Id {
    pub(super) fn call(rpc: RpcHandle) -> Self {
        Self { rpc, request: false }
    }

    pub(super) fn request(rpc: RpcHandle) -> Self {
        Self { rpc, request: true }
    }

    /// The number.
    pub fn number(self) -> u64 {
        let handle = u64::from(self.rpc.generation) << 32 | u64::from(self.rpc.index);
        handle.wrapping_add(1) << 1 | u64::from(self.request)
    }

    /// The id with this number; `None` if no id has it.
    pub fn from_number(number: u64) -> Option<Self> {
        let handle = (number >> 1).checked_sub(1)?;
        let rpc = RpcHandle { index: handle as u32, generation: (handle >> 32) as u32 };
        Some(Self { rpc, request: number & 1 == 1 })
    }

    /// True for requests of others, false for our calls.
    pub fn is_request(self) -> bool {
        self.request
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_handle_of_the_protocol_has_a_unique_number() {
        for generation in [0, 1, u32::MAX >> 1] {
            for (index, request) in [(0, false), (0, true), (u32::MAX - 1, true)] {
                let id = Id { rpc: RpcHandle { index, generation }, request };
                assert_eq!(Id::from_number(id.number()), Some(id));
                assert_ne!(id.number(), 0);
            }
        }
        assert_eq!(Id::from_number(0), None);
    }
}
