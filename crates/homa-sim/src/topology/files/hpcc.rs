//! Topologies of HPCC's ns-3: `nodes switches links` (PowerTCP's has the number of TORs before the
//! links), the numbers of the switches, and a row for each link: `a b 100Gbps 1000ns error`.
//!
//! Nodes that are not switches are hosts; they are numbered in the order of their nodes. Left out:
//! SimAI's form, whose hosts have a second link to an NVSwitch; links with errors.

use std::collections::{BTreeMap, BTreeSet};

use homa_workload::text::{TextRow, rows};

use crate::scenario::{Bandwidth, Span};

use super::super::graph::{Graph, GraphError, GraphFault, NamedLink};
use super::{MOST, NetworkFile, number, wrong};

pub(super) fn read(text: &str) -> Result<NetworkFile, GraphError> {
    let mut rows = rows(text);
    let Some(head) = rows.next() else {
        return wrong(1, "expected `nodes switches links`");
    };
    let (nodes, switches, links) = match head.fields[..] {
        [nodes, switches, links] | [nodes, switches, _, links] => (nodes, switches, links),
        [_, _, _, _, _, _] => {
            let expected = "this is SimAI's form, in which hosts have a second link to an \
                            NVSwitch; a host has one link here";
            return wrong(head.line, expected);
        }
        _ => return wrong(head.line, "expected `nodes switches links`"),
    };
    let nodes = number(&head, "nodes", nodes)?;
    let switches = number(&head, "switches", switches)?;
    let links = number(&head, "links", links)?;
    if u64::from(nodes.max(links)) > MOST {
        return wrong(head.line, format!("expected at most {MOST} nodes and links"));
    }
    if nodes.saturating_sub(switches) > links {
        let expected = format!(
            "{links} links for {nodes} nodes without {switches} switches: every \
                                host needs one"
        );
        return wrong(head.line, expected);
    }
    let named = switch_nodes(&mut rows, (nodes, switches), head.line)?;
    let mut network = NodeLinks::new(nodes, &named);
    for row in rows.by_ref().take(links as usize) {
        network.link(&row)?;
    }
    network.finish(&head, links)
}

/// The nodes that are switches; their row may be broken.
fn switch_nodes<'a>(
    rows: &mut impl Iterator<Item = TextRow<'a>>,
    (nodes, switches): (u32, u32),
    line: usize,
) -> Result<BTreeSet<u32>, GraphError> {
    let mut named = BTreeSet::new();
    while (named.len() as u64) < u64::from(switches) {
        let Some(row) = rows.next() else {
            let expected = format!("{switches} switches are announced: name their nodes behind");
            return wrong(line, expected);
        };
        for field in &row.fields {
            let node = number(&row, "switch", field)?;
            if node >= nodes {
                return wrong(row.line, format!("switch {node} is not below {nodes}, the nodes"));
            }
            if !named.insert(node) {
                return wrong(row.line, format!("switch {node} is named twice"));
            }
        }
        if named.len() as u64 > u64::from(switches) {
            let expected = format!("{switches} switches are announced, and more are named");
            return wrong(row.line, expected);
        }
    }
    Ok(named)
}

/// A network whose links are being read.
struct NodeLinks {
    /// By node: the number of the host, or of the switch.
    hosts: BTreeMap<u32, u32>,
    switches: BTreeMap<u32, u32>,
    access: BTreeMap<u32, NamedLink>,
    between: Vec<NamedLink>,
    rows: u32,
}

impl NodeLinks {
    fn new(nodes: u32, switches: &BTreeSet<u32>) -> Self {
        let hosts = (0..nodes).filter(|node| !switches.contains(node));
        Self {
            hosts: hosts.zip(0..).collect(),
            switches: switches.iter().copied().zip(0..).collect(),
            access: BTreeMap::new(),
            between: Vec::new(),
            rows: 0,
        }
    }

