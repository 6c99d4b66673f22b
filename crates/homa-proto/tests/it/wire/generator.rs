//! Arbitrary packets, as an endpoint could send them.

use super::PEER;
use arbtest::arbitrary::{Result, Unstructured};
use homa_proto::{
    AckEntry, Acks, Body, Data, Duration, Limits, MessageId, Packet, Proof, RefusalReason,
    ResendLength, RpcId, Span,
};

/// A packet and the payload it announces.
pub fn packet(u: &mut Unstructured<'_>) -> Result<(Packet, Vec<u8>)> {
    let body = match u.int_in_range(0..=15)? {
        // Most packets are DATA.
        0 | 11..=15 => Body::Data(data(u)?),
        1 => Body::Grant { offset: u.arbitrary()?, priority: level(u)? },
        2 => resend(u)?,
        3 => Body::RpcUnknown {
            remembered: u.arbitrary::<Option<u64>>()?.map(Duration),
            no_server: u.arbitrary()?,
            reason: if u.arbitrary()? { Some(reason(u)?) } else { None },
        },
        4 => {
            let micros: Option<u32> = u.arbitrary()?;
            Body::Busy { come_back: micros.map(|micros| Duration::micros(micros.into())) }
        }
        5 => {
            let limits = if u.arbitrary()? { Some(limits(u)?) } else { None };
            Body::Cutoffs { cutoffs: u.arbitrary()?, version: u.arbitrary()?, limits }
        }
        6 => Body::Freeze,
        7 => Body::NeedAck,
        8 => Body::Challenge { boot: u.arbitrary()?, remembered: Duration(u.arbitrary()?) },
        9 => {
            let (token, epoch) = (u.arbitrary()?, u.arbitrary()?);
            Body::Proof(Proof { token, epoch, first: u.arbitrary()?, next: u.arbitrary()? })
        }
        _ => acks(u)?,
    };
    let payload = match &body {
        Body::Data(data) => (0..data.span.len).map(|i| i as u8 ^ 0x5a).collect(),
        _ => Vec::new(),
    };
    let packet = Packet {
        peer: PEER,
        priority: level(u)?,
        local_port: u.arbitrary::<u16>()?.max(1),
        remote_port: u.arbitrary::<u16>()?.max(1),
        id: RpcId(u.arbitrary()?),
        body,
    };
    Ok((packet, payload))
}

/// The packet as its receiver sees it: ports exchanged.
pub fn mirrored(packet: &Packet) -> Packet {
    Packet { local_port: packet.remote_port, remote_port: packet.local_port, ..*packet }
}

/// The packet without the values that only UDP can carry.
pub fn native(packet: &Packet) -> Packet {
    let body = match packet.body {
        Body::RpcUnknown { .. } => {
            Body::RpcUnknown { remembered: None, no_server: false, reason: None }
        }
        Body::Busy { .. } => Body::Busy { come_back: None },
        Body::Cutoffs { cutoffs, version, .. } => Body::Cutoffs { cutoffs, version, limits: None },
        Body::Challenge { .. } => Body::NeedAck,
        Body::Proof(_) => Body::Ack(Acks::default()),
        other => other,
    };
    Packet { body, ..*packet }
}

fn level(u: &mut Unstructured<'_>) -> Result<u8> {
    u.int_in_range(0..=7)
}

fn data(u: &mut Unstructured<'_>) -> Result<Data> {
    let message_length: u32 = u.int_in_range(1..=u32::MAX)?;
    // Half of them begin a message.
    let offset = if u.arbitrary()? { 0 } else { u.int_in_range(0..=message_length - 1)? };
    let len = u.int_in_range(1..=(message_length - offset).min(1500))?;
    Ok(Data {
        span: Span { message: MessageId(0), offset, len },
        message_length,
        incoming: u.arbitrary()?,
        ack: if u.arbitrary()? { Some(entry(u)?) } else { None },
        cutoff_version: u.arbitrary()?,
        retransmit: u.arbitrary()?,
        incast: u.arbitrary()?,
    })
}

fn resend(u: &mut Unstructured<'_>) -> Result<Body> {
    let length = match u.arbitrary()? {
        Some(u32::MAX) | None => ResendLength::All,
        Some(length) => ResendLength::Bytes(length),
    };
    Ok(Body::Resend { offset: u.arbitrary()?, length, priority: level(u)? })
}

fn reason(u: &mut Unstructured<'_>) -> Result<RefusalReason> {
    Ok(match u.int_in_range(0..=3)? {
        0 => RefusalReason::Overloaded,
        1 => RefusalReason::Abandoned,
        2 => RefusalReason::ResponseTooLong { length: u.arbitrary()?, max: u.arbitrary()? },
        _ => RefusalReason::DeadlinePassed,
    })
}

fn limits(u: &mut Unstructured<'_>) -> Result<Limits> {
    Ok(Limits { max_message: u.arbitrary()?, max_unscheduled: u.arbitrary()? })
}

fn acks(u: &mut Unstructured<'_>) -> Result<Body> {
    let mut acks = Acks::default();
    for _ in 0..u.int_in_range(0..=Acks::CAPACITY)? {
        acks.push(entry(u)?).expect("the loop stops at the capacity");
    }
    Ok(Body::Ack(acks))
}

fn entry(u: &mut Unstructured<'_>) -> Result<AckEntry> {
    let id = RpcId(u.int_in_range(1..=u64::MAX / 2)? * 2);
    Ok(AckEntry { id, server_port: u.arbitrary()? })
}
