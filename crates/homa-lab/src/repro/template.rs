//! Axes of a figure's plan: one line of text stands for many runs, rows or drawings.
//!
//! An item of a plan says `each = ["workload", "load"]`, axes of the plan's `[axes]`, or gives the
//! values itself: `each = { load = [0.5, 0.8] }`. It then stands for every combination, the last
//! axis fastest. In its texts `{load}` is the value; of a value that is a table, `{workload}` is
//! its `name` and `{workload.messages}` one of its keys. A text that is nothing but a placeholder
//! takes the value as it is: a number stays a number.

use toml::{Table, Value};

use crate::settings::label;

/// The values of one combination, by axis.
#[derive(Clone, Debug, Default)]
pub struct Binding(Vec<(String, Value)>);

impl Binding {
    /// The same with another name.
    pub fn with(&self, name: &str, value: &str) -> Self {
        let mut all = self.0.clone();
        all.push((name.to_owned(), Value::String(value.to_owned())));
        Self(all)
    }

    /// A value with its placeholders replaced, those inside it and in its keys, too.
    pub fn value(&self, value: &Value) -> Result<Value, String> {
        match value {
            Value::String(text) => match whole(text) {
                Some(path) => self.find(path).cloned(),
                None => self.text(text).map(Value::String),
            },
            Value::Array(values) => values
                .iter()
                .map(|value| self.value(value))
                .collect::<Result<_, _>>()
                .map(Value::Array),
            Value::Table(table) => self.table(table).map(Value::Table),
            other => Ok(other.clone()),
        }
    }

    /// A table with its placeholders replaced.
    pub fn table(&self, table: &Table) -> Result<Table, String> {
        table.iter().map(|(key, value)| Ok((self.text(key)?, self.value(value)?))).collect()
    }

    /// A text with its placeholders replaced.
    pub fn text(&self, text: &str) -> Result<String, String> {
        let (mut done, mut rest) = (String::new(), text);
        while let Some((before, after)) = rest.split_once('{') {
            let Some((path, after)) = after.split_once('}') else { break };
            done.push_str(before);
            done.push_str(&label(self.find(path)?));
            rest = after;
        }
        Ok(done + rest)
    }

    /// Several texts with their placeholders replaced.
    pub fn texts(&self, texts: &[String]) -> Result<Vec<String>, String> {
        texts.iter().map(|text| self.text(text)).collect()
    }

    fn find(&self, path: &str) -> Result<&Value, String> {
        let (axis, key) = path.split_once('.').unwrap_or((path, "name"));
        let bound = self.0.iter().find(|(name, _)| name == axis);
        let Some((_, value)) = bound else {
            let known: Vec<String> = self.0.iter().map(|(name, _)| format!("{{{name}}}")).collect();
            let known =
                if known.is_empty() { "none without `each`".into() } else { known.join(", ") };
            return Err(format!("unknown placeholder `{{{path}}}`; allowed: {known}"));
        };
        match value {
            Value::Table(table) => table.get(key).ok_or_else(|| {
                let keys: Vec<&str> = table.keys().map(String::as_str).collect();
                format!("`{{{path}}}`: the value has no `{key}`; allowed: {}", keys.join(", "))
            }),
            plain if !path.contains('.') => Ok(plain),
            _ => Err(format!("`{{{path}}}`: the value is no table and has no keys")),
        }
    }
}

/// The path of a text that is one placeholder.
fn whole(text: &str) -> Option<&str> {
    text.strip_prefix('{')?.strip_suffix('}').filter(|path| !path.contains(['{', '}']))
}

/// Every combination that an item's `each` asks for; one without names when it has none.
pub fn combinations(each: Option<&Value>, axes: &Table) -> Result<Vec<Binding>, String> {
    let mut all = vec![Binding::default()];
    for (name, values) in chosen(each, axes)? {
        let longer = |one: &Binding| -> Vec<Binding> {
            let with = |value: &Value| {
                let mut bound = one.0.clone();
                bound.push((name.clone(), value.clone()));
                Binding(bound)
            };
            values.iter().map(with).collect()
        };
        all = all.iter().flat_map(longer).collect();
    }
    Ok(all)
}

