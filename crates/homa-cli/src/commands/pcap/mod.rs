//! `homa pcap`: what a capture says about Homa, packet by packet and RPC by RPC.
//!
//! | module | from | to |
//! |---|---|---|
//! | [`packed`] | a file or pipe | its bytes, without gzip or zstd |
//! | [`file`] | bytes | frames |
//! | [`frame`] | a frame | the IP packet in it |
//! | [`tunnel`] | an IP packet | the packet that a tunnel carries in it |
//! | [`dissect`] | an IP packet | a [`finding`] each: Homa packets, ICMP about them |
//! | [`copies`] | a datagram | whether it was captured before |
//! | [`train`] | a UDP packet | the datagrams that a kernel put together in it |
//! | [`tracker`], [`rpc`] | packets | what became of each RPC |
//! | [`plain`] | opened datagrams | a capture of them in plaintext |
//! | [`rows`], [`totals`], [`output`], [`spool`] | all that | text or JSON |
//!
//! Captures are read forwards, once, in bounded memory: one frame, a bounded number of RPCs of
//! bounded size, and counters. Every frame is counted somewhere. Capture files and link layers are
//! no part of the protocol; its packets are read by `homa_proto::wire` alone.

mod copies;
mod dissect;
mod file;
mod finding;
mod frame;
mod output;
mod packed;
mod plain;
mod rows;
mod rpc;
mod spool;
mod totals;
mod tracker;
mod train;
mod tunnel;

use std::fs::File;
use std::io::{self, BufReader, IsTerminal};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use homa::RecordedSessions;
use homa_proto::RpcId;
use tokio::signal::unix::{SignalKind, signal};

use crate::failure::{Failure, Hint, Outcome, Verdict};
use crate::output::Format;
use dissect::Dissector;
use file::{CaptureReader, Frame, ReadError};
use finding::{Finding, Homa, Known};
use frame::{LINK_TYPES, Unreadable};
use output::{Output, Summary, Wanted};
use packed::Input;
use plain::PlainCapture;
use rows::{PacketRow, Place, RpcRow, icmp_line, packet_line, rpc_cells};
use rpc::Rpc;
use totals::Totals;
use tracker::{Captured, Tracker};

const HINT: &str = "give a pcap or pcapng file, or - for stdin, such as \
                    `tcpdump -U -w - 'ip proto 146' | homa pcap -`";

/// Arguments of `homa pcap`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A packet's line: seconds since the first frame, source > destination, priority level of the IP
header, RPC id as its sender writes it (odd: the server), the packet; [udp N] and [tcp] name the
encapsulation.

An RPC's line: lengths in bytes; microseconds from the first request packet to the first response
packet and to the last response byte, as captured (of a one-way message in a trace of `homa sim`: to
its own last byte, where its sender begins the packet); packets that name it; request + response:
retransmitted DATA, RESENDs for it, BUSYs of its sender, GRANTs for it, bytes granted; levels of
unscheduled/scheduled DATA.

A line is a Homa packet: a frame may hold several, in one datagram or in a train of datagrams
(GSO on the sender, GRO on the receiver), which is divided. Totals count frames, datagrams, packets
and bytes of payload separately, and RPCs that were in progress when the capture began or ended.

Decoded: pcap and pcapng, also packed by gzip or zstd; Ethernet, VLAN, Linux cooked, loopback, raw
IP; IPv4 and IPv6; VXLAN, Geneve, GRE and IP in IP; protocol 146, UDP, and TCP in disguise (flags
06, urgent b97d). A datagram that was captured twice, such as on two interfaces, counts once.

