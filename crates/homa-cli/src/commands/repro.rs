//! `homa repro`: published figures, simulated again and compared.

use std::path::PathBuf;

use homa_lab::error::LabError;
use homa_lab::report::Choice;
use homa_lab::repro::{self, How, Reproduction, VerdictCounts, plan::ReproPlan};
use homa_lab::store::Store;
use homa_lab::sweep::Options;
use serde::Serialize;

use super::sweep::{show, threads};
use super::work::{Work, say_when_ended, write_page};
use crate::failure::{Failure, Hint, Outcome, Verdict};
use crate::output::{Align, Format, TextTable, json, line};

/// Arguments of `homa repro`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Figures to reproduce, such as homa-fig10; some of their rows, such as homa-fig10-w4; all
    /// figures of a paper, such as homa; or the file of a plan, such as mine.toml. [default: all]
    #[arg(value_name = "ID")]
    ids: Vec<String>,
    /// List what can be reproduced, and run nothing.
    #[arg(long)]
    list: bool,
    /// Short runs: minutes for everything, but tails stay undecided.
    #[arg(long)]
    quick: bool,
    /// Simulate only the scheme that is compared, not those shown beside it: a third of the work.
    #[arg(long)]
    compared: bool,
    /// Print one line per paper (within, outside, undecided) instead of every number.
    #[arg(long)]
    summary: bool,
    /// Also write an HTML page with the figures, and one for each paper when there are several.
    #[arg(long)]
    report: bool,
    /// Folder for the results: the command with every simulation (repro.toml), tables (CSV,
    /// Parquet), verdicts. If interrupted, rerun the same command to resume.
    #[arg(long, value_name = "DIR", default_value = "homa-repro")]
    out: PathBuf,
    /// Number of simulations to run at a time. [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Output format on stdout.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

#[derive(Debug, Serialize)]
struct Listed<'a> {
    id: &'a str,
    title: &'a str,
}

/// Runs the command; a number outside its tolerance is a failed check, and so is one that a full
/// run leaves undecided. The last line says so.
pub fn run(args: &Args) -> Outcome {
    let how = How { ids: args.ids.clone(), quick: args.quick, compared: args.compared };
    let mut plans = repro::select(&how.ids).map_err(|error| {
        let hint = match &error {
            LabError::Plan(_) => {
                "a plan of `homa repro` names published points and checks, as those in the \
                 repository's folder `repro` do; `homa sweep` runs a plan with axes"
            }
            _ => "`homa repro --list` shows all",
        };
        Failure::new(error, hint)
    })?;
    if args.list {
        return list(&plans, args.format);
    }
    if how.compared {
        plans.iter_mut().for_each(ReproPlan::keep_compared);
    }
    let store = Store::create(&args.out).hint("choose another --out")?;
    let options = Options { keep_going: true, ..Options::on(threads(args.threads)) };
    say_when_ended(format!(
        "interrupted: what is finished is kept in {}; run the same command to resume",
        args.out.display()
    ));
    let mut work = Work::new();
    let done = repro::run(&plans, &how, &store, &options, &mut |progress| {
        show(&mut work, progress);
    });
    work.finish();
    let done = done.hint("what is finished is kept: rerun the same command to resume")?;
    for refused in done.iter().flat_map(|reproduction| &reproduction.refused) {
        eprintln!("not run: {refused}");
    }
    for check in done.iter().flat_map(|reproduction| &reproduction.checks) {
        if let Some(missing) = &check.missing {
            eprintln!("decides nothing: {}: {missing}", check.metric);
        }
        if let Some(aside) = &check.aside {
            eprintln!("stands: {}: messages {aside}", check.metric);
        }
    }
    match args.format {
        _ if args.summary => summary(&done, args.format)?,
        Format::Json => json(&done.iter().map(Reproduction::numbers).collect::<Vec<_>>())?,
        Format::Table => done.iter().for_each(print),
    }
    if args.format == Format::Table {
        ending(total(&done), how.quick).iter().for_each(line);
    }
    if how.quick {
        budgets(&done);
    }
    if args.report {
        write_page(&args.out, &Choice::default())?;
    }
    let failed = done.iter().any(Reproduction::failed);
    Ok(if failed { Verdict::CheckFailed } else { Verdict::Passed })
}

