//! A transport without a protocol: it sends the frames asked for, with their size, priority and
//! flow, in order.

use std::collections::VecDeque;

use homa_proto::{
    Delivered, Event, MessageId, MessageKind, PeerId, Receipt, RpcHandle, RpcId, Submit,
    SubmitError, Submitted, Time,
};

use crate::engine::*;
use crate::fabric::{FabricConfig, StrictPriority};
use crate::time::SimTime;
use crate::topology::{HostId, Wiring};
use crate::transport::{Label, PacketMeta, Transport};

/// A frame to be sent.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    pub at: SimTime,
    pub from: u32,
    pub to: u32,
    pub bytes: u32,
    pub priority: u8,
    pub flow: u32,
}

/// A frame as a packet. The cookie holds index, ECT, flow and priority.
#[derive(Clone, Copy, Debug)]
pub struct Plain {
    pub to: u32,
    pub bytes: u32,
    pub cookie: u64,
}

#[derive(Default)]
pub struct Hose {
    queue: VecDeque<Plain>,
    events: VecDeque<Event>,
}

const HANDLE: RpcHandle = RpcHandle { index: 0, generation: 0 };

impl Transport for Hose {
    type Packet = Plain;

    fn submit(&mut self, _: Time, what: Submit) -> Result<Submitted, SubmitError> {
        let Submit::OneWay { peer, length, cookie } = what else { unreachable!() };
        self.queue.push_back(Plain { to: peer.0, bytes: length, cookie });
        Ok(Submitted { rpc: HANDLE, message: None })
    }

    fn event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn receive(&mut self, _: Time, packet: &Plain, arrival: PacketMeta) -> Receipt {
        self.events.push_back(Event::Delivered(Delivered {
            rpc: HANDLE,
            message: MessageId(0),
            kind: MessageKind::OneWay,
            peer: PeerId(arrival.from.0),
            remote_port: 0,
            local_port: 0,
            id: RpcId(0),
            length: packet.bytes,
            cookie: packet.cookie,
        }));
        Receipt::Consumed
    }

    fn transmit(&mut self, _: Time) -> Option<Plain> {
        self.queue.pop_front()
    }

    /// The cookie holds index, flow and priority.
    fn label(&self, packet: &Plain) -> Label {
        let (priority, flow) = (packet.cookie as u8, (packet.cookie >> 8) as u32 & 0xFFFF);
        Label { priority, flow, ..Label::new(HostId(packet.to), packet.bytes) }
    }

    fn expire(&mut self, _: Time) {}

    fn deadline(&self) -> Option<Time> {
        None
    }

    fn has_packet(&self) -> bool {
        !self.queue.is_empty()
    }
}

/// Sends the planned frames and records the index and time of those that arrive.
pub struct Plan {
    sent: Vec<Sent>,
    pub arrived: Vec<(usize, SimTime)>,
}

impl Application for Plan {
    fn wake<C: Context>(&mut self, net: &mut C, token: u64) {
        let Sent { from, to, bytes, priority, flow, .. } = self.sent[token as usize];
        let cookie = token << 24 | u64::from(flow) << 8 | u64::from(priority);
        net.submit(HostId(from), Submit::OneWay { peer: PeerId(to), length: bytes, cookie })
            .unwrap();
    }

    fn event<C: Context>(&mut self, net: &mut C, _: HostId, event: &Event) {
        if let Event::Delivered(delivered) = event {
            self.arrived.push(((delivered.cookie >> 24) as usize, net.now()));
        }
    }
}

pub type Plainly<P> = Simulation<(Hose, StrictPriority, Plan, P, NoFaults)>;

/// A simulation with all frames planned, before it runs.
pub fn planned<P: Probe<Hose>>(
    wiring: Wiring,
    config: FabricConfig,
    sent: &[Sent],
    probe: P,
) -> Plainly<P> {
    let plan = Plan { sent: sent.to_vec(), arrived: Vec::new() };
    let make = Box::new(|_, _| Hose::default());
    let mut simulation = Simulation::new(wiring, config, make, (plan, probe, NoFaults));
    for (token, frame) in sent.iter().enumerate() {
        simulation.wake_at(frame.at, token as u64);
    }
    simulation
}
