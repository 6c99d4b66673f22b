//! Workloads, transports and the CPU clock that all benchmarks use.

// Each benchmark uses only a part of this module.
#![allow(dead_code)]

pub mod window;

use homa_proto::{Config, Endpoint, Event, PeerId, Rate, Submit};
use homa_sim::engine::{Application, Context, MakeTransport};
use homa_sim::{Headers, HostId, SimTime, transport::Homa};
use homa_workload::rng::Rng;
use homa_workload::sizes::Workload;

/// A message to be sent.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    pub from: u32,
    pub to: u32,
    pub bytes: u32,
    pub at: SimTime,
}

/// Payload of a full packet in the workloads that we also ran on other simulators.
const PAYLOAD: u32 = 1460;

/// Flow `i` goes from host `i` to host `5 i + 77`; all start at once and consist of full packets.
pub fn perm(packets: u32) -> Vec<Flow> {
    let bytes = packets * PAYLOAD;
    let flow = |i| Flow { from: i, to: (5 * i + 77) % 144, bytes, at: SimTime(0) };
    (0..144).map(flow).collect()
}

/// A permutation of `hosts` hosts, most of whose flows leave their pod.
pub fn permutation(hosts: u32, bytes: u32) -> Vec<Flow> {
    let shift = hosts / 2 + 77;
    let flow = |i| Flow { from: i, to: (5 * i + shift) % hosts, bytes, at: SimTime(0) };
    (0..hosts).map(flow).filter(|flow| flow.from != flow.to).collect()
}

/// The web-search distribution as packets and cumulative probability, linear in between.
const WEB_SEARCH: [(f64, f64); 12] = [
    (1.0, 0.0),
    (6.0, 0.15),
    (13.0, 0.2),
    (19.0, 0.3),
    (33.0, 0.4),
    (53.0, 0.53),
    (133.0, 0.6),
    (667.0, 0.7),
    (1333.0, 0.8),
    (3333.0, 0.9),
    (6667.0, 0.97),
    (20000.0, 1.0),
];

struct SplitMix(u64);

impl SplitMix {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

fn web_search(u: f64) -> f64 {
    for pair in WEB_SEARCH.windows(2) {
        let ((low, p), (high, q)) = (pair[0], pair[1]);
        if u <= q {
            return low + (u - p) / (q - p) * (high - low);
        }
    }
    20_000.0
}

/// 4,000 Poisson flows of web-search sizes at 60 % load.
pub fn web60() -> Vec<Flow> {
    let mean: f64 = WEB_SEARCH
        .windows(2)
        .map(|pair| (pair[1].1 - pair[0].1) * (pair[0].0 + pair[1].0) / 2.0)
        .sum();
    let rate = 144.0 * 0.6 * 10e9 / (mean * 1500.0 * 8.0);
    let (mut random, mut seconds) = (SplitMix(1), 0.0);
    let mut flow = || {
        seconds -= (1.0 - random.uniform()).ln() / rate;
        let from = (random.uniform() * 144.0) as u32;
        let to = (random.uniform() * 143.0) as u32;
        let packets = (web_search(random.uniform()) as u32).max(1);
        Flow {
            from,
            to: to + u32::from(to >= from),
            bytes: packets * PAYLOAD,
            at: SimTime((seconds * 1e9) as u64 * 1_000),
        }
    };
    (0..4_000).map(|_| flow()).collect()
}

/// Poisson arrivals of a named workload at 80 % of 10 Gbit/s in message bytes times `overhead`.
pub fn poisson(workload: &str, messages: usize, overhead: f64) -> Vec<Flow> {
    let sizes = Workload::parse(workload).unwrap().sizes().unwrap();
    let gap_ps = sizes.mean_bytes() * overhead * 8.0 / 0.8 / 10e9 / 144.0 * 1e12;
    let mut rng = Rng::stream(1, "bench");
    let mut ps = 0.0;
    let mut flow = || {
        ps += rng.exponential(gap_ps);
        let from = rng.uniform_below(144);
        let to = rng.uniform_below(143);
        let bytes = sizes.sample(&mut rng);
        Flow { from, to: to + u32::from(to >= from), bytes, at: SimTime(ps as u64) }
    };
    (0..messages).map(|_| flow()).collect()
}

/// Sends flows and counts those that arrive. It has at most one pending wake-up.
pub struct Sender {
    flows: Vec<Flow>,
    pub delivered: usize,
    pub last: SimTime,
}

impl Sender {
    pub fn new(flows: Vec<Flow>) -> Self {
        Self { flows, delivered: 0, last: SimTime::ZERO }
    }

    pub fn first(&self) -> SimTime {
        self.flows.first().map_or(SimTime::ZERO, |flow| flow.at)
    }
}

impl Application for Sender {
    fn wake<C: Context>(&mut self, net: &mut C, token: u64) {
        let Flow { from, to, bytes, .. } = self.flows[token as usize];
        let what = Submit::OneWay { peer: PeerId(to), length: bytes, cookie: token };
        net.submit(HostId(from), what).unwrap();
        if let Some(next) = self.flows.get(token as usize + 1) {
            net.wake_at(next.at, token + 1);
        }
    }

    fn event<C: Context>(&mut self, net: &mut C, _: HostId, event: &Event) {
        if let Event::Delivered(_) = event {
            self.delivered += 1;
            self.last = net.now();
            if self.delivered == self.flows.len() {
                net.stop();
            }
        }
    }
}

/// Hosts that run Homa as the paper describes it, on Ethernet with this MTU.
pub fn homa(rate: Rate, rtt_bytes: u32, mtu: u32) -> MakeTransport<Homa> {
    Box::new(move |host, _| {
        let config = Config::sigcomm18(rate)
            .seed(u64::from(host.0) + 1)
            .rtt_bytes(rtt_bytes)
            .rtt_bytes_max(rtt_bytes.max(60_000))
            .max_message(1 << 30)
            .memory_budget(1 << 40);
        let endpoint = Endpoint::new(config.validate().unwrap());
        Homa::new(endpoint, Headers::Authors).with_mtu(mtu)
    })
}

/// CPU seconds that this process has used.
pub fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let nanos: Option<f64> = text.split(' ').next().and_then(|word| word.parse().ok());
    nanos.unwrap_or(0.0) / 1e9
}
