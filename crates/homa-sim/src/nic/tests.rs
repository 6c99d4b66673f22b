//! Claims about HULL's three parts together on one switch: DCTCP, phantom queue, pacer.

use std::sync::Arc;

use homa_proto::{Duration, PeerId, Rate};

use super::*;
use crate::SimDuration;
use crate::engine::{Application, AtPort, Context, NoFaults, Probe, Simulation};
use crate::fabric::queue::{EcnScope, EcnThreshold, Phantom, PhantomConfig};
use crate::fabric::{Buffers, FabricConfig, Forwarding};
use crate::time::SimTime;
use crate::topology::{Physics, PortSpec, SingleSwitch};
use crate::transport::tcp::Tcp;
use crate::transport::tcp::config::TcpConfig;

const BYTES: u32 = 20_000_000;

/// Sends a message from each of two hosts to host 0.
#[derive(Default)]
struct Two {
    delivered: Vec<SimTime>,
}

impl Application for Two {
    fn wake<C: Context>(&mut self, net: &mut C, _: u64) {
        for host in [1, 2] {
            let what = Submit::OneWay { peer: PeerId(0), length: BYTES, cookie: 0 };
            net.submit(HostId(host), what).unwrap();
        }
    }

    fn event<C: Context>(&mut self, net: &mut C, _: HostId, event: &Event) {
        if matches!(event, Event::Delivered(_)) {
            self.delivered.push(net.now());
        }
    }
}

/// The mean queue that frames find at any port, after the start.
#[derive(Default)]
struct MeanBacklog {
    frames: u64,
    bytes: u64,
}

impl<T: Transport> Probe<T> for MeanBacklog {
    fn enqueued(&mut self, now: SimTime, _: &AtPort, backlog: &crate::engine::PortBacklog) {
        if now.0 > 50_000_000_000 {
            self.frames += 1;
            self.bytes += backlog.queued_bytes;
        }
    }
}

/// Mean queue in bytes, and seconds until both messages have arrived.
fn run(phantom: Option<PhantomConfig>, nic: NicConfig) -> (f64, f64) {
    let physics = Physics {
        host_rate: Rate::gbps(1),
        fabric_rate: Rate::gbps(1),
        sender_delay: SimDuration::micros(30),
        switch_delay: SimDuration::ZERO,
        receiver_delay: SimDuration::micros(30),
        propagation: SimDuration::ZERO,
    };
    let wiring = SingleSwitch { hosts: 3, physics }.wire();
    let buffers = Buffers::PerPort(700_000);
    let config = FabricConfig { forwarding: Forwarding::Ecmp, buffers, ..FabricConfig::default() };
    let tcp = Arc::new(TcpConfig::dctcp());
    let make = Box::new(move |host, life| {
        Nic::new(Tcp::new(tcp.clone(), host, (life, 1)), nic, host, (life, 1))
    });
    // Without a phantom queue, DCTCP marks at its own 30 KB.
    let threshold = if phantom.is_some() { u32::MAX } else { 30_000 };
    let mut queue = |_, port: &PortSpec| {
        Phantom::new(EcnThreshold::new(threshold, EcnScope::Queue), phantom, port.rate)
    };
    let parts = (Two::default(), MeanBacklog::default(), NoFaults);
    let mut sim = Simulation::with_queues(wiring, config, (make, &mut queue), parts);
    sim.wake_at(SimTime::ZERO, 0);
    sim.run_until(SimTime(20_000_000_000_000), 5_000_000);
    let delivered = &sim.application().delivered;
    assert_eq!(delivered.len(), 2, "both arrive");
    let found = sim.probe();
    (found.bytes as f64 / found.frames as f64, delivered[1].0 as f64 / 1e12)
}

/// HULL §6, Table 3.
const PACED: NicConfig = NicConfig {
    mark_above: None,
    mark_by_port: false,
    pacer: Some(PacerConfig {
        period: Duration::micros(64),
        gain: 0.125,
        backlog_gain: 16.0,
        probability: 0.125,
        expiry: Duration::millis(10),
        depth: 3_000,
        tick: Some(Duration::micros(16)),
        fifo: 128 * 1_024,
        entries: 64,
        floor: 1.25e6,
        ceiling: 125e6,
    }),
    segmentation: None,
    coalescing: None,
    cpu: None,
    instrument: None,
};

#[test]
fn a_phantom_queue_trades_bandwidth_for_a_short_queue() {
    let (dctcp, dctcp_seconds) = run(None, NicConfig::default());
    let (hull, hull_seconds) = run(Some(PhantomConfig::PAPER), PACED);
    // 40 MB at a gigabit take 0.34 s with headers.
    assert!((0.33..0.37).contains(&dctcp_seconds), "{dctcp_seconds}");
    assert!(hull * 3.0 < dctcp, "{hull} bytes with HULL, {dctcp} without");
    assert!((0.34..0.50).contains(&hull_seconds), "{hull_seconds}");
}

#[test]
fn only_flows_that_met_marks_wait_for_tokens() {
    let slow = |probability| {
        let pacer = PACED.pacer.map(|pacer| PacerConfig { probability, ceiling: 12.5e6, ..pacer });
        run(Some(PhantomConfig::PAPER), NicConfig { pacer, ..PACED }).1
    };
    // Each host sends at a tenth of the link's rate.
    let (none, all) = (slow(0.0), slow(1.0));
    assert!(none < 0.6, "no flow is associated, and 40 MB take {none} s");
    assert!(all > 1.5, "every flow is, and 20 MB from each host take {all} s");
}
