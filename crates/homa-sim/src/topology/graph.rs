//! Any topology, read from a list of links.
//!
//! Each line is a link with equal directions: `from,to,gbps,delay_ns`, for example `h0,s3,100,500`.
//! A name of `h` and a number is a host; any other name is a switch. Hosts are numbered from 0
//! without gaps and have one link each, to a switch. Switches have two or more links, and every
//! switch can reach a host. Blanks and quotes around fields are ignored, and so are empty lines and
//! comments. A header may name the columns in another order. Frames take all shortest paths (fewest
//! links).

use std::collections::BTreeMap;

use homa_proto::Rate;
use homa_workload::text::{HeadError, TableHead, TextRow, plain, rows, whole};

use crate::time::SimDuration;

use super::{NodeId, PortSpec, RouteTable, Routes, Tier, Wiring};

/// A list of links that passed all checks.
#[derive(Clone, Debug, PartialEq)]
pub struct Graph {
    /// By host: its link.
    access: Vec<NamedLink>,
    between: Vec<NamedLink>,
    /// Names of the switches, by number.
    switches: Vec<String>,
}

/// A link between two nodes; hosts and switches are numbered separately. If it has a host, the
/// switch is `b`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct NamedLink {
    pub a: u32,
    pub b: u32,
    pub rate: Rate,
    /// Delay from `a` to `b`.
    pub delay: SimDuration,
    /// Delay from `b` to `a`.
    pub back: SimDuration,
}

/// An error in a list of links, and its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphError {
    /// Line of the text, from 1; 0 if the error concerns the whole list.
    pub line: usize,
    /// The error.
    pub fault: GraphFault,
}

/// Errors in a list of links.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GraphFault {
    /// The line does not have four fields.
    Fields,
    /// The first row names columns, but not those of a link.
    Head(HeadError),
    /// The rate is not a number of at least 0.02 Gbit/s.
    Rate(String),
    /// The delay is not a number from 0 to 500,000 ns.
    Delay(String),
    /// A link joins two hosts, or a node with itself.
    Ends,
    /// A host has a second link.
    SecondLink(String),
    /// No host has this number, although one has a higher number.
    Gap(u32),
    /// A host's number has leading zeros.
    Zeros(String),
    /// A switch has a single link, so that no frame can pass through it.
    Stub(String),
    /// No host reaches this switch.
    Island(String),
    /// No path joins these hosts.
    Apart(u32, u32),
    /// The list has no hosts.
    Empty,
    /// A line of a file of another simulator is wrong; its expected content.
    Expected(String),
}

impl std::fmt::Display for GraphError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.line > 0 {
            write!(f, "line {}: ", self.line)?;
        }
        match &self.fault {
            GraphFault::Fields => write!(f, "write `from,to,gbps,delay_ns`"),
            GraphFault::Head(error) => {
                write!(f, "{error}; name `from,to,gbps,delay_ns` in any order, or no columns")
            }
            GraphFault::Rate(text) => {
                write!(f, "`{text}` is not a rate in Gbit/s of at least 0.02")
            }
            GraphFault::Delay(text) => {
                write!(f, "`{text}` is not a delay from 0 to 500,000 ns")
            }
            GraphFault::Ends => write!(f, "a link must join two switches, or a host and a switch"),
            GraphFault::SecondLink(name) => {
                write!(f, "`{name}` already has a link: a host has one")
            }
            GraphFault::Gap(number) => {
                write!(f, "host `h{number}` is missing: number hosts from 0 without gaps")
            }
            GraphFault::Zeros(name) => write!(f, "write `{name}` without leading zeros"),
            GraphFault::Stub(name) => {
                write!(f, "`{name}` is a switch with a single link; name hosts h0, h1, h2, ...")
            }
            GraphFault::Island(name) => write!(f, "no host reaches the switch `{name}`"),
            GraphFault::Apart(a, b) => write!(f, "no path from `h{a}` to `h{b}`: add a link"),
            GraphFault::Expected(what) => f.write_str(what),
            GraphFault::Empty => write!(f, "no hosts: list links such as `h0,s0,10,500`"),
        }
    }
}

impl std::error::Error for GraphError {}

/// A node's name.
enum NodeName {
    Host(u32),
    Switch(u32),
}

