//! Honest hosts on a network that loses and duplicates packets. No packet is counted as dropped for
//! a reason that looks like an attack.

use std::thread;

use homa::driver::memory::{MemoryNetwork, NetworkFaults};
use homa::proto::{self, DropReason, Rate};
use homa::{Config, Engine};

use crate::common::{echo, message};

/// Faults per million packets.
const FAULTS: NetworkFaults = NetworkFaults::NONE.lost(10_000).duplicated(10_000);
const SIZES: [usize; 4] = [100, 5_000, 60_000, 400_000];

fn profiles() -> [(&'static str, Config); 3] {
    let paper = proto::Config::sigcomm18(Rate::gbps(10));
    let paper = Config::default().protocol(paper);
    [("default", Config::default()), ("linux", Config::linux()), ("sigcomm18", paper)].map(
        |(name, mut config)| {
            // The timeout is long enough for slow machines.
            config.protocol.loss.timeout = config.protocol.loss.timeout.map(|_| SLOW);
            config.protocol.loss.server_silence = config.protocol.loss.server_silence.max(SLOW);
            (name, config)
        },
    )
}

const SLOW: proto::Duration = proto::Duration::secs(10);

#[test]
fn honest_traffic_on_a_lossy_network_does_not_look_hostile() {
    for (profile, config) in profiles() {
        let network = MemoryNetwork::new(3, FAULTS);
        let engine = |at: &str| {
            let driver = network.driver(at.parse().unwrap()).unwrap();
            Engine::with_driver(Box::new(driver), config.clone()).unwrap()
        };
        let (server, client) = (engine("10.0.0.1:1"), engine("10.0.0.2:2"));
        let (to, echo) = (server.local_addr(), echo(server.serve().unwrap()));
        thread::scope(|scope| {
            for (caller, size) in SIZES.into_iter().cycle().take(8).enumerate() {
                let client = client.client();
                scope.spawn(move || {
                    for _ in 0..6 {
                        let request = message(size, caller as u64);
                        assert!(client.call(to, request.clone()).unwrap() == request[..]);
                    }
                });
            }
        });
        let drops: Vec<(DropReason, u64)> = [server.metrics(), client.metrics()]
            .iter()
            .flat_map(|metrics| metrics.protocol.drops().collect::<Vec<_>>())
            .filter(|(_, count)| *count > 0)
            .collect();
        assert!(!drops.is_empty(), "{profile}: duplicates are dropped");
        let alarming: Vec<_> = drops.iter().filter(|(reason, _)| !reason.is_ordinary()).collect();
        assert!(alarming.is_empty(), "{profile}: {alarming:?} of {drops:?}");
        println!("{profile}: {drops:?}");
        let _ = server.drain(std::time::Duration::from_millis(100));
        echo.join().unwrap();
    }
}
