//! homa-workload: under construction.
