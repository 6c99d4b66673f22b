//! Parts without protocol rules: tables, timers, random numbers, wire bytes of frames.

pub(crate) mod frame;
mod prefetch;
pub(crate) mod random;
mod setters;
pub(crate) mod slab;
pub(crate) mod timer;
