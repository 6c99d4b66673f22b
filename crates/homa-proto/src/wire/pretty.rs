//! One line per packet, for transcripts, captures and logs.
//!
//! Fields have the kernel module's names. Numbers are decimal, except ids, which are hexadecimal
//! because that shows their halves (random epoch, counter).

use crate::packet::{Acks, Body, Data, Packet, Proof, RefusalReason, ResendLength};
use core::fmt;

/// A packet that we send: `SOURCE > DESTINATION`, level, id, body.
pub fn sent(packet: &Packet) -> Line<'_> {
    Line { packet, source: packet.local_port, destination: packet.remote_port }
}

/// A packet that we received, in the same form as [`sent`].
pub fn received(packet: &Packet) -> Line<'_> {
    Line { packet, source: packet.remote_port, destination: packet.local_port }
}

/// A packet's type and fields, without ports, level and id.
pub fn body(body: &Body) -> Pretty<'_> {
    Pretty(body)
}

/// Displays a packet in one line.
#[derive(Clone, Copy, Debug)]
pub struct Line<'a> {
    packet: &'a Packet,
    source: u16,
    destination: u16,
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { packet, source, destination } = self;
        let Packet { priority, id, body, .. } = packet;
        write!(f, "{source} > {destination} P{priority} {:#x} {}", id.0, Pretty(body))
    }
}

/// Displays a packet's body.
#[derive(Clone, Copy, Debug)]
pub struct Pretty<'a>(&'a Body);

impl fmt::Display for Pretty<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Body::Data(data) => write_data(f, data),
            Body::Grant { offset, priority } => write!(f, "GRANT to {offset} at P{priority}"),
            Body::Resend { offset, length: ResendLength::All, priority } => {
                write!(f, "RESEND {offset}..all at P{priority}")
            }
            Body::Resend { offset, length: ResendLength::Bytes(length), priority } => {
                let end = u64::from(*offset) + u64::from(*length);
                write!(f, "RESEND {offset}..{end} at P{priority}")
            }
            Body::RpcUnknown { remembered, no_server, reason } => {
                f.write_str("RPC_UNKNOWN")?;
                if let Some(time) = remembered {
                    write!(f, " remembered {} us", time.0 / 1_000)?;
                }
                f.write_str(if *no_server { " no server" } else { "" })?;
                reason.map_or(Ok(()), |reason| write_reason(f, reason))
            }
            Body::StartMsg { length } => write!(f, "START_MSG of {length}"),
            Body::Busy { come_back } => {
                f.write_str("BUSY")?;
                come_back.map_or(Ok(()), |time| write!(f, " come back {} us", time.0 / 1_000))
            }
            Body::Cutoffs { cutoffs, version, limits } => {
                write!(f, "CUTOFFS {version} {cutoffs:?}")?;
                if let Some(limits) = limits {
                    write!(f, " max_message {}", limits.max_message)?;
                    write!(f, " max_unscheduled {}", limits.max_unscheduled)?;
                }
                Ok(())
            }
            Body::Freeze => f.write_str("FREEZE"),
            Body::NeedAck => f.write_str("NEED_ACK"),
            Body::Challenge { boot, remembered } => {
                write!(f, "NEED_ACK boot {boot:#x} remembered {} us", remembered.0 / 1_000)
            }
            Body::Ack(acks) => write_acks(f, acks),
            Body::Proof(Proof { token, epoch, first, next }) => {
                write!(f, "ACK token {token:#x} epoch {epoch:#x} calls {first}..{next}")
            }
        }
    }
}

fn write_data(f: &mut fmt::Formatter<'_>, data: &Data) -> fmt::Result {
    let end = u64::from(data.span.offset) + u64::from(data.span.len);
    write!(f, "DATA {}..{end} of {}", data.span.offset, data.message_length)?;
    write!(f, " incoming {} cutoffs {}", data.incoming, data.cutoff_version)?;
    if data.retransmit {
        f.write_str(" retransmit")?;
    }
    if let Some(ack) = data.ack {
        write!(f, " ack {:#x}@{}", ack.id.0, ack.server_port)?;
    }
    if let Some(limit) = data.incast {
        write!(f, " incast {limit}")?;
    }
    Ok(())
}

fn write_reason(f: &mut fmt::Formatter<'_>, reason: RefusalReason) -> fmt::Result {
    match reason {
        RefusalReason::Overloaded => f.write_str(" overloaded"),
        RefusalReason::Abandoned => f.write_str(" abandoned"),
        RefusalReason::ResponseTooLong { length, max } => {
            write!(f, " response_length {length} limit {max}")
        }
        RefusalReason::DeadlinePassed => f.write_str(" deadline passed"),
    }
}

fn write_acks(f: &mut fmt::Formatter<'_>, acks: &Acks) -> fmt::Result {
    f.write_str("ACK")?;
    for entry in acks.iter() {
        write!(f, " {:#x}@{}", entry.id.0, entry.server_port)?;
    }
    Ok(())
}
