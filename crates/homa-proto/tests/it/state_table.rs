//! The effect of every packet in every state, as a table to review. One row per state and packet:
//! its receipt, the packets sent in answer, and the events at the application.

use homa_proto::{
    AckEntry, Acks, Body, Config, Coverage, Data, Duration, Endpoint, Event, Limits, MessageId,
    Packet, PeerId, Rate, Receipt, ResendLength, RpcHandle, RpcId, Span, Submit, Time,
    wire::pretty,
};
use std::fmt::Write;

use crate::common::{CLIENT, ClientAndServer, PORTS, SERVER};

const STATES: [&str; 10] = [
    "no RPC at the server",
    "no RPC at the client",
    "client outgoing",
    "client incoming",
    "server incoming",
    "server in service",
    "server outgoing",
    "server sent",
    "one-way outgoing",
    "one-way incoming",
];

/// A pair whose end `.1` is in the state, and the RPC's id (client's form).
fn in_state(state: &str) -> (ClientAndServer, usize, RpcId) {
    let mut pair =
        ClientAndServer::new(Config::for_users(Rate::gbps(10)), Config::for_users(Rate::gbps(10)));
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
        "no RPC at the server" | "no RPC at the client" => {}
        "server incoming" => drop(pair.call(60_000, 1)),
        "one-way outgoing" | "one-way incoming" => {
            let peer = PeerId(0);
            pair.submit(CLIENT, Submit::OneWay { peer, length: 60_000, cookie: 1 });
        }
        _ => drop(pair.call(100, 1)),
    }
    match state {
        "client outgoing" => pair.lose = Box::new(|_, _, _| true),
        "no RPC at the server" | "no RPC at the client" => {}
        _ => pair.run_for(Duration::micros(300)),
    }
    let at_client = state.contains("client") || state == "one-way outgoing";
    let end = if at_client { CLIENT } else { SERVER };
    while pair.ends[end].transmit(pair.now).is_some() {}
    let id = match (state, first.get()) {
        ("client outgoing", _) => sent_id(&mut pair),
        (_, 0) => 0x8000_0000_0000_0002,
        (_, id) => id,
    };
    (pair, end, RpcId(id))
}

/// The id of a request whose packets were just pulled, because it is asked for again.
fn sent_id(pair: &mut ClientAndServer) -> u64 {
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
    // Below the length of the requests in the table.
    let limits = Some(Limits { max_message: 50, max_unscheduled: 9_800 });
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
        ("RPC_UNKNOWN", Body::RpcUnknown { remembered: None, no_server: false, reason: None }),
        ("BUSY", Body::Busy { come_back: None }),
        ("NEED_ACK", Body::NeedAck),
        ("ACK", Body::Ack(acks)),
        ("CUTOFFS", Body::Cutoffs { cutoffs: [0, 0, 0, 0, 0, 0, 9_000, 300], version: 7, limits }),
        ("FREEZE", Body::Freeze),
    ]
}

fn row(state: &str, name: &str, body: Body, coverage: &mut Coverage) -> String {
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
    coverage.merge(pair.ends[end].coverage());
    effects(&mut pair.ends[end], now, format!("{state:<20} | {name:<19} | {receipt:<22} |"))
}

/// The packets and events of an endpoint, appended to a line.
fn effects(end: &mut Endpoint, now: Time, mut line: String) -> String {
    while let Some(event) = end.event() {
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
    while let Some(packet) = end.transmit(now) {
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

/// The clock, and what applications do to an RPC in progress.
fn inputs(state: &str, coverage: &mut Coverage) -> String {
    let mut rows = String::new();
    for name in ["timer", "response", "cancel"] {
        let (mut pair, end, _) = in_state(state);
        let later = pair.now + Duration::millis(300);
        // Each pair has one RPC, the first of its table.
        let rpc = RpcHandle { index: 0, generation: 0 };
        let what = match name {
            "response" => Submit::Response { rpc, length: 100 },
            _ => Submit::Cancel { rpc },
        };
        let result = match name {
            "timer" => {
                // In steps, as clocks run: if the time jumped, the host would seem to have stalled.
                let end = &mut pair.ends[end];
                while let Some(at) = end.deadline().filter(|&at| at <= later) {
                    end.expire(at);
                }
                "".into()
            }
            _ => match pair.ends[end].submit(later, what) {
                Ok(_) => "accepted".into(),
                Err(error) => format!("refused: {error:?}"),
            },
        };
        coverage.merge(pair.ends[end].coverage());
        let line = format!("{state:<20} | {name:<19} | {result:<22} |");
        rows += &effects(&mut pair.ends[end], later, line);
        rows.push('\n');
    }
    rows
}

#[test]
fn every_packet_in_every_state_has_a_defined_effect() {
    let (mut table, mut coverage) = (String::new(), Coverage::default());
    for state in STATES {
        for (name, body) in packets() {
            table += &row(state, name, body, &mut coverage);
            table.push('\n');
        }
        table += &inputs(state, &mut coverage);
    }
    let reached = coverage.cells().filter(|cell| cell.2 > 0).count();
    let _ = writeln!(table, "{reached} of {} cells; not reached:", coverage.cells().count());
    for (state, input, _) in coverage.cells().filter(|cell| cell.2 == 0) {
        let _ = writeln!(table, "  {state}, {input}");
    }
    insta::assert_snapshot!(table);
}
