//! The parts of a simulation as one type parameter.

use crate::fabric::PortQueue;
use crate::transport::Transport;

use super::{Application, Fault, Probe};

/// The parts of a simulation. They are chosen at compile time so that no call per packet is
/// virtual. For example, the tuple (transport, queue, application, probe, faults) is a world.
pub trait World {
    /// The transport of hosts.
    type Host: Transport;
    /// The queueing discipline of the switches' ports.
    type Queue: PortQueue;
    /// The application, which submits messages.
    type App: Application;
    /// The observer.
    type Probe: Probe<Self::Host>;
    /// The faults of links.
    type Fault: Fault<PacketOf<Self>>;
}

/// The packet type of a world's transport.
pub type PacketOf<W> = <<W as World>::Host as Transport>::Packet;

/// The data that the queues of a world store per packet.
pub type TagOf<W> = <<W as World>::Queue as PortQueue>::Tag;

impl<T, Q, A, P, F> World for (T, Q, A, P, F)
where
    T: Transport,
    Q: PortQueue,
    A: Application,
    P: Probe<T>,
    F: Fault<T::Packet>,
{
    type Host = T;
    type Queue = Q;
    type App = A;
    type Probe = P;
    type Fault = F;
}
