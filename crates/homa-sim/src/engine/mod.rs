//! The deterministic core: what happens next, where packets rest.

mod event_queue;
mod pool;

pub use event_queue::EventQueue;
pub use pool::Pool;
