//! Sequences of events, and the stages that they are charged to.

use homa_proto::{Data, Span};

use super::*;

const RPC: RpcHandle = RpcHandle { index: 3, generation: 1 };
const PEER: PeerId = PeerId(0);

fn us(n: u64) -> Time {
    Time(n * 1_000)
}

fn packet(from_server: bool, body: Body) -> Packet {
    let id = if from_server { RpcId(10).server() } else { RpcId(10) };
    Packet { peer: PEER, priority: 0, local_port: 1, remote_port: 2, id, body }
}

/// Bytes of the own message, of 3,000 bytes; 1,000 leave without a grant.
fn data(offset: u32, retransmit: bool) -> Body {
    let span = Span { message: MessageId(RPC.index * 2), offset, len: 1_000 };
    let (message_length, incoming, ack, incast) = (3_000, 1_000, None, None);
    Body::Data(Data { span, message_length, incoming, ack, cutoff_version: 0, retransmit, incast })
}

fn resend() -> Body {
    let length = homa_proto::ResendLength::All;
    Body::Resend { offset: 0, length, priority: 0 }
}

/// The only times that were recorded, in microseconds by stage.
fn recorded(stages: &Stages) -> [u64; RpcStage::ALL.len()] {
    let (all, _) = stages.snapshot();
    let [times] = &all[..] else { panic!("{all:?}") };
    assert_eq!(times.rpcs, 1);
    times.nanos.map(|nanos| nanos / 1_000)
}

#[test]
fn the_time_of_a_call_is_charged_stage_by_stage() {
    let mut stages = Stages::default();
    stages.follow(us(0), (RPC, RpcId(10), PEER), Direction::Client, 3_000);
    stages.leaves(us(7), &packet(false, data(0, false)));
    let grant = |offset| packet(true, Body::Grant { offset, priority: 0 });
    stages.control(us(17), &grant(3_000));
    stages.leaves(us(18), &packet(false, data(1_000, false)));
    stages.leaves(us(20), &packet(false, data(2_000, false)));
    let response = MessageId(RPC.index * 2 + 1);
    stages.arrived(us(120), response, &packet(true, data(0, false)));
    stages.arrived(us(121), response, &packet(true, data(1_000, false)));
    stages.ended(us(125), RPC, 3_000);
    let [queue, send, grant, wait, receive, accept, application, loss, stalled] = recorded(&stages);
    assert_eq!([queue, send, grant, wait, receive], [7, 3, 10, 100, 5]);
    assert_eq!([accept, application, loss, stalled], [0; 4]);
    assert_eq!(stages.snapshot().1, Some(Duration::from_micros(100)));
    assert!(!stages.follows(RPC) && stages.mask == 0, "it is followed no longer");
}

#[test]
fn the_time_of_a_request_ends_with_the_response_s_last_byte() {
    let mut stages = Stages::default();
    stages.follow(us(0), (RPC, RpcId(10), PEER), Direction::Server, 2_000);
    stages.arrived(us(4), MessageId(RPC.index * 2 + 1), &packet(false, data(1_000, false)));
    stages.delivered(us(4), RPC);
    stages.taken(RPC, || us(10));
    stages.replied(us(60), RPC, 1_000);
    stages.leaves(us(63), &packet(true, data(0, false)));
    let [queue, send, grant, wait, receive, accept, application, loss, stalled] = recorded(&stages);
    assert_eq!([queue, receive, accept, application], [3, 4, 6, 50]);
    assert_eq!([send, grant, wait, loss, stalled], [0; 5]);
}

#[test]
fn silence_before_a_repetition_is_loss_and_before_a_busy_is_not() {
    let mut stages = Stages::default();
    stages.follow(us(0), (RPC, RpcId(10), PEER), Direction::Client, 1_000);
    stages.leaves(us(1), &packet(false, data(0, false)));
    // The request was lost: it leaves again.
    stages.leaves(us(51), &packet(false, data(0, true)));
    // The server works for long, and says so.
    stages.leaves(us(100), &packet(false, resend()));
    stages.control(us(101), &packet(true, Body::Busy { come_back: None }));
    let response = MessageId(RPC.index * 2 + 1);
    stages.arrived(us(151), response, &packet(true, data(0, false)));
    // A part of the response was lost.
    stages.leaves(us(200), &packet(false, resend()));
    stages.arrived(us(211), response, &packet(true, data(1_000, true)));
    stages.ended(us(211), RPC, 2_000);
    let [_, send, grant, wait, receive, _, _, loss, _] = recorded(&stages);
    assert_eq!([send, grant, wait, receive, loss], [0, 0, 100, 0, 110]);
}

