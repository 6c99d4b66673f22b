//! A TOML file whose mistakes can be located: every error names the file, the line, the key and the
//! allowed values.
//!
//! The parser knows the place of most mistakes. If it loses the place (inside tables that are one
//! of several kinds), the name of the key is searched for.

use std::borrow::Cow;
use std::ops::Range;
use std::path::Path;

use homa_workload::nearest::choices;
use homa_workload::text::{self, plain as unmarked};
use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::error::{LabError, PlanFault};

/// The text of a plan and the name of its file.
#[derive(Clone, Debug)]
pub struct Document {
    file: String,
    text: String,
}

impl Document {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self, LabError> {
        let text = text::read(path).map_err(|error| LabError::file(path, error))?;
        Ok(Self::new(path.display().to_string(), text))
    }

    /// A text that goes by the name `file` in errors.
    pub fn new(file: impl Into<String>, text: impl Into<String>) -> Self {
        Self { file: file.into(), text: unmarked(&text.into()).into_owned() }
    }

    /// The name in errors.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The text as a value of `T`.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, PlanFault> {
        toml::from_str(&self.text).map_err(|error| self.explain(&error))
    }

    /// The same, but the table at `path`, if there is one, has `value` for `key` unless the text
    /// says otherwise.
    pub fn parse_with<T: DeserializeOwned>(
        &self,
        path: &[&str],
        (key, value): (&'static str, &'static str),
    ) -> Result<T, PlanFault> {
        let mut root = DeTable::parse(&self.text).map_err(|error| self.explain(&error))?;
        if let Some(table) = table_at(root.get_mut(), path)
            && !table.keys().any(|known| known.get_ref() == key)
        {
            let value = DeValue::String(Cow::Borrowed(value));
            table.insert(Spanned::new(0..0, Cow::Borrowed(key)), Spanned::new(0..0, value));
        }
        T::deserialize(toml::Deserializer::from(root)).map_err(|error| self.explain(&error))
    }

    /// A mistake at a key, given as its path from the top of the file.
    pub fn fault(&self, path: &[&str], message: impl Into<String>) -> PlanFault {
        let offset = self.table().and_then(|table| key_offset(&table, path));
        PlanFault {
            file: self.file.clone(),
            line: offset.map_or(0, |offset| self.line(offset)),
            key: path.join("."),
            message: message.into(),
        }
    }

    /// True when the text has a key at that path.
    pub fn has(&self, path: &[impl AsRef<str>]) -> bool {
        let Ok(table) = toml::from_str::<toml::Table>(&self.text) else { return false };
        let whole = toml::Value::Table(table);
        path.iter().try_fold(&whole, |value, key| value.get(key.as_ref())).is_some()
    }

    fn explain(&self, error: &toml::de::Error) -> PlanFault {
        let message = plain(error.message());
        let Some(span) = error.span() else {
            return self.fault(&[], message);
        };
        let Some(table) = self.table() else {
            let (file, line) = (self.file.clone(), self.line(span.start));
            return PlanFault { file, line, key: String::new(), message };
        };
        let mut path = Vec::new();
        path_at(&table, span.start, &mut path);
        if let Some(key) = unknown_key(error.message())
            && path.last().is_none_or(|last| last != key)
        {
            path.push(key.to_owned());
        }
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        let offset = key_offset(&table, &path).unwrap_or(span.start);
        let (file, line) = (self.file.clone(), self.line(offset));
        PlanFault { file, line, key: path.join("."), message }
    }

    /// The tables with the place of each key; `None` while the syntax is wrong.
    fn table(&self) -> Option<DeTable<'_>> {
        DeTable::parse(&self.text).ok().map(|table| table.into_inner())
    }

    fn line(&self, offset: usize) -> usize {
        let before = &self.text.as_bytes()[..offset.min(self.text.len())];
        before.iter().filter(|byte| **byte == b'\n').count() + 1
    }
}

/// The table at a path.
fn table_at<'a, 'b>(table: &'a mut DeTable<'b>, path: &[&str]) -> Option<&'a mut DeTable<'b>> {
    let Some((first, rest)) = path.split_first() else { return Some(table) };
    let (_, value) = table.iter_mut().find(|(key, _)| key.get_ref() == first)?;
    match value.get_mut() {
        DeValue::Table(inner) => table_at(inner, rest),
        _ => None,
    }
}

