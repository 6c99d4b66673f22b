//! Profile `linux-upstream`: every byte is sent unasked, and RESEND asks for what is missing.

use homa_proto::{Body, Config, Duration};

use crate::common::{CLIENT, ClientAndServer, Observed, SERVER};

const LONGEST: u32 = 1_000_000;

#[test]
fn long_messages_are_sent_unasked_and_repaired() {
    for lossy in [false, true] {
        let upstream = Config::linux_upstream;
        let mut pair = ClientAndServer::new(upstream(), upstream());
        pair.reply = Some((LONGEST, Duration::micros(1)));
        pair.lose = Box::new(move |_, packet, n| {
            match &packet.body {
                Body::Data(data) => {
                    assert_eq!((data.incoming, data.cutoff_version), (0, 0), "reserved");
                }
                Body::Grant { .. } | Body::Cutoffs { .. } => panic!("{packet:?}"),
                _ => {}
            }
            assert_eq!(packet.priority, 0);
            lossy && n % 20 == 1
        });
        pair.call(LONGEST, 1);
        pair.run_for(Duration::millis(100));
        assert_eq!(pair.seen[CLIENT], [Observed::Response(1, LONGEST)], "lossy {lossy}");
        assert_eq!(pair.executions(), 1);
        assert_eq!(pair.ends[CLIENT].counters().resends_sent > 0, lossy);
        pair.run_for(Duration::millis(200));
        pair.assert_clean();
    }
}

#[test]
fn unasked_messages_take_no_more_memory_than_there_is() {
    let budget = 3 * u64::from(LONGEST);
    let server = Config::linux_upstream().memory_budget(budget);
    let mut pair = ClientAndServer::new(Config::linux_upstream(), server);
    let calls = 20;
    for cookie in 0..calls {
        pair.call(LONGEST, cookie);
    }
    for _ in 0..200 {
        pair.run_for(Duration::millis(1));
        let held = pair.ends[SERVER].credit().memory;
        assert!(held <= budget + u64::from(LONGEST), "{held} bytes");
    }
    let failed = |seen: &&Observed| matches!(seen, Observed::Failed(..));
    assert_eq!(pair.seen[CLIENT].iter().filter(failed).count(), 0, "{:?}", pair.seen[CLIENT]);
    assert_eq!(pair.executions(), calls as usize);
}

/// A long message of the module waits for a GRANT, which the upstream series never sends, until
/// RESEND asks for the rest. That is one RESEND, and meanwhile the other end may ask once, too.
#[test]
fn both_kernels_complete_each_others_long_messages() {
    type Kernel = fn() -> Config;
    let (module, upstream): (Kernel, Kernel) = (Config::linux, Config::linux_upstream);
    for (client, server) in [(module, upstream), (upstream, module)] {
        let mut pair = ClientAndServer::new(client(), server());
        pair.reply = Some((LONGEST, Duration::micros(1)));
        pair.call(LONGEST, 1);
        pair.run_for(Duration::millis(20));
        assert_eq!(pair.seen[CLIENT], [Observed::Response(1, LONGEST)], "{}", pair.transcript);
        assert_eq!(pair.executions(), 1);
        let asked = [CLIENT, SERVER].map(|end| pair.ends[end].counters().resends_sent);
        assert!(asked.iter().sum::<u64>() <= 2, "{asked:?}");
    }
}
