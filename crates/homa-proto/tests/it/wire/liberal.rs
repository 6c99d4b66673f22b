//! Every layout that kernel modules of the last years send is understood, and fields that their
//! receivers ignore are ignored.

use super::PEER;
use super::generator::{self, mirrored, native};
use arbtest::arbtest;
use homa_proto::wire::{self, datagram};
use homa_proto::{
    AckEntry, Acks, Body, DropReason, Duration, Limits, RefusalReason, ResendLength, RpcId,
};

fn body(bytes: &[u8]) -> Result<Body, DropReason> {
    wire::decode(bytes, PEER, 0).map(|decoded| decoded.packet.body)
}

/// A packet of `len` bytes of one type between ports 1, zero but for the bytes given from 28 on.
fn packet<const N: usize>(kind: u8, len: usize, from_28: [u8; N]) -> Vec<u8> {
    let mut bytes = vec![0; len];
    (bytes[1], bytes[3], bytes[11]) = (1, 1, kind);
    bytes[28..28 + N].copy_from_slice(&from_28);
    bytes
}

#[test]
fn fields_that_receivers_ignore_may_hold_anything() {
    arbtest(|u| {
        let (packet, payload) = generator::packet(u)?;
        let mut out = [0; 2000];
        let length = wire::encode(&packet, &mut out).unwrap() + payload.len();
        for ignored in [8..11, 12..20] {
            u.fill_buffer(&mut out[ignored])?;
        }
        let decoded = wire::decode(&out[..length], PEER, packet.priority).unwrap();
        assert_eq!(decoded.packet, native(&mirrored(&packet)));
        Ok(())
    });
}

#[test]
fn a_grant_may_be_longer_and_a_resend_shorter() {
    let grant = packet(wire::kind::GRANT, 34, [0, 0, 1, 0, 2, 1]);
    assert_eq!(body(&grant), Ok(Body::Grant { offset: 256, priority: 2 }));
    let resend = packet(wire::kind::RESEND, 36, [0, 0, 1, 0, 0, 0, 0, 5]);
    let length = ResendLength::Bytes(5);
    assert_eq!(body(&resend), Ok(Body::Resend { offset: 256, length, priority: 7 }));
}

#[test]
fn absurd_priorities_are_the_highest() {
    let grant = packet(wire::kind::GRANT, 33, [0, 0, 0, 0, 200]);
    assert_eq!(body(&grant), Ok(Body::Grant { offset: 0, priority: 7 }));
    let resend = packet(wire::kind::RESEND, 37, [0, 0, 0, 0, 0, 0, 0, 1, 8]);
    assert!(matches!(body(&resend), Ok(Body::Resend { priority: 7, .. })));
}

#[test]
fn an_ack_counts_at_most_five_entries_and_only_ids_of_clients() {
    let mut bytes = packet(wire::kind::ACK, 90, [0, 9]);
    for (entry, id) in [4, 7, 0, 8, 10, 12].into_iter().enumerate() {
        bytes[30 + 10 * entry + 7] = id;
        bytes[30 + 10 * entry + 9] = 80;
    }
    let mut expected = Acks::default();
    for id in [4, 8, 10] {
        expected.push(AckEntry { id: RpcId(id), server_port: 80 }).unwrap();
    }
    assert_eq!(body(&bytes), Ok(Body::Ack(expected)));
    assert_eq!(body(&bytes[..79]), Err(DropReason::Truncated));

    bytes[29] = 1;
    let mut first = Acks::default();
    first.push(AckEntry { id: RpcId(4), server_port: 80 }).unwrap();
    assert_eq!(body(&bytes), Ok(Body::Ack(first)), "entries beyond the count are left over");
}

#[test]
fn data_without_bytes_or_beyond_its_message_is_dropped() {
    let data = |length: u32, sequence: u32, offset: u32, payload: usize| {
        let mut bytes = packet(wire::kind::DATA, wire::DATA_LEN + payload, length.to_be_bytes());
        bytes[4..8].copy_from_slice(&sequence.to_be_bytes());
        bytes[52..56].copy_from_slice(&offset.to_be_bytes());
        body(&bytes).map(|body| match body {
            Body::Data(data) => data.span.offset,
            other => panic!("{other:?} from a DATA packet"),
        })
    };
    assert_eq!(data(5, 0, 0, 5), Ok(0));
    assert_eq!(data(9, 4, u32::MAX, 5), Ok(4), "-1: the offset is in the sequence");
    assert_eq!(data(9, 0, 4, 5), Ok(4), "otherwise the sequence may be stale");
    assert_eq!(data(5, 0, 0, 0), Err(DropReason::EmptyData));
    assert_eq!(data(0, 0, 0, 5), Err(DropReason::EmptyData));
    assert_eq!(data(5, 0, 1, 5), Err(DropReason::BeyondEnd));
    assert_eq!(data(u32::MAX, 0, u32::MAX - 1, 2), Err(DropReason::BeyondEnd));
    assert_eq!(data(u32::MAX, u32::MAX, u32::MAX, 1), Err(DropReason::BeyondEnd));
}

