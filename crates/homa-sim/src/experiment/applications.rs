//! The application on the hosts of an experiment: the traffic generator, or messages that are
//! planned one by one.

use homa_proto::Event;

use crate::engine::{Application, Context};
use crate::time::SimTime;
use crate::topology::HostId;
use crate::traffic::{Generator, Planned};

/// See the module's description. If there are planned messages, the generator stays idle.
pub(super) struct Applications {
    pub generator: Generator,
    pub planned: Option<Planned>,
}

impl From<Generator> for Applications {
    fn from(generator: Generator) -> Self {
        Self { generator, planned: None }
    }
}

impl Applications {
    /// The first wake-ups: the host (`None` for the network's), the time, and the token.
    pub fn first_wakes(&self) -> Vec<(Option<HostId>, SimTime, u64)> {
        match &self.planned {
            Some(planned) => {
                planned.wakes().map(|(host, at, token)| (Some(host), at, token)).collect()
            }
            None => vec![(None, SimTime::ZERO, Generator::START)],
        }
    }
}

impl Application for Applications {
    fn wake<C: Context>(&mut self, net: &mut C, token: u64) {
        self.generator.wake(net, token);
    }

    fn event<C: Context>(&mut self, net: &mut C, host: HostId, event: &Event) {
        match &mut self.planned {
            Some(planned) => planned.event(net, host, event),
            None => self.generator.event(net, host, event),
        }
    }

    fn wake_host<C: Context>(&mut self, net: &mut C, host: HostId, token: u64) {
        if let Some(planned) = &mut self.planned {
            planned.wake_host(net, host, token);
        }
    }
}
