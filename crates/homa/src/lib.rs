//! homa: under construction.