fn list(plans: &[ReproPlan], format: Format) -> Outcome {
    match format {
        Format::Json => {
            let listed = plans.iter().map(|plan| Listed { id: &plan.id, title: &plan.title });
            json(&listed.collect::<Vec<_>>())?;
        }
        Format::Table => {
            let table =
                TextTable::new(&[("id", Align::Left, 16), ("what it shows", Align::Left, 40)]);
            line(table.head());
            for plan in plans {
                line(table.row(&[plan.id.clone(), plan.title.clone()]));
            }
        }
    }
    Ok(Verdict::Passed)
}

/// The verdicts on a paper's figures.
#[derive(Debug, Default, Serialize)]
struct Paper<'a> {
    paper: &'a str,
    #[serde(flatten)]
    tally: VerdictCounts,
}

/// One line per paper.
fn summary(done: &[Reproduction], format: Format) -> Result<(), Failure> {
    let mut papers: Vec<Paper<'_>> = Vec::new();
    for one in done {
        if papers.last().is_none_or(|paper| paper.paper != one.family) {
            papers.push(Paper { paper: &one.family, ..Paper::default() });
        }
        let Some(paper) = papers.last_mut() else { continue };
        paper.tally.add(one.tally());
    }
    if format == Format::Json {
        return json(&papers);
    }
    let right = |title| (title, Align::Right, 11);
    let counts = ["within", "outside", "undecided", "undecidable", "reported"].map(right);
    let table = TextTable::new(&[&[("paper", Align::Left, 12)], &counts[..]].concat());
    line(table.head());
    for paper in papers {
        let VerdictCounts { within, outside, undecided, undecidable, reported } = paper.tally;
        let counts = [within, outside, undecided, undecidable, reported];
        let counts = counts.map(|count| count.to_string());
        line(table.row(&[&[paper.paper.to_owned()], &counts[..]].concat()));
    }
    Ok(())
}

/// Counts of verdicts over all figures.
fn total(done: &[Reproduction]) -> VerdictCounts {
    let mut sum = VerdictCounts::default();
    done.iter().for_each(|one| sum.add(one.tally()));
    sum
}

/// The last two lines: the counts, and what the exit code means.
fn ending(tally: VerdictCounts, quick: bool) -> [String; 2] {
    let VerdictCounts { within, outside, undecided, undecidable, reported } = tally;
    let rows = |count| if count == 1 { "1 row".to_owned() } else { format!("{count} rows") };
    let are = |count| if count == 1 { "is" } else { "are" };
    let counts = format!(
        "{} within tolerance, {outside} outside, {undecided} undecided; {undecidable} undecidable \
         by the publication, {reported} reported without a verdict",
        rows(within)
    );
    let why = match (outside, undecided) {
        (0, 0) => "Exit code 0: every row with a verdict is within its tolerance.".to_owned(),
        (0, open) if quick => format!(
            "Exit code 0: no row is outside its tolerance; {} {} undecided, which a run without \
             --quick counts as a failure.",
            rows(open),
            are(open)
        ),
        (0, open) => {
            format!("Exit code 1: {} {} undecided by a run of full size.", rows(open), are(open))
        }
        (out, _) => format!(
            "Exit code 1: {} {} outside {} tolerance.",
            rows(out),
            are(out),
            if out == 1 { "its" } else { "their" }
        ),
    };
    [counts, why]
}

/// Processor time of a quick look by figure, on stderr. A run that several figures read counts in
/// each.
fn budgets(done: &[Reproduction]) {
    for one in done.iter().filter(|one| one.cpu_seconds > 0.0) {
        let (id, spent) = (&one.id, one.cpu_seconds);
        match one.budget_seconds {
            Some(budget) if spent > budget => {
                eprintln!("CPU: {id} {spent:.0} s, OVER its budget of {budget:.0} s");
            }
            Some(budget) => eprintln!("CPU: {id} {spent:.0} s of {budget:.0} s"),
            None => eprintln!("CPU: {id} {spent:.0} s"),
        }
    }
    let total: f64 = done.iter().map(|one| one.cpu_seconds).sum();
    let budget: f64 = done.iter().filter_map(|one| one.budget_seconds).sum();
    if total > 0.0 && done.len() > 1 {
        eprintln!("CPU: all {total:.0} s of {budget:.0} s");
    }
}

