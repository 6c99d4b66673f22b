//! Sealed datagrams: replays, forgeries, order, key updates and limits.

use super::*;
use crate::secure::session::KeyLimits;

fn pair() -> (SecureSession, SecureSession) {
    Pair::new(&cluster(1), &cluster(1)).sessions()
}

const SMALL: KeyLimits = KeyLimits { update: 10, sealed: 20, forged: 1_000 };

#[test]
fn keys_change_before_the_limit_and_late_datagrams_open() {
    let (mut client, mut server) = pair();
    client.set_limits(SMALL);
    server.set_limits(SMALL);
    let (mut phases, mut late) = (Vec::new(), Vec::new());
    for round in 0..100_u8 {
        let sealed = seal(&mut client, b"h", &[round]);
        phases.push(sealed.1);
        // Every third datagram is overtaken by the next four, also across changes of keys.
        if round % 3 == 0 {
            late.push((round, sealed));
        } else {
            assert_eq!(open(&mut server, b"h", &sealed), Ok(vec![round]));
        }
        if late.len() > 2 {
            let (round, sealed) = late.remove(0);
            assert_eq!(open(&mut server, b"h", &sealed), Ok(vec![round]), "{round}");
        }
        let answer = seal(&mut server, b"h", b"ack");
        assert_eq!(open(&mut client, b"h", &answer), Ok(b"ack".to_vec()));
    }
    let changes = phases.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert!(changes >= 8, "{changes} changes of keys in 100 datagrams");
}