JSON: {\"captures\":[{\"file\",\"format\",\"packets\":[…],\"rpcs\":[…],\"start_unix_ns\",
\"duration_ns\",\"damage\",\"totals\"}]}, described in docs/captures.md.

Exit code 1: a file is truncated or damaged; what precedes that is shown. 2: a file could not be
opened, or has only frames of a link layer that is not decoded.")]
pub struct Args {
    /// Captures, each decoded by itself; - reads stdin.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Show packets, and RPCs only if --rpcs is given too. [default: both]
    #[arg(long)]
    packets: bool,
    /// Show RPCs, and packets only if --packets is given too. [default: both]
    #[arg(long)]
    rpcs: bool,
    /// Show one RPC only: its id, as the client or the server writes it, with 0x for hexadecimal.
    /// Totals count everything.
    #[arg(long, value_name = "ID", value_parser = rpc_id)]
    rpc: Option<RpcId>,
    /// Show only packets and RPCs of this address; may be repeated. Totals count everything.
    #[arg(long, value_name = "ADDR")]
    host: Vec<IpAddr>,
    /// Take every datagram from or to this UDP port for Homa; may be repeated. On other ports Homa
    /// is recognised by its headers.
    #[arg(long, value_name = "PORT")]
    udp_port: Vec<u16>,
    /// Open encrypted datagrams with this log of secrets (`--keylog` of the engines, in the format
    /// of SSLKEYLOGFILE). The capture has to contain the handshakes.
    #[arg(long, value_name = "FILE")]
    keylog: Option<PathBuf>,
    /// Write what --keylog opens to this capture, in plaintext, for Wireshark and its dissector.
    #[arg(long, value_name = "FILE", requires = "keylog")]
    decrypted: Option<PathBuf>,
    /// RPCs kept in memory at a time, usually 1 kB and at most about 5 kB each. When there are
    /// more, the one idle longest is shown as it stands.
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    max_rpcs: usize,
    /// Output format on stdout.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

/// An id in hexadecimal with 0x, or in decimal.
fn rpc_id(text: &str) -> Result<RpcId, String> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    number.map(RpcId).map_err(|_| "write the id as 0x1234 or 4660".to_owned())
}

/// Runs the command.
pub fn run(args: &Args) -> Outcome {
    let mut captures = Vec::new();
    for file in &args.files {
        captures.push((file.display().to_string(), open(file)?));
    }
    let keylog = args.keylog.as_deref().map(key_log).transpose()?;
    let mut plain = args.decrypted.as_deref().map(plain_capture).transpose()?;
    let all = args.packets == args.rpcs;
    let (packets, rpcs) = (args.packets || all, args.rpcs || all);
    let mut out = Output::new(Wanted { format: args.format, packets, rpcs });
    let alone = captures.len() == 1;
    let mut verdict = Ok(Verdict::Passed);
    for (file, reader) in captures {
        let Told { damage, foreign } = match Walk::new(args, reader, keylog.as_deref(), &mut plain)
            .run(&file, alone, &mut out)
        {
            Ok(told) => told,
            Err(error) => return written(error),
        };
        if let Some(link) = foreign {
            let error = anyhow::anyhow!("{file}: no frame could be read: link type {link}");
            let hint = format!("capture where packets have a link type of {LINK_TYPES}");
            verdict = Err(Failure::new(error, hint));
        }
        if let Some(damage) = damage {
            eprintln!("warning: {file}: {damage}");
            eprintln!("hint: everything before that place is shown; capture again if it matters");
            verdict = verdict.map(|_| Verdict::CheckFailed);
        }
    }
    if let Some(plain) = plain {
        plain.finish().hint(PLAIN_HINT)?;
    }
    out.finish().map_or_else(written, |()| verdict)
}

/// The text of a log of secrets, which has at least one session.
fn key_log(path: &Path) -> Result<String, Failure> {
    const HINT: &str = "give a file that an engine with --keylog has written";
    let shown = path.display();
    let text = homa_workload::text::read(path);
    let text = text.map_err(|error| anyhow::anyhow!("{shown}: {error}")).hint(HINT)?;
    if RecordedSessions::new(&text).sessions() == 0 {
        return Err(Failure::new(anyhow::anyhow!("{shown}: no secrets of a session"), HINT));
    }
    Ok(text)
}

const PLAIN_HINT: &str = "name a file that can be written, with room for the capture";

/// A new capture for what is opened.
fn plain_capture(path: &Path) -> Result<PlainCapture, Failure> {
    let created = PlainCapture::create(path);
    created.map_err(|error| anyhow::anyhow!("{}: {error}", path.display())).hint(PLAIN_HINT)
}

/// What a failed write means: a reader that went away has enough.
fn written(error: io::Error) -> Outcome {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Ok(Verdict::Passed),
        _ => Err(Failure::new(error, "make room where stdout or the temporary folder is")),
    }
}

