//! What the size of Homa's frames changes.

use homa_sim::experiment::run;
use homa_sim::scenario::{Exchange, Scenario, SchemeOptions, Stop, Traffic};

#[test]
fn larger_frames_carry_the_same_messages_in_fewer_packets() {
    let hops = |mtu| {
        let scenario = Scenario {
            options: SchemeOptions { mtu, ..SchemeOptions::default() },
            stop: Stop { messages: Some(300), ..Default::default() },
            traffic: Traffic::AllToAll {
                workload: "40000".to_owned(),
                exchange: Exchange::OneWay,
                max_bytes: None,
            },
            scheme: "homa-paper".to_owned(),
            ..Default::default()
        };
        let outcome = run(&scenario, &mut |_| ()).map_err(|e| e.to_string())?;
        assert_eq!((outcome.messages, outcome.undelivered), (300, 0));
        Ok::<_, String>(outcome.packet_hops)
    };
    let (usual, same, jumbo) = (hops(None), hops(Some(1500)), hops(Some(4000)));
    assert_eq!(usual, same);
    assert!(jumbo.unwrap() * 2 < usual.unwrap());
    assert!(hops(Some(1400)).unwrap_err().contains("options.mtu"));
}
