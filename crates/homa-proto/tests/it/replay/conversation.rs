//! A captured conversation: who sent which bytes to whom and when; and as text, the form in which
//! this repository keeps some.
//!
//! ```text
//! conversation NAME PAYLOAD
//! TIME_US FROM>TO P7 LENGTH HEX [kN|r]     a Homa packet of LENGTH bytes
//! TIME_US FROM>TO unreachable PORT|host    an ICMP error
//! ```
//! `kN` and `r` stand for a payload left out: byte i of a request of the Nth call of its process is
//! 31 i + i/256 + 17 N, of a generated response 7 i + 3 (i counts in the message).

use super::packet::{self, CapturedPacket, PacketKind};
use std::fmt::Write;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conversation {
    pub name: String,
    /// Message bytes in a full packet.
    pub payload: u32,
    pub frames: Vec<CapturedFrame>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapturedFrame {
    /// Microseconds.
    pub time: u64,
    /// Hosts, numbered in order of appearance.
    pub from: usize,
    pub to: usize,
    pub what: FrameContent,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FrameContent {
    Homa {
        level: u8,
        /// Bytes on the wire, from the Homa header on.
        length: usize,
        /// Those that were captured.
        bytes: Vec<u8>,
    },
    /// ICMP: a port, or the host, cannot be reached.
    Unreachable(Option<u16>),
}

impl CapturedFrame {
    pub fn packet(&self) -> Option<CapturedPacket> {
        let FrameContent::Homa { level, length, bytes } = &self.what else { return None };
        Some(packet::read(bytes, *length, *level).expect("a kernel host sends whole packets"))
    }

    /// Payload bytes that are known, and their place in the message.
    pub fn payload(&self) -> (u32, &[u8]) {
        match (&self.what, self.packet().map(|p| p.kind)) {
            (FrameContent::Homa { bytes, .. }, Some(PacketKind::Data(data))) => {
                (data.start, &bytes[56..])
            }
            _ => (0, &[]),
        }
    }
}

impl Conversation {
    pub fn hosts(&self) -> usize {
        self.frames.iter().map(|f| f.from.max(f.to) + 1).max().unwrap_or(0)
    }
}

fn request_byte(call: u32, i: u32) -> u8 {
    (31 * i + i / 256 + 17 * call) as u8
}

fn response_byte(i: u32) -> u8 {
    (7 * i + 3) as u8
}

/// The rule that made a payload, if one did.
fn rule(start: u32, payload: &[u8]) -> Option<String> {
    let is = |byte: &dyn Fn(u32) -> u8| (start..).zip(payload).all(|(i, &b)| byte(i) == b);
    if payload.len() < 8 {
        return None;
    }
    if is(&response_byte) {
        return Some("r".into());
    }
    (0..256).find(|&call| is(&|i| request_byte(call, i))).map(|call| format!("k{call}"))
}

pub fn write(conversation: &Conversation) -> String {
    let mut text = format!("conversation {} {}\n", conversation.name, conversation.payload);
    for frame in &conversation.frames {
        let _ = write!(text, "{} {}>{} ", frame.time, frame.from, frame.to);
        match &frame.what {
            FrameContent::Unreachable(Some(port)) => text += &format!("unreachable {port}\n"),
            FrameContent::Unreachable(None) => text += "unreachable host\n",
            FrameContent::Homa { level, length, bytes } => {
                let (start, payload) = frame.payload();
                let rule = rule(start, payload);
                let kept = if rule.is_some() { &bytes[..56] } else { &bytes[..] };
                let _ = write!(text, "P{level} {length} ");
                kept.iter().for_each(|b| text += &format!("{b:02x}"));
                rule.iter().for_each(|r| text += &format!(" {r}"));
                text.push('\n');
            }
        }
    }
    text
}

/// Reads what [`write`] wrote, once or many times.
pub fn read(text: &str) -> Vec<Conversation> {
    let mut all: Vec<Conversation> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let words: Vec<&str> = line.split(' ').collect();
        if words[0] == "conversation" {
            let payload = words[2].parse().expect("a number");
            let name = words[1].into();
            all.push(Conversation { name, payload, frames: Vec::new() });
            continue;
        }
        let (from, to) = words[1].split_once('>').expect("two hosts");
        let host = |text: &str| text.parse().expect("a host");
        let what = if words[2] == "unreachable" {
            FrameContent::Unreachable(words[3].parse().ok())
        } else {
            read_packet(&words)
        };
        let time = words[0].parse().expect("a time");
        let frame = CapturedFrame { time, from: host(from), to: host(to), what };
        all.last_mut().expect("a conversation begins with its name").frames.push(frame);
    }
    all
}

fn read_packet(words: &[&str]) -> FrameContent {
    let level = words[2][1..].parse().expect("a level");
    let length: usize = words[3].parse().expect("a length");
    let digit = |c: u8| (c as char).to_digit(16).expect("a hexadecimal digit") as u8;
    let hex = words[4].as_bytes();
    let mut bytes: Vec<u8> = hex.chunks(2).map(|d| digit(d[0]) << 4 | digit(d[1])).collect();
    if let Some(rule) = words.get(5) {
        let Ok(CapturedPacket { kind: PacketKind::Data(data), .. }) =
            packet::read(&bytes, length, level)
        else {
            panic!("only DATA has a payload")
        };
        match rule.strip_prefix('k') {
            Some(call) => {
                let call = call.parse().expect("a number");
                bytes.extend((data.start..data.end).map(|i| request_byte(call, i)));
            }
            None => bytes.extend((data.start..data.end).map(response_byte)),
        }
    }
    FrameContent::Homa { level, length, bytes }
}