fn open(file: &Path) -> Result<CaptureReader<BufReader<Input>>, Failure> {
    let shown = file.display();
    let input: Input = if file == Path::new("-") {
        outlive_interrupts()
            .hint("the sandbox refuses signal handlers: allow them (sigaction, socketpair)")?;
        Box::new(io::stdin())
    } else {
        Box::new(File::open(file).map_err(|e| anyhow::anyhow!("{shown}: {e}")).hint(HINT)?)
    };
    let input = packed::unpacked(input).map_err(|e| anyhow::anyhow!("{shown}: {e}")).hint(HINT)?;
    CaptureReader::new(BufReader::with_capacity(1 << 20, input)).map_err(|error| {
        let hint = match &error {
            ReadError::NotACapture { instead: Some(_) } => {
                "unpack it (gzip and zstd are read as they are), and give - to read a pipe"
            }
            _ => HINT,
        };
        Failure::new(anyhow::anyhow!("{shown}: {error}"), hint)
    })
}

/// Ctrl-C should end the program that writes into our pipe, not this one: its capture then ends and
/// is read to the end. At a terminal nothing changes.
fn outlive_interrupts() -> io::Result<()> {
    if io::stdin().is_terminal() {
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let _inside = runtime.enter();
    // The handler stays when what it returns is gone.
    signal(SignalKind::interrupt()).map(drop)
}

/// One pass over a capture.
struct Walk<'a> {
    args: &'a Args,
    reader: CaptureReader<BufReader<Input>>,
    dissector: Dissector,
    plain: &'a mut Option<PlainCapture>,
    tracker: Tracker,
    totals: Totals,
    /// Times of the first frame and of the latest.
    start: Option<i64>,
    end: Option<i64>,
    previous: Option<i64>,
    /// Frames of link types that are not decoded, and the last such type.
    foreign: (u64, u16),
    findings: Vec<Finding>,
    done: Vec<Rpc>,
}

/// How a pass ended.
struct Told {
    /// Why not everything could be read.
    damage: Option<String>,
    /// A link type that is not decoded, when the file has no others.
    foreign: Option<u16>,
}

impl<'a> Walk<'a> {
    fn new(
        args: &'a Args,
        reader: CaptureReader<BufReader<Input>>,
        keylog: Option<&str>,
        plain: &'a mut Option<PlainCapture>,
    ) -> Self {
        Self {
            args,
            reader,
            dissector: Dissector::new(args.udp_port.clone(), keylog.map(RecordedSessions::new)),
            plain,
            tracker: Tracker::new(args.max_rpcs),
            totals: Totals::default(),
            start: None,
            end: None,
            previous: None,
            foreign: (0, 0),
            findings: Vec::new(),
            done: Vec::new(),
        }
    }

    /// Reads and tells everything.
    fn run(mut self, file: &str, alone: bool, out: &mut Output) -> io::Result<Told> {
        out.begin(file, self.reader.format(), alone)?;
        let damage = loop {
            if !self.reader.is_ready() {
                out.flush()?;
            }
            match self.reader.next_frame() {
                Ok(Some(frame)) => self.frame(frame, out)?,
                Ok(None) => break None,
                Err(error) => break Some(error.to_string()),
            }
        };
        self.totals.stray_acks = self.tracker.stray_acks;
        self.totals.datagrams(self.dissector.datagrams);
        self.totals.dropped = self.reader.dropped();
        for rpc in std::mem::replace(&mut self.tracker, Tracker::new(1)).finish() {
            self.rpc(&rpc, out)?;
        }
        out.end(&Summary {
            start_unix_ns: self.start.map(|start| start.to_string()),
            duration_ns: self.start.zip(self.end).and_then(|(start, end)| end.checked_sub(start)),
            damage: damage.as_deref(),
            totals: &self.totals,
        })?;
        let (frames, link) = self.foreign;
        let foreign = (frames > 0 && frames == self.totals.frames).then_some(link);
        Ok(Told { damage, foreign })
    }

