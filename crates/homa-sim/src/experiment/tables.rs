//! The tables that a scenario's traffic names: sizes of messages, and lists of messages.

use homa_workload::sizes::{SizeDistribution, Workload, WorkloadError};
use homa_workload::text;

use crate::scenario::{FlowFormat, ScenarioError, SizeTable};
use crate::traffic::files::{self, FlowFile};

use super::demand::Demand;

/// The sizes of a workload, those above `max_bytes` cut down to it.
pub(super) fn sizes(
    workload: &str,
    max_bytes: Option<u32>,
) -> Result<SizeDistribution, ScenarioError> {
    let failed = |error: WorkloadError| {
        let reason = match error {
            // The text of these errors names the path, too, which would then appear twice.
            WorkloadError::Table { source, .. } => source.to_string(),
            WorkloadError::Read { source, .. } => source.to_string(),
            other => return ScenarioError::unfit("traffic.workload", other.to_string()),
        };
        ScenarioError::File { path: workload.to_owned(), reason }
    };
    let sizes = Workload::parse(workload).and_then(|workload| workload.sizes()).map_err(failed)?;
    Ok(max_bytes.map_or_else(|| sizes.clone(), |max| sizes.truncated(max)))
}

/// The messages of a file.
pub(super) fn flows(file: &str, format: Option<FlowFormat>) -> Result<FlowFile, ScenarioError> {
    let failed = |reason: String| ScenarioError::File { path: file.to_owned(), reason };
    let text = text::read(file.as_ref()).map_err(|error| failed(error.to_string()))?;
    files::read(&text, format).map_err(|error| failed(error.to_string()))
}

/// A warning if the mean that the table of sizes states is not its mean.
pub(super) fn doubt(demand: &Demand) -> Option<String> {
    demand.sizes.doubt().map(|doubt| format!("`{}`: {doubt}", demand.workload))
}

/// How the table that sizes were read from was understood, if they were.
pub(super) fn form(sizes: &SizeDistribution) -> Option<SizeTable> {
    sizes.form().map(|form| SizeTable {
        form: form.to_string(),
        mean_bytes: (sizes.mean_bytes() * 10.0).round() / 10.0,
        stated_mean: form.stated,
    })
}
