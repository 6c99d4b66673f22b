//! What a host runs: six calls, two per neighbour, the shape of [`homa_proto::Endpoint`].
//!
//! After an input the simulator drains `event`, reads `deadline` again and, when the wire is free,
//! pulls `transmit`. `now` never decreases. A transport is chosen at compile time: no call here is
//! virtual.

use homa_proto::{Endpoint, Event, Packet, Receipt, Submit, SubmitError, Submitted, Time};

/// A host transport.
pub trait Transport {
    /// Application in.
    fn submit(&mut self, now: Time, what: Submit) -> Result<Submitted, SubmitError>;
    /// Application out.
    fn event(&mut self) -> Option<Event>;
    /// Network in.
    fn receive(&mut self, now: Time, packet: &Packet) -> Receipt;
    /// Network out: the wire is free, which packet next?
    fn transmit(&mut self, now: Time) -> Option<Packet>;
    /// Clock in; idempotent, stale calls are legal.
    fn expire(&mut self, now: Time);
    /// Clock out: when to call `expire` next.
    fn deadline(&self) -> Option<Time>;
}

impl Transport for Endpoint {
    fn submit(&mut self, now: Time, what: Submit) -> Result<Submitted, SubmitError> {
        Endpoint::submit(self, now, what)
    }
    fn event(&mut self) -> Option<Event> {
        Endpoint::event(self)
    }
    fn receive(&mut self, now: Time, packet: &Packet) -> Receipt {
        Endpoint::receive(self, now, packet)
    }
    fn transmit(&mut self, now: Time) -> Option<Packet> {
        Endpoint::transmit(self, now)
    }
    fn expire(&mut self, now: Time) {
        Endpoint::expire(self, now);
    }
    fn deadline(&self) -> Option<Time> {
        Endpoint::deadline(self)
    }
}
