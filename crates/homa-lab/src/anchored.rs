//! Plans that run from any folder: the paths of the files that they name, made absolute.

use homa_workload::sizes::Reading;
use toml::{Table, Value};

/// Keys of the scenario whose values may name files.
const FILES: [&str; 2] = ["workload", "file"];

/// The same with absolute paths of the files it names, so that it runs from any folder.
pub(crate) fn anchored(table: &Table) -> Table {
    let anchor = |(key, value): (&String, &Value)| {
        let names = key.rsplit('.').next().is_some_and(|last| FILES.contains(&last));
        let value = match value {
            Value::Table(inner) => Value::Table(anchored(inner)),
            Value::String(path) if names => Value::String(absolute(path)),
            Value::Array(values) if names => {
                let each = |value: &Value| match value {
                    Value::String(path) => Value::String(absolute(path)),
                    other => other.clone(),
                };
                Value::Array(values.iter().map(each).collect())
            }
            other => other.clone(),
        };
        (key.clone(), value)
    };
    table.iter().map(anchor).collect()
}

/// The path of a file that is there, with the words before it; what names no file stays as it is.
fn absolute(text: &str) -> String {
    let (_, path) = Reading::split(text);
    let words = &text[..text.len() - path.len()];
    let found = std::fs::canonicalize(path).ok().filter(|full| full.is_file());
    let full = found.and_then(|full| full.to_str().map(|full| format!("{words}{full}")));
    full.unwrap_or_else(|| text.to_owned())
}
