//! The probes for tracers (USDT), as a tracer finds them in a program: notes in its ELF file, and a
//! `nop` at each place.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

/// A probe: where it is, and what its arguments are.
struct Probe {
    address: u64,
    arguments: String,
}

fn number(bytes: &[u8], at: usize, len: usize) -> u64 {
    bytes[at..at + len].iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

fn text(bytes: &[u8]) -> &str {
    let end = bytes.iter().position(|&byte| byte == 0).expect("a text ends");
    std::str::from_utf8(&bytes[..end]).expect("ASCII")
}

/// The sections of a 64-bit ELF file: name, address, and bytes.
fn sections(elf: &[u8]) -> Vec<(&str, u64, &[u8])> {
    assert_eq!(&elf[..6], b"\x7fELF\x02\x01", "64 bits, little endian");
    let (table, size) = (number(elf, 40, 8) as usize, number(elf, 58, 2) as usize);
    let header = |n: usize| &elf[table + n * size..table + (n + 1) * size];
    let part = |n: usize| {
        let (offset, length) = (number(header(n), 24, 8), number(header(n), 32, 8));
        // A section without bits (type 8) takes no room.
        let length = if number(header(n), 4, 4) == 8 { 0 } else { length };
        &elf[offset as usize..(offset + length) as usize]
    };
    let names = part(number(elf, 62, 2) as usize);
    (0..number(elf, 60, 2) as usize)
        .map(|n| {
            let name = text(&names[number(header(n), 0, 4) as usize..]);
            (name, number(header(n), 16, 8), part(n))
        })
        .collect()
}

/// The probes of the provider `homa` by name.
fn probes(notes: &[u8]) -> BTreeMap<String, Vec<Probe>> {
    let mut probes: BTreeMap<String, Vec<Probe>> = BTreeMap::new();
    let (mut at, round) = (0, |length: usize| length.next_multiple_of(4));
    while at < notes.len() {
        let [owner, length, kind] = [0, 4, 8].map(|field| number(notes, at + field, 4) as usize);
        assert_eq!((text(&notes[at + 12..]), kind), ("stapsdt", 3));
        let begins = at + 12 + round(owner);
        let descriptor = &notes[begins..begins + length];
        let mut texts = descriptor[24..].split(|&byte| byte == 0);
        let mut next = || String::from_utf8(texts.next().expect("a text").into()).expect("ASCII");
        let (provider, name, arguments) = (next(), next(), next());
        if provider == "homa" {
            let address = number(descriptor, 0, 8);
            probes.entry(name).or_default().push(Probe { address, arguments });
        }
        at = begins + round(length);
    }
    probes
}

#[test]
fn tracers_find_every_probe_with_its_arguments() {
    if !cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
        return skip::test("probes, which need a processor of x86-64 or aarch64");
    }
    // An engine is in this program if it is opened somewhere.
    drop(homa::Client::new().unwrap());
    let elf = std::fs::read("/proc/self/exe").unwrap();
    let sections = sections(&elf);
    let notes = sections.iter().find(|(name, ..)| *name == ".note.stapsdt").expect("notes");
    let probes = probes(notes.2);
    for (name, arguments) in [
        ("busy_received", 3),
        ("busy_sent", 3),
        ("call_submitted", 2),
        ("data_leaves", 3),
        ("grant_received", 4),
        ("grant_sent", 4),
        ("queued", 1),
        ("request_admitted", 4),
        ("resend_received", 4),
        ("resend_sent", 4),
        ("response_delivered", 4),
    ] {
        let found = probes.get(name).unwrap_or_else(|| panic!("no {name}"));
        for probe in found {
            assert_eq!(probe.arguments.matches('@').count(), arguments, "{name}");
            let code = sections.iter().find(|(_, address, bytes)| {
                (*address..address + bytes.len() as u64).contains(&probe.address) && *address > 0
            });
            let (_, address, bytes) = code.expect("it lies in the program");
            let place = &bytes[(probe.address - address) as usize..];
            let nop: &[u8] = match cfg!(target_arch = "x86_64") {
                true => &[0x90],
                false => &[0x1f, 0x20, 0x03, 0xd5],
            };
            assert!(place.starts_with(nop), "{name}: {:x?}", &place[..4]);
        }
    }
    let scripts = concat!(env!("CARGO_MANIFEST_DIR"), "/../../contrib/bpftrace");
    let mut used = 0;
    for script in std::fs::read_dir(scripts).unwrap() {
        let script = std::fs::read_to_string(script.unwrap().path()).unwrap();
        for line in script.lines().filter(|line| line.starts_with("usdt:")) {
            let name = line.rsplit(':').next().unwrap().trim_end_matches([',', ' ', '{']);
            assert!(probes.contains_key(name), "{name}");
            used += 1;
        }
    }
    assert!(used > 5, "the scripts use probes");
}

#[test]
fn a_script_attaches_to_a_running_program() {
    if Command::new("bpftrace").arg("--version").stdout(Stdio::null()).status().is_err() {
        return skip::test("bpftrace (apt-get install bpftrace)");
    }
    let exe = std::env::current_exe().unwrap();
    let probe = format!("usdt:{}:homa:call_submitted {{ exit(); }}", exe.display());
    let mut trace = Command::new("bpftrace");
    trace.args(["-p", &std::process::id().to_string(), "-e", &probe]);
    let mut trace = trace.stdout(Stdio::piped()).spawn().unwrap();
    let server = crate::common::engine("127.0.0.1", homa::Config::default());
    let (at, serving) = (server.local_addr(), crate::common::echo(server.serve().unwrap()));
    let client = homa::Client::new().unwrap();
    // It ends at the first call after it attached.
    let ended = loop {
        client.call(at, "hello").unwrap();
        if let Some(status) = trace.try_wait().unwrap() {
            break status;
        }
    };
    assert!(ended.success(), "{ended}");
    server.drain(std::time::Duration::from_secs(60)).unwrap();
    serving.join().unwrap();
}
