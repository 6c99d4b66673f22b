//! The options of START_MSG: see `wire/start_msg`.

use super::{Config, Profile};
use crate::wire::kind;

/// The wire of public forks of the kernel module since September 2026. A message that is longer
/// than its unscheduled bytes is announced with START_MSG and waits for grants.
///
/// Which of the two wires a peer has is learned from what it sends. Nothing here was tested with
/// such a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartMsg {
    /// The packet type of START_MSG.
    pub opcode: u8,
    /// What became of the field `incoming` of DATA.
    pub layout: DataLayout,
}

/// What became of the four bytes of `incoming` in DATA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataLayout {
    /// They are reserved, and 0.
    Reserved,
    /// They are gone, and what followed moved to their place.
    Removed,
}

impl Config {
    /// Also speaks the wire with START_MSG, to peers that show that they do.
    #[must_use]
    pub fn start_msg(self, opcode: u8, layout: DataLayout) -> Self {
        Self { start_msg: Some(StartMsg { opcode, layout }), ..self }
    }

    /// True if the options of START_MSG fit the others.
    pub(super) fn start_msg_fits(&self) -> bool {
        let fits = |start: StartMsg| {
            self.profile == Profile::Linux && !(kind::DATA..=kind::ACK).contains(&start.opcode)
        };
        self.start_msg.is_none_or(fits)
    }
}
