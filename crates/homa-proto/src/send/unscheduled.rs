//! How many bytes of a message go unscheduled (Homa §3.2): RTTbytes, so that the first grant
//! arrives when they have left.

use crate::config::{Config, UnscheduledLimit};
use crate::peer::Peer;

/// Homa §3.2: the first RTTbytes of a message are sent at once, without a GRANT.
///
/// Example: if RTTbytes are 10,000, a message of 50,000 bytes sends 10,000 unscheduled. The memory
/// of either end may allow less ([`unscheduled_limit`]).
const fn unscheduled_bytes(rule: UnscheduledLimit, rtt_bytes: u32) -> u32 {
    match rule {
        UnscheduledLimit::RttBytes => rtt_bytes,
        // Linux: a constant in place of RTTbytes.
        UnscheduledLimit::Fixed(bytes) => bytes,
    }
}

/// How many bytes of a message to `peer` go unscheduled, within the limits of both ends. Profile
/// `default` fills packets.
pub(crate) fn unscheduled_limit(config: &Config, peer: &Peer) -> u32 {
    let rtt_bytes = peer.rtt_bytes().min(max_unscheduled(config));
    let bytes = unscheduled_bytes(config.unscheduled, rtt_bytes);
    // The receiver may have less buffer than RTTbytes from each sender.
    let limit = bytes.min(peer.unscheduled_cap());
    match config.profile.policy().grants.whole_packets {
        true => whole_packets(limit, peer.info.max_payload),
        // At least a byte, because the receiver learns about the message from it.
        false => limit.max(1),
    }
}

/// The whole packets in `limit` bytes, at least one: part of a packet would cost the headers of a
/// full one.
fn whole_packets(limit: u32, payload: u32) -> u32 {
    (limit / payload).max(1) * payload
}

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

/// Most unscheduled bytes of any sender of this profile, except for the rest of a packet.
pub(crate) fn most_unscheduled(config: &Config) -> u32 {
    match config.unscheduled {
        // DATA that does not say how much comes unasked may be of a message that comes whole.
        _ if config.start_msg.is_some() => config.max_message,
        UnscheduledLimit::RttBytes => max_unscheduled(config),
        UnscheduledLimit::Fixed(bytes) => bytes.max(max_unscheduled(config)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::PeerInfo;
    use crate::units::{Rate, Time};

    #[test]
    fn the_first_rtt_bytes_of_a_message_need_no_grant() {
        assert_eq!(unscheduled_bytes(UnscheduledLimit::RttBytes, 10_000), 10_000);
        assert_eq!(unscheduled_bytes(UnscheduledLimit::Fixed(40_000), 10_000), 40_000);
    }

    /// The unscheduled bytes of a long message in packets of 1,400 bytes.
    fn unscheduled(config: Config) -> u32 {
        let info = PeerInfo { host: 1, max_payload: 1_400 };
        unscheduled_limit(&config, &Peer::new(&config, info, 0, Time::ZERO))
    }

    #[test]
    fn unscheduled_bytes_fill_packets_and_fit_into_buffers() {
        let (paper, users) = (Config::sigcomm18, Config::for_users);
        let gbps = Rate::gbps(10);
        for (want, config) in [
            (10_000, paper(gbps).rtt_bytes(10_000)),
            (9_800, users(gbps).rtt_bytes(10_000)),
            // At least one packet, and not more than buffers are sized for.
            (1_400, users(gbps).rtt_bytes(1_000)),
            (58_800, users(gbps).rtt_bytes(500_000).rtt_bytes_max(500_000)),
        ] {
            assert_eq!(unscheduled(config), want);
        }
    }
}
