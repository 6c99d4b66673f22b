//! Homa for everyone.
pub mod driver;
mod priority_map;
pub use priority_map::PriorityMap;