#[test]
fn the_incast_limit_is_read_only_with_its_flag() {
    let incast = |flags, limit: [u8; 2]| {
        let mut bytes = packet(wire::kind::DATA, wire::DATA_LEN + 1, [0, 0, 0, 1]);
        bytes[49] = flags;
        bytes[50..52].copy_from_slice(&limit);
        match body(&bytes) {
            Ok(Body::Data(data)) => data.incast,
            other => panic!("{other:?} from a DATA packet"),
        }
    };
    assert_eq!(incast(0, [1, 0]), None);
    assert_eq!(incast(0xfe, [1, 0]), None, "garbage of older senders in the other bits");
    assert_eq!(incast(1, [1, 0]), Some(256));
    assert_eq!(incast(1, [0, 0]), Some(0));
}

/// A datagram with these extensions and one bare packet.
fn with_extensions(extensions: &[u8], kind: u8) -> Vec<u8> {
    let mut bytes = vec![1, 0];
    bytes.extend((extensions.len() as u16).to_be_bytes());
    bytes.extend([0; 12]);
    bytes.extend(extensions);
    bytes.extend(packet(kind, wire::CUTOFFS_LEN, []));
    bytes
}

#[test]
fn unknown_extensions_are_skipped() {
    let extensions = [
        [0, 99, 0, 0].as_slice(),
        &[0, 1, 0, 9, 0, 0, 1, 0, 0, 0, 0, 2, 77],
        &[0, 98, 0, 1, 5],
        &[0, 1, 0, 8, 9, 9, 9, 9, 9, 9, 9, 9],
    ]
    .concat();
    let mut bytes = with_extensions(&extensions, wire::kind::CUTOFFS);
    bytes[1] = 0xfe;
    let datagram = datagram::decode(&bytes).unwrap();
    assert_eq!(datagram.unknown_extensions, 2);
    let read: Vec<_> = datagram.packets(PEER, 0).collect();
    let Ok(Body::Cutoffs { limits, .. }) = read[0].map(|read| read.packet.body) else {
        panic!("{read:?}");
    };
    assert_eq!(limits, Some(Limits { max_message: 256, max_unscheduled: 2 }), "the first counts");
    assert_eq!(read.len(), 1);
}

#[test]
fn a_reason_that_is_not_known_is_as_if_none_were_given() {
    let lengths = [0, 0, 0, 9, 0, 0, 0, 7];
    let too_long = RefusalReason::ResponseTooLong { length: 9, max: 7 };
    for (value, reason) in [
        (&[9][..], None),
        (&[1, 5, 5], Some(RefusalReason::Overloaded)),
        (&[&[3][..], &lengths].concat(), Some(too_long)),
        (&[&[3][..], &lengths, &[1]].concat(), Some(too_long)),
    ] {
        let extension = [&[0, 8, 0, value.len() as u8][..], value].concat();
        let bytes = with_extensions(&extension, wire::kind::RPC_UNKNOWN);
        let datagram = datagram::decode(&bytes).unwrap();
        assert_eq!(datagram.unknown_extensions, 0);
        let read = datagram.packets(PEER, 0).next().unwrap().unwrap();
        let unknown = Body::RpcUnknown { remembered: None, no_server: false, reason };
        assert_eq!(read.packet.body, unknown, "{value:?}");
    }
}

#[test]
fn malformed_extensions_drop_the_datagram() {
    let truncated = |extensions: &[u8]| {
        let bytes = with_extensions(extensions, wire::kind::RPC_UNKNOWN);
        assert_eq!(datagram::decode(&bytes), Err(DropReason::Truncated), "{extensions:?}");
    };
    truncated(&[0, 99, 0]);
    truncated(&[0, 99, 0, 1]);
    truncated(&[0, 2, 0, 7, 0, 0, 0, 0, 0, 0, 0]);
    truncated(&[0, 2, 0, 8, 0, 0, 0, 0, 0, 0, 0]);
    truncated(&[0, 8, 0, 0]);
    truncated(&[0, 8, 0, 8, 3, 0, 0, 0, 9, 0, 0, 0]);
    truncated(&[0, 9, 0, 3, 0, 0, 0]);
    let mut bytes = with_extensions(&[], wire::kind::RPC_UNKNOWN);
    bytes[2] = 0xff;
    assert_eq!(datagram::decode(&bytes), Err(DropReason::Truncated));

    let remembered = [0, 2, 0, 8, 0, 0, 0, 0, 0, 0, 1, 0];
    for (more, no_server) in [(&[][..], false), (&[0, 5, 0, 0], true), (&[0, 5, 0, 1, 0], true)] {
        let bytes = with_extensions(&[&remembered, more].concat(), wire::kind::RPC_UNKNOWN);
        let datagram = datagram::decode(&bytes).unwrap();
        let read = datagram.packets(PEER, 0).next().unwrap().unwrap();
        let remembered = Some(Duration(256));
        assert_eq!(read.packet.body, Body::RpcUnknown { remembered, no_server, reason: None });
    }
}
