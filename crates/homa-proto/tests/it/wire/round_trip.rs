//! A packet that is written should be the same when it is read, in both encapsulations.

use super::PEER;
use super::generator::{self, mirrored, native};
use arbtest::arbtest;
use homa_proto::wire::datagram::{self, Draft, RequestExtensions};
use homa_proto::wire::{self, EncodeError};
use homa_proto::{Body, Duration, Limits, Packet, RefusalReason, RpcId};

const ROOM: usize = 2000;

#[test]
fn a_native_packet_is_read_as_it_was_written() {
    arbtest(|u| {
        let (packet, payload) = generator::packet(u)?;
        let mut out = [0xee; ROOM];
        let length = wire::encode(&packet, &mut out).unwrap();
        assert_eq!(length, wire::encoded_len(&packet.body));
        out[length..length + payload.len()].copy_from_slice(&payload);

        let bytes = &out[..length + payload.len()];
        let decoded = wire::decode(bytes, PEER, packet.priority).unwrap();
        assert_eq!(decoded.packet, native(&mirrored(&packet)));
        assert_eq!(decoded.payload, payload);
        Ok(())
    });
}

#[test]
fn both_writers_write_the_same_single_packet() {
    arbtest(|u| {
        let (packet, payload) = generator::packet(u)?;
        let number = u.arbitrary()?;
        let mut single = [0xee; ROOM];
        let length = datagram::encode(&packet, number, &mut single).unwrap();
        single[length..length + payload.len()].copy_from_slice(&payload);

        let mut buffer = [0xdd; ROOM];
        let mut writer = datagram::Writer::new(&mut buffer, number).unwrap();
        writer.push(&packet).unwrap().copy_from_slice(&payload);
        let written = writer.len();
        assert_eq!(single[..length + payload.len()], buffer[..written]);

        let read = datagram::decode(&buffer[..written]).unwrap();
        assert_eq!(read.number, number);
        let mut packets = read.packets(PEER, packet.priority);
        let decoded = packets.next().unwrap().unwrap();
        assert_eq!(decoded.packet, mirrored(&packet));
        assert_eq!(decoded.payload, payload);
        assert!(packets.next().is_none());
        Ok(())
    });
}

#[test]
fn an_aggregate_is_read_as_it_was_written() {
    arbtest(|u| {
        let mut buffer = vec![0xdd; u.int_in_range(datagram::HEADER_LEN..=4000)?];
        let mut writer = datagram::Writer::new(&mut buffer, 9).unwrap();
        let mut accepted: Vec<(Packet, Vec<u8>)> = Vec::new();
        for _ in 0..u.int_in_range(0..=20)? {
            let (packet, payload) = generator::packet(u)?;
            let packet = Packet { priority: 3, ..packet };
            let before = writer.len();
            match writer.push(&packet) {
                Ok(slot) => {
                    slot.copy_from_slice(&payload);
                    accepted.push((packet, payload));
                }
                Err(EncodeError::BufferTooSmall { needed }) => {
                    assert!(needed > before);
                    assert_eq!(writer.len(), before);
                }
                Err(_) => assert_eq!(writer.len(), before),
            }
        }
        let length = writer.len();
        if accepted.is_empty() {
            return Ok(());
        }
        let read = datagram::decode(&buffer[..length]).unwrap();
        let packets: Vec<_> = read.packets(PEER, 3).map(|packet| packet.unwrap()).collect();
        assert_eq!(packets.len(), accepted.len());
        for (decoded, (packet, payload)) in packets.iter().zip(&accepted) {
            assert_eq!(decoded.packet, mirrored(packet));
            assert_eq!(decoded.payload, payload);
        }
        // An ICMP report quotes all of it, or a part.
        let begins =
            |packet: &Packet| matches!(packet.body, Body::Data(data) if data.span.offset == 0);
        let sent = || accepted.iter().map(|(packet, _)| (packet.id, begins(packet)));
        let shown = |bytes| datagram::quoted(bytes).map(|shown| (shown.id, shown.begins));
        let proof = sent().find(|&(_, begins)| begins).or(sent().next());
        assert_eq!(shown(&buffer[..length]), proof);
        let part = shown(&buffer[..u.int_in_range(0..=length)?]);
        let was_sent =
            |part: (RpcId, bool)| sent().any(|(id, begins)| id == part.0 && (begins || !part.1));
        assert!(part.is_none_or(was_sent));
        Ok(())
    });
}