    fn link(&mut self, row: &TextRow<'_>) -> Result<(), GraphError> {
        let fields = "expected `a b 100Gbps 1000ns 0`: two nodes, rate, delay and errors";
        let [from, to, rate, delay, error] = row.fields[..] else {
            return wrong(row.line, fields);
        };
        self.rows += 1;
        let (from, to) = (number(row, "node", from)?, number(row, "node", to)?);
        let rate = rate.parse::<Bandwidth>();
        let rate = rate.or_else(|error| wrong(row.line, format!("rate: {error}")))?.rate();
        let delay = delay.parse::<Span>();
        let delay = delay.or_else(|error| wrong(row.line, format!("delay: {error}")))?.duration();
        if error.parse::<f64>() != Ok(0.0) {
            let expected = format!(
                "errors of `{error}` are not simulated: write 0, and set `loss_ppm` of the link in \
                 `fabric.impaired`"
            );
            return wrong(row.line, expected);
        }
        let switch = |node: &u32| self.switches.get(node).copied();
        let host = |node: &u32| self.hosts.get(node).copied();
        let link = |a, b| NamedLink { a, b, rate, delay, back: delay };
        match (switch(&from), switch(&to), host(&from).or(host(&to))) {
            (Some(a), Some(b), None) if a != b => self.between.push(link(a, b)),
            (Some(switch), None, Some(host)) | (None, Some(switch), Some(host)) => {
                if self.access.insert(host, link(host, switch)).is_some() {
                    let fault = GraphFault::SecondLink(format!("h{host}"));
                    return Err(GraphError { line: row.line, fault });
                }
            }
            _ => {
                let expected = format!(
                    "a link joins two switches, or a host and a switch, and {from} and {to} are \
                     not that"
                );
                return wrong(row.line, expected);
            }
        }
        Ok(())
    }

    fn finish(self, head: &TextRow<'_>, links: u32) -> Result<NetworkFile, GraphError> {
        if self.rows < links {
            let expected = format!("{links} links are announced, and {} rows follow", self.rows);
            return wrong(head.line, expected);
        }
        if let Some((node, _)) = self.hosts.iter().find(|(_, host)| !self.access.contains_key(host))
        {
            return wrong(head.line, format!("node {node} is a host without a link"));
        }
        let names = self.switches.keys().map(u32::to_string).collect();
        let access = self.access.into_values().collect();
        let graph = Graph::of_links(access, self.between, names)?;
        let renumbered = self.hosts.iter().any(|(node, host)| node != host);
        let nodes = renumbered.then_some(self.hosts);
        Ok(NetworkFile { graph, nodes, warnings: Vec::new() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::HostId;

    /// Two hosts at each of two switches, which are nodes 0 and 3.
    const TEXT: &str = "6 2 5\n0 3\n1 0 100Gbps 1000ns 0.000000\n2 0 100Gbps 1us 0\n4 3 25Gbps \
                        0.5us 0\n5 3 100Gbps 1000ns 0\n0 3 400Gbps 0.002ms 0\n";

    #[test]
    fn nodes_that_are_no_switches_are_hosts_in_their_order() {
        let file = read(TEXT).unwrap();
        let wiring = file.graph.wire();
        assert_eq!((wiring.hosts(), wiring.switches()), (4, 2));
        assert_eq!(file.nodes, Some([(1, 0), (2, 1), (4, 2), (5, 3)].into()));
        assert_eq!(file.graph.switches(), ["0", "3"]);
        // 1 us, 2 us and 0.5 us.
        let path = wiring.path(HostId(0), HostId(2));
        let delays = path.iter().map(|port| wiring.ports()[port.0 as usize].delay.0);
        assert_eq!(delays.collect::<Vec<_>>(), [1_000_000, 2_000_000, 500_000]);
        let usual = "3 1 2\n2\n0 2 1Gbps 1us 0\n1 2 1Gbps 1us 0\n";
        assert_eq!(read(usual).unwrap().nodes, None);
    }

    #[test]
    fn mistakes_name_their_line() {
        let cases = [
            ("3 1\n", "line 1: expected `nodes switches links`"),
            ("9 8 1 4 20 H800\n", "line 1: this is SimAI's form"),
            ("3 1 2\n7\n", "line 2: switch 7 is not below 3"),
            ("3 2 2\n2 2\n", "line 2: switch 2 is named twice"),
            ("3 1 2\n", "line 1: 1 switches are announced"),
            ("3 1 3\n2\n0 2 1Gbps 1us 0\n1 2 1Gbps 1us 0\n", "line 1: 3 links are announced"),
            ("3 1 2\n2\n0 2 1Gbps 1us 0\n0 2 1Gbps 1us 0\n", "line 4: `h0` already has a link"),
            ("3 1 2\n2\n0 1 1Gbps 1us 0\n", "line 3: a link joins two switches"),
            ("3 1 2\n2\n0 2 1Gbps 1us 0.1\n", "line 3: errors of `0.1`"),
            ("3 1 2\n2\n0 2 1 1us 0\n", "line 3: rate: "),
            (
                "4 2 2\n2 3\n0 2 1Gbps 1us 0\n2 3 1Gbps 1us 0\n",
                "line 1: node 1 is a host without a link",
            ),
            ("4000000 1 3\n", "line 1: 3 links for 4000000 nodes without 1 switches"),
            ("4000000000 1 1\n", "line 1: expected at most"),
        ];
        for (text, said) in cases {
            let error = read(text).unwrap_err().to_string();
            assert!(error.starts_with(said), "{error}");
        }
    }
}
