//! Changing single keys of a scenario: `load.fraction = 0.5`, as axes, runs of a reproduction and
//! `--set` do.
//!
//! A key is a dotted path from the scenario. Setting the key that says which kind a table is
//! (`traffic.pattern`, `fabric.shape.kind`) starts that table afresh, because the other keys of
//! the old kind mean nothing to the new one.

use homa_sim::scenario::Scenario;
use homa_sim::scheme;
use homa_workload::nearest::choices;
use serde::Deserialize;
use toml::{Table, Value};

use crate::document::plain;

/// Keys that say which of several kinds a table is.
const KINDS: [&str; 2] = ["pattern", "kind"];

/// A scenario as a table of keys.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    table: Table,
}

impl Settings {
    /// All keys of a scenario, defaults written out.
    pub fn of(scenario: &Scenario) -> Result<Self, String> {
        let table = Table::try_from(scenario).map_err(|error| error.to_string())?;
        Ok(Self { table })
    }

    /// The keys.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Sets the key at `path`; tables on the way are made as needed.
    pub fn set(&mut self, path: &str, value: Value) -> Result<(), String> {
        let mut keys: Vec<&str> = path.split('.').collect();
        let last = keys.pop().unwrap_or_default();
        let mut table = &mut self.table;
        for key in keys {
            let entry = table.entry(key).or_insert_with(|| Value::Table(Table::new()));
            table = match entry {
                Value::Table(inner) => inner,
                _ => return Err(format!("`{key}` is a value and has no keys below it")),
            };
        }
        if KINDS.contains(&last) && table.get(last) != Some(&value) {
            table.clear();
        }
        table.insert(last.to_owned(), value);
        Ok(())
    }

    /// Sets several keys; those that decide a kind come first, whatever their order.
    pub fn set_all<'a>(
        &mut self,
        changes: impl Iterator<Item = (&'a str, Value)>,
    ) -> Result<(), (String, String)> {
        let mut changes: Vec<(&str, Value)> = changes.collect();
        changes.sort_by_key(|(path, _)| !decides_kind(path));
        for (path, value) in changes {
            self.set(path, value).map_err(|message| (path.to_owned(), message))?;
        }
        Ok(())
    }

    /// Sets the keys that `schemes` has under the scheme's name.
    pub fn set_for_scheme(&mut self, schemes: &Table) -> Result<(), (String, String)> {
        let name = self.table.get("scheme").and_then(Value::as_str).unwrap_or_default().to_owned();
        let Some(changes) = schemes.get(&name) else { return Ok(()) };
        let Value::Table(changes) = changes else {
            let message = "a table of keys and values: { \"options.mtu\" = 4000 }".to_owned();
            return Err((name, message));
        };
        let changes = changes.iter().map(|(path, value)| (path.as_str(), value.clone()));
        self.set_all(changes).map_err(|(path, message)| (format!("{name}.{path}"), message))
    }

    /// The value at `path`, if there is one.
    pub fn get(&self, path: &str) -> Option<&Value> {
        let (first, rest) = path.split_once('.').map_or((path, None), |(a, b)| (a, Some(b)));
        let mut inner = rest.into_iter().flat_map(|rest| rest.split('.'));
        inner.try_fold(self.table.get(first)?, |value, key| value.get(key))
    }

    /// The scenario these keys describe.
    pub fn scenario(&self) -> Result<Scenario, String> {
        let value = Value::Table(self.table.clone());
        Scenario::deserialize(value).map_err(|error| plain(error.message()))
    }
}

/// The first name of a table by scheme that is none.
pub(crate) fn unknown_scheme(schemes: &Table) -> Option<(&str, String)> {
    let name = schemes.keys().find(|name| scheme::find(name).is_none())?;
    let known = scheme::SCHEMES.iter().map(|scheme| scheme.name);
    Some((name, format!("unknown scheme `{name}`; {}", choices(name, known))))
}

/// Whether one path is the other, or leads to it.
pub(crate) fn related(a: &str, b: &str) -> bool {
    let leads = |a: &str, b: &str| b.strip_prefix(a).is_some_and(|rest| rest.starts_with('.'));
    a == b || leads(a, b) || leads(b, a)
}

fn decides_kind(path: &str) -> bool {
    path.rsplit('.').next().is_some_and(|last| KINDS.contains(&last))
}

