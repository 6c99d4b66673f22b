//! A transport for the checker's tests. A message is one packet, and a packet is repeated every
//! millisecond until it is answered. It is slow but correct, unless it is told to break one
//! promise.

use std::collections::VecDeque;

use homa_proto::*;

use crate::headers::Headers;
use crate::topology::HostId;
use crate::transport::{Label, PacketMeta, Transport, as_received};

const AGAIN: Duration = Duration::millis(1);
const TRIES: u32 = 20;

/// The promise to break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    ExecutesDuplicates,
    ForgetsToRelease,
    ReleasesTwice,
    FailsEarly,
    FailsLate,
    KeepsSilent,
    DeliversHalf,
    PlacesElsewhere,
    CallsUnreachable,
    SendsReleased,
    ReusesIds,
}

struct SentPacket {
    packet: Packet,
    /// It should be sent, for the first time or again.
    ready: bool,
    due: Time,
    tries: u32,
    done: bool,
    rpc: RpcHandle,
    /// `None` for a response.
    call: Option<Request>,
}

/// See the module's description.
pub struct OneShot {
    sabotage: Option<Sabotage>,
    names: u32,
    sending: Vec<SentPacket>,
    acks: VecDeque<Packet>,
    events: VecDeque<Event>,
    /// Requests that were delivered: their handles and the packets that carried them.
    served: Vec<(RpcHandle, Packet)>,
    now: Time,
}

impl OneShot {
    pub fn new(life: u32, sabotage: Option<Sabotage>) -> Self {
        Self {
            sabotage,
            names: life * 1_000_000,
            sending: Vec::new(),
            acks: VecDeque::new(),
            events: VecDeque::new(),
            served: Vec::new(),
            now: Time::ZERO,
        }
    }

    fn does(&self, sabotage: Sabotage) -> bool {
        self.sabotage == Some(sabotage)
    }

    fn name(&mut self) -> u32 {
        self.names += 1;
        self.names
    }

    fn handle(&mut self) -> RpcHandle {
        RpcHandle { index: self.name(), generation: 0 }
    }

    fn send(
        &mut self,
        rpc: RpcHandle,
        to: Packet,
        length: u32,
        call: Option<Request>,
    ) -> Submitted {
        let message = MessageId(self.name());
        let span = Span { message, offset: 0, len: length };
        let data = Data {
            span,
            message_length: length,
            incoming: length,
            ack: None,
            cutoff_version: 0,
            retransmit: false,
            incast: None,
        };
        let packet = Packet { body: Body::Data(data), ..to };
        let due = self.now + AGAIN;
        self.sending.push(SentPacket {
            packet,
            ready: true,
            due,
            tries: 0,
            done: false,
            rpc,
            call,
        });
        Submitted { rpc, message: Some(message) }
    }

    /// The peer has received the packet that was sent under `id`.
    fn finish(&mut self, id: RpcId) -> Option<(RpcHandle, Option<Request>)> {
        let (twice, forgets) = (Sabotage::ReleasesTwice, Sabotage::ForgetsToRelease);
        let (twice, forgets) = (self.does(twice), self.does(forgets));
        let sending = self.sending.iter_mut().find(|s| s.packet.id == id && !s.done)?;
        sending.done = true;
        let Body::Data(data) = sending.packet.body else { return None };
        for _ in 0..if forgets { 0 } else { 1 + u32::from(twice) } {
            self.events.push_back(Event::Release { message: data.span.message });
        }
        Some((sending.rpc, sending.call))
    }

    fn on_data(&mut self, packet: &Packet, data: Data) -> Receipt {
        let request = !packet.id.from_server();
        let mut rpc = None;
        if request {
            let known = |(_, p): &&(RpcHandle, Packet)| (p.peer, p.id) == (packet.peer, packet.id);
            if self.served.iter().any(|s| known(&s)) && !self.does(Sabotage::ExecutesDuplicates) {
                return Receipt::Dropped(DropReason::Duplicate);
            }
        } else {
            self.acks.push_back(Packet { body: Body::Ack(Acks::default()), ..reply(packet) });
            rpc = self.finish(packet.id.client());
            if rpc.is_none() || self.does(Sabotage::KeepsSilent) {
                return Receipt::Dropped(DropReason::UnknownRpc);
            }
        }
        let (handle, call) = rpc.unwrap_or_else(|| (self.handle(), None));
        let message = MessageId(self.name());
        let total = data.message_length;
        if request {
            self.served.push((handle, *packet));
        }
        self.events.push_back(Event::Delivered(Delivered {
            rpc: handle,
            message,
            kind: if request { MessageKind::Request } else { MessageKind::Response },
            peer: packet.peer,
            remote_port: packet.remote_port,
            local_port: packet.local_port,
            id: packet.id.client(),
            length: total,
            cookie: call.map_or(0, |call| call.cookie),
        }));
        let len = if self.does(Sabotage::DeliversHalf) { total / 2 } else { total };
        let offset = u32::from(self.does(Sabotage::PlacesElsewhere));
        Receipt::Place(Placement { message, total, offset, len })
    }

