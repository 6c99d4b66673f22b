//! Conservation of credit at a receiver, with loss and packets in any order. It expects the bytes
//! that its senders may send and it has not received, no grant exceeds the bound over all messages,
//! and nothing is left when everything has arrived.

use arbtest::arbitrary::{Result, Unstructured};
use homa_proto::{
    Body, Config, Credit, Data, Endpoint, GrantWindow, Granting, MessageId, Overcommitment, Packet,
    PeerId, PeerInfo, Rate, Receipt, RpcId, Span, Time,
};

const PAYLOAD: u32 = 1_400;
const PEERS: u32 = 4;
const RTT_BYTES: u32 = 20_000;

/// A message in flight.
#[derive(Debug)]
struct FuzzedMessage {
    peer: u32,
    length: u32,
    unscheduled: u32,
    /// By the last GRANT, or unscheduled.
    granted: u32,
    received: u32,
    /// All before was sent.
    sent: u32,
    /// Lost, or behind others in the network.
    late: Vec<u32>,
}

impl FuzzedMessage {
    fn outstanding(&self) -> u64 {
        u64::from(self.granted.saturating_sub(self.received))
    }
}

fn packet(index: usize, peer: u32, body: Body) -> Packet {
    let id = RpcId(2 * (index as u64 + 1));
    Packet { peer: PeerId(peer), priority: 7, local_port: 4000, remote_port: 40_000, id, body }
}

/// A receiver with messages in flight.
struct FuzzedReceiver {
    endpoint: Endpoint,
    messages: Vec<FuzzedMessage>,
    now: Time,
}

impl FuzzedReceiver {
    fn new(config: Config) -> Self {
        let config = config.rtt_bytes(RTT_BYTES).measure_rtt_bytes(false);
        let mut endpoint = Endpoint::new(config.validate().unwrap());
        for peer in 0..PEERS {
            let info = PeerInfo { host: peer, max_payload: PAYLOAD };
            endpoint.open_peer(PeerId(peer), info);
        }
        endpoint.listen(4000);
        Self { endpoint, messages: Vec::new(), now: Time(1) }
    }

    /// One more packet arrives, or is lost, or overtaken; false if there is none.
    fn step(&mut self, u: &mut Unstructured<'_>) -> Result<bool> {
        let may = |m: &FuzzedMessage| m.sent < m.granted.min(m.length) || !m.late.is_empty();
        let able: Vec<usize> =
            (0..self.messages.len()).filter(|&at| may(&self.messages[at])).collect();
        if able.is_empty() {
            return Ok(false);
        }
        let at = *u.choose(&able)?;
        let m = &mut self.messages[at];
        let fresh = m.sent < m.granted.min(m.length);
        let offset = if fresh && (m.late.is_empty() || u.ratio(3, 4)?) {
            let offset = m.sent;
            m.sent = (offset + PAYLOAD).min(m.length);
            if u.ratio(1, 6)? {
                m.late.push(offset);
                return Ok(true);
            }
            offset
        } else {
            m.late.swap_remove(u.int_in_range(0..=m.late.len() - 1)?)
        };
        self.arrive(at, offset);
        Ok(true)
    }

    fn arrive(&mut self, at: usize, offset: u32) {
        self.now.0 += 1_000;
        let m = &mut self.messages[at];
        let len = PAYLOAD.min(m.length - offset);
        let data = Data {
            span: Span { message: MessageId(0), offset, len },
            message_length: m.length,
            incoming: m.unscheduled,
            ack: None,
            cutoff_version: 1,
            retransmit: false,
            incast: None,
        };
        let arrived = packet(at, m.peer, Body::Data(data));
        let receipt = self.endpoint.receive(self.now, &arrived);
        assert!(matches!(receipt, Receipt::Place(_)), "{receipt:?}");
        m.received += len;
        while self.endpoint.event().is_some() {}
        while let Some(sent) = self.endpoint.transmit(self.now) {
            let Body::Grant { offset, .. } = sent.body else { continue };
            let m = &mut self.messages[(sent.id.client().0 / 2 - 1) as usize];
            assert!(offset > m.granted && offset <= m.length, "{offset} {m:?}");
            m.granted = offset;
        }
    }

    /// The bytes that the senders may send and we have not received, of messages that have begun
    /// and that are `counted`.
    fn outstanding(&self, counted: impl Fn(&FuzzedMessage) -> bool) -> u64 {
        let begun = self.messages.iter().filter(|m| m.received > 0 && counted(m));
        begun.map(FuzzedMessage::outstanding).sum()
    }

