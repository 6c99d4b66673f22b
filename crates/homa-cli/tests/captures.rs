//! `homa pcap` on captures of this program's traffic as a packet socket sees it, on the sender
//! before segmentation and on the receiver after coalescing: its counts equal the engines'
//! counters.
//!
//! One process without a test harness, because namespaces are available only before the first
//! thread. If they are refused, the test says so and is skipped.

// Other tests use the rest of it.
#[allow(dead_code)]
mod common;

use std::io::{ErrorKind, Read};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::thread;
use std::time::{Duration, SystemTime};

use homa::{Config, Engine};
use homa_testbed::{Namespace, VethPair, isolate};
use nix::sys::socket::{setsockopt, sockopt};
use pcap_file::DataLink;
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use serde_json::Value;
use socket2::{Domain, Protocol, Socket, Type};

/// All protocols, in network order.
const ETH_P_ALL: i32 = 0x0003_u16.to_be() as i32;
/// Only reached when something is broken.
const GIVE_UP: Duration = Duration::from_secs(20);
/// Of requests; responses are as long. One after the other, each short enough for the queue of a
/// packet socket.
const SIZES: [usize; 8] = [100, 1_400, 1_401, 5_000, 20_000, 60_000, 100_000, 100_000];

/// How the harness begins the line by which tests are counted.
const RESULT: &str = "test result: ok.";

fn main() {
    let pair = match isolate().and_then(|inside| VethPair::new(&inside, 1500)) {
        Ok(pair) => pair,
        Err(error) => {
            skip::test("namespaces (see `homa doctor`)");
            return println!("captures: {error}\n{RESULT} 0 passed; 0 failed; 1 ignored;");
        }
    };
    let [server, client] = &pair.ends;
    both_ends_of_a_conversation_are_counted_as_its_engines_count(server, client);
    println!("captures: both ends of a conversation are counted as its engines count: ok");
    println!("{RESULT} 1 passed; 0 failed; 0 ignored;");
}

/// Runs `job` on a thread in `host`.
fn within<T: Send>(host: &Namespace, job: impl FnOnce() -> T + Send) -> T {
    host.run(|| Ok(job())).expect("the namespace can be entered")
}

/// A capture of all that a host sends and receives.
struct Capture {
    socket: Socket,
    frames: Vec<(Duration, Vec<u8>)>,
}

impl Capture {
    fn start(host: &Namespace) -> Self {
        let socket = within(host, || {
            let protocol = Some(Protocol::from(ETH_P_ALL));
            Socket::new(Domain::PACKET, Type::RAW, protocol).expect("root of the namespace may")
        });
        socket.set_nonblocking(true).expect("it can wait elsewhere");
        // Beyond the limit if that is allowed.
        if setsockopt(&socket, sockopt::RcvBufForce, &(64 << 20)).is_err() {
            socket.set_recv_buffer_size(1 << 20).expect("a buffer");
        }
        Self { socket, frames: Vec::new() }
    }

    /// Fetches the frames captured since the last call.
    fn fetch(&mut self) {
        let mut buffer = vec![0; 1 << 17];
        loop {
            match (&self.socket).read(&mut buffer) {
                Ok(length) => {
                    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
                    self.frames.push((now.expect("after 1970"), buffer[..length].to_vec()));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// What `homa pcap` says of it.
    fn told(&self, name: &str) -> Value {
        let header = PcapHeader { datalink: DataLink::ETHERNET, ..PcapHeader::default() };
        let mut writer = PcapWriter::with_header(Vec::new(), header).expect("a header");
        for (time, bytes) in &self.frames {
            let packet = PcapPacket::new(*time, bytes.len() as u32, bytes);
            writer.write_packet(&packet).expect("a packet");
        }
        let path = std::env::temp_dir().join(format!("homa-{}-{name}.pcap", std::process::id()));
        std::fs::write(&path, writer.into_writer()).expect("written");
        let output = common::homa(&["pcap", path.to_str().expect("UTF-8"), "--format", "json"]);
        std::fs::remove_file(&path).expect("removed");
        assert_eq!(common::code(&output), 0, "{}", common::stderr(&output));
        common::document(&output)["captures"][0].take()
    }
}

fn open(host: &Namespace, address: Ipv4Addr) -> Engine {
    let address = SocketAddr::new(IpAddr::V4(address), 0);
    let config = Config::default().plaintext();
    within(host, || Engine::bind(address, config).expect("an engine"))
}

fn both_ends_of_a_conversation_are_counted_as_its_engines_count(
    server: &Namespace,
    client: &Namespace,
) {
    let mut captures = [Capture::start(client), Capture::start(server)];
    let [serving, calling] =
        [open(server, VethPair::ADDRESSES[0]), open(client, VethPair::ADDRESSES[1])];
    let accepting = serving.serve().expect("the only one");
    let echo = thread::spawn(move || {
        while let Some(mut request) = accepting.accept() {
            let bytes = request.take_bytes();
            request.reply(bytes).expect("the client waits");
        }
    });
    for size in SIZES {
        let answer = calling.client().call(serving.local_addr(), vec![7; size]);
        assert_eq!(answer.expect("an answer").len(), size);
        captures.iter_mut().for_each(Capture::fetch);
    }
    calling.drain(GIVE_UP).expect("all is said");
    serving.drain(GIVE_UP).expect("all is said");
    echo.join().expect("it served");
    let engines = [calling.metrics(), serving.metrics()];
    captures.iter_mut().for_each(Capture::fetch);
    assert_eq!(engines, [calling.metrics(), serving.metrics()], "something is still being said");

    let sum = |of: fn(&homa::metrics::Metrics) -> u64| engines.iter().map(of).sum::<u64>();
    for (capture, side) in captures.iter().zip(["client", "server"]) {
        let told = capture.told(side);
        let totals = &told["totals"];
        let number = |key: &str| totals[key].as_u64().expect("a number");
        let kind = |name: &str| totals["types"][name].as_u64().unwrap_or(0);
        assert!(number("trains") > 0, "no train was captured: {totals}");
        assert_eq!(number("datagrams"), sum(|e| e.driver.datagrams_sent), "{side}: {totals}");
        assert_eq!(kind("DATA"), sum(|e| e.protocol.data_sent + e.protocol.data_resent));
        assert_eq!(kind("GRANT"), sum(|e| e.protocol.grants_sent), "{side}");
        assert_eq!(kind("ACK"), sum(|e| e.protocol.acks_sent), "{side}");
        assert_eq!(totals["malformed"], serde_json::json!({}), "{side}");
        let bytes = 2 * SIZES.iter().sum::<usize>() as u64;
        assert!(number("data_bytes") >= bytes);
        if sum(|e| e.protocol.data_resent) == 0 {
            assert_eq!(number("data_bytes"), bytes, "{side}");
        }
        let rpcs = told["rpcs"].as_array().expect("rows");
        assert_eq!(rpcs.len(), SIZES.len());
        for (rpc, size) in rpcs.iter().zip(SIZES) {
            assert_eq!(rpc["request"]["captured_bytes"], size, "{rpc}");
            assert_eq!(rpc["response"]["captured_bytes"], size, "{rpc}");
            assert!(["acked", "complete"].contains(&rpc["ending"].as_str().expect("text")));
        }
        assert_eq!(number("rpcs"), SIZES.len() as u64);
    }
}
