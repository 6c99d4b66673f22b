//! Racks and the RPCs that are offered on them: used by every pattern that runs on the rack, by the
//! load against a server and by the simulator's twin. Makes no decision about results.

use std::time::Duration;

use homa_proto::Rate;
use homa_testbed::check::{self, Verdict};
use homa_testbed::{
    Faults, Isolation, Pattern, Rack, RackConfig, RunPlan, TestbedError, Transport,
};
use homa_workload::arrivals::Offer;
use homa_workload::bins::SizeBins;
use homa_workload::framing::Framing;
use homa_workload::load::{Basis, Load};
use homa_workload::sizes::SizeDistribution;

use super::args::{Args, Switch};
use super::marking::PlannedRow;
use crate::commands::driver::Driver;
use crate::failure::{Failure, Hint};
use crate::values;

/// Larger messages are cut to this size, as in the measurements of Homa/Linux (ATC 2021).
pub const LARGEST: u32 = 1_000_000;
/// How long stragglers may take after the last arrival. At 80 % load SRPT lets the longest messages
/// wait for half a minute; a row that has lost nothing ends as soon as they are through.
pub const GRACE: Duration = Duration::from_secs(60);
/// Most checks of an idle rack before its rows.
const PROBES: usize = 3;

/// What to do when RPCs cannot be offered.
pub const OFFER_HINT: &str = "see `homa bench --help` for what can be offered";

/// The rack under the row that is measured: one at a time, built anew if its links or its marking
/// differ from those of the last one.
pub struct Racks<'a> {
    inside: &'a Isolation,
    /// With what its check found.
    rack: Option<(Rack, Verdict)>,
}

impl<'a> Racks<'a> {
    /// None yet.
    pub fn new(inside: &'a Isolation) -> Self {
        Self { inside, rack: None }
    }

    /// The rack for a row, and what its check without load found.
    pub fn of_row(
        &mut self,
        args: &Args,
        row: PlannedRow,
    ) -> Result<(&Rack, &Verdict), TestbedError> {
        let config = RackConfig { marking: row.marking(&args.marks), ..rack_config(args) };
        let usable =
            |(rack, found): &mut (Rack, Verdict)| *rack.config() == config && found.valid();
        let (rack, found) = match self.rack.take_if(usable) {
            Some(last) => last,
            None => {
                // The threads of the last rack spin, so that it has to go first.
                self.rack = None;
                let rack = Rack::build(config, self.inside)?;
                let found = probe(&rack)?;
                (rack, found)
            }
        };
        let (rack, found) = self.rack.insert((rack, found));
        Ok((rack, found))
    }
}

/// Checks an idle rack, up to three times while something else disturbs the machine.
fn probe(rack: &Rack) -> Result<Verdict, TestbedError> {
    let mut found = check::probe(rack)?.verdict;
    for _ in 1..PROBES {
        if found.valid() {
            break;
        }
        found = check::probe(rack)?.verdict;
    }
    Ok(found)
}

/// The rack that was asked for.
pub fn rack_config(args: &Args) -> RackConfig {
    RackConfig {
        hosts: args.hosts(),
        topology: args.network.topology(),
        forwarding: args.network.forwarding(),
        degraded: args.network.degraded(),
        link: Rate(args.link()),
        buffer_bytes: args.buffer,
        marking: args.marks.marking(),
        faults: Faults { loss: args.loss, duplication: args.duplicate, seed: args.seed },
        ..RackConfig::default()
    }
}

/// The RPCs of every host, and the sizes they are drawn from.
pub fn offer(args: &Args) -> Result<(Offer, SizeDistribution), Failure> {
    let sizes = args.workload.sizes().hint("`homa workloads` lists what is built in")?;
    values::tell_table(&args.workload.to_string(), &sizes);
    let load = Load {
        fraction: args.load,
        basis: Basis::Wire,
        link_bps: args.link(),
        framing: match args.driver {
            Driver::Udp | Driver::Xdp | Driver::Auto => Framing::Udp,
            Driver::RawIp => Framing::Ip146,
        },
    };
    let hosts = u16::try_from(args.hosts()).hint("a rack has 2 to 250 hosts")?;
    let duration_ns = args.duration().as_nanos() as u64;
    Ok((Offer { hosts, load, duration_ns, seed: args.seed }, sizes.truncated(LARGEST)))
}

/// Sizes whose idle round trip is measured: between them it is nearly linear in the bytes.
pub fn idle_sizes(sizes: &SizeDistribution) -> Vec<u32> {
    let within = |bytes: &u32| (sizes.min_bytes()..=sizes.max_bytes()).contains(bytes);
    let mut chosen = vec![sizes.min_bytes(), sizes.max_bytes()];
    let tenths = SizeBins::tenths(sizes);
    chosen.extend(tenths.bins().iter().map(|bin| bin.max_bytes));
    chosen.extend([100, 1_000, 1_400, 1_500, 3_000, 10_000, 30_000, 150_000, 500_000]);
    chosen.retain(within);
    chosen.sort_unstable();
    chosen.dedup();
    chosen
}

/// How a transport's messages become frames on the rack.
pub fn framing(transport: Transport) -> Framing {
    match transport.is_homa() {
        true => Framing::Udp,
        false => Framing::Tcp,
    }
}

/// What every row of a command has in common; stragglers may take `grace`.
pub fn plan<'a>(
    args: &'a Args,
    transport: Transport,
    pattern: Pattern<'a>,
    grace: Duration,
) -> RunPlan<'a> {
    let queued = match pattern {
        Pattern::Open { .. } => 0,
        // All of it has still to come over the client's link when the last RPC starts.
        Pattern::Incast { outstanding, response_bytes, .. } => {
            outstanding as u64 * framing(transport).data_wire_bytes(response_bytes)
        }
    };
    RunPlan {
        transport,
        congestion_control: &args.cc,
        homa_incast_control: args.incast_control == Switch::On,
        pattern,
        idle_sizes: &[],
        grace: grace + Duration::from_nanos(Rate(args.link()).time_for(queued).0),
        program: std::env::current_exe().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::args::asked;
    use super::super::incast;
    use super::*;

    #[test]
    fn an_incast_is_waited_for_as_long_as_its_responses_need() {
        let args = asked(&["--incast", "100000", "--link", "25Mbps"]);
        for transport in Transport::ALL {
            let grace = plan(&args, transport, incast::pattern(&args, 100_000), GRACE).grace;
            // A billion bytes without headers: 320 s.
            assert!(grace > GRACE + Duration::from_secs(320), "{transport}: {grace:?}");
        }
        let pattern =
            Pattern::Open { arrivals: &[], request_bytes: None, duration: args.duration() };
        assert_eq!(plan(&args, Transport::Homa, pattern, GRACE).grace, GRACE);
    }
}
