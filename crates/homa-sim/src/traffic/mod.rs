//! Traffic: senders, receivers, sizes and times of messages, and the messages in flight.
//!
//! | module | what it has |
//! |---|---|
//! | [`source`] | the interface of sources of messages |
//! | [`open_loop`] | Poisson arrivals per host, sizes, destinations |
//! | [`list`], [`flows`] | a list of messages, read from a file |
//! | [`closed`] | a closed loop |
//! | [`kinds`] | division of hosts into two kinds |
//! | [`planned`] | messages one by one, for the swarm |
//! | [`tasks`] | messages that wait for each other |
//! | [`collective`] | collective operations as such messages |
//! | [`files`] | lists of messages and graphs of tasks in the formats of other simulators |
//! | [`workflows`] | requests and responses that belong together |
//! | [`long`] | flows longer than a run; probes in addition to any traffic |
//! | `book` | messages in flight, by sender and number |
//! | `generator` | the application that submits messages and records deliveries |
//! | `paths` | distances between hosts |
//! | [`rate`] | from a load to messages per second |
//! | `share` | the traffic of one partition of a network |
//!
//! All random numbers come from streams named by host, so that a host's messages do not depend on
//! those of other hosts.

mod book;
pub mod closed;
pub mod collective;
pub mod files;
pub mod flows;
mod generator;
pub mod kinds;
pub mod list;
pub mod long;
pub mod open_loop;
mod paths;
pub mod planned;
pub mod rate;
mod share;
pub mod source;
pub mod tasks;
pub mod workflows;

pub use book::{Book, OpenMessage};
pub use closed::Closed;
pub use generator::{Generator, Limits, Pattern, SERVER_PORT, Tally};
pub use kinds::Kinds;
pub use list::MessageList;
pub use long::{LongFlows, Probing};
pub use paths::{Classes, Distance, HostPaths};
pub use planned::{Planned, PlannedCall};
pub(crate) use share::Share;
pub use source::Source;
pub use tasks::{TaskGraph, TaskSource};
pub use workflows::{ClassCount, Workflows};
