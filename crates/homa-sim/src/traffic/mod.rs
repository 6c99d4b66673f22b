//! Traffic: who sends which message to whom, and when; and the book of what is under way.
//!
//! | module | what it decides |
//! |---|---|
//! | [`open_loop`] | Poisson arrivals per host, sizes, destinations |
//! | [`flows`] | a list of messages from a file |
//! | `book`, `numbered` | messages under way, by sender and number |
//! | `generator` | the application that submits all of it and hears of deliveries |
//! | `ways` | how far apart hosts are |
//! | [`rate`] | from a load to messages per second and back |
//!
//! Everything random comes from streams named by host, so that a host's messages do not depend on
//! the others'.

mod book;
pub mod flows;
mod generator;
mod numbered;
pub mod open_loop;
pub mod rate;
mod ways;

pub use book::{Book, Message};
pub use generator::{Generator, Limits, Pattern, SERVER_PORT, Tally, number};
pub use numbered::Numbered;
pub use ways::{Classes, Distance, Ways};
