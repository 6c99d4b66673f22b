//! Assignment of processors: one for the switch, the others for the hosts.
//!
//! The kernel runs the receiving side of a host's protocol stack on the thread that delivers the
//! frame, which is the switch's. Receive packet steering would move this work to the hosts'
//! processors. We tried it: the switch becomes more punctual under TCP, but each frame costs an
//! interrupt between processors, which is dearer on a virtual machine than the work it moves.

use crate::sys;

/// See the module's description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placement {
    /// For the switch. `None` with a single processor.
    pub(crate) switch: Option<usize>,
    /// For the hosts' threads, one each.
    pub(crate) hosts: Vec<usize>,
}

impl Placement {
    /// For this process and that many hosts.
    pub(crate) fn choose(hosts: usize) -> Self {
        Self::among(sys::processors(), hosts)
    }

    fn among(mut processors: Vec<usize>, hosts: usize) -> Self {
        // The first processor takes most interrupts, so the switch gets the last one.
        let switch = if processors.len() > 1 { processors.pop() } else { None };
        processors.truncate(hosts);
        Self { switch, hosts: processors }
    }

    /// Number of threads that drive hosts.
    pub(crate) fn threads(&self) -> usize {
        self.hosts.len().max(1)
    }

    /// The processor of the thread that drives a host.
    pub(crate) fn of_host(&self, host: usize) -> Option<usize> {
        self.hosts.get(host % self.threads()).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_switch_has_a_processor_of_its_own_where_there_are_two() {
        let two = Placement::among(vec![0, 1], 5);
        assert_eq!(two, Placement { switch: Some(1), hosts: vec![0] });
        assert_eq!((two.threads(), two.of_host(4)), (1, Some(0)));
        let eight = Placement::among((0..8).collect(), 5);
        assert_eq!((eight.switch, eight.threads(), eight.of_host(4)), (Some(7), 5, Some(4)));
        let one = Placement::among(vec![3], 5);
        assert_eq!((one.switch, one.threads(), one.of_host(2)), (None, 1, Some(3)));
        assert_eq!(Placement::among(vec![], 5).threads(), 1);
    }
}