/// `key=value` of the command line; a value that is no TOML is taken as text, so that quotes are
/// not needed around `w4` or `10Gbps`.
pub fn assignment(text: &str) -> Result<(String, Value), String> {
    let (key, value) = text.split_once('=').ok_or("write it as key=value")?;
    let (key, value) = (key.trim(), value.trim());
    if key.is_empty() || value.is_empty() {
        return Err("write it as key=value".into());
    }
    // Of a plan's numbers; as text, a larger one would be of the wrong kind.
    let digits = value.strip_prefix(['-', '+']).unwrap_or(value).replace('_', "");
    let is_whole = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    match parse_value(value) {
        Value::String(_) if is_whole && digits.parse::<i64>().is_err() => {
            Err(format!("`{value}` is too large: whole numbers end at {}", i64::MAX))
        }
        read => Ok((key.to_owned(), read)),
    }
}

fn parse_value(text: &str) -> Value {
    let parsed = toml::from_str::<Table>(&format!("value = {text}"));
    let value = parsed.ok().and_then(|mut table| table.remove("value"));
    value.unwrap_or_else(|| Value::String(text.to_owned()))
}

/// A value as a label: text without quotes.
pub fn label(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        Settings::of(&Scenario::default()).unwrap()
    }

    #[test]
    fn a_key_is_set_and_the_rest_stays() {
        let mut settings = settings();
        settings.set("load.fraction", Value::Float(0.5)).unwrap();
        settings.set("options.overcommitment", Value::Integer(3)).unwrap();
        let scenario = settings.scenario().unwrap();
        assert_eq!(scenario.load.fraction, 0.5);
        assert_eq!(scenario.options.overcommitment, Some(3));
        assert_eq!(scenario.fabric, Scenario::default().fabric);
    }

    #[test]
    fn an_unknown_key_names_the_allowed_ones() {
        let mut settings = settings();
        settings.set("load.fracton", Value::Float(0.5)).unwrap();
        let message = settings.scenario().unwrap_err();
        let said =
            "unknown key `fracton`; did you mean `fraction`? allowed: `fraction`, `basis`, `links`";
        assert_eq!(message, said);
    }

    #[test]
    fn another_kind_forgets_the_keys_of_the_old_one() {
        let changes = [
            ("fabric.shape.hosts", Value::Integer(16)),
            ("fabric.shape.kind", Value::String("single-switch".into())),
        ];
        let mut settings = settings();
        settings.set_all(changes.into_iter()).unwrap();
        assert_eq!(settings.scenario().unwrap().fabric.shape.hosts(), Some(16));
    }

    #[test]
    fn paths_are_related_when_one_leads_to_the_other() {
        assert!(related("load", "load") && related("load", "load.fraction"));
        assert!(related("fabric.shape.hosts", "fabric.shape"));
        assert!(!related("load", "loads.fraction") && !related("load.basis", "load.fraction"));
    }

    #[test]
    fn values_of_the_command_line_need_no_quotes() {
        assert_eq!(assignment("load.fraction=0.5").unwrap().1, Value::Float(0.5));
        assert_eq!(assignment("fabric.host_link = 25Gbps").unwrap().1.as_str(), Some("25Gbps"));
        assert_eq!(assignment("options.cutoffs=[1, 2]").unwrap().1.as_array().unwrap().len(), 2);
        assert!(assignment("nonsense").is_err());
        let large = assignment("seed=18446744073709551615").unwrap_err();
        assert!(large.contains("whole numbers end at 9223372036854775807"), "{large}");
        assert!(assignment("=3").is_err());
    }

    /// Every key that holds a rate, a time, bytes or a count, and the kinds of table it is in. The
    /// files of `scenario/options/` in the simulator test theirs.
    const QUANTITIES: [(&str, &[&str]); 4] = [
        ("rate", &["fabric.host_link", "fabric.fabric_link", "fabric.core_link"]),
        (
            "time",
            &[
                "fabric.send_delay",
                "fabric.nic_delay",
                "fabric.receive_delay",
                "fabric.switch_delay",
                "fabric.propagation",
                "fabric.reorder_by",
                "fabric.faults_until",
                "stop.time",
                "stop.drain_limit",
                "warm_up",
                "options.resend_after",
                "options.pfabric.timeout",
                "options.ndp.timeout",
                "options.switch.lookup",
                "options.switch.response",
                "options.tcp.min_rto",
                "options.tcp.max_rto",
                "options.tcp.initial_rto",
                "options.tcp.rto_granularity",
                "options.tcp.delayed_ack",
                "options.phantom.tick",
                "options.pacer.period",
                "options.pacer.expiry",
                "options.pacer.tick",
                "options.nic.rx_delay",
                "options.nic.interrupt_gap",
                "probes.instrument",
                "options.nic.cpu.frame",
            ],
        ),
        (
            "bytes",
            &[
                "fabric.buffer=per-port.bytes",
                "fabric.buffer=per-level.bytes",
                "traffic.max_bytes",
                "traffic=clients-servers.max_bytes",
                "traffic=incast.request_bytes",
                "traffic=incast.response_bytes",
                "traffic=permutation.bytes",
                "traffic=fan-in.bytes",
                "traffic=collective.bytes",
                "traffic=workflows.request_bytes",
                "options.mtu",
                "options.rtt_bytes",
                "options.unscheduled_bytes",
                "options.phantom.uncounted",
                "options.pacer.depth",
                "options.nic.large_send",
                "options.nic.send_queue",
                "options.nic.merge",
                "options.pfabric.mtu",
                "options.ndp.mtu",
                "options.switch.pause",
                "options.switch.unpause",
                "options.tcp.mtu",
                "options.tcp.window",
                "options.tcp.source_ecn",
                "measures.flows_above",
            ],
        ),
        ("count", &["stop.messages"]),
    ];

    /// Deserialises a value at a key, which may name the kind of its table:
    /// `traffic=incast.request_bytes`. Returns the error of the deserialiser.
    fn read(key: &str, value: Value) -> Result<(), String> {
        let (path, kind) = match key.split_once('=') {
            None => (key.to_owned(), None),
            Some((table, rest)) => {
                let (kind, last) = rest.split_once('.').unwrap();
                (format!("{table}.{last}"), Some((table, kind)))
            }
        };
        let mut settings = Settings::of(&Scenario::default()).unwrap();
        if let Some((table, kind)) = kind {
            let name = if table == "traffic" { "pattern" } else { "kind" };
            settings.set(&format!("{table}.{name}"), Value::String(kind.into())).unwrap();
        }
        settings.set(&path, value).unwrap();
        settings.scenario().map(drop)
    }

    #[test]
    fn every_key_of_a_quantity_accepts_the_same_forms() {
        let text = |text: &str| Value::String(text.into());
        for (quantity, keys) in QUANTITIES {
            let (accepted, refused): (&[&str], &[&str]) = match quantity {
                "rate" => (&["25G", "25Gbps", "100Mbps", "100Mbit/s"], &["25", "25GB", "fast"]),
                "time" => (&["20s", "5ms", "10us", "2m", "250 ns"], &["5", "5 sec", "soon"]),
                "bytes" => (&["1500", "1KB", "2KiB", "1.5k"], &["1.5", "1kb", "many", "5ms"]),
                _ => (&["1500", "100k", "1M"], &["1e6", "1.5", "many"]),
            };
            for key in keys {
                // Missing neighbours of the key are another complaint.
                let wrong = |said: Result<(), String>| {
                    said.err().filter(|said| !said.starts_with("missing key"))
                };
                for form in accepted {
                    assert_eq!(wrong(read(key, text(form))), None, "{key} = {form}");
                }
                for form in refused {
                    let said = wrong(read(key, text(form))).unwrap_or_default();
                    let named = said.contains(&format!("`{form}`")) && said.contains("write ");
                    assert!(named, "{key} = {form}: {said}");
                }
            }
        }
        let sizes = ["16KiB", "64KB"].map(|size| Value::String(size.into()));
        for key in ["fabric.thresholds", "options.cutoffs", "options.tcp.size_classes"] {
            read(key, Value::Array(sizes.to_vec())).unwrap();
        }
        for key in ["options.ecn.threshold", "options.phantom.threshold"] {
            for form in ["1500", "2KiB", "1.25 BDP", "2 BDP, at least 100KB", "8us"] {
                assert_eq!(read(key, text(form)), Ok(()), "{key} = {form}");
            }
            let said = read(key, text("1.25 BPD")).unwrap_err();
            assert!(said.contains("`1.25 BPD`") && said.contains("(1.25 BDP)"), "{said}");
        }
    }
}
