//! The two directions of a link, and the rates that they have in the course of a run.

use std::collections::BTreeMap;

use homa_proto::Rate;

use crate::fabric::{ChangingLink, NONE};
use crate::time::SimTime;
use crate::topology::PortSpec;

/// By link: its later rates, in the order of time.
pub(in crate::engine) type Rates = BTreeMap<u32, Vec<(SimTime, Rate)>>;

/// Adds a later rate of a link.
pub(in crate::engine) fn note_rate(rates: &mut Rates, (link, at, rate): (u32, SimTime, Rate)) {
    let rates = rates.entry(link).or_default();
    rates.push((at, rate));
    rates.sort_by_key(|(at, _)| *at);
}

/// A link and the one in the other direction, with all their rates.
pub(in crate::engine) fn link_pair<'a>(
    ports: &[PortSpec],
    (reverse_links, rates): (&[u32], &'a Rates),
    link: u32,
) -> Option<(ChangingLink<'a>, ChangingLink<'a>)> {
    let way = |link: u32| {
        let spec = ports.get(link as usize)?;
        let changes = rates.get(&link).map_or(&[][..], Vec::as_slice);
        Some(ChangingLink { rate: spec.rate, delay: spec.delay, changes })
    };
    let own = way(link)?;
    Some((own, way(reverse_links[link as usize]).unwrap_or(own)))
}

/// By link: the one in the other direction. If several links join two nodes, they are matched in
/// order.
pub(in crate::engine) fn reverse_links(ports: &[PortSpec]) -> Vec<u32> {
    let mut ends: Vec<(u32, u32, u32)> =
        (0..).zip(ports).map(|(link, port)| (port.from.0, port.to.0, link)).collect();
    ends.sort_unstable();
    let mut reverse_links = vec![NONE; ports.len()];
    let mut place = 0;
    for at in 0..ends.len() {
        let (from, to, link) = ends[at];
        let same = at > 0 && (ends[at - 1].0, ends[at - 1].1) == (from, to);
        place = if same { place + 1 } else { 0 };
        let first = ends.partition_point(|end| (end.0, end.1) < (to, from));
        if let Some(back) = ends.get(first + place).filter(|end| (end.0, end.1) == (to, from)) {
            reverse_links[link as usize] = back.2;
        }
    }
    reverse_links
}
