//! Claims about captures and about the judge of traces.

use super::*;
use crate::engine::{NoFaults, Simulation};
use crate::fabric::FabricConfig;
use crate::measure::latency::Latencies;
use crate::scenario::{Ending, Exchange};
use crate::scheme::homa::{self, Basis, Stack};
use crate::time::{SimDuration, SimTime};
use crate::topology::{LeafSpine, Physics, Wiring};
use crate::trace::{Checked, Count, Listener, Recorder, TraceEvent, Verifier, Violation};
use crate::traffic::open_loop::{OpenLoop, Pairs};
use crate::traffic::{Distance, Generator, Limits, Pattern};
use homa_proto::{Body, PeerId, Rate};
use homa_workload::sizes::Workload;
use pcap_file::pcapng::{Block, PcapNgReader};

/// Eight hosts in two racks under load: capture and trace of the same run.
fn run() -> (Wiring, Vec<TraceEvent>, Vec<u8>) {
    let physics = Physics::homa();
    let wiring = LeafSpine { racks: 2, hosts_per_rack: 4, spines: 2, physics }.wire();
    let sizes = Workload::W3.sizes().unwrap().truncated(100_000);
    let link = Rate::gbps(10);
    let basis = Basis { link, rtt_bytes: 9680, workload: "w3", sizes: &sizes };
    let stack = Stack::new(homa::default, &basis, &Default::default()).unwrap();
    let limits = Limits {
        warm_up: SimTime::ZERO,
        messages: 500,
        time: SimTime::MAX,
        ending: Ending::Drain,
        sample_every: SimDuration::micros(100),
    };
    let arrivals = OpenLoop::new(sizes.clone(), Pairs::All(8), 1e6, 5);
    let pattern = Pattern::Open { arrivals, exchange: Exchange::Echo };
    let distance = Distance { rack: 4, pod: 8 };
    let generator = Generator::new(8, pattern, limits, (distance, Latencies::new(&sizes)));
    let capture = Capture::new(Vec::new(), 8, Framing::Ip146, u64::MAX).unwrap();
    let probes = (Recorder(Vec::new()), Some(capture));
    let make = Box::new(move |host, life| stack.host(host, life, 5));
    let parts = (generator, probes, NoFaults);
    let mut sim = Simulation::new(wiring.clone(), FabricConfig::default(), make, parts);
    sim.wake_at(SimTime::ZERO, Generator::START);
    for _ in 0..2 {
        sim.run_until(SimTime(1_000_000_000_000), u64::MAX);
    }
    assert_eq!(sim.application().tally.delivered, 500);
    let (recorder, capture) = sim.probe_mut();
    let bytes = capture.take().unwrap().finish().unwrap();
    (wiring, std::mem::take(&mut recorder.0), bytes)
}

/// The verdict on the trace of a run after which the network is empty.
fn judge(wiring: &Wiring, events: &[TraceEvent]) -> Result<Checked, Vec<Violation>> {
    let mut verifier = Verifier::new(wiring, &FabricConfig::default());
    events.iter().for_each(|event| verifier.hear(event));
    verifier.finish(0)
}

#[test]
fn a_run_obeys_physics_and_its_capture_reads_back() {
    let (wiring, events, bytes) = run();
    let checked = judge(&wiring, &events).unwrap();
    let sent = checked.sent.bytes;
    assert_eq!((checked.received, checked.lost), (checked.sent, Count::default()));
    let transmitted = events.iter().filter(|e| matches!(e, TraceEvent::Transmitted { .. }));
    let (mut packets, mut original) = (0, 0);
    let mut reader = PcapNgReader::new(&bytes[..]).unwrap();
    while let Some(block) = reader.next_block() {
        let Block::EnhancedPacket(packet) = block.unwrap() else { continue };
        packets += 1;
        original += u64::from(packet.original_len) + u64::from(NOT_CAPTURED);
        assert_eq!(packet.data[23], 146, "IP protocol");
        let homa = &packet.data[ETHERNET + IPV4..];
        // The payload is not in the capture; the IP header says how long it is.
        let total = usize::from(u16::from_be_bytes([packet.data[16], packet.data[17]]));
        let mut whole = homa.to_vec();
        whole.resize(total - IPV4, 0);
        let decoded = wire::decode(&whole, PeerId(0), 0).unwrap();
        if let Body::Data(data) = decoded.packet.body {
            assert!(data.message_length <= 100_000 && data.span.offset < data.message_length);
        }
    }
    assert_eq!(packets, transmitted.count());
    assert_eq!(original, sent, "lengths are the simulated ones");
}

#[test]
fn a_forged_trace_is_found_out() {
    let (wiring, events, _) = run();
    let departed = |event: &TraceEvent| matches!(event, TraceEvent::Departed { .. });
    let at = events.iter().position(departed).unwrap();
    let mut early = events.clone();
    if let TraceEvent::Departed { at_ps, .. } = &mut early[at] {
        *at_ps -= 1;
    }
    let mut missing = events.clone();
    missing.remove(0);
    let mut twice = events.clone();
    let end = events.iter().rposition(|e| matches!(e, TraceEvent::Received { .. })).unwrap();
    twice.insert(end, events[end]);
    let mut cut = events;
    cut.pop();
    for forged in [early, missing, twice, cut] {
        assert!(judge(&wiring, &forged).is_err());
    }
}
