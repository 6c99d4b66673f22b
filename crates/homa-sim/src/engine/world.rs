//! What a simulation is made of, as one type parameter.

use crate::fabric::PortQueue;
use crate::transport::Transport;

use super::{Application, Fault, Probe};

/// The parts of a simulation, chosen at compile time: no call per packet is virtual. A tuple
/// (hosts, queues, application, probe, faults) is one.
pub trait World {
    /// What hosts run.
    type Host: Transport;
    /// What the ports of switches do with frames that wait.
    type Queue: PortQueue;
    /// What submits messages.
    type App: Application;
    /// What observes.
    type Probe: Probe<Self::Host>;
    /// What goes wrong on links.
    type Fault: Fault<PacketOf<Self>>;
}

/// What travels in a world.
pub type PacketOf<W> = <<W as World>::Host as Transport>::Packet;

/// What the queues of a world keep of each packet.
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
