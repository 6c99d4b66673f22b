//! What every packet does in every state, as a table to review. One row per (state, packet): what
//! became of the packet, what was sent in answer, and what the application heard.

mod common;

use common::{CLIENT, PORTS, Pair, SERVER};
use homa_proto::{
    AckEntry, Acks, Body, Config, Data, Duration, Event, MessageId, Packet, PeerId, Rate, Receipt,
    ResendLength, RpcId, Span, wire::pretty,
};
use std::fmt::Write;

const STATES: [&str; 7] = [
    "no RPC at the server",
    "client outgoing",
    "client incoming",
    "server incoming",
    "server in service",
    "server outgoing",
    "server sent",
];

/// A pair whose end `.1` is in the state, and the RPC's id (client's form).
fn in_state(state: &str) -> (Pair, usize, RpcId) {
    let mut pair = Pair::new(Config::for_users(Rate::gbps(10)), Config::for_users(Rate::gbps(10)));
    let first = std::rc::Rc::new(std::cell::Cell::new(0));
    let seen = first.clone();
    let keep_from_server = match state {
        "client incoming" | "server outgoing" => 1,
        _ => 0,
    };
    let mut data_from_server = 0;
    pair.lose = Box::new(move |from, packet, _| {
        if from == CLIENT {
            seen.set(packet.id.client().0);
        }
        let data = matches!(packet.body, Body::Data(_));
        data_from_server += u32::from(from == SERVER && data);
        from == SERVER && (!data || data_from_server > keep_from_server)
    });
    pair.reply = match state {
        "client incoming" | "server outgoing" => Some((60_000, Duration::micros(1))),
        "server sent" => Some((100, Duration::micros(1))),
        _ => None,
    };
    match state {
        "no RPC at the server" => {}
        "server incoming" => drop(pair.call(60_000, 1)),
        _ => drop(pair.call(100, 1)),
    }
    match state {
        "client outgoing" => pair.lose = Box::new(|_, _, _| true),
        "no RPC at the server" => {}
        _ => pair.run_for(Duration::micros(300)),
    }
    let end = if state.starts_with("client") { CLIENT } else { SERVER };
    while pair.ends[end].transmit(pair.now).is_some() {}
    let id = match (state, first.get()) {
        ("client outgoing", _) => sent_id(&mut pair),
        (_, 0) => 0x8000_0000_0000_0002,
        (_, id) => id,
    };
    (pair, end, RpcId(id))
}

/// The id of a request whose packets were just pulled: it is asked for again.
fn sent_id(pair: &mut Pair) -> u64 {
    pair.ends[CLIENT].expire(pair.now + Duration::millis(6));
    pair.ends[CLIENT].transmit(pair.now).map_or(0, |p| p.id.client().0)
}

fn packets() -> Vec<(&'static str, Body)> {
    let span = |offset, len| Span { message: MessageId(0), offset, len };
    let data = |span: Span| Data {
        span,
        message_length: 60_000,
        incoming: 9_800,
        ack: None,
        cutoff_version: 1,
        retransmit: false,
        incast: None,
    };
    let bytes = ResendLength::Bytes(1400);
    let acks = Acks::default();
    let mut foreign = Acks::default();
    let _ = foreign.push(AckEntry { id: RpcId(0xdead_0000), server_port: 4000 });
    vec![
        ("DATA first", Body::Data(data(span(0, 1400)))),
        ("DATA next", Body::Data(data(span(28_000, 1400)))),
        ("DATA beyond the end", Body::Data(data(span(59_000, 1400)))),
        ("GRANT", Body::Grant { offset: 20_000, priority: 3 }),
        ("RESEND range", Body::Resend { offset: 0, length: bytes, priority: 7 }),
        ("RESEND all", Body::Resend { offset: 0, length: ResendLength::All, priority: 7 }),
        ("RPC_UNKNOWN", Body::RpcUnknown { remembered: None, no_server: false }),
        ("BUSY", Body::Busy),
        ("NEED_ACK", Body::NeedAck),
        ("ACK", Body::Ack(acks)),
        ("FREEZE", Body::Freeze),
    ]
}

fn row(state: &str, name: &str, body: Body) -> String {
    let (mut pair, end, id) = in_state(state);
    let packet = Packet {
        peer: PeerId(0),
        priority: 7,
        local_port: PORTS[end],
        remote_port: PORTS[1 - end],
        id: if end == CLIENT { id.server() } else { id.client() },
        body,
    };
    let now = pair.now;
    let receipt = match pair.ends[end].receive(now, &packet) {
        Receipt::Place(place) => format!("place {} at {}", place.len, place.offset),
        Receipt::Consumed => "consumed".into(),
        Receipt::Dropped(reason) => format!("dropped: {reason:?}"),
    };
    let mut line = format!("{state:<20} | {name:<19} | {receipt:<22} |");
    while let Some(event) = pair.ends[end].event() {
        let name = match event {
            Event::Started { .. } => "Started",
            Event::Readable { .. } => "Readable",
            Event::Delivered(_) => "Delivered",
            Event::Failed { error, .. } => &format!("Failed({error:?})"),
            Event::Cancelled { .. } => "Cancelled",
            Event::Release { .. } => "Release",
        };
        let _ = write!(line, " {name}");
    }
    let mut more = 0;
    while let Some(packet) = pair.ends[end].transmit(now) {
        if more < 2 {
            let _ = write!(line, " [{}]", pretty::body(&packet.body));
        }
        more += 1;
    }
    if more > 2 {
        let _ = write!(line, " and {} more", more - 2);
    }
    line.trim_end().to_string()
}

#[test]
fn every_packet_in_every_state_has_a_defined_effect() {
    let mut table = String::new();
    for state in STATES {
        for (name, body) in packets() {
            table += &row(state, name, body);
            table.push('\n');
        }
    }
    insta::assert_snapshot!(table);
}
