//! Which link rate this machine can emulate: where none is asked for, the row that costs it most is
//! tried for a moment, and the rack's own checks decide. Results play no part.

use std::time::Duration;

use homa_testbed::{Isolation, Pattern, Transport};
use homa_workload::arrivals::schedule;

use super::rack::{OFFER_HINT, build, measure, offer, plan, probe};
use super::{Args, LINK, incast};
use crate::failure::{Failure, Hint};
use crate::output::Progress;

/// Time in which RPCs arrive in a trial.
const TRIAL: Duration = Duration::from_secs(3);

/// The arguments with a link that was asked for, or that this machine keeps up with: the default or
/// a half of it; a quarter without a trial.
pub fn affordable(args: &Args, inside: &Isolation) -> Result<Args, Failure> {
    if args.link.is_some() {
        return Ok(args.clone());
    }
    let progress = Progress::ticking(TRIAL * 2);
    for link in [LINK, LINK / 2] {
        let args = Args { link: Some(link), ..args.clone() };
        let rate = crate::values::show_rate(link);
        progress.step(&format!("trying links of {rate}"));
        let Some(trouble) = trouble(&args, inside)? else {
            progress.finish();
            return Ok(args);
        };
        progress.suspend(|| eprintln!("links of {rate} are too fast here: {trouble}"));
    }
    progress.finish();
    Ok(Args { link: Some(LINK / 4), ..args.clone() })
}

/// What the rack's checks find wrong in a trial.
fn trouble(args: &Args, inside: &Isolation) -> Result<Option<String>, Failure> {
    let rack = build(args, inside)?;
    probe(&rack, args.anyway)?;
    let args = &Args { duration: Some(TRIAL.min(args.duration())), ..args.clone() };
    let arrivals;
    let pattern = match args.incast {
        Some(outstanding) => incast::pattern(args, outstanding),
        None => {
            let (offer, sizes) = offer(args)?;
            arrivals = schedule(&offer, &sizes).hint(OFFER_HINT)?;
            Pattern::Open { arrivals: &arrivals, request_bytes: None, duration: args.duration() }
        }
    };
    let run = measure(&rack, &plan(args, heaviest(&args.transports()), pattern))?;
    let findings = run.verdict.findings.iter().filter(|finding| !finding.ok);
    let wrong: Vec<String> = findings.map(|f| format!("{} {}", f.name, f.detail)).collect();
    Ok((!wrong.is_empty()).then(|| wrong.join(", ")))
}

/// The row that costs the machine most: kernel TCP receives on the processor of the switch, and the
/// fewer the connections, the longer its bursts.
fn heaviest(rows: &[Transport]) -> Transport {
    let cost = |row: &&Transport| match row {
        Transport::Tcp | Transport::TcpEcn | Transport::Dctcp => 4,
        Transport::TcpPool => 3,
        Transport::TcpClassed => 2,
        _ => 1,
    };
    rows.iter().max_by_key(cost).copied().unwrap_or(Transport::Tcp)
}
