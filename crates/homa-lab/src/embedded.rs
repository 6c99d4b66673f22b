//! Data that the build script embeds: the plans of `repro/`, and the digest of the simulator's
//! sources.

include!(concat!(env!("OUT_DIR"), "/embedded.rs"));
