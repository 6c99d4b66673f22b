//! A run as text, one line per event, for reading if a scenario fails.

use core::fmt::Arguments;

use homa_proto::{Event, Packet, Receipt, Submit, SubmitError, Submitted, wire::pretty};

use crate::time::SimTime;
use crate::topology::HostId;
use crate::transport::{Label, Transport, as_received};

use super::probe::{LossCause, Probe};

/// Writes every event at a host to `out`. Lines that cannot be written are dropped.
pub struct Chronicle<W>(pub W);

impl<W: std::io::Write> Chronicle<W> {
    fn line(&mut self, now: SimTime, what: Arguments<'_>) {
        // An error here has no other place to be reported.
        let _ = writeln!(self.0, "{:>14.3} us  {what}", now.0 as f64 / 1e6);
    }
}

impl<T: Transport<Packet = Packet>, W: std::io::Write> Probe<T> for Chronicle<W> {
    fn submitted(
        &mut self,
        now: SimTime,
        host: HostId,
        what: &Submit,
        result: &Result<Submitted, SubmitError>,
    ) {
        self.line(now, format_args!("{} submits {what:?}: {result:?}", host.0));
    }

    fn event(&mut self, now: SimTime, host: HostId, event: &Event) {
        self.line(now, format_args!("{} reports {event:?}", host.0));
    }

    fn transmitted(&mut self, now: SimTime, host: HostId, _: u32, packet: &Packet, _: &Label) {
        let text = pretty::sent(packet);
        self.line(now, format_args!("{} -> {}  {text}", host.0, packet.peer.0));
    }

    fn received(
        &mut self,
        now: SimTime,
        host: HostId,
        from: HostId,
        _: u32,
        packet: &Packet,
        receipt: &Receipt,
    ) {
        let received = as_received(from, packet);
        let text = pretty::received(&received);
        match receipt {
            Receipt::Place(place) => {
                self.line(now, format_args!("{} <- {}  {text}  {place:?}", host.0, from.0));
            }
            other => self.line(now, format_args!("{} <- {}  {text}  {other:?}", host.0, from.0)),
        }
    }

    fn lost(&mut self, now: SimTime, to: HostId, _: u32, packet: &Packet, cause: LossCause) {
        let text = pretty::sent(packet);
        self.line(now, format_args!("lost on the way to {} ({cause:?}): {text}", to.0));
    }

    fn crashed(&mut self, now: SimTime, host: HostId) {
        self.line(now, format_args!("{} crashes", host.0));
    }

    fn restarted(&mut self, now: SimTime, host: HostId) {
        self.line(now, format_args!("{} is back", host.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::Homa;

    #[test]
    fn each_event_is_a_line_with_its_time() {
        let mut chronicle = Chronicle(Vec::new());
        Probe::<Homa>::crashed(&mut chronicle, SimTime(1_500_000), HostId(3));
        Probe::<Homa>::restarted(&mut chronicle, SimTime(2_000_000), HostId(3));
        let text = String::from_utf8(chronicle.0).unwrap();
        assert_eq!(text, "         1.500 us  3 crashes\n         2.000 us  3 is back\n");
    }
}
