//! A run as text, one line per happening: what to read when a scenario fails.

use homa_proto::{Receipt, wire::pretty};

use crate::time::SimTime;

use super::probe::{Observed, Probe};

/// Writes every happening to `out`. Lines that cannot be written are lost.
pub struct Chronicle<W>(pub W);

impl<W: std::io::Write> Probe for Chronicle<W> {
    fn observe(&mut self, now: SimTime, what: Observed<'_>) {
        let line = describe(&what);
        // Nowhere to complain to: this is the place for complaints.
        let _ = writeln!(self.0, "{:>14.3} us  {line}", now.0 as f64 / 1e6);
    }
}

fn describe(what: &Observed<'_>) -> String {
    match what {
        Observed::Submitted { host, what, result } => {
            format!("{} submits {what:?}: {result:?}", host.0)
        }
        Observed::Event { host, event } => format!("{} reports {event:?}", host.0),
        Observed::Transmitted { host, packet } => {
            format!("{} -> {}  {}", host.0, packet.peer.0, pretty::sent(packet))
        }
        Observed::Received { host, packet, receipt } => {
            let receipt = match receipt {
                Receipt::Place(place) => format!("{place:?}"),
                other => format!("{other:?}"),
            };
            format!("{} <- {}  {}  {receipt}", host.0, packet.peer.0, pretty::received(packet))
        }
        Observed::Lost { host, packet, cause } => {
            format!("lost on the way to {} ({cause:?}): {}", host.0, pretty::sent(packet))
        }
        Observed::Crashed { host } => format!("{} crashes", host.0),
        Observed::Restarted { host } => format!("{} is back", host.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::HostId;

    #[test]
    fn each_happening_is_a_line_with_its_time() {
        let mut chronicle = Chronicle(Vec::new());
        chronicle.observe(SimTime(1_500_000), Observed::Crashed { host: HostId(3) });
        chronicle.observe(SimTime(2_000_000), Observed::Restarted { host: HostId(3) });
        let text = String::from_utf8(chronicle.0).unwrap();
        assert_eq!(text, "         1.500 us  3 crashes\n         2.000 us  3 is back\n");
    }
}