    /// The part of them that counts against the bound over all messages: of messages that need
    /// grants, or in profile `default`, of those that were given one.
    fn granted(&self, window: GrantWindow) -> u64 {
        self.outstanding(|m| match window {
            GrantWindow::RttBytesShared { .. } => m.granted > m.unscheduled,
            _ => m.length > m.unscheduled,
        })
    }
}

/// The bound over all messages; `None` if only each message is bounded.
fn bound(config: &Config, fifo_grants: u64) -> Option<u64> {
    let fifo = fifo_grants * u64::from(config.fifo_increment);
    match (config.window, config.overcommitment) {
        (GrantWindow::Shared { max_incoming }, _) => Some(u64::from(max_incoming) + fifo),
        (GrantWindow::RttBytesShared { max_incoming }, Overcommitment::Fixed(k)) => {
            let most = (u32::from(k) * RTT_BYTES / u32::from(config.sharing))
                .max(PAYLOAD)
                .min(max_incoming);
            Some(u64::from(most) + fifo)
        }
        _ => None,
    }
}

fn fifo_grants(receiver: &FuzzedReceiver) -> u64 {
    receiver.endpoint.counters().fifo_grants
}

fn exchange(u: &mut Unstructured<'_>, config: Config) -> Result<()> {
    let mut receiver = FuzzedReceiver::new(config.clone());
    let least = *u.choose(&[1, 3_000, 60_000])?;
    let unscheduled = u.int_in_range(1..=RTT_BYTES)?;
    for _ in 0..u.int_in_range(1..=20)? {
        let length = u.int_in_range(least..=150_000)?;
        let first = unscheduled.min(length);
        receiver.messages.push(FuzzedMessage {
            peer: u.int_in_range(0..=PEERS - 1)?,
            length,
            unscheduled: first,
            granted: first,
            received: 0,
            sent: 0,
            late: Vec::new(),
        });
    }
    let mut before = receiver.endpoint.credit();
    while receiver.step(u)? {
        let now = receiver.endpoint.credit();
        assert_eq!(now.expected, receiver.outstanding(|_| true));
        assert_eq!(now.granted, receiver.granted(config.window));
        // A message that is granted alone has a packet more, because a GRANT waits for two.
        let pairs = config.granting == Granting::PerMessage { least_packets: 2 };
        let window = RTT_BYTES + if pairs { PAYLOAD } else { 0 };
        let each = u64::from(window.max(unscheduled));
        // Announced bytes arrive in any case; above the bound there is nothing else.
        if let Some(most) = bound(&config, fifo_grants(&receiver)) {
            // In profile `default`, earlier grants of longer messages keep nothing from shorter
            // ones.
            let shared = matches!(config.window, GrantWindow::RttBytesShared { .. });
            let counted = |credit: Credit| if shared { credit.finishing } else { credit.granted };
            let may = most.max(counted(before)) + u64::from(unscheduled);
            assert!(counted(now) <= may, "{} of {most}", counted(now));
            let all = most + 20 * u64::from(unscheduled);
            assert!(counted(now) <= all && now.granted <= now.expected);
            let ending = |m: &FuzzedMessage| m.granted == m.length && m.length > m.unscheduled;
            assert_eq!(now.finishing, receiver.outstanding(ending));
        }
        if fifo_grants(&receiver) == 0 && !matches!(config.window, GrantWindow::Shared { .. }) {
            let most = receiver.messages.iter().map(FuzzedMessage::outstanding).max();
            assert!(most <= Some(each), "{most:?}");
        }
        before = now;
    }
    assert!(receiver.messages.iter().all(|m| m.received == m.length), "all that began ends");
    assert_eq!(receiver.endpoint.credit(), Credit::default());
    Ok(())
}

#[test]
fn credit_is_conserved_whatever_is_lost_or_late_in_every_window() {
    let rate = Rate::gbps(10);
    arbtest::arbtest(|u| {
        let k = u.int_in_range(1..=4)?;
        let overcommitment = Overcommitment::Fixed(k);
        let fifo_permille = *u.choose(&[0, 50])?;
        let config = match u.int_in_range(0..=2u8)? {
            0 => Config::sigcomm18(rate).overcommitment(overcommitment),
            1 => {
                // For example four endpoints together have no more than one would.
                let config = Config::for_users(rate).sharing(u.int_in_range(1..=4)?);
                config.overcommitment(overcommitment).fifo_permille(fifo_permille)
            }
            _ => Config::linux().overcommitment(overcommitment).fifo_permille(fifo_permille),
        };
        exchange(u, config)
    })
    .budget_ms(3_000);
}
