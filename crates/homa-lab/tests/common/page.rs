//! What a page of the documentation writes as code, and which keys a JSON document has.

use std::collections::BTreeSet;

use serde_json::Value;

/// All that a text writes as code within a line.
pub fn codes(text: &str) -> impl Iterator<Item = &str> {
    text.lines().flat_map(|line| line.split('`').skip(1).step_by(2))
}

/// Paths of all keys of a document, such as `buckets[].count`: `[]` stands for every entry of a
/// list.
pub fn paths(document: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    collect("", document, &mut found);
    found
}

fn collect(path: &str, value: &Value, found: &mut BTreeSet<String>) {
    for (key, value) in value.as_object().into_iter().flatten() {
        let whole = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        collect(&whole, value, found);
        found.insert(whole);
    }
    for item in value.as_array().into_iter().flatten() {
        collect(&format!("{path}[]"), item, found);
    }
}
