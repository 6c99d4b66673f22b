//! Basic sender behaviour (Homa §3.2): unscheduled bytes at once, scheduled bytes as granted, SRPT
//! over all messages that may send, control packets before all DATA.
//!
//! | file | what |
//! |---|---|
//! | `unscheduled` | how many bytes go without a grant |
//! | `srpt`, `queues` | the order of messages, and one queue per link |
//! | `message` | one outgoing message |
//! | `levels` | the levels of granted bytes (Homa §3.4) |
//! | `retransmit` | ranges that are sent again |
//! | `data`, `control` | packets as they leave |
//! | `routes` | which link they take |
//! | `packet_size` | packets whose size changes with the path |
//! | `write` | messages that are written while they are sent |

pub(crate) mod control;
mod data;
mod levels;
pub(crate) mod message;
mod packet_size;
pub(crate) mod queues;
mod retransmit;
mod routes;
mod srpt;
pub(crate) mod unscheduled;
mod write;

pub(crate) use message::PacketSizes;
