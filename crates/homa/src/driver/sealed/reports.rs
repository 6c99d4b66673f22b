//! Reports of the network and of our own system about datagrams. They quote a handshake, or an
//! encrypted datagram; the engine knows only what these were about.

use homa_proto::Quoted;

use super::{Sealed, SystemRefusal, TooBig, UnreachableReport, Way};

impl Sealed {
    /// What waits for the handshake that a report quotes.
    fn waiting_for(&self, to: std::net::SocketAddr, quoted: Option<Quoted>) -> Vec<Quoted> {
        let way: Option<&Way> = quoted.and_then(|quoted| self.by_id.get(&quoted.id.0));
        let way = way.filter(|way| way.to == to);
        way.into_iter().flat_map(|way| self.waiting.quoted(way)).collect()
    }

    pub(super) fn next_unreachable(&mut self) -> Option<UnreachableReport> {
        if let Some(report) = self.unreachable.pop_front() {
            return Some(report);
        }
        let report = self.inner.unreachable()?;
        let waiting = self.waiting_for(report.to, report.quoted);
        let reports =
            waiting.into_iter().map(|about| UnreachableReport { quoted: Some(about), ..report });
        self.unreachable.extend(reports);
        let none = UnreachableReport { quoted: None, ..report };
        Some(self.unreachable.pop_front().unwrap_or(none))
    }

    pub(super) fn next_too_big(&mut self) -> Option<TooBig> {
        let report = self.inner.too_big()?;
        Some(TooBig { quoted: None, ..report })
    }

    pub(super) fn next_refusal(&mut self) -> Option<SystemRefusal> {
        let refusal = self.inner.refusal()?;
        let Some((to, quoted)) = refusal.packet else { return Some(refusal) };
        let about = self.waiting_for(to, quoted).first().copied();
        Some(SystemRefusal { packet: Some((to, about)), ..refusal })
    }
}
