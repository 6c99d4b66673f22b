//! How a silent peer is asked, and when it is given up.

use homa_proto::{Config, Duration, Rate, RpcError, Submit};

use crate::common::{CLIENT, ClientAndServer, Observed, PORTS, SERVER};

#[test]
fn a_silent_server_is_asked_less_and_less_often() {
    for calls in [1, 1_000] {
        let mut pair = ClientAndServer::new(users(), users());
        pair.lose = Box::new(|_, _, _| true);
        for cookie in 0..calls {
            pair.call(100, cookie);
        }
        let mut asked = Vec::new();
        for _ in 0..9 {
            let before = pair.ends[CLIENT].counters().resends_sent;
            pair.run_for(Duration::secs(1));
            asked.push(pair.ends[CLIENT].counters().resends_sent - before);
        }
        assert!((7..=8).contains(&asked[0]), "{asked:?}");
        assert!(asked[5..].iter().sum::<u64>() <= 3, "{calls} calls: {asked:?}");
        // Any packet of the server ends the silence: all calls ask, one after the other.
        pair.lose = Box::new(|_, _, _| false);
        pair.call(100, calls);
        pair.run_for(Duration::millis(200));
        assert_eq!(pair.executions() as u64, calls + 1);
    }
}

fn users() -> Config {
    Config::for_users(Rate::gbps(10))
}

/// A pair of profile `linux` whose client called and had no answer for `silent` ms.
fn kernel_call(silent: u64) -> ClientAndServer {
    let mut pair = ClientAndServer::new(Config::linux(), Config::linux());
    pair.reply = None;
    pair.lose = Box::new(|from, _, _| from == SERVER);
    pair.call(100, 1);
    pair.run_for(Duration::millis(silent));
    pair
}

#[test]
fn a_kernel_server_may_be_silent_for_109_ms() {
    let mut pair = kernel_call(108);
    let Some(&Observed::Request(rpc, _)) = pair.seen[SERVER].first() else { panic!() };
    pair.lose = Box::new(|_, _, _| false);
    pair.submit(SERVER, Submit::Response { rpc, length: 100 });
    pair.run_for(Duration::millis(1));
    assert_eq!(pair.seen[CLIENT], [Observed::Response(1, 100)]);
    let failed = [Observed::Failed(1, RpcError::PeerUnreachable)];
    assert_eq!(kernel_call(112).seen[CLIENT], failed);
    // RPC_UNKNOWN ends no silence, BUSY does.
    for (busy, seen) in [(false, &failed[..]), (true, &[])] {
        let mut pair = ClientAndServer::new(Config::linux(), Config::linux());
        pair.reply = None;
        if !busy {
            pair.ends[SERVER].unlisten(PORTS[SERVER]);
        }
        pair.call(100, 1);
        pair.run_for(Duration::millis(112));
        let answers = pair.ends[SERVER].counters();
        assert!(answers.unknowns_sent + answers.busys_sent > 15, "{answers:?}");
        assert_eq!(pair.seen[CLIENT], seen, "busy {busy}");
    }
}