/// The words of the deserialiser in the terms of a plan; an unknown name with the nearest one.
pub fn plain(message: &str) -> String {
    let message = in_terms_of_plans(message);
    let Some((unknown, listed)) = message.split_once("; allowed: ") else { return message };
    let Some((_, name)) = unknown.split_once('`') else { return message };
    let known: Vec<&str> = listed.split(", ").map(|known| known.trim_matches('`')).collect();
    let choices = choices(name.trim_end_matches('`'), known);
    match choices.split_once('?') {
        Some((near, _)) => format!("{unknown}; {near}? allowed: {listed}"),
        None => message,
    }
}

fn in_terms_of_plans(message: &str) -> String {
    let message = message.replace("unknown field ", "unknown key ");
    let message = message.replace("unknown variant ", "unknown value ");
    let message = message.replace("missing field ", "missing key ");
    let message = message.replace(", expected one of ", "; allowed: ");
    // Numbers beyond those of 64 bits.
    let message = message.replace("` as i128", "`").replace("` as u128", "`");
    if let Some((what, allowed)) = message.split_once(", expected `") {
        return format!("{what}; allowed: `{}", allowed.replace(" or ", ", "));
    }
    if message == "integer number overflowed" {
        return format!("the number is too large: whole numbers end at {}", i64::MAX);
    }
    match message.rsplit_once(", expected ") {
        Some((what, expected)) => format!("{what}, expected {}", kind(expected)),
        None => message,
    }
}

/// A type of the program as a kind of value in a plan.
fn kind(expected: &str) -> &str {
    match expected {
        "a sequence" => "a list",
        "f64" => "a number",
        "a boolean" => "true or false",
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" | "usize" => "a whole number from 0 to 18446744073709551615",
        _ if expected.starts_with("struct ") || expected.starts_with("internally tagged ") => {
            "a table of keys and values"
        }
        other => other,
    }
}

/// The key that a message of the deserialiser complains about.
fn unknown_key(message: &str) -> Option<&str> {
    message.strip_prefix("unknown field `")?.split('`').next()
}

/// The path of the key or value at `offset`: the innermost one there is.
fn path_at(table: &DeTable<'_>, offset: usize, path: &mut Vec<String>) -> bool {
    for (key, value) in table.iter() {
        let name = key.get_ref().to_string();
        path.push(name);
        let inside = contains(&key.span(), offset) || contains(&value.span(), offset);
        if value_path_at(value.get_ref(), offset, path) || inside {
            return true;
        }
        path.pop();
    }
    false
}

fn value_path_at(value: &DeValue<'_>, offset: usize, path: &mut Vec<String>) -> bool {
    match value {
        DeValue::Table(table) => path_at(table, offset, path),
        DeValue::Array(items) => items.iter().enumerate().any(|(index, item)| {
            path.push(index.to_string());
            let inside = contains(&item.span(), offset);
            let found = value_path_at(item.get_ref(), offset, path) || inside;
            if !found {
                path.pop();
            }
            found
        }),
        _ => false,
    }
}

fn contains(span: &Range<usize>, offset: usize) -> bool {
    span.contains(&offset)
}

/// Position of the last key of a path; if it is absent, the position of the nearest parent.
fn key_offset(table: &DeTable<'_>, path: &[&str]) -> Option<usize> {
    let (first, rest) = path.split_first()?;
    let (key, value) = table.iter().find(|(key, _)| key.get_ref() == *first)?;
    let here = key.span().start;
    Some(value_offset(value.get_ref(), rest).unwrap_or(here))
}

fn value_offset(value: &DeValue<'_>, path: &[&str]) -> Option<usize> {
    let (first, rest) = path.split_first()?;
    match value {
        DeValue::Table(table) => key_offset(table, path),
        DeValue::Array(items) => {
            let item = items.get(first.parse::<usize>().ok()?)?;
            Some(value_offset(item.get_ref(), rest).unwrap_or(item.span().start))
        }
        _ => None,
    }
}
