use homa_testbed::*;
use homa_workload::{arrivals::*, framing::Framing, load::*, quantile::*, sizes::*};
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let get = |n: usize, d: &str| args.get(n).cloned().unwrap_or(d.into());
    let inside = isolate().unwrap();
    let config = RackConfig { link: homa_proto::Rate::mbps(get(6,"100").parse().unwrap()), ..RackConfig::default() };
    let load = Load { fraction: get(3,"0.8").parse().unwrap(), basis: Basis::Wire, link_bps: config.link.0, framing: Framing::Tcp };
    let sizes = get(2,"w3").parse::<Workload>().unwrap().sizes().unwrap().truncated(1_000_000);
    let secs: u64 = get(4,"10").parse().unwrap();
    let offer = Offer { hosts: 5, load, duration_ns: secs*1_000_000_000, seed: 1 };
    let arrivals = schedule(&offer, &sizes).unwrap();
    let rack = Rack::build(config.clone(), &inside).unwrap();
    println!("{inside:?} rt {}", rack.switch_is_real_time());
    let p = check::probe(&rack).unwrap();
    println!("{}", p.verdict);
    drop(rack);
    for name in get(1,"tcp-classed,tcp-pool,tcp").split(',') {
        let rack = Rack::build(config.clone(), &inside).unwrap();
        let plan = RunPlan { transport: name.parse().unwrap(), congestion_control: &get(5,"cubic"),
            pattern: Pattern::Open { arrivals: &arrivals, duration: std::time::Duration::from_secs(secs) },
            idle_sizes: &[1, 100, 300, 1000, 1448, 5000, 20000, 100_000, 1_000_000], grace: std::time::Duration::from_secs(20) };
        let r = run(&rack, &plan).unwrap();
        let q = |lo: u32, hi: u32, p| Sorted::new(r.records.iter().filter(|x| x.bytes > lo && x.bytes <= hi).map(|x| x.latency_ns).collect()).percentile(p).unwrap_or(0) as f64 / 1e6;
        println!("{name}: offered {} done {} failed {} lost {} short p50 {:.3} p99 {:.3} ms; long p50 {:.1} ms cpu/rpc {:.1}us elapsed {:.1}", r.offered, r.records.len(), r.failed, r.lost,
            q(0,1500,Percentile::P50), q(0,1500,Percentile::P99), q(150_000,u32::MAX,Percentile::P50), r.cpu_us_per_rpc, r.elapsed_s);
        println!("  idle {:?}", r.idle.points());
        println!("  {}", r.verdict); netstat(&rack);
        println!("  {:?}", r.switch);
    }
}
pub fn netstat(rack: &Rack) {
    let v = rack.on_every_host(|h| {
        let s = std::fs::read_to_string("/proc/thread-self/net/netstat").unwrap() + &std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
        let l: Vec<&str> = s.lines().collect();
        let mut o = String::new();
        for p in l.chunks(2) { for (k, v) in p[0].split(' ').zip(p[1].split(' ')) {
            if ["TCPTimeouts","TCPLostRetransmit","TCPFastRetrans","TCPSlowStartRetrans","RetransSegs","OutSegs","TCPLossProbes","TCPSpuriousRTOs","TCPBacklogDrop","TCPOFOQueue"].contains(&k) { o += &format!("{k} {v} "); } } }
        let _ = h; Ok(o)
    }).unwrap();
    for x in v { println!("   {x}"); }
}
