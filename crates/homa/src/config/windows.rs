//! Windows for any link rate: RTTbytes (Homa §3.3) and the bytes of all grants together.
//!
//! Invariant: what is granted at a time fits into the receive buffer, unless the buffer is too
//! small for the windows of a link of unknown rate. Left out: the RTTbytes of a link, which the
//! protocol measures.

use homa_proto::{GrantWindow, Rate};

/// The rate that the protocol assumes for loopback, which has none: it allows the largest windows.
pub(crate) const LOOPBACK: Rate = Rate::gbps(100);

/// Most RTTbytes, as time. A kernel may take this long to turn a grant into data, and the window
/// has to last for it.
const RTT_MAX: homa_proto::Duration = homa_proto::Duration::micros(40);
/// Most RTTbytes on a link of about 1 Gbit/s, in bytes. More would only fill the buffers of
/// switches.
const RTT_BYTES_SLOW: u32 = 60_000;
/// Most RTTbytes on a link whose rate is not known, or that has none, in bytes, and on any link if
/// the receive buffer is small.
const RTT_BYTES_UNKNOWN: u32 = 240_000;
/// Most RTTbytes on any link, in bytes: what 800 Gbit/s carry in [`RTT_MAX`].
const RTT_BYTES_MAX: u32 = 4_000_000;

/// Most RTTbytes on a link of the given rate, in bytes; `None` if it is not known, or is no wire.
/// The receive buffer may allow less.
pub(crate) fn rtt_bytes_max(wire: Option<Rate>) -> u32 {
    let window = |rate: Rate| rate.bytes_in(RTT_MAX).min(RTT_BYTES_MAX.into()) as u32;
    wire.map_or(RTT_BYTES_UNKNOWN, |rate| window(rate).max(RTT_BYTES_SLOW))
}

/// The profile for users, with windows for any link rate.
pub(super) fn users() -> homa_proto::Config {
    homa_proto::Config::for_users(None).windows_up_to(RTT_BYTES_UNKNOWN)
}

/// Lets the windows of [`users`] grow on fast links, if the receive buffer holds all that is
/// granted then. Windows that were chosen stay.
pub(super) fn fit(protocol: &mut homa_proto::Config, receive_buffer: u32) {
    let usual = users();
    if (protocol.rtt_bytes_max, protocol.window) == (usual.rtt_bytes_max, usual.window) {
        let fits = receive_buffer / GrantWindow::LARGEST_AT_A_TIME;
        let most = fits.clamp(RTT_BYTES_UNKNOWN, RTT_BYTES_MAX);
        *protocol = protocol.clone().windows_up_to(most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;
    use crate::driver::Encapsulation;

    #[test]
    fn windows_follow_the_link_and_the_receive_buffer() {
        let at = |gbps| rtt_bytes_max(Some(Rate::gbps(gbps)));
        assert_eq!([1, 10, 25, 100, 400].map(at), [60_000, 60_000, 125_000, 500_000, 2_000_000]);
        assert_eq!((at(1_600), rtt_bytes_max(None)), (4_000_000, 240_000));
        let windows = |config: &Config, receive_buffer| {
            let protocol = config.complete(receive_buffer, Encapsulation::Datagram).unwrap();
            let GrantWindow::RttBytesShared { max_incoming } = protocol.window else {
                panic!("{:?}", protocol.window)
            };
            (protocol.rtt_bytes_max, max_incoming)
        };
        // Linux grants 208 KiB unless the system allows more.
        assert_eq!(windows(&Config::default(), 212_992), (240_000, 960_000));
        assert_eq!(windows(&Config::default(), 4 << 20), (1 << 20, 4 << 20));
        assert_eq!(windows(&Config::default(), 64 << 20), (4_000_000, 16_000_000));
        // A limit that was chosen stays.
        let mut chosen = Config::default();
        chosen.protocol.rtt_bytes_max = 100_000;
        assert_eq!(windows(&chosen, 64 << 20), (100_000, 960_000));
    }
}
