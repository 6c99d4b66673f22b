//! OpenMetrics text under construction (OpenMetrics 1.0.0).
//!
//! Invariant: the samples of a family are together, whatever the order of the calls, and each has
//! the label of its engine if that has a name.

use std::fmt::{Display, Write};

/// The end of a text.
pub(super) const EOF: &str = "# EOF\n";

/// Families in the order in which they were begun. Writing to a string cannot fail.
#[derive(Default)]
pub(super) struct Text {
    families: Vec<(String, String)>,
    last: usize,
    engine: Option<String>,
}

impl Text {
    /// What follows is about an engine with this name.
    pub(super) fn engine(&mut self, name: Option<&str>) {
        self.engine = name.map(escaped);
    }

    /// Begins or continues a family; `name` is without the prefix `homa_`.
    pub(super) fn family(&mut self, name: &str, kind: &str, help: &str) {
        let known = self.families.iter().position(|(family, _)| family == name);
        self.last = known.unwrap_or_else(|| {
            let help = escaped(help.trim());
            let head = format!("# HELP homa_{name} {help}\n# TYPE homa_{name} {kind}\n");
            self.families.push((name.to_owned(), head));
            self.families.len() - 1
        });
    }

    /// Adds a sample to the last family.
    pub(super) fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let Some((_, text)) = self.families.get_mut(self.last) else { return };
        let _ = write!(text, "homa_{name}");
        let mut open = '{';
        if let Some(engine) = &self.engine {
            let _ = write!(text, "{open}engine=\"{engine}\"");
            open = ',';
        }
        for (label, of) in labels {
            let _ = write!(text, "{open}{label}=\"{}\"", escaped(of));
            open = ',';
        }
        let close = if open == ',' { "}" } else { "" };
        let _ = writeln!(text, "{close} {value}");
    }

    /// The whole text.
    pub(super) fn finish(self) -> String {
        let families = self.families.into_iter().map(|(_, text)| text);
        families.chain([EOF.to_owned()]).collect()
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// `ours` followed by the families of another text, which may end with `# EOF` or not.
#[cfg(feature = "metrics-http")]
pub(super) fn joined(ours: &str, other: &str) -> String {
    let ours = ours.strip_suffix(EOF).unwrap_or(ours);
    let other = other.trim_end();
    let other = other.strip_suffix(EOF.trim_end()).unwrap_or(other).trim_end();
    let end = if other.is_empty() { "" } else { "\n" };
    format!("{ours}{other}{end}{EOF}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_several_engines_stay_with_their_family() {
        let mut text = Text::default();
        for (engine, value) in [(Some("a\"\\\nb"), 1), (None, 2)] {
            text.engine(engine);
            text.family("peers", "gauge", "Peers.");
            text.sample("peers", &[], value);
            text.family("links", "gauge", "Links.");
            text.sample("links", &[("interface", "eth0")], value);
        }
        assert_eq!(
            text.finish(),
            "# HELP homa_peers Peers.\n# TYPE homa_peers gauge\n\
             homa_peers{engine=\"a\\\"\\\\\\nb\"} 1\nhoma_peers 2\n\
             # HELP homa_links Links.\n# TYPE homa_links gauge\n\
             homa_links{engine=\"a\\\"\\\\\\nb\",interface=\"eth0\"} 1\n\
             homa_links{interface=\"eth0\"} 2\n# EOF\n"
        );
    }

    #[cfg(feature = "metrics-http")]
    #[test]
    fn texts_are_joined_with_one_end() {
        let ours = "homa_peers 1\n# EOF\n";
        for (other, expected) in [
            ("", "homa_peers 1\n# EOF\n"),
            ("# EOF", "homa_peers 1\n# EOF\n"),
            ("users 2", "homa_peers 1\nusers 2\n# EOF\n"),
            ("users 2\n# EOF\n", "homa_peers 1\nusers 2\n# EOF\n"),
        ] {
            assert_eq!(joined(ours, other), expected);
        }
    }
}
