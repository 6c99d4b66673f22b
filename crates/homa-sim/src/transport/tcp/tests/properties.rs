//! If the network loses, duplicates and reorders segments, every message still arrives once and in
//! order, and hosts come to rest.

use arbtest::arbitrary::{Result, Unstructured};

use super::*;

fn any_config(u: &mut Unstructured<'_>) -> Result<TcpConfig> {
    let algorithms = [Algorithm::NewReno, Algorithm::Cubic, Algorithm::Dctcp { gain: 1.0 / 16.0 }];
    let recoveries = [Recovery::NEWRENO, Recovery::SACK, Recovery::RACK, Recovery::TIMEOUTS];
    let policies = [
        ConnectionPolicy::ONE,
        ConnectionPolicy::Pool { size: 3, pick: Pick::Random },
        ConnectionPolicy::Pool { size: 2, pick: Pick::Idle },
        ConnectionPolicy::PerMessage,
    ];
    let priorities =
        [Priorities::One(0), Priorities::Size(vec![800]), Priorities::Sent(vec![500, 2_000])];
    let algorithm = *u.choose(&algorithms)?;
    Ok(quick(TcpConfig {
        algorithm,
        ecn: u.arbitrary()?,
        recovery: *u.choose(&recoveries)?,
        connections: *u.choose(&policies)?,
        handshake: u.arbitrary()?,
        mtu: *u.choose(&[140, 300])?,
        initial_window: u.int_in_range(1..=10)?,
        idle_restart: u.arbitrary()?,
        delayed_ack: if u.arbitrary()? { Some(Duration::micros(500)) } else { None },
        priorities: u.choose(&priorities)?.clone(),
        send_buffer: *u.choose(&[400, 4_000, 1 << 20])?,
        max_timeouts: 60,
        ..TcpConfig::newreno()
    }))
}

#[test]
fn every_message_arrives_once_and_in_connection_order() {
    arbtest::arbtest(|u| {
        let config = any_config(u)?;
        let bad = u.int_in_range(0..=30)?;
        let seed: u64 = u.arbitrary()?;
        let messages = u.int_in_range(1..=12)?;
        let plan: Vec<(u32, bool, u32, u64)> = (0..messages)
            .map(|_| {
                let length = if u.ratio(1, 3)? { 6_000 } else { 300 };
                let gap = u.int_in_range(0..=3_000_000)?;
                Ok((u.int_in_range(0..=1)?, u.arbitrary()?, u.int_in_range(1..=length)?, gap))
            })
            .collect::<Result<_>>()?;
        // Faults of up to 30 % each, which end after half a second.
        let mut rng = Rng::stream(seed, "path");
        let mut path = move |_: &Segment| {
            let mut chance = |percent| rng.uniform_below(100) < percent;
            let copies = if chance(bad) { 0 } else { 1 + usize::from(chance(bad)) };
            let late = [chance(bad), chance(bad)];
            let delay = |late| Duration::micros(20 + if late { 400 } else { 0 });
            late.into_iter().take(copies).map(delay).collect()
        };
        let mut world = World::new(&config, 2, &mut path);
        let mut sizes = BTreeMap::new();
        for &(from, call, length, gap) in &plan {
            let at = world.now + Duration(gap);
            world.run_until(at);
            world.now = world.now.max(at);
            if call {
                world.call(from, 1 - from, length);
            } else {
                world.one_way(from, 1 - from, length);
            }
            let number = sizes.keys().filter(|(client, _)| *client == from).count() as u32 + 1;
            sizes.insert((from, number), (call, length));
        }
        world.run();
        judge(&world, &sizes);
        Ok(())
    })
    .size_max(4_000);
}

fn judge(world: &World<'_>, sizes: &BTreeMap<(u32, u32), (bool, u32)>) {
    assert_eq!(world.failed, []);
    let mut seen = BTreeMap::new();
    for (host, message, _) in &world.delivered {
        let number = message.id.0 as u32 >> 1;
        let client = if message.kind == MessageKind::Response { host.0 } else { message.peer.0 };
        assert_eq!(sizes[&(client, number)].1, message.length);
        *seen.entry((client, number)).or_insert(0) += 1;
    }
    for (who, (call, _)) in sizes {
        assert_eq!(seen.get(who), Some(&if *call { 2 } else { 1 }), "{who:?}");
    }
    let sent = sizes.values().map(|(call, _)| 1 + usize::from(*call)).sum::<usize>();
    assert_eq!(world.released, sent, "every message's bytes are released once");
    for host in &world.hosts {
        assert_eq!(host.calls(), (0, 0));
        assert!(!host.has_packet());
        let per_message = host.config.connections == ConnectionPolicy::PerMessage;
        assert!(!per_message || host.connections().next().is_none(), "a connection is left");
        for connection in host.connections() {
            assert!(connection.is_idle() && !connection.receiver.incoming.is_busy());
            assert_eq!((connection.due(), connection.sender.board.pipe()), (Time::MAX, 0));
        }
    }
}
