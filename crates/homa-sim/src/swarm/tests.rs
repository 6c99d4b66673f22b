//! Tests of the swarm itself; `homa swarm` does the long runs.

use homa_proto::{Config, Duration, Rate};

use super::promises::{ScenarioFaults, promises};
use super::*;
use crate::headers::Headers;
use crate::time::{LinkRate, SimDuration, SimTime};
use crate::topology::HostId;
use crate::traffic::PlannedCall;

#[test]
fn a_hundred_scenarios_keep_every_promise() {
    let report = swarm(100, 1, |_| {});
    let failures: Vec<String> = report
        .failures
        .iter()
        .map(|failure| format!("{}: {}", failure.replay(), failure.violations[0]))
        .collect();
    assert!(failures.is_empty(), "{failures:#?}");
    assert!(report.answered > report.calls / 2, "{} of {}", report.answered, report.calls);
    assert!(report.hostile > 5, "{} beside a hostile host", report.hostile);
}

#[test]
fn a_seed_determines_a_run() {
    let traces = |seed| run(&Scenario::draw(seed), ()).trace_hash;
    for seed in 1..20 {
        assert_eq!(traces(seed), traces(seed));
        assert_ne!(traces(seed), traces(seed + 1));
    }
}

/// The cases: requests that are refused again and again fill a link; a dead host's response holds
/// the only RPC that its server may have; responses that no client wants hold the places of the
/// paper's profile.
#[test]
fn lasting_obstacles_are_promised_no_deadline() {
    for seed in [518_657, 31_160, 50_282_580] {
        let mut scenario = Scenario::draw(seed);
        assert_eq!(run(&scenario, ()).violations, []);
        scenario.promises.healthy_from = SimTime(2_500_000_000_000);
        let broken = run(&scenario, ()).violations;
        assert!(broken.iter().all(|one| one.rule == "failures are justified"), "{broken:?}");
        assert!(!broken.is_empty(), "{seed}");
    }
}

/// The cases, in words: grants that were smaller than a packet forever; responses without a client
/// that held their servers' only RPCs; refused requests that a window far below the round trip made
/// slow; requests without memory, resent again and again before anything could free some; the one
/// message that may exceed the memory budget not granted because others came first; requests that
/// overtook the validation of their client's address; a request whose client moved in its midst,
/// which was granted bytes that had already arrived; responses whose client moved and did not
/// accept the server's RPC_UNKNOWN; next to a hostile host, calls that its CUTOFFS in a server's
/// name stopped, that the client disowned after challenges in a server's name, and that found no
/// place because of its requests; a call that started while its server did; and one whose client
/// moved and left its server's only RPC to its former address.
#[test]
fn scenarios_that_once_broke_a_promise_keep_it() {
    for seed in [
        3_000_103, 3_016_640, 10_024_075, 10_044_248, 10_097_448, 77_001_818, 77_002_009,
        50_084_602, 50_110_841, 50_298_298, 2_536, 4_236, 7_509, 150_343, 895, 1_236, 2_041, 3_163,
        668, 24_109, 38_223, 8_739, 42_016, 4_226_896, 4_813_277,
    ] {
        assert_eq!(run(&Scenario::draw(seed), ()).violations, [], "{seed}");
    }
}

/// A client that pauses five times for 150 ms, longer than `linux` waits for a peer, while it makes
/// 16 calls of 1 MB. Its server does not pause, and nothing is lost.
fn stalls(config: Config) -> Scenario {
    let drawn = Scenario::draw(1);
    let (client, server) = (HostId(0), HostId(1));
    let network = SwarmNetwork {
        rate: LinkRate::new(Rate::gbps(1)),
        buffer_bytes: 4_000_000,
        framing: Headers::Ip146,
        mtu: Headers::MTU,
        ..drawn.network
    };
    let call = |n: u64| PlannedCall {
        at: scenario::WARM_UP + SimDuration::millis(n * 10),
        client,
        server,
        request_bytes: 1_000_000,
        response_bytes: 1_000_000,
        one_way: false,
        service: SimDuration::ZERO,
        refused: false,
        cancel_after: None,
        allowed: Duration::secs(10),
        idempotent: false,
    };
    let pause = |n: u64| {
        let at = scenario::WARM_UP + SimDuration::millis(13 + n * 170);
        HostFault::Pause(client, at, SimDuration::millis(150))
    };
    let (calls, host_faults) = ((0..16).map(call).collect::<Vec<_>>(), (0..5).map(pause).collect());
    let mut scenario = Scenario { hosts: 2, network, host_faults, calls, config, ..drawn };
    (scenario.links.loss_ppm, scenario.links.duplicate_ppm, scenario.links.delay_ppm) = (0, 0, 0);
    scenario.impaired.clear();
    scenario.moves.clear();
    scenario.hostile = None;
    let Scenario { links, impaired, host_faults, moves, .. } = &scenario;
    let faults = ScenarioFaults { links, impaired, hosts: host_faults, moves, hostile: None };
    let physics = (&scenario.network, scenario.network.rate);
    scenario.promises = promises(&scenario.config, physics, &faults, &scenario.calls);
    scenario
}

#[test]
fn a_client_that_pauses_loses_no_call_in_any_profile() {
    let rate = Rate::gbps(1);
    let linux = Config::linux().link_rate(rate);
    for config in [Config::sigcomm18(rate), linux, Config::for_users(rate)] {
        let profile = config.profile;
        let outcome = run(&stalls(config), ());
        assert_eq!(outcome.violations, [], "{profile:?}");
        assert_eq!((outcome.calls, outcome.answered), (16, 16), "{profile:?}");
    }
}
