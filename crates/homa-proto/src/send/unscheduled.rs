//! How many bytes of a message go unscheduled (Homa §3.2): RTTbytes, so that the first grant
//! arrives when they have left.

use crate::config::{Config, UnscheduledLimit};
use crate::peer::Peer;

/// Most bytes of a message that go unscheduled if RTTbytes are more and receive buffers are of
/// usual sizes: what the kernel module's author found best at 25 and 100 Gbit/s. With more, a few
/// senders could fill the buffer of a switch port unasked.
const MAX_UNSCHEDULED: u32 = 60_000;

/// With a larger receive buffer, as links above 100 Gbit/s need one, the unscheduled bytes of this
/// many senders fit at the same time.
const SENDERS: u32 = 128;

/// Most unscheduled bytes of one message, whatever RTTbytes is. A peer may send as much to us, and
/// is assumed to have as large a buffer until it names its limit.
pub(crate) fn max_unscheduled(config: &Config) -> u32 {
    match config.unscheduled {
        UnscheduledLimit::RttBytes => MAX_UNSCHEDULED.max(config.receive_buffer / SENDERS),
        UnscheduledLimit::Fixed(_) => MAX_UNSCHEDULED,
    }
}

/// How many bytes of a message to `peer` go unscheduled (Homa §3.2). Profile `default` fills
/// packets.
pub(crate) fn unscheduled_limit(config: &Config, peer: &Peer) -> u32 {
    let limit = match config.unscheduled {
        // Homa §3.2: the first RTTbytes need no grant.
        UnscheduledLimit::RttBytes => peer.rtt_bytes().min(max_unscheduled(config)),
        UnscheduledLimit::Fixed(bytes) => bytes,
    };
    // The receiver may have less buffer than RTTbytes from each sender.
    let limit = limit.min(peer.unscheduled_cap());
    match config.profile.policy().grants.whole_packets {
        // Part of a packet would cost the headers of a full one.
        true => (limit / peer.info.max_payload).max(1) * peer.info.max_payload,
        false => limit.max(1),
    }
}

/// Most unscheduled bytes of any sender of this profile, except for the rest of a packet.
pub(crate) fn most_unscheduled(config: &Config) -> u32 {
    match config.unscheduled {
        // DATA that does not say how much comes unasked may be of a message that comes whole.
        _ if config.start_msg.is_some() => config.max_message,
        UnscheduledLimit::RttBytes => max_unscheduled(config),
        UnscheduledLimit::Fixed(bytes) => bytes.max(max_unscheduled(config)),
    }
}
