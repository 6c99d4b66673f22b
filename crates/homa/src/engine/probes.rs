//! Probes of the protocol's events for tracers (USDT): `bpftrace`, `perf`, SystemTap.
//!
//! A probe is one `nop` in the code, and a note in the section `.note.stapsdt` that names its place
//! and where its arguments are. A tracer that attaches replaces the `nop` by a trap. Arguments are
//! read from memory or registers that the code uses anyway, so that a probe without a tracer costs
//! that `nop`. The provider is `homa`; scripts are in `contrib/bpftrace`.
//!
//! This is the only assembly in `homa`. Invariant: it changes neither registers, flags, nor memory.
//! Left out: other processors than x86-64 and aarch64, which have no probes, and semaphores,
//! because no probe computes its arguments.
//!
//! The format of the notes: systemtap's `sys/sdt.h`, version 3.

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
use std::arch::asm;
use std::mem::offset_of;

use homa_proto::{Body, Delivered, Packet};

/// A `nop` and its note: the name, the arguments as text in the syntax of either processor, and the
/// operands that the text mentions.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
macro_rules! probe {
    ($name:literal, $x86:literal, $arm:literal, $($operands:tt)*) => {
        note!($name, $x86, $($operands)*, options(att_syntax, nostack, preserves_flags, readonly))
    };
}

#[cfg(all(target_os = "linux", target_arch = "aarch64"))]
macro_rules! probe {
    ($name:literal, $x86:literal, $arm:literal, $($operands:tt)*) => {
        note!($name, $arm, $($operands)*, options(nostack, preserves_flags, readonly))
    };
}

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
macro_rules! probe {
    ($($any:tt)*) => {{}};
}

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
macro_rules! note {
    ($name:literal, $arguments:literal, $($rest:tt)*) => {
        // SAFETY: the only instruction is a `nop`; the rest is a section that is not loaded.
        unsafe {
            asm!(
                "990: nop",
                ".pushsection .note.stapsdt, \"\", %note",
                ".balign 4",
                ".4byte 992f - 991f, 994f - 993f, 3",
                "991: .asciz \"stapsdt\"",
                "992: .balign 4",
                // The place, no base to correct it by, and no semaphore.
                "993: .8byte 990b, 0, 0",
                ".asciz \"homa\"",
                concat!(".asciz \"", $name, "\""),
                concat!(".asciz \"", $arguments, "\""),
                "994: .balign 4",
                ".popsection",
                $($rest)*
            );
        }
    };
}

/// A probe whose arguments are the id, the peer's number, and the remote port of a packet.
macro_rules! packet_probe {
    ($name:literal, $packet:expr) => {
        probe!(
            $name,
            "8@{id}({packet}) 4@{peer}({packet}) 2@{port}({packet})",
            "8@[{packet:x}, {id}] 4@[{packet:x}, {peer}] 2@[{packet:x}, {port}]",
            packet = in(reg) std::ptr::from_ref::<Packet>($packet),
            id = const offset_of!(Packet, id),
            peer = const offset_of!(Packet, peer),
            port = const offset_of!(Packet, remote_port)
        )
    };
    ($name:literal, $packet:expr, $number:expr) => {
        probe!(
            $name,
            "8@{id}({packet}) 4@{peer}({packet}) 2@{port}({packet}) 8@{number}",
            "8@[{packet:x}, {id}] 4@[{packet:x}, {peer}] 2@[{packet:x}, {port}] 8@{number:x}",
            packet = in(reg) std::ptr::from_ref::<Packet>($packet),
            id = const offset_of!(Packet, id),
            peer = const offset_of!(Packet, peer),
            port = const offset_of!(Packet, remote_port),
            number = in(reg) u64::from($number)
        )
    };
}

/// A probe whose arguments are the id, the peer's number, the remote port, and the length of a
/// message.
macro_rules! message_probe {
    ($name:literal, $message:expr) => {
        probe!(
            $name,
            "8@{id}({message}) 4@{peer}({message}) 2@{port}({message}) 4@{length}({message})",
            "8@[{message:x}, {id}] 4@[{message:x}, {peer}] 2@[{message:x}, {port}] \
             4@[{message:x}, {length}]",
            message = in(reg) std::ptr::from_ref::<Delivered>($message),
            id = const offset_of!(Delivered, id),
            peer = const offset_of!(Delivered, peer),
            port = const offset_of!(Delivered, remote_port),
            length = const offset_of!(Delivered, length)
        )
    };
}

/// A call is submitted: the peer's number, and the length of its request.
#[inline(always)]
pub fn call_submitted(peer: u32, length: u32) {
    probe!(
        "call_submitted",
        "8@{peer} 8@{length}",
        "8@{peer:x} 8@{length:x}",
        peer = in(reg) u64::from(peer),
        length = in(reg) u64::from(length)
    );
}

/// A request is passed on: it is whole, or the server reads it while it arrives.
#[inline(always)]
pub fn request_admitted(message: &Delivered) {
    message_probe!("request_admitted", message);
}

/// A whole response arrived, which ends a call.
#[inline(always)]
pub fn response_delivered(message: &Delivered) {
    message_probe!("response_delivered", message);
}

/// A packet leaves the queue of the protocol.
#[inline(always)]
pub fn leaves(packet: &Packet) {
    match packet.body {
        Body::Data(_) => packet_probe!("data_leaves", packet),
        _ => control_leaves(packet),
    }
}

#[cold]
fn control_leaves(packet: &Packet) {
    match packet.body {
        Body::Grant { offset, .. } => packet_probe!("grant_sent", packet, offset),
        Body::Resend { offset, .. } => packet_probe!("resend_sent", packet, offset),
        Body::Busy { .. } => packet_probe!("busy_sent", packet),
        _ => {}
    }
}

/// A control packet arrived.
#[inline(always)]
pub fn control(packet: &Packet) {
    match packet.body {
        Body::Grant { offset, .. } => packet_probe!("grant_received", packet, offset),
        Body::Resend { offset, .. } => packet_probe!("resend_received", packet, offset),
        Body::Busy { .. } => packet_probe!("busy_received", packet),
        _ => {}
    }
}

/// Packets wait, because as many bytes as the link may hold are queued: the number of bytes of
/// outgoing messages.
#[inline(always)]
pub fn queued(bytes: u64) {
    probe!("queued", "8@{bytes}", "8@{bytes:x}", bytes = in(reg) bytes);
}