fn print(reproduction: &Reproduction) {
    line(format!("{}: {} ({})", reproduction.id, reproduction.title, reproduction.source));
    let right = |title, width| (title, Align::Right, width);
    let others: Vec<&str> = reproduction
        .checks
        .iter()
        .find(|check| !check.others.is_empty())
        .map(|check| check.others.iter().map(|(name, _)| name.as_str()).collect())
        .unwrap_or_default();
    let first = reproduction.variants.first().map_or("ours", String::as_str);
    let longest = reproduction.checks.iter().map(|check| check.metric.len()).max();
    let mut columns = vec![
        ("number", Align::Left, longest.unwrap_or(0)),
        right("published", 9),
        right(first, 9),
        right("95 %", 16),
        right("tolerance", 9),
        ("verdict", Align::Left, 11),
    ];
    columns.extend(others.iter().map(|name| right(*name, 9)));
    let table = TextTable::new(&columns);
    line(table.head());
    let number = |value: Option<f64>| value.map_or_else(|| "-".into(), |v| format!("{v:.3}"));
    for check in &reproduction.checks {
        let verdict = match check.pass {
            Some(true) => "within",
            Some(false) => "OUTSIDE",
            None if check.gates() => "undecided",
            None if check.undecidable.is_some() => "undecidable",
            None => "",
        };
        let tolerance = check.tolerance.map(|tolerance| tolerance.to_string());
        let mut cells = vec![
            check.metric.clone(),
            number(check.published),
            number(check.measured),
            interval(check),
            tolerance.unwrap_or_default(),
            verdict.to_owned(),
        ];
        cells.extend(others.iter().map(|name| {
            let other = check.others.iter().find(|(scheme, _)| scheme == name);
            number(other.and_then(|(_, value)| *value))
        }));
        line(table.row(&cells));
    }
    reasons(&reproduction.checks).iter().for_each(line);
    line("");
}

/// Why rows are outside, as far as that is known, and why others cannot be decided; a line for each
/// row.
fn reasons(checks: &[repro::verdict::Check]) -> Vec<String> {
    let mut said: Vec<String> = Vec::new();
    for check in checks {
        let reason = match (&check.undecidable, check.pass) {
            (Some(reason), _) => format!("undecidable: {}: {reason}", check.row),
            (None, Some(false)) => {
                let cause = check.cause.as_deref().unwrap_or("cause unknown");
                format!("outside: {}: {cause}", check.row)
            }
            _ => continue,
        };
        if !said.contains(&reason) {
            said.push(reason);
        }
    }
    said
}

/// The ends of a number's interval, for people; empty for an exact number.
fn interval(check: &repro::verdict::Check) -> String {
    let [low, high] = check.interval;
    if check.measured.is_none() || low.is_some() && low == high {
        return String::new();
    }
    let end = |end: Option<f64>| end.map_or_else(|| "?".into(), |end| format!("{end:.3}"));
    format!("{} to {}", end(low), end(high))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_says_what_the_exit_code_means() {
        let tally = |[within, outside, undecided, reported]: [usize; 4]| {
            let undecidable = 5;
            VerdictCounts { within, outside, undecided, undecidable, reported }
        };
        let said = |counts, quick| ending(tally(counts), quick)[1].clone();
        assert!(said([3, 0, 0, 1], false).starts_with("Exit code 0: every row"));
        let open = said([3, 0, 2, 0], true);
        assert!(open.starts_with("Exit code 0: no row is outside") && open.contains("2 rows are"));
        assert_eq!(
            said([3, 0, 1, 0], false),
            "Exit code 1: 1 row is undecided by a run of full size."
        );
        for quick in [false, true] {
            let outside = said([3, 1, 2, 0], quick);
            assert_eq!(outside, "Exit code 1: 1 row is outside its tolerance.");
        }
        let counts = "3 rows within tolerance, 1 outside, 2 undecided; 5 undecidable by the \
                      publication, 4 reported without a verdict";
        assert_eq!(ending(tally([3, 1, 2, 4]), true)[0], counts);
    }
}