fn chosen(each: Option<&Value>, axes: &Table) -> Result<Vec<(String, Vec<Value>)>, String> {
    const FORM: &str = "names axes, [\"load\"], or gives values, { load = [0.5, 0.8] }";
    let known = || axes.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
    let values = |name: &str, value: Option<&Value>| match value {
        Some(Value::Array(values)) if !values.is_empty() => Ok(values.clone()),
        Some(_) => Err(format!("the axis `{name}` is a list of values: [0.5, 0.8]")),
        None => Err(format!("unknown axis `{name}`; allowed: {}", known())),
    };
    match each {
        None => Ok(Vec::new()),
        Some(Value::Array(names)) => {
            let one = |name: &Value| {
                let name = name.as_str().ok_or(FORM)?;
                Ok((name.to_owned(), values(name, axes.get(name))?))
            };
            names.iter().map(one).collect()
        }
        Some(Value::Table(own)) => {
            let one = |(name, list): (&String, &Value)| {
                let list = values(name, Some(list))?;
                let by_name = list.iter().all(|value| !value.is_table());
                let Some(axis) = axes.get(name).filter(|_| by_name) else {
                    return Ok((name.clone(), list));
                };
                let axis = values(name, Some(axis))?;
                Ok((name.clone(), select(name, &list, &axis)?))
            };
            own.iter().map(one).collect()
        }
        Some(_) => Err(FORM.to_owned()),
    }
}

/// Of an axis of the plan an item may take some values, by their names.
fn select(axis: &str, names: &[Value], values: &[Value]) -> Result<Vec<Value>, String> {
    let name_of = |value: &Value| match value {
        Value::Table(table) => table.get("name").map(label),
        plain => Some(label(plain)),
    };
    let one = |name: &Value| {
        let name = label(name);
        values.iter().find(|value| name_of(value).as_ref() == Some(&name)).cloned().ok_or_else(
            || {
                let known: Vec<String> = values.iter().filter_map(name_of).collect();
                format!("the axis `{axis}` has no `{name}`; allowed: {}", known.join(", "))
            },
        )
    };
    names.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(each: &str, axes: &str) -> Result<Vec<Binding>, String> {
        let each: Table = toml::from_str(each).unwrap();
        combinations(each.get("each"), &toml::from_str(axes).unwrap())
    }

    #[test]
    fn the_last_axis_varies_fastest_and_numbers_stay_numbers() {
        let axes = "w = [{ name = \"w1\", n = 7 }, { name = \"w2\", n = 8 }]\nload = [0.5, 0.8]\n";
        let all = bound("each = [\"w\", \"load\"]", axes).unwrap();
        let names: Vec<String> = all.iter().map(|b| b.text("{w}-{load}").unwrap()).collect();
        assert_eq!(names, ["w1-0.5", "w1-0.8", "w2-0.5", "w2-0.8"]);
        assert_eq!(all[2].value(&"{w.n}".into()), Ok(Value::Integer(8)));
        assert_eq!(all[1].value(&"{load}".into()), Ok(Value::Float(0.8)));
        let some = bound("each = { w = [\"w2\"] }", axes).unwrap();
        assert_eq!((some.len(), some[0].text("{w.n}").unwrap()), (1, "8".to_owned()));
        assert_eq!(bound("", axes).unwrap().len(), 1);
    }

    #[test]
    fn what_does_not_exist_is_named_with_what_does() {
        let axes = "w = [{ name = \"w1\", n = 7 }]\n";
        let wrong = |each: &str| bound(each, axes).unwrap_err();
        assert!(wrong("each = [\"v\"]").contains("unknown axis `v`; allowed: w"));
        assert!(wrong("each = { w = [\"w9\"] }").contains("has no `w9`; allowed: w1"));
        let one = &bound("each = [\"w\"]", axes).unwrap()[0];
        assert!(one.text("{x}").unwrap_err().contains("allowed: {w}"));
        assert!(one.text("{w.m}").unwrap_err().contains("allowed: name, n"));
    }
}