/// Numbers switches in the order of appearance.
#[derive(Default)]
struct Names {
    numbers: BTreeMap<String, u32>,
    /// By switch: number of links, and the line of the first.
    links: Vec<(u32, usize)>,
}

impl Names {
    fn read(&mut self, text: &str, line: usize) -> Result<NodeName, GraphFault> {
        let digits = text.strip_prefix('h').unwrap_or("");
        if let Ok(number) = digits.parse::<u32>() {
            let plain = digits == number.to_string();
            return if plain {
                Ok(NodeName::Host(number))
            } else {
                Err(GraphFault::Zeros(text.into()))
            };
        }
        let next = self.numbers.len() as u32;
        let number = *self.numbers.entry(String::from(text)).or_insert(next);
        if number == next {
            self.links.push((0, line));
        }
        self.links[number as usize].0 += 1;
        Ok(NodeName::Switch(number))
    }

    /// The first switch with a single link.
    fn stub(&self) -> Option<GraphError> {
        let (number, (_, line)) = (0..).zip(&self.links).find(|(_, (links, _))| *links < 2)?;
        let (name, _) = self.numbers.iter().find(|(_, known)| **known == number)?;
        Some(GraphError { line: *line, fault: GraphFault::Stub(name.clone()) })
    }
}

impl Graph {
    /// Reads a list of links.
    pub fn from_csv(text: &str) -> Result<Self, GraphError> {
        let mut names = Names::default();
        let mut access: BTreeMap<u32, NamedLink> = BTreeMap::new();
        let mut between = Vec::new();
        let text = plain(text);
        let mut rows = rows(&text).peekable();
        let layout = LinkColumns::new(rows.next_if(is_header).as_ref())?;
        for row in rows {
            let line = row.line;
            let wrong = |fault| GraphError { line, fault };
            let [from, to, gbps, delay] = layout.fields(&row).map_err(wrong)?;
            let (rate, delay) = (rate(gbps).map_err(wrong)?, self::delay(delay).map_err(wrong)?);
            let link = |a, b| NamedLink { a, b, rate, delay, back: delay };
            let ends =
                (names.read(from, line).map_err(wrong)?, names.read(to, line).map_err(wrong)?);
            match ends {
                (NodeName::Switch(a), NodeName::Switch(b)) if a != b => between.push(link(a, b)),
                (NodeName::Host(host), NodeName::Switch(switch))
                | (NodeName::Switch(switch), NodeName::Host(host)) => {
                    if access.insert(host, link(host, switch)).is_some() {
                        return Err(wrong(GraphFault::SecondLink(format!("h{host}"))));
                    }
                }
                _ => return Err(wrong(GraphFault::Ends)),
            }
        }
        if let Some(stub) = names.stub() {
            return Err(stub);
        }
        let whole = |fault| GraphError { line: 0, fault };
        if access.is_empty() {
            return Err(whole(GraphFault::Empty));
        }
        if let Some((missing, _)) = (0..).zip(access.keys()).find(|(number, host)| number != *host)
        {
            return Err(whole(GraphFault::Gap(missing)));
        }
        let access = access.into_values().collect();
        let mut switches = vec![String::new(); names.numbers.len()];
        for (name, number) in names.numbers {
            switches[number as usize] = name;
        }
        Self::of_links(access, between, switches)
    }

    /// The network of these links: those of hosts, by host, and those between switches, which have
    /// these names.
    pub(super) fn of_links(
        access: Vec<NamedLink>,
        between: Vec<NamedLink>,
        switches: Vec<String>,
    ) -> Result<Self, GraphError> {
        let whole = |fault| GraphError { line: 0, fault };
        if access.is_empty() {
            return Err(whole(GraphFault::Empty));
        }
        let graph = Self { access, between, switches };
        graph.check_reached().map_err(whole)?;
        graph.check_connected().map_err(whole)?;
        Ok(graph)
    }

