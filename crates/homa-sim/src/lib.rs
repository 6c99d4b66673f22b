//! homa-sim: under construction.
