//! Reports of the network and of our own system about datagrams. They quote a handshake, or an
//! encrypted datagram; the engine knows only what these were about.
//!
//! A report about an encrypted datagram counts if it names a key id of the peer and the number of a
//! datagram that was sent a short time ago. Both are unknown to a host that does not see packets.

use std::net::SocketAddr;

use homa_proto::{Quoted, RpcId};

use super::{Sealed, SystemRefusal, TooBig, UnreachableReport, Way};

/// Datagrams that are remembered.
const SENT_MAX: usize = 4096;

/// What the last datagrams were about, in a table of fixed size: a datagram takes the place of an
/// earlier one.
pub struct SentDatagrams(Box<[(RpcId, Quoted)]>);

impl Default for SentDatagrams {
    fn default() -> Self {
        let none = (RpcId(0), Quoted { id: RpcId(0), begins: false });
        Self(vec![none; SENT_MAX].into())
    }
}

impl SentDatagrams {
    /// The datagram under this key id and number is about this packet.
    pub fn note(&mut self, key: u32, number: u64, about: Option<Quoted>) {
        let name = RpcId(u64::from(key) << 32 | number & u64::from(u32::MAX));
        if let Some(about) = about {
            self.0[Self::place(name)] = (name, about);
        }
    }

    /// What the datagram that a report quotes was about.
    fn about(&self, quoted: Quoted) -> Option<Quoted> {
        let (name, about) = self.0[Self::place(quoted.id)];
        (name == quoted.id).then_some(about)
    }

    fn place(RpcId(name): RpcId) -> usize {
        // Consecutive numbers of a session take consecutive places.
        ((name >> 32).wrapping_mul(2_654_435_761).wrapping_add(name)) as usize % SENT_MAX
    }
}

impl Sealed {
    /// What the datagram to a peer that a report quotes was about. If it is a handshake: everything
    /// that waits for it.
    fn about(&self, to: SocketAddr, quoted: Option<Quoted>) -> Vec<Quoted> {
        let Some(quoted) = quoted else { return Vec::new() };
        let way: Option<&Way> = self.by_id.get(&quoted.id.0).filter(|way| way.to == to);
        match way {
            Some(way) => self.waiting.quoted(way).collect(),
            None => self.sent.about(quoted).into_iter().collect(),
        }
    }

    pub(super) fn next_unreachable(&mut self) -> Option<UnreachableReport> {
        if let Some(report) = self.unreachable.pop_front() {
            return Some(report);
        }
        let report = self.inner.unreachable()?;
        let about = self.about(report.to, report.quoted);
        let reports =
            about.into_iter().map(|about| UnreachableReport { quoted: Some(about), ..report });
        self.unreachable.extend(reports);
        let none = UnreachableReport { quoted: None, ..report };
        Some(self.unreachable.pop_front().unwrap_or(none))
    }

    pub(super) fn next_too_big(&mut self) -> Option<TooBig> {
        let report = self.inner.too_big()?;
        let quoted = self.about(report.to, report.quoted).first().copied();
        Some(TooBig { quoted, ..report })
    }

    pub(super) fn next_refusal(&mut self) -> Option<SystemRefusal> {
        let refusal = self.inner.refusal()?;
        let Some((to, quoted)) = refusal.packet else { return Some(refusal) };
        let about = self.about(to, quoted).first().copied();
        Some(SystemRefusal { packet: Some((to, about)), ..refusal })
    }
}
