//! Parts that know nothing of the protocol: tables, timers, random numbers.

pub(crate) mod frame;
mod prefetch;
pub(crate) mod random;
mod setters;
pub(crate) mod slab;
pub(crate) mod timer;