#[test]
fn time_in_which_the_process_did_not_run_is_a_separate_stage() {
    let mut stages = Stages::default();
    stages.follow(us(0), (RPC, RpcId(10), PEER), Direction::Client, 3_000);
    stages.leaves(us(1), &packet(false, data(0, false)));
    // A timer was due at 5 us; the grant arrived while the process was stopped.
    stages.stalled(us(5), us(30_005));
    stages.control(us(30_006), &packet(true, Body::Grant { offset: 3_000, priority: 0 }));
    stages.ended(us(30_008), RPC, 100);
    let [queue, send, grant, _, _, _, _, _, stalled] = recorded(&stages);
    assert_eq!([queue, send, grant, stalled], [1, 2, 5, 30_000]);
    assert_eq!(stages.stalled_time(), Duration::from_millis(30));
}

#[test]
fn a_wait_that_was_interrupted_is_not_the_shortest() {
    let wait = |between: &dyn Fn(&mut Stages)| {
        let mut stages = Stages::default();
        stages.follow(us(0), (RPC, RpcId(10), PEER), Direction::Client, 1_000);
        stages.leaves(us(1), &packet(false, data(0, false)));
        between(&mut stages);
        stages.ended(us(30_011), RPC, 100);
        stages.snapshot().1
    };
    assert_eq!(wait(&|_| {}), Some(Duration::from_micros(30_010)));
    let stall = |stages: &mut Stages| stages.stalled(us(5), us(30_005));
    assert_eq!(wait(&stall), None, "the response may have come during the stall");
    let again = |stages: &mut Stages| stages.leaves(us(30_001), &packet(false, data(0, true)));
    assert_eq!(wait(&again), None, "the response may be to the first request");
}

#[test]
fn a_handler_that_holds_up_its_engine_is_the_application() {
    let mut stages = Stages::default();
    stages.follow(us(0), (RPC, RpcId(10), PEER), Direction::Server, 2_000);
    stages.delivered(us(4), RPC);
    stages.taken(RPC, || us(10));
    stages.stalled(us(20), us(20_020));
    stages.replied(us(20_030), RPC, 1_000);
    stages.leaves(us(20_033), &packet(true, data(0, false)));
    let [queue, _, _, _, receive, accept, application, _, stalled] = recorded(&stages);
    assert_eq!([queue, receive, accept, application], [3, 4, 6, 20_020]);
    assert_eq!((stalled, stages.stalled_time()), (0, Duration::from_millis(20)));
}

#[test]
fn few_rpcs_are_followed_and_all_kinds_of_them() {
    let mut stages = Stages::default();
    let handles =
        (0..64).flat_map(|index| (0..1_000).map(move |generation| RpcHandle { index, generation }));
    let drawn: Vec<RpcHandle> = handles.filter(|&rpc| stages.draws(rpc)).collect();
    assert!((3_000..5_000).contains(&drawn.len()), "{}", drawn.len());
    for index in 0..64 {
        assert!(drawn.iter().any(|rpc| rpc.index == index), "{index}");
    }
    for &rpc in &drawn[..MOST] {
        stages.follow(us(0), (rpc, RpcId(10), PEER), Direction::Client, 1);
        let twice = RpcHandle { index: rpc.index, generation: rpc.generation + 1 };
        stages.follow(us(0), (twice, RpcId(12), PEER), Direction::Client, 1);
        assert!(!stages.follows(rpc) && stages.follows(twice), "a slot has one user");
    }
    for rpc in stages.followed.clone() {
        stages.abandoned(rpc.rpc);
    }
    assert!(stages.mask == 0 && stages.snapshot().0.is_empty());
}
