//! What the wire alone costs an echo RPC on the idle rack: the bound below every measured round
//! trip.

use homa_workload::framing::{FULL_FRAME, Framing};

/// Microseconds that an echo of `bytes` takes on two links per direction with a store-and-forward
/// switch between them, software aside: one way, all frames on the first link and then the first
/// frame's length again, because each later frame is sent on while the next one arrives.
///
/// 100 B over UDP at 100 Mbit/s: 238 wire bytes, four times 19.04 us.
pub fn echo_us(bytes: u32, framing: Framing, link_bps: u64) -> f64 {
    let wire = framing.data_wire_bytes(bytes);
    let one_way_bytes = wire + wire.min(FULL_FRAME);
    2.0 * one_way_bytes as f64 * 8e6 / link_bps as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_frame_is_sent_four_times_and_a_train_overlaps_itself() {
        let us = |bytes| echo_us(bytes, Framing::Udp, 100_000_000);
        assert!((us(100) - 4.0 * 19.04).abs() < 1e-9);
        // Two full frames: three frame times each way.
        assert!((us(2800) - 6.0 * 123.04).abs() < 1e-9);
    }
}
