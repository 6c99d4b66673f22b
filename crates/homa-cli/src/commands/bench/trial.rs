//! Whether this machine can emulate a rack with links of a given rate: the rack's check without
//! load, then a moment of the rows that demand most. Results play no part.

use std::time::Duration;

use homa_testbed::check::CheckedValue;
use homa_testbed::{Rack, TestbedError, Transport};

use super::args::Args;
use super::decide::{Family, Fit};
use super::marking::PlannedRow;
use super::rows::Rows;
use super::setup::{Racks, plan};
use super::units::rate;

/// Time in which RPCs arrive in a trial.
const TRIAL: Duration = Duration::from_secs(2);
/// How long a trial waits for RPCs in progress afterwards. If the machine does not keep up, TCP may
/// retransmit for as long as a row waits for its stragglers, and their results play no part here.
const GRACE: Duration = Duration::from_secs(3);
/// About how long a trial of two rows takes.
pub const EXPECTED: Duration = Duration::from_secs(9);

/// The result of a trial.
#[derive(Clone, Debug)]
pub struct Trial {
    /// Rate of every link, bits per second.
    pub link: u64,
    /// How well the machine kept up.
    pub fit: Fit,
    /// The number that decided, as a sentence without its full stop; `None` if a rate that was
    /// asked for is only checked without load and passes.
    pub found: Option<String>,
}

impl Trial {
    fn of(link: u64, row: Option<Transport>, worst: &CheckedValue) -> Self {
        let (fit, found) = match row {
            None => (Fit::Unusable, format!("without any load, {}", worst.detail)),
            Some(row) => (Fit::of_strain(worst.strain), format!("under {row}, {}", worst.detail)),
        };
        Self { link, fit, found: Some(found) }
    }

    /// The trial for people.
    pub fn sentence(&self) -> String {
        let found = self.found.as_deref().unwrap_or("the check without load passed");
        let fit = match self.fit {
            Fit::Comfortable => "this machine keeps up",
            Fit::Tight => "too little margin",
            Fit::Disturbed => "disturbed",
            Fit::Unusable => "this machine is too busy",
        };
        format!("links of {}: {fit}: {found}", rate(self.link))
    }
}

/// The arguments of a trial with links of this rate.
pub fn arguments(args: &Args, link: u64) -> Args {
    Args { link: Some(link), duration: Some(TRIAL.min(args.duration())), ..args.clone() }
}

/// Tries the rate of `args`; without load if `rows` is empty.
pub fn run(
    args: &Args,
    racks: &mut Racks<'_>,
    (first, rows): (PlannedRow, &[PlannedRow]),
    of: &impl Rows,
) -> Result<Trial, TestbedError> {
    let link = args.link();
    let (_, idle) = racks.of_row(args, rows.first().copied().unwrap_or(first))?;
    if let Some(failed) = idle.failed().next() {
        return Ok(Trial::of(link, None, failed));
    }
    let mut worst: Option<(Transport, CheckedValue)> = None;
    for &row in rows {
        let (rack, idle) = racks.of_row(args, row)?;
        if let Some(failed) = idle.failed().next() {
            return Ok(Trial::of(link, None, failed));
        }
        let found = loaded(args, rack, row, of)?;
        if !found.ok() {
            return Ok(Trial::of(link, Some(row.transport), &found));
        }
        if worst.as_ref().is_none_or(|(_, worst)| found.strain > worst.strain) {
            worst = Some((row.transport, found));
        }
    }
    Ok(match worst {
        Some((row, found)) => Trial::of(link, Some(row), &found),
        None => Trial { link, fit: Fit::Comfortable, found: None },
    })
}

/// The number that a short run brought nearest to its limit.
fn loaded(
    args: &Args,
    rack: &Rack,
    row: PlannedRow,
    of: &impl Rows,
) -> Result<CheckedValue, TestbedError> {
    let verdict = homa_testbed::run(rack, &plan(args, row.transport, of.pattern(), GRACE))?.verdict;
    let none = CheckedValue { name: "run", detail: "nothing was checked".into(), strain: 0.0 };
    Ok(verdict.worst().cloned().unwrap_or(none))
}

/// The rows that demand most of the machine, one of each kind. Kernel TCP receives on the processor
/// of the switch, and a pool keeps most of it in flight.
pub fn demanding(planned: &[PlannedRow]) -> Vec<PlannedRow> {
    let demand = |row: &&PlannedRow| match row.transport {
        Transport::Grpc | Transport::GrpcProxy => 5,
        Transport::TcpPool => 4,
        Transport::TcpClassed => 3,
        Transport::HomaSharded => 2,
        Transport::Homa => 1,
        _ => 0,
    };
    let of = |homa| {
        let rows = planned.iter().filter(move |row| row.transport.is_homa() == homa);
        rows.max_by_key(demand).copied()
    };
    [of(false), of(true)].into_iter().flatten().collect()
}

/// The kinds of rows that were asked for.
pub fn families(planned: &[PlannedRow]) -> Vec<Family> {
    let family = |row: &PlannedRow| match row.transport.is_homa() {
        true => Family::Homa,
        false => Family::Tcp,
    };
    planned.iter().map(family).collect()
}

#[cfg(test)]
mod tests {
    use super::super::args::asked;
    use super::*;

    #[test]
    fn a_trial_runs_the_pool_of_tcp_connections_and_homa() {
        let rows = demanding(&asked(&[]).rows());
        let names: Vec<&str> = rows.iter().map(|row| row.transport.name()).collect();
        assert_eq!(names, ["tcp-pool", "homa"]);
        let rows = demanding(&asked(&["--transport", "homa-flat"]).rows());
        assert_eq!(rows.len(), 1);
    }

    #[test]
    fn a_refusal_names_the_number_that_failed_and_its_limit() {
        let detail = "the lowest class filled 84 % of the link meanwhile (at least 90 %)".into();
        let failed = CheckedValue { name: "strict priority", detail, strain: 1.07 };
        let said = Trial::of(25_000_000, None, &failed).sentence();
        assert!(said.starts_with("links of 25 Mbit/s: this machine is too busy"), "{said}");
        assert!(said.ends_with("84 % of the link meanwhile (at least 90 %)"), "{said}");
    }
}
