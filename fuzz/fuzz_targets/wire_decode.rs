//! Arbitrary bytes, decoded in both encapsulations: no panic, and a decoded packet is unchanged
//! after it was encoded and decoded again.
#![no_main]

use homa_proto::wire::datagram::{self, RequestExtensions};
use homa_proto::wire::{self, Decoded};
use homa_proto::{Packet, PeerId};
use libfuzzer_sys::fuzz_target;

const PEER: PeerId = PeerId(0);

/// The packet as its receiver would have sent it.
fn mirrored(packet: &Packet) -> Packet {
    Packet { local_port: packet.remote_port, remote_port: packet.local_port, ..*packet }
}

fn native(bytes: &[u8]) {
    let Ok(decoded) = wire::decode(bytes, PEER, 0) else { return };
    let mut header = [0; wire::ACK_LEN];
    let length = wire::encode(&mirrored(&decoded.packet), &mut header).expect("ACK is the longest");
    let again = [&header[..length], decoded.payload].concat();
    // The marks of DATA are those of the format over UDP.
    let unmarked = Decoded { empty: false, idempotent: false, ..decoded };
    assert_eq!(wire::decode(&again, PEER, 0), Ok(unmarked));
    assert!(!wire::pretty::received(&decoded.packet).to_string().is_empty());
}

fn udp(bytes: &[u8]) {
    let Ok(datagram) = datagram::decode(bytes) else { return };
    let all = datagram.packets(PEER, 0).count();
    assert!(all <= 1 + bytes.len() / 2, "reading is bounded by the length");
    let packets: Vec<Decoded> = datagram.packets(PEER, 0).flatten().collect();

    let mut out = vec![0; 100 + 2 * bytes.len()];
    let mut writer = datagram::Writer::new(&mut out, datagram.number).expect("room for a header");
    for decoded in &packets {
        let told = RequestExtensions { idempotent: decoded.idempotent, ..RequestExtensions::NONE };
        let slot = writer.push_request(&mirrored(&decoded.packet), &told);
        slot.expect("room, and equal extensions").copy_from_slice(decoded.payload);
    }
    if writer.is_empty() {
        return;
    }
    let length = writer.len();
    let again = datagram::decode(&out[..length]).expect("we wrote it");
    assert_eq!(again.number, datagram.number);
    // Only a draft marks a message without bytes.
    let unmarked = packets.into_iter().map(|decoded| Ok(Decoded { empty: false, ..decoded }));
    assert!(again.packets(PEER, 0).eq(unmarked));
}

fuzz_target!(|bytes: &[u8]| {
    native(bytes);
    udp(bytes);
});
