//! The integration tests of `homa` in one program, because each program costs a build, a link step
//! and disk space. Four tests that look at the whole process have their own programs: `spans` sets
//! its `tracing` subscriber, `opentelemetry` its tracer provider, `rebind` counts its descriptors,
//! and the soak test of `hostile` measures its memory.

#[path = "../common/alone.rs"]
mod alone;
#[path = "../common/before.rs"]
mod before;
#[path = "../common/mod.rs"]
mod common;
#[path = "../common/datagram.rs"]
mod datagram;
#[path = "../common/hosts.rs"]
mod hosts;
#[path = "../common/kernel.rs"]
mod kernel;
#[path = "../common/net.rs"]
mod net;
#[cfg(feature = "encryption")]
#[path = "../common/relay.rs"]
mod relay;

mod abandoned;
#[cfg(feature = "balance")]
mod balance;
mod calls;
#[cfg(feature = "encryption")]
mod certificates;
mod closed_descriptor;
mod deadlines;
mod destructors;
mod drain;
mod early;
mod egress;
#[cfg(feature = "encryption")]
mod encrypted;
#[cfg(feature = "encryption")]
mod encrypted_drivers;
mod examples;
mod from_socket;
mod full_queue;
mod graceful;
mod handover;
mod healthy;
mod hostile_raw;
mod jumbo;
mod kernel_dialects;
mod leaders;
mod link_flap;
mod metrics;
#[cfg(feature = "metrics-http")]
mod metrics_http;
mod networks;
mod orphans;
mod overload;
mod paced;
#[cfg(feature = "encryption")]
mod padding;
mod path_mtu;
mod probes;
mod reactor;
mod readable;
mod refused;
mod restart;
mod room;
#[cfg(feature = "encryption")]
mod round_trips;
mod sharded;
mod sharded_moves;
#[cfg(feature = "tokio")]
mod sharded_threads;
mod sizes;
mod socket;
mod socket_pieces;
mod stall;
#[cfg(feature = "testing")]
mod testing;
#[cfg(feature = "tokio")]
mod tokio_drives;
#[cfg(feature = "tokio")]
mod tokio_mix;
#[cfg(feature = "tower")]
mod tower;
#[cfg(all(feature = "tower", feature = "tokio"))]
mod tower_serve;
#[cfg(feature = "encryption")]
mod unprotected;
mod wait_for_ready;
mod watchdog;
mod writing;
#[cfg(feature = "xdp")]
mod xdp;
#[cfg(feature = "xdp")]
mod xdp_batch;
