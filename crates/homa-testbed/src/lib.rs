//! homa-testbed: under construction.
