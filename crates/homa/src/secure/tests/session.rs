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

/// Nothing is lost while one end is behind, and also what one end only receives counts.
#[test]
fn any_interleaving_of_both_directions_survives_updates() {
    arbtest::arbtest(|input| {
        let (mut client, mut server) = pair();
        client.set_limits(KeyLimits { update: 3, sealed: 1_000, forged: 1_000 });
        server.set_limits(KeyLimits { update: 4, sealed: 1_000, forged: 1_000 });
        let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
        for _ in 0..100 {
            match input.int_in_range(0..=3)? {
                0 => to_server.push(seal(&mut client, b"", b"request")),
                1 => to_client.push(seal(&mut server, b"", b"response")),
                2 if !to_server.is_empty() => {
                    let sealed = to_server.remove(0);
                    assert_eq!(open(&mut server, b"", &sealed), Ok(b"request".to_vec()));
                }
                3 if !to_client.is_empty() => {
                    let sealed = to_client.remove(0);
                    assert_eq!(open(&mut client, b"", &sealed), Ok(b"response".to_vec()));
                }
                _ => {}
            }
        }
        Ok(())
    });
}

#[test]
fn sealing_stops_at_the_limit_if_the_peer_stays_silent() {
    let (mut client, mut server) = pair();
    client.set_limits(SMALL);
    for _ in 0..SMALL.sealed {
        let sealed = seal(&mut client, b"", b"x");
        assert!(open(&mut server, b"", &sealed).is_ok());
    }
    assert_eq!(client.next(), Err(SealError::Exhausted));
    assert!(!seal(&mut server, b"", b"").1, "a server does not begin an update");
    // One datagram from the peer shows that it has the keys.
    let answer = seal(&mut server, b"", b"ack");
    assert!(open(&mut client, b"", &answer).is_ok());
    let sealed = seal(&mut client, b"", b"x");
    assert!(sealed.1, "the phase has changed");
    assert!(open(&mut server, b"", &sealed).is_ok());
}

#[test]
fn the_ciphers_limits_are_those_of_the_standard() {
    let (client, _) = pair();
    let limits = client.limits();
    assert!(limits.sealed <= 1 << 23 || limits.forged == 1 << 36, "{limits:?}");
    assert!(limits.update <= limits.sealed / 2);
}

#[test]
fn every_change_of_a_datagram_is_refused() {
    let (mut client, mut server) = pair();
    let header = [1, 0, 0, 0, 9, 9, 9, 9];
    let sealed = seal(&mut client, &header, b"a request of thirty-two bytes!!!");
    for at in 0..sealed.2.len() {
        let (mut flipped, mut cut) = (sealed.clone(), sealed.clone());
        flipped.2[at] ^= 1 << (at % 8);
        assert_eq!(open(&mut server, &header, &flipped), Err(UnsealError::Forged), "bit in {at}");
        cut.2.truncate(at);
        assert_eq!(open(&mut server, &header, &cut), Err(UnsealError::Forged), "cut at {at}");
    }
    for at in 0..header.len() {
        let mut other = header;
        other[at] ^= 0x80;
        assert_eq!(open(&mut server, &other, &sealed), Err(UnsealError::Forged), "header {at}");
    }
    let mut renumbered = sealed.clone();
    renumbered.0 += 1;
    assert_eq!(open(&mut server, &header, &renumbered), Err(UnsealError::Forged));
    let mut phase = sealed.clone();
    phase.1 = !phase.1;
    assert_eq!(open(&mut server, &header, &phase), Err(UnsealError::Forged));
    let mut longer = sealed.clone();
    longer.2.push(0);
    assert_eq!(open(&mut server, &header, &longer), Err(UnsealError::Forged));
    assert!(open(&mut server, &header, &sealed).is_ok(), "forgeries changed the session");
}

#[test]
fn copies_reflections_and_other_sessions_are_refused() {
    let (mut client, mut server) = pair();
    let (mut other_client, mut other_server) = pair();
    let mut old = Vec::new();
    for _ in 0..5_000 {
        let sealed = seal(&mut client, b"", b"x");
        assert!(open(&mut server, b"", &sealed).is_ok());
        old.push(sealed);
    }
    for (number, sealed) in old.iter().enumerate() {
        let late = number < 5_000 - 4_096;
        let expected = if late { UnsealError::TooOld } else { UnsealError::Replayed };
        assert_eq!(open(&mut server, b"", sealed), Err(expected), "{number}");
    }
    assert_eq!(open(&mut client, b"", &old[0]), Err(UnsealError::Forged), "reflected");
    assert_eq!(open(&mut other_server, b"", &old[0]), Err(UnsealError::Forged), "replayed");
    assert_eq!(open(&mut other_client, b"", &old[0]), Err(UnsealError::Forged));
}

#[test]
fn a_number_is_sealed_at_most_once() {
    let (mut client, _) = pair();
    let (number, _) = client.next().unwrap();
    assert!(client.seal(number, b"", &mut [0; 20]).is_ok());
    assert_eq!(client.seal(number, b"", &mut [0; 20]), Err(SealError::Number));
    let (first, _) = client.next().unwrap();
    let (second, _) = client.next().unwrap();
    assert!(number < first && first < second);
    assert_eq!(client.seal(first, b"", &mut [0; 20]), Err(SealError::Number));
    let (third, _) = client.next().unwrap();
    assert_eq!(client.seal(third, b"", &mut [0; TAG - 1]), Err(SealError::Length));
    assert_eq!(client.seal(third, b"", &mut [0; TAG]), Err(SealError::Number));
}

#[test]
fn a_flood_of_forgeries_ends_the_session_and_nothing_else() {
    let (mut client, mut server) = pair();
    server.set_limits(SMALL);
    let sealed = seal(&mut client, b"", b"x");
    for number in 0..SMALL.forged {
        let forged = (number, false, vec![0; 40]);
        assert_eq!(open(&mut server, b"", &forged), Err(UnsealError::Forged));
    }
    assert_eq!(open(&mut server, b"", &sealed), Err(UnsealError::Exhausted));
}

/// A server that only sends gets new keys as well: its client counts what arrives.
#[test]
fn a_receiving_client_updates_the_keys_of_its_server() {
    let (mut client, mut server) = pair();
    client.set_limits(SMALL);
    server.set_limits(SMALL);
    let mut phases = Vec::new();
    for round in 0..200_u8 {
        let sealed = seal(&mut server, b"", &[round]);
        phases.push(sealed.1);
        assert_eq!(open(&mut client, b"", &sealed), Ok(vec![round]));
        if round % 7 == 0 {
            let grant = seal(&mut client, b"", b"grant");
            assert!(open(&mut server, b"", &grant).is_ok());
        }
    }
    let changes = phases.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert!(changes >= 10, "{changes} changes of keys in 200 datagrams");
}
