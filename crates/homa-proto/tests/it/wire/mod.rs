//! Claims about the codec: `homa_proto::wire` against vectors, properties, hostile bytes and its
//! specification page.

mod document;
mod generator;
mod hostile;
mod liberal;
mod pretty;
mod round_trip;
mod told;
mod vectors;

use homa_proto::PeerId;

/// The peer that every packet here comes from.
const PEER: PeerId = PeerId(7);
