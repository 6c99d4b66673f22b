//! A server says for how long it remembers everything. The answer may have been delayed on its way,
//! so that a call which it covered seems to be older than the server.

use super::*;

/// A call that began at [`START`], and the time after which its response was asked for.
fn asking() -> (Endpoint, RpcId, Time) {
    let mut client = endpoint(users());
    client.submit(START, call(1_000, 7)).unwrap();
    let id = client.transmit(START).unwrap().id;
    let asked = ask(&mut client, START);
    (client, id, asked)
}

/// Waits until the client asks for its response. Returns when.
fn ask(client: &mut Endpoint, mut now: Time) -> Time {
    let asks = |packet: &Packet| matches!(packet.body, Body::Resend { .. });
    while !std::iter::from_fn(|| client.transmit(now)).any(|packet| asks(&packet)) {
        now = client.deadline().unwrap();
        client.expire(now);
    }
    now
}

/// The server answers that it does not know the call. Returns the error, if the call has ended.
fn answer(client: &mut Endpoint, id: RpcId, now: Time, remembered: Duration) -> Option<RpcError> {
    let remembered = Some(remembered);
    let body = Body::RpcUnknown { remembered, no_server: false, reason: None };
    let _ = client.receive(now, &packet(id.server(), body));
    let events = std::iter::from_fn(|| client.event());
    events.into_iter().find_map(|event| match event {
        Event::Failed { error, .. } => Some(error),
        _ => None,
    })
}

#[test]
fn a_call_survives_an_answer_that_was_delayed() {
    let (mut client, id, asked) = asking();
    // It covered the call when it left, just after the question.
    let covered = asked.since(START) + Duration::micros(10);
    let late = asked + Duration::millis(400);
    for copy in 0..5 {
        assert_eq!(answer(&mut client, id, late, covered + Duration::nanos(copy)), None);
    }
    assert_eq!(client.rpcs().0, 1, "the call lasts");
    let later = late + Duration::millis(1);
    assert_eq!(answer(&mut client, id, later, later.since(START) + Duration::millis(1)), None);
    let again = std::iter::from_fn(|| client.transmit(later));
    let data = |packet: Packet| packet.id == id && matches!(packet.body, Body::Data(_));
    assert!(again.into_iter().any(data), "the request is sent again");
}

#[test]
fn a_restarted_server_is_believed_after_three_answers_at_most() {
    let (mut client, id, asked) = asking();
    // It restarted before the question, so the answer cannot have covered the call.
    let short = Duration::millis(1);
    assert_eq!(answer(&mut client, id, asked, short), Some(RpcError::Indeterminate));
    let (mut client, id, asked) = asking();
    let restarted = START + Duration::nanos(1);
    let mut now = asked + Duration::micros(10);
    for _ in 0..2 {
        assert_eq!(answer(&mut client, id, now, now.since(restarted)), None);
        now = ask(&mut client, now) + Duration::micros(10);
    }
    let error = answer(&mut client, id, now, now.since(restarted));
    assert_eq!(error, Some(RpcError::Indeterminate));
}