#[test]
fn packets_with_other_extensions_share_no_datagram() {
    let packet = |body| Packet {
        peer: PEER,
        priority: 7,
        local_port: 1,
        remote_port: 2,
        id: RpcId(4),
        body,
    };
    let unknown = |ns: Option<u64>| {
        packet(Body::RpcUnknown { remembered: ns.map(Duration), no_server: false, reason: None })
    };
    let gave_up = |reason| {
        let remembered = Some(Duration(5));
        packet(Body::RpcUnknown { remembered, no_server: false, reason: Some(reason) })
    };
    let busy = |micros: Option<u64>| packet(Body::Busy { come_back: micros.map(Duration::micros) });
    let refused =
        packet(Body::RpcUnknown { remembered: Some(Duration(5)), no_server: true, reason: None });
    let cutoffs = |max: Option<u32>| {
        let limits = max.map(|max| Limits { max_message: max, max_unscheduled: 1 });
        packet(Body::Cutoffs { cutoffs: [0; 8], version: 1, limits })
    };
    let mut buffer = [0; ROOM];
    let mut writer = datagram::Writer::new(&mut buffer, 0).unwrap();
    writer.push(&unknown(Some(5))).unwrap();
    assert_eq!(writer.push(&unknown(Some(6))).err(), Some(EncodeError::OtherExtensions));
    assert_eq!(writer.push(&unknown(None)).err(), Some(EncodeError::OtherExtensions));
    assert_eq!(writer.push(&refused).err(), Some(EncodeError::OtherExtensions));
    for reason in [RefusalReason::Overloaded, RefusalReason::Abandoned] {
        assert_eq!(writer.push(&gave_up(reason)).err(), Some(EncodeError::OtherExtensions));
    }
    writer.push(&unknown(Some(5))).unwrap();
    writer.push(&busy(Some(7))).unwrap();
    assert_eq!(writer.push(&busy(None)).err(), Some(EncodeError::OtherExtensions));
    assert_eq!(writer.push(&busy(Some(8))).err(), Some(EncodeError::OtherExtensions));
    writer.push(&busy(Some(7))).unwrap();
    writer.push(&cutoffs(None)).unwrap();
    assert_eq!(writer.push(&cutoffs(Some(1))).err(), Some(EncodeError::OtherExtensions));
}

#[test]
fn a_buffer_that_is_too_small_is_named_with_the_size_it_needs() {
    arbtest(|u| {
        let (packet, _) = generator::packet(u)?;
        let mut out = [0; ROOM];
        let native = wire::encode(&packet, &mut out).unwrap();
        let udp = datagram::encode(&packet, 1, &mut out).unwrap();
        let short = wire::encode(&packet, &mut out[..native - 1]);
        assert_eq!(short, Err(EncodeError::BufferTooSmall { needed: native }));
        let short = datagram::encode(&packet, 1, &mut out[..udp - 1]);
        assert_eq!(short, Err(EncodeError::BufferTooSmall { needed: udp }));
        Ok(())
    });
}

#[test]
fn padding_is_a_packet_that_means_nothing() {
    arbtest(|u| {
        let mut buffer = vec![0xdd; ROOM];
        let mut draft = Draft::new(&mut buffer, 9).unwrap();
        let mut before = Vec::new();
        for _ in 0..u.int_in_range(1..=3)? {
            let (packet, payload) = generator::packet(u)?;
            let packet = Packet { priority: 3, ..packet };
            if let Ok(place) = draft.push(&mut buffer, &packet, &RequestExtensions::NONE) {
                place.copy_from_slice(&payload);
                before.push((mirrored(&packet), payload));
            }
        }
        let Some((freeze, _)) = before.first().cloned() else { return Ok(()) };
        let (start, least) = (draft.len(), draft.least_padding());
        let len = u.int_in_range(start..=ROOM + 1)?;
        let padded = draft.pad(&mut buffer, &freeze, len);
        assert_eq!(padded.is_ok(), (start + least..=ROOM).contains(&len), "{start} {len}");
        assert_eq!(draft.len(), if padded.is_ok() { len } else { start });
        let read = datagram::decode(&buffer[..draft.len()]).unwrap();
        let mut packets: Vec<_> = read.packets(PEER, 3).map(Result::unwrap).collect();
        if padded.is_ok() {
            assert_eq!(packets.pop().unwrap().packet.body, Body::Freeze);
            assert!(buffer[start + least..len].iter().all(|byte| *byte == 0));
        }
        let after: Vec<_> = packets.iter().map(|p| (p.packet, p.payload.to_vec())).collect();
        assert_eq!(after, before);
        Ok(())
    });
}
