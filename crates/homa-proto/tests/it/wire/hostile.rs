//! Malformed bytes, accidental or malicious: a typed drop, never a panic.
//!
//! `HOMA_FUZZ_SECONDS` lets the random searches here run longer than the fraction of a second that
//! they take by default; `fuzz/` has the coverage-guided form of the same claim.

use super::PEER;
use super::generator::{self, mirrored};
use arbtest::arbitrary::Unstructured;
use arbtest::arbtest;
use homa_proto::wire::{self, datagram};
use homa_proto::{Body, DropReason};

/// Searches with random bytes for as long as the environment says.
fn search(property: impl FnMut(&mut Unstructured<'_>) -> arbtest::arbitrary::Result<()>) {
    let seconds = std::env::var("HOMA_FUZZ_SECONDS").ok().and_then(|text| text.parse::<u64>().ok());
    let test = arbtest(property).size_max(4000);
    match seconds {
        Some(seconds) => test.budget_ms(1000 * seconds).run(),
        None => test.run(),
    }
}

#[test]
fn every_truncation_of_a_packet_is_detected() {
    arbtest(|u| {
        let (packet, payload) = generator::packet(u)?;
        let mut out = [0; 2000];
        let header = wire::encode(&packet, &mut out).unwrap();
        for cut in 0..header + payload.len() {
            let result = wire::decode(&out[..cut], PEER, 0);
            match packet.body {
                Body::Data(_) if cut == wire::DATA_LEN => {
                    assert_eq!(result, Err(DropReason::EmptyData));
                }
                Body::Data(_) if cut > wire::DATA_LEN => {
                    assert_eq!(result.unwrap().payload.len(), cut - wire::DATA_LEN);
                }
                // The layout without a priority.
                Body::Resend { .. } if cut == wire::RESEND_LEN - 1 => assert!(result.is_ok()),
                _ => assert_eq!(result, Err(DropReason::Truncated)),
            }
        }
        Ok(())
    });
}

#[test]
fn a_truncated_datagram_invents_no_packets() {
    arbtest(|u| {
        let mut buffer = [0; 4000];
        let mut writer = datagram::Writer::new(&mut buffer, 1).unwrap();
        let mut pushed = Vec::new();
        for _ in 0..u.int_in_range(2..=4)? {
            let (packet, _) = generator::packet(u)?;
            if writer.push(&packet).is_ok() {
                pushed.push(mirrored(&packet));
            }
        }
        let length = writer.len();
        if pushed.len() < 2 {
            return Ok(());
        }
        for cut in 0..length {
            match datagram::decode(&buffer[..cut]) {
                Err(reason) => assert_eq!(reason, DropReason::Truncated),
                Ok(datagram) => {
                    let read: Vec<_> = datagram.packets(PEER, 0).collect();
                    let whole = read.iter().flatten().count();
                    assert!(whole < pushed.len());
                    for (read, pushed) in read.iter().flatten().zip(&pushed) {
                        assert_eq!(read.packet.body, pushed.body);
                    }
                    assert!(read.iter().flat_map(|r| r.err()).all(|r| r == DropReason::Truncated));
                }
            }
        }
        Ok(())
    });
}

/// If a packet that was read is written and read again, the result should be the same.
fn survives(bytes: &[u8]) {
    let mut out = [0; 200];
    if let Ok(decoded) = wire::decode(bytes, PEER, 0) {
        let length = wire::encode(&mirrored(&decoded.packet), &mut out).unwrap();
        let again = [&out[..length], decoded.payload].concat();
        assert_eq!(wire::decode(&again, PEER, 0), Ok(decoded));
        assert!(!wire::pretty::received(&decoded.packet).to_string().is_empty());
    }
}

#[test]
fn arbitrary_bytes_of_every_type_are_read_or_dropped() {
    search(|u| {
        let kind = u.int_in_range(0x0f..=0x19)?;
        let mut bytes = u.bytes(u.len().min(120))?.to_vec();
        survives(&bytes);
        if let Some(byte) = bytes.get_mut(11) {
            *byte = kind;
        }
        survives(&bytes);
        if bytes.len() > wire::DATA_LEN {
            // A long message makes it likely that the range lies within.
            bytes[28] = 0xff;
            bytes[52] &= 0x7f;
            survives(&bytes);
        }
        Ok(())
    });
}

#[test]
fn arbitrary_datagrams_are_read_or_dropped() {
    search(|u| {
        let mut bytes = vec![1, u.int_in_range(0..=1)?];
        bytes.extend(u16::to_be_bytes(u.int_in_range(0..=3)? * 4));
        bytes.extend([0; 4]);
        bytes.extend(u.bytes(u.len())?);
        if let Ok(datagram) = datagram::decode(&bytes) {
            let packets: Vec<_> = datagram.packets(PEER, 0).collect();
            assert!(packets.len() <= 1 + bytes.len() / 2, "reading is bounded by the length");
            let packets: Vec<_> = packets.into_iter().flatten().collect();
            let mut out = vec![0; 100 + 2 * bytes.len()];
            let mut writer = datagram::Writer::new(&mut out, datagram.number).unwrap();
            for decoded in &packets {
                let slot = writer.push(&mirrored(&decoded.packet)).unwrap();
                slot.copy_from_slice(decoded.payload);
            }
            let length = writer.len();
            let again: Vec<_> =
                datagram::decode(&out[..length]).unwrap().packets(PEER, 0).flatten().collect();
            assert_eq!(again, packets);
        }
        Ok(())
    });
}

#[test]
fn unknown_versions_and_keys_are_dropped() {
    let mut out = [0; 100];
    let unknown_type = [0; 28];
    assert_eq!(wire::decode(&unknown_type, PEER, 0), Err(DropReason::UnknownType));

    let header = |version, key| {
        let mut bytes = vec![version, 0, 0, 0, 0, 0, 0, key];
        bytes.extend([0; 8]);
        bytes
    };
    assert_eq!(datagram::decode(&[]), Err(DropReason::Truncated));
    assert_eq!(datagram::decode(&[2]), Err(DropReason::UnknownVersion));
    assert_eq!(datagram::decode(&header(0, 0)), Err(DropReason::UnknownVersion));
    assert_eq!(datagram::decode(&header(1, 1)), Err(DropReason::UnknownKey));
    assert!(datagram::Writer::new(&mut out[..15], 0).is_err());
}

#[test]
fn an_unreadable_packet_does_not_hide_the_next() {
    let mut bytes = vec![1, datagram::AGGREGATE];
    bytes.extend([0; 14]);
    let mut busy = [0; 28];
    busy[11] = wire::kind::BUSY;
    bytes.extend([0, 0]); // A packet of no bytes.
    bytes.extend([0, 28]);
    bytes.extend(busy);
    bytes.extend([0, 29]); // One byte more than there is.
    bytes.extend(busy);
    let datagram = datagram::decode(&bytes).unwrap();
    let read: Vec<_> =
        datagram.packets(PEER, 0).map(|read| read.map(|read| read.packet.body)).collect();
    let truncated = Err(DropReason::Truncated);
    assert_eq!(read, [truncated, Ok(Body::Busy { come_back: None }), truncated]);
}

#[test]
fn no_message_on_the_wire_uses_port_0() {
    let mut bytes = [0; 61];
    (bytes[11], bytes[27], bytes[31]) = (wire::kind::DATA, 2, 5);
    assert_eq!(wire::decode(&bytes, PEER, 0).map(|d| d.packet), Err(DropReason::NoServer));
    bytes[3] = 1;
    assert_eq!(wire::decode(&bytes, PEER, 0).map(|d| d.packet), Err(DropReason::NoServer));
    bytes[1] = 1;
    assert!(wire::decode(&bytes, PEER, 0).is_ok());
}
