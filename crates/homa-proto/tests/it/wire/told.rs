//! Request extensions are read as they were written, whatever else is in the datagram.

use super::PEER;
use super::generator;
use arbtest::arbitrary::{Result, Unstructured};
use arbtest::arbtest;
use homa_proto::Duration;
use homa_proto::wire::EncodeError;
use homa_proto::wire::datagram::{self, RequestExtensions, TraceContext};

fn told(u: &mut Unstructured<'_>) -> Result<RequestExtensions> {
    let left = match u.ratio(1, 4)? {
        true => None,
        // Whole microseconds, as far as the field can hold them.
        false => Some(Duration::micros(u.int_in_range(0..=u64::from(u32::MAX) - 1)?)),
    };
    let trace = TraceContext::new(u.arbitrary()?, u.arbitrary()?, u.arbitrary()?);
    Ok(RequestExtensions {
        left,
        trace: if u.ratio(1, 2)? { trace } else { None },
        idempotent: u.arbitrary()?,
    })
}

#[test]
fn a_single_request_is_the_same_from_both_writers() {
    arbtest(|u| {
        let ((packet, payload), told) = (generator::packet(u)?, told(u)?);
        let mut single = [0xee; 2_000];
        let length = datagram::encode_request(&packet, &told, 9, &mut single).unwrap();
        single[length..length + payload.len()].copy_from_slice(&payload);
        let mut buffer = [0xdd; 2_000];
        let mut writer = datagram::Writer::new(&mut buffer, 9).unwrap();
        writer.push_request(&packet, &told).unwrap().copy_from_slice(&payload);
        let written = writer.len();
        assert_eq!(single[..length + payload.len()], buffer[..written]);
        Ok(())
    });
}

#[test]
fn each_request_of_a_datagram_keeps_its_extensions() {
    arbtest(|u| {
        let mut buffer = vec![0xdd; u.int_in_range(datagram::HEADER_LEN..=6_000)?];
        let mut writer = datagram::Writer::new(&mut buffer, 9).unwrap();
        let mut accepted = Vec::new();
        // All requests have the same kinds of extensions as the first.
        let mut all: Option<(bool, bool)> = None;
        for _ in 0..u.int_in_range(0..=20)? {
            let ((packet, payload), mut told) = (generator::packet(u)?, told(u)?);
            let said = (told.left.is_some(), told.trace.is_some());
            if !packet.begins_request() {
                told = RequestExtensions::NONE;
            }
            match writer.push_request(&packet, &told) {
                Ok(slot) => {
                    slot.copy_from_slice(&payload);
                    if packet.begins_request() {
                        assert_eq!(*all.get_or_insert(said), said);
                    }
                    accepted.push((packet.id, payload, told));
                }
                Err(EncodeError::OtherExtensions | EncodeError::BufferTooSmall { .. }) => {}
                Err(other) => panic!("{other}"),
            }
        }
        let length = writer.len();
        let mut packets = datagram::decode(&buffer[..length]).unwrap().packets(PEER, 0);
        let mut read = Vec::new();
        while !accepted.is_empty()
            && let Some(decoded) = packets.next()
        {
            let decoded = decoded.unwrap();
            let told = packets.request_extensions();
            assert_eq!(told.idempotent, decoded.idempotent);
            read.push((decoded.packet.id, decoded.payload.to_vec(), told));
        }
        assert_eq!(read, accepted);
        Ok(())
    });
}

#[test]
fn an_invalid_traceparent_is_refused() {
    let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    assert_eq!(good.parse::<TraceContext>().unwrap().to_string(), good);
    // Of a later version, the known part counts.
    let later = good.replacen("00", "cc", 1) + "-and-more";
    assert_eq!(later.parse::<TraceContext>().unwrap().to_string(), later[..good.len()]);
    let upper = good.to_uppercase();
    let zero = good.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32));
    let orphan = good.replace("00f067aa0ba902b7", &"0".repeat(16));
    let bad = [
        "",
        "00",
        "00-1-2-3",
        &good[1..],
        &good[..good.len() - 1],
        &upper,
        &zero,
        &orphan,
        &good.replacen("00", "ff", 1),
        &format!("{good}-x"),
        &good.replace("01", "+1"),
    ]
    .map(|text| (text.parse::<TraceContext>().is_err(), text.to_owned()));
    assert!(bad.iter().all(|(refused, _)| *refused), "{bad:?}");
}
