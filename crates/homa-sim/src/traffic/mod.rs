//! Traffic: who sends which message to whom, and when; and the book of what is under way.
//!
//! | module | what it decides |
//! |---|---|
//! | [`source`] | where messages come from |
//! | [`open_loop`] | Poisson arrivals per host, sizes, destinations |
//! | [`list`], [`flows`] | a list of messages, read from a file |
//! | [`closed`] | a closed loop |
//! | [`kinds`] | which hosts are of which of two kinds |
//! | [`planned`] | messages one by one, for the swarm |
//! | [`workflows`] | requests and responses that belong together |
//! | [`long`] | flows longer than a run; probes beside any traffic |
//! | `book`, `numbered` | messages under way, by sender and number |
//! | `generator` | the application that submits all of it and hears of deliveries |
//! | `paths` | how far apart hosts are |
//! | [`rate`] | from a load to messages per second and back |
//!
//! Everything random comes from streams named by host, so that a host's messages do not depend on
//! the others'.

mod book;
pub mod closed;
pub mod flows;
mod generator;
pub mod kinds;
pub mod list;
pub mod long;
pub mod open_loop;
mod paths;
pub mod planned;
pub mod rate;
pub mod source;
pub mod workflows;

pub use book::{Book, OpenMessage};
pub use closed::Closed;
pub use generator::{Generator, Limits, Pattern, SERVER_PORT, Tally};
pub use kinds::Kinds;
pub use list::MessageList;
pub use long::{LongFlows, Probing};
pub use paths::{Classes, Distance, HostPaths};
pub use planned::{Planned, PlannedCall};
pub use source::Source;
pub use workflows::{ClassCount, Workflows};