    /// Checks that every switch has a path to a host's switch.
    fn check_reached(&self) -> Result<(), GraphFault> {
        let mut neighbours = vec![Vec::new(); self.switches.len()];
        for link in &self.between {
            neighbours[link.a as usize].push(link.b);
            neighbours[link.b as usize].push(link.a);
        }
        let mut reached = vec![false; self.switches.len()];
        let mut next: Vec<u32> = self.access.iter().map(|link| link.b).collect();
        while let Some(switch) = next.pop() {
            if !std::mem::replace(&mut reached[switch as usize], true) {
                next.append(&mut neighbours[switch as usize]);
            }
        }
        match reached.iter().position(|reached| !reached) {
            Some(island) => Err(GraphFault::Island(self.switches[island].clone())),
            None => Ok(()),
        }
    }

    fn check_connected(&self) -> Result<(), GraphFault> {
        let wiring = self.wire();
        for host in 1..self.access.len() as u32 {
            for (a, b) in [(0, host), (host, 0)] {
                let path = wiring.path(super::HostId(a), super::HostId(b));
                let end = path.last().map(|port| wiring.ports()[port.0 as usize].to);
                if end != Some(NodeId(b)) {
                    return Err(GraphFault::Apart(a, b));
                }
            }
        }
        Ok(())
    }

    /// Names of the switches. As nodes, they follow the hosts in this order.
    pub fn switches(&self) -> &[String] {
        &self.switches
    }

    /// Compiles the topology.
    pub fn wire(&self) -> Wiring {
        let hosts = self.access.len() as u32;
        let port = |tier, (from, to): (u32, u32), rate, delay| PortSpec {
            from: NodeId(from),
            to: NodeId(to),
            tier,
            rate,
            delay,
        };
        let up = |l: &NamedLink| port(Tier::HostUp, (l.a, hosts + l.b), l.rate, l.delay);
        let down = |l: &NamedLink| port(Tier::TorDown, (hosts + l.b, l.a), l.rate, l.back);
        let (ups, downs) = (self.access.iter().map(up), self.access.iter().map(down));
        let mut ports: Vec<PortSpec> = ups.chain(downs).collect();
        for link in &self.between {
            let (a, b) = (hosts + link.a, hosts + link.b);
            ports.push(port(Tier::Fabric, (a, b), link.rate, link.delay));
            ports.push(port(Tier::Fabric, (b, a), link.rate, link.back));
        }
        let alive = vec![true; ports.len()];
        let switches = self.switches.len() as u32;
        let table = RouteTable::new((hosts, switches), &ports, &alive);
        Wiring::new(hosts, switches, ports, Routes::Table(table))
    }
}

/// Whether a row names columns: its fields include `from` and `to`.
fn is_header(row: &TextRow<'_>) -> bool {
    let named = |name: &str| row.fields.iter().any(|field| field.eq_ignore_ascii_case(name));
    named("from") && named("to")
}

/// Where the fields of a link are.
struct LinkColumns {
    places: [usize; 4],
    columns: usize,
}

impl LinkColumns {
    /// Of the header, or of a list without one.
    fn new(header: Option<&TextRow<'_>>) -> Result<Self, GraphError> {
        let Some(header) = header else { return Ok(Self { places: [0, 1, 2, 3], columns: 4 }) };
        let head = TableHead::new(header);
        let mut places = [0; 4];
        for (place, name) in places.iter_mut().zip(["from", "to", "gbps", "delay_ns"]) {
            let found = head.find(name).map_err(GraphFault::Head);
            *place = found.map_err(|fault| GraphError { line: header.line, fault })?;
        }
        Ok(Self { places, columns: head.columns() })
    }

    fn fields<'a>(&self, row: &TextRow<'a>) -> Result<[&'a str; 4], GraphFault> {
        let complete = row.fields.len() == self.columns;
        let fields = complete.then(|| self.places.map(|place| row.fields[place]));
        fields.ok_or(GraphFault::Fields)
    }
}

fn rate(text: &str) -> Result<Rate, GraphFault> {
    let gbps: f64 = text.parse().map_err(|_| GraphFault::Rate(String::from(text)))?;
    if !(0.02..=1e6).contains(&gbps) {
        return Err(GraphFault::Rate(String::from(text)));
    }
    Ok(Rate((gbps * 1e9) as u64))
}

fn delay(text: &str) -> Result<SimDuration, GraphFault> {
    match whole(text) {
        Some(nanos @ 0..=500_000) => Ok(SimDuration::nanos(nanos)),
        _ => Err(GraphFault::Delay(String::from(text))),
    }
}
