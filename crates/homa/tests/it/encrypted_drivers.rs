//! Keys with the other ways to open an engine: several at one address, and AF_XDP.

use std::thread;
use std::time::Duration;

use homa::metrics::DriverCounters;
use homa::{CallOptions, Config, Engine, Keys};

use crate::common::{echo, engine, message};

/// Reached only if the test fails.
const GIVE_UP: Duration = Duration::from_secs(20);

fn with_key() -> Config {
    Config::default().keys(Keys::cluster([4; 32]).unwrap())
}

#[test]
fn shards_have_one_key_and_each_peer_one_session() {
    const SHARDS: usize = 4;
    const CLIENTS: usize = 12;
    let at = "127.0.0.1:0".parse().unwrap();
    let sharded = Engine::sharded(at, SHARDS, with_key()).unwrap();
    for server in sharded.serve().unwrap() {
        echo(server);
    }
    let clients: Vec<_> = (0..CLIENTS).map(|_| engine("127.0.0.1", with_key())).collect();
    for len in [1, 100, 20_000] {
        for client in &clients {
            let sent = message(len, 3);
            let got = client.client().call(sharded.local_addr(), sent.clone()).unwrap();
            assert_eq!(&got[..], &sent[..]);
        }
    }
    let shards: Vec<DriverCounters> =
        sharded.engines().map(|engine| engine.metrics().driver).collect();
    let sum = |of: fn(&DriverCounters) -> u64| shards.iter().map(of).sum::<u64>();
    assert_eq!(sum(|of| of.handshakes_completed), CLIENTS as u64, "{shards:?}");
    assert_eq!(sum(|of| of.sessions), CLIENTS as u64, "{shards:?}");
    assert_eq!(sum(|of| of.datagrams_unknown_key + of.trains_misdirected), 0, "{shards:?}");
    assert!(shards.iter().all(|of| of.sessions < CLIENTS as u64), "all with one: {shards:?}");
}

#[cfg(feature = "xdp")]
#[test]
fn af_xdp_carries_encrypted_datagrams_to_both_kinds_of_peer() {
    let Some(net) = crate::xdp::Net::new() else { return };
    for xdp_at_client in [true, false] {
        let at = "10.8.0.2:0".parse().unwrap();
        let server = net.server.run(|| Engine::xdp(at, with_key()).unwrap());
        let to = server.local_addr();
        let served = net.server.run(|| echo(server.serve().unwrap()));
        let client = net.client.run(|| {
            let at = "10.8.0.1:0".parse().unwrap();
            let open = if xdp_at_client { Engine::xdp } else { Engine::bind };
            let client = open(at, with_key()).unwrap();
            for (n, len) in [100, 1_400, 20_000, 200_000].into_iter().cycle().take(12).enumerate() {
                let (sent, options) = (message(len, n as u64), CallOptions::deadline(GIVE_UP));
                let got = client.client().call_with(to, sent.clone(), &options).unwrap();
                assert!(got[..] == sent[..], "{len} bytes came back changed");
                // By then the next hop is known.
                thread::sleep(Duration::from_millis(6));
            }
            client
        });
        let [client, at_server] = [&client, &server].map(|engine| engine.metrics().driver);
        for end in [&client, &at_server] {
            assert_eq!((end.handshakes_completed, end.sessions), (1, 1), "{end:?}");
            assert_eq!(end.datagrams_forged + end.datagrams_plaintext_refused, 0, "{end:?}");
            assert!(end.datagrams_sealed > 12 && end.datagrams_opened > 12, "{end:?}");
        }
        assert!(at_server.frames_sent > 0, "{at_server:?}");
        assert_eq!(client.frames_sent > 0, xdp_at_client);
        assert!(at_server.frames_received > 0 || !xdp_at_client, "{at_server:?}");
        server.drain(GIVE_UP).unwrap();
        served.join().unwrap();
    }
}