    fn fails_at(&self, call: &Request) -> Time {
        match self.sabotage {
            Some(Sabotage::FailsLate) => call.deadline + AGAIN,
            Some(Sabotage::KeepsSilent) => Time::MAX,
            _ => call.deadline,
        }
    }

    fn fail(&mut self, index: usize, call: Request, error: RpcError) {
        let rpc = self.sending[index].rpc;
        self.events.push_back(Event::Failed { rpc, cookie: call.cookie, error });
        let id = self.sending[index].packet.id;
        self.finish(id);
    }
}

fn reply(packet: &Packet) -> Packet {
    let id = if packet.id.from_server() { packet.id.client() } else { packet.id.server() };
    Packet { id, ..*packet }
}

impl Transport for OneShot {
    type Packet = Packet;

    fn submit(&mut self, now: Time, what: Submit) -> Result<Submitted, SubmitError> {
        self.now = now;
        match what {
            Submit::Request(request) => {
                let rpc = self.handle();
                let fresh = if self.does(Sabotage::ReusesIds) { 7 } else { self.name() };
                let to = Packet {
                    peer: request.peer,
                    priority: 0,
                    local_port: request.local_port,
                    remote_port: request.remote_port,
                    id: RpcId(u64::from(fresh) * 2),
                    body: Body::Busy { come_back: None },
                };
                Ok(self.send(rpc, to, request.length, Some(request)))
            }
            Submit::Response { rpc, length } => {
                let known = self.served.iter().find(|(handle, _)| *handle == rpc);
                let to = reply(&known.ok_or(SubmitError::UnknownRpc)?.1);
                Ok(self.send(rpc, to, length, None))
            }
            _ => Err(SubmitError::UnknownRpc),
        }
    }

    fn event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn receive(&mut self, now: Time, packet: &Packet, arrival: PacketMeta) -> Receipt {
        self.now = now;
        let packet = &as_received(arrival.from, packet);
        match packet.body {
            Body::Data(data) => self.on_data(packet, data),
            _ => {
                self.finish(packet.id.server());
                Receipt::Consumed
            }
        }
    }

    fn transmit(&mut self, now: Time) -> Option<Packet> {
        self.now = now;
        if let Some(ack) = self.acks.pop_front() {
            return Some(ack);
        }
        let released = self.does(Sabotage::SendsReleased);
        let next = self.sending.iter_mut().find(|s| s.ready && (released || !s.done))?;
        next.ready = false;
        next.tries += 1;
        Some(next.packet)
    }

    fn label(&self, packet: &Packet) -> Label {
        let wire_bytes = Headers::Ip146.wire_bytes(packet);
        Label { priority: packet.priority, ..Label::new(HostId(packet.peer.0), wire_bytes) }
    }

    fn expire(&mut self, now: Time) {
        self.now = now;
        for index in 0..self.sending.len() {
            let sending = &mut self.sending[index];
            if sending.due <= now {
                sending.ready |= sending.tries < TRIES;
                sending.due = now + AGAIN;
            }
            let SentPacket { done: false, call, tries, .. } = *sending else { continue };
            let early = self.does(Sabotage::FailsEarly) && tries > 0;
            match call {
                Some(call) if early => self.fail(index, call, RpcError::DeadlineExceeded),
                Some(call) if tries > 0 && self.does(Sabotage::CallsUnreachable) => {
                    self.fail(index, call, RpcError::PeerUnreachable);
                }
                Some(call) if now >= self.fails_at(&call) => {
                    self.fail(index, call, RpcError::DeadlineExceeded);
                }
                None if tries == TRIES => {
                    let id = self.sending[index].packet.id;
                    self.finish(id);
                }
                _ => {}
            }
        }
    }

    fn deadline(&self) -> Option<Time> {
        let due = |s: &SentPacket| s.call.map_or(s.due, |call| s.due.min(self.fails_at(&call)));
        self.sending.iter().filter(|s| !s.done).map(due).min()
    }
}
