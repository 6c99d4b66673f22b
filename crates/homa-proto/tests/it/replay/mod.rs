//! Conversations of kernel hosts, replayed with our endpoint in the place of each host in turn,
//! before a judge that knows only the kernel's rules.
//!
//! `HOMA_CAPTURES=FOLDER cargo test -p homa-rpc-proto --test it replay` takes the captures (pcap,
//! pcapng) of a folder instead of the committed ones. With `HOMA_WRITE_VECTORS=1` as well, those of
//! at most 600 packets become the committed ones (`tests/vectors/conversations.txt`).

mod capture;
mod conversation;
mod judge;
mod live;
mod packet;
mod player;
mod stage;

use conversation::{Conversation, FrameContent};
use homa_proto::{PeerId, wire};
use judge::{Judge, Standard};
use player::Replay;
use std::path::PathBuf;

const LONGEST: usize = 600;
const ABOUT: &str = "\
# Conversations of two Linux hosts with the Homa kernel module (PlatformLab/HomaModule, branch main,
# commit 9edb958, 1 July 2026), captured with a tap on the bridge between them, for this project;
# only what is needed to play them again is kept: Homa packets, ICMP errors, payloads by their rule.
# Names say what was run; .tg1 was captured at the client's tap of a bridge that drops packets, .tg2
# at the server's. The form is that of tests/it/replay/conversation.rs; made by
# HOMA_CAPTURES=FOLDER HOMA_WRITE_VECTORS=1 cargo test -p homa-rpc-proto --test it replay
";

fn vectors() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/conversations.txt")
}

fn conversations() -> Vec<Conversation> {
    match std::env::var_os("HOMA_CAPTURES") {
        Some(folder) => {
            let all = capture::read_folder(folder.as_ref());
            if std::env::var_os("HOMA_WRITE_VECTORS").is_some() {
                let short = all.iter().filter(|c| c.frames.len() <= LONGEST);
                let text: Vec<String> = short.map(conversation::write).collect();
                let text = format!("{ABOUT}\n{}", text.join("\n"));
                std::fs::write(vectors(), text).expect("the source tree is writable");
            }
            all
        }
        None => conversation::read(&std::fs::read_to_string(vectors()).expect("committed")),
    }
}

#[test]
fn every_packet_is_decoded() {
    let mut packets = 0;
    for conversation in conversations() {
        for frame in &conversation.frames {
            let FrameContent::Homa { level, length, bytes } = &frame.what else { continue };
            let mut whole = bytes.clone();
            whole.resize(*length, 0);
            let decoded = wire::decode(&whole, PeerId(0), *level);
            assert!(decoded.is_ok(), "{} at {}: {decoded:?}", conversation.name, frame.time);
            packets += 1;
        }
    }
    assert!(packets > 0, "no Homa packets found");
}

#[test]
fn our_endpoint_replaces_either_kernel_host() {
    let mut bad = Vec::new();
    for conversation in conversations() {
        for me in 0..conversation.hosts() {
            let mut replay = Replay::new(&conversation, me);
            let faults = replay.run();
            let (whole, cut) = (replay.delivered.len(), replay.cut_short.len());
            eprintln!("{} as host {me}: {whole} messages, {cut} cut short", conversation.name);
            bad.extend(faults.iter().map(|f| format!("{} as host {me}: {f}", conversation.name)));
        }
    }
    assert!(bad.is_empty(), "{} faults\n{}", bad.len(), bad.join("\n"));
}

/// The committed captures of one side of a lossy bridge show what their own host saw.
fn saw_everything(name: &str, host: usize) -> bool {
    !name.ends_with(if host == 0 { ".tg2" } else { ".tg1" })
}

#[test]
fn the_judge_accepts_the_packets_of_kernel_hosts() {
    let mut bad = Vec::new();
    for conversation in conversations() {
        for me in (0..conversation.hosts()).filter(|&me| saw_everything(&conversation.name, me)) {
            let mut judge = Judge::new(Standard::Kernel, conversation.payload);
            for frame in &conversation.frames {
                match frame.packet() {
                    Some(pkt) if frame.from == me => judge.sent(frame.time, frame.to, &pkt),
                    Some(pkt) if frame.to == me => judge.fed(frame.time, frame.from, &pkt),
                    _ => {}
                }
            }
            let faults = judge.faults.iter();
            bad.extend(faults.map(|f| format!("{} as host {me}: {f}", conversation.name)));
        }
    }
    assert!(bad.is_empty(), "{} faults\n{}", bad.len(), bad.join("\n"));
}

#[test]
fn written_conversations_are_read_again() {
    let all = conversations();
    let text: Vec<String> = all.iter().map(conversation::write).collect();
    let again = conversation::read(&text.concat());
    for (before, after) in all.iter().zip(&again) {
        let packets = |c: &Conversation| c.frames.iter().map(|f| f.packet()).collect::<Vec<_>>();
        assert_eq!(packets(before), packets(after), "{}", before.name);
    }
    assert_eq!(all.len(), again.len());
}