    fn frame(&mut self, frame: Frame, out: &mut Output) -> io::Result<()> {
        self.totals.frames += 1;
        self.clock(frame.time);
        let content = match frame.link {
            Some(link) => frame::decode(link, self.reader.bytes(), frame.original),
            None => Err(Unreadable::NoInterface),
        };
        match content {
            Ok(frame::Content::Ip(ip)) => {
                let findings = &mut self.findings;
                let time = frame.time;
                self.dissector.dissect(&ip, time, &mut |finding| findings.push(finding));
                let opened = self.dissector.opened.take();
                if let Some((plain, opened)) = self.plain.as_mut().zip(opened) {
                    plain.write(&opened, time)?;
                }
            }
            Ok(other) => self.totals.other(&other),
            Err(reason) => {
                if let Unreadable::LinkType(link) = reason {
                    self.foreign = (self.foreign.0 + 1, link);
                }
                self.totals.unreadable(reason);
            }
        }
        let mut findings = std::mem::take(&mut self.findings);
        for (index, finding) in findings.drain(..).enumerate() {
            self.totals.finding(&finding, index);
            self.finding(&finding, frame, out)?;
        }
        self.findings = findings;
        Ok(())
    }

    fn clock(&mut self, time: Option<i64>) {
        self.start = self.start.or(time);
        self.end = self.end.max(time);
        let back = self.previous.zip(time).is_some_and(|(previous, time)| time < previous);
        self.totals.backward_steps += u64::from(back);
        self.previous = time.or(self.previous);
    }

    fn finding(
        &mut self,
        finding: &Finding,
        Frame { time, one_way, .. }: Frame,
        out: &mut Output,
    ) -> io::Result<()> {
        let frame = self.totals.frames;
        let relative = time.zip(self.start).map(|(time, start)| time.saturating_sub(start));
        let place = Place { frame, time: relative };
        match finding {
            Finding::Homa(homa) => {
                let mut done = std::mem::take(&mut self.done);
                let duplicate =
                    self.tracker.packet(homa, Captured { frame, time, one_way }, &mut done);
                self.totals.duplicates += u64::from(duplicate);
                for rpc in done.drain(..) {
                    self.rpc(&rpc, out)?;
                }
                self.done = done;
                if !self.shown((homa.source, homa.destination), id_of(homa)) {
                    return Ok(());
                }
                let line = || packet_line(place, homa, duplicate);
                out.packet(line, || PacketRow::new(place, homa, duplicate))
            }
            Finding::Icmp(icmp) => {
                self.tracker.icmp(icmp);
                if !self.shown((icmp.source, icmp.destination), icmp.id) {
                    return Ok(());
                }
                out.packet(|| icmp_line(place, icmp), || PacketRow::refusal(place, icmp))
            }
            Finding::Copy
            | Finding::Protocol(_)
            | Finding::EtherType(_)
            | Finding::Unreadable(_) => Ok(()),
        }
    }

    fn rpc(&mut self, rpc: &Rpc, out: &mut Output) -> io::Result<()> {
        let ending = rpc.ending(self.end);
        self.totals.rpc(rpc, ending);
        if !self.shown((rpc.client, rpc.server), Some(rpc.id)) {
            return Ok(());
        }
        out.rpc(|| rpc_cells(rpc, ending), || RpcRow::new(rpc, ending, self.start))
    }

    /// Whether the user wants to see what two sockets say about an RPC.
    fn shown(&self, (one, other): (SocketAddr, SocketAddr), id: Option<RpcId>) -> bool {
        let Args { rpc, host, .. } = self.args;
        let wanted = rpc.is_none_or(|wanted| id.is_some_and(|id| id.client() == wanted.client()));
        wanted && (host.is_empty() || [one.ip(), other.ip()].iter().any(|ip| host.contains(ip)))
    }
}

/// The RPC that a packet names.
fn id_of(homa: &Homa) -> Option<RpcId> {
    match &homa.known {
        Known::All(packet, _) => Some(packet.id),
        Known::Header { id, .. } => Some(*id),
        Known::Nothing | Known::Malformed(_) => None,
    }
}
