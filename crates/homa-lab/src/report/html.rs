//! The page of reproduced figures, and the parts all pages share.

use std::fmt::Write;

use homa_sim::scheme::SCHEMES;

use crate::chart::{Chart, csv, escaped, style, svg};
use crate::repro::verdict::Check;
use crate::repro::{Reproduction, VerdictCounts};
use crate::store::Manifest;

const PAGE_STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("page.js");

/// A page around `body`.
pub(super) fn page(title: &str, body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\">\
         <title>{}</title><style>{PAGE_STYLE}</style><style id=\"fig\">{}</style></head>\n\
         <body><main>\n{body}</main><script>{SCRIPT}</script></body></html>\n",
        escaped(title),
        style()
    )
}

/// Figures side by side if there is room, each with its values; the page's script saves both.
pub(super) fn figures(charts: &[Chart]) -> String {
    let mut out = String::new();
    if !charts.is_empty() {
        let drawn: String = charts.iter().map(figure).collect();
        let _ = writeln!(out, "<div class=\"figures\">\n{drawn}</div>");
    }
    out
}

fn figure(chart: &Chart) -> String {
    let named = format!("{} {}", chart.title, chart.subtitle);
    format!(
        "<figure data-name=\"{}\">{}<pre hidden>{}</pre></figure>\n",
        file_name(&named),
        svg(chart, false),
        escaped(&csv(chart))
    )
}

/// A title as the name of a file: words of letters and digits.
fn file_name(title: &str) -> String {
    let kept = |c: char| c.is_ascii_alphanumeric() || c == '.';
    let words = title.split(|c: char| !kept(c)).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("-").to_lowercase()
}

/// A number as a reader wants it: four digits that count.
pub(super) fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size >= 1000.0 => format!("{value:.0}"),
        size if size >= 100.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// An absent number is a dash.
pub(super) fn optional(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), number)
}

pub(super) fn reproductions(title: &str, manifest: &Manifest, list: &[Reproduction]) -> String {
    let mut body = String::new();
    let quick = list.iter().any(|reproduction| reproduction.quick);
    let _ = writeln!(body, "<h1>{}</h1>", escaped(title));
    let kind = if quick { "A quick look: short runs that leave tails undecided." } else { "" };
    let _ = writeln!(
        body,
        "<p class=\"soft\">homa {} · {} simulations. {kind}</p>",
        escaped(&manifest.version),
        manifest.cells.len()
    );
    body += &overview(list);
    body += &schemes(list);
    for reproduction in list {
        body += &section(reproduction);
    }
    page(title, &body)
}

/// The meanings of the names in legends and columns.
fn schemes(list: &[Reproduction]) -> String {
    let used = |name: &str| list.iter().any(|one| one.variants.iter().any(|v| v == name));
    let mut out = String::from("<ul class=\"soft\">\n");
    for scheme in SCHEMES.iter().filter(|scheme| used(scheme.name)) {
        let (name, host, paper) =
            (scheme.name, escaped(&scheme.host().to_string()), escaped(scheme.paper));
        let _ = writeln!(out, "<li><b>{name}</b>: {paper} ({host})</li>");
    }
    out + "</ul>\n"
}

fn overview(list: &[Reproduction]) -> String {
    let mut out = String::from(
        "<div class=\"scroll overview\"><table><tr><th>figure</th><th>within</th>\
         <th>outside</th><th>undecided</th><th>undecidable</th><th>reported</th></tr>\n",
    );
    for reproduction in list {
        let VerdictCounts { within, outside, undecided, undecidable, reported } =
            reproduction.tally();
        let class = |count: usize, class: &str| match count {
            0 => "soft".to_owned(),
            _ => class.to_owned(),
        };
        let _ = writeln!(
            out,
            "<tr><td><a href=\"#{id}\">{id}</a><br>{}</td>\
             <td class=\"{}\">{within}</td><td class=\"{}\">{outside}</td>\
             <td class=\"{}\">{undecided}</td><td class=\"soft\">{undecidable}</td>\
             <td class=\"soft\">{reported}</td></tr>",
            escaped(&reproduction.title),
            class(within, "true"),
            class(outside, "false"),
            class(undecided, "open"),
            id = escaped(&reproduction.id),
        );
    }
    out + "</table></div>\n"
}

fn section(reproduction: &Reproduction) -> String {
    let id = escaped(&reproduction.id);
    let mut out = format!(
        "<section id=\"{id}\"><h2>{}</h2>\n<p class=\"soft\">{} · <code>homa repro {id}{}</code>\
         </p>\n",
        escaped(&reproduction.title),
        escaped(&reproduction.source),
        if reproduction.quick { " --quick" } else { "" },
    );
    out += &figures(&reproduction.charts);
    if !reproduction.checks.is_empty() {
        out += &checks(reproduction);
    }
    if !reproduction.refused.is_empty() {
        out += "<h3>Not run</h3>\n<ul>\n";
        for refused in &reproduction.refused {
            let _ = writeln!(out, "<li class=\"open\">{}</li>", escaped(refused));
        }
        out += "</ul>\n";
    }
    if !reproduction.notes.is_empty() {
        out += "<h3>Choices and definitions</h3>\n<ul>\n";
        for note in &reproduction.notes {
            let _ = writeln!(out, "<li>{}</li>", escaped(note));
        }
        out += "</ul>\n";
    }
    out + "</section>\n"
}

fn checks(reproduction: &Reproduction) -> String {
    let others: Vec<&str> = reproduction
        .checks
        .iter()
        .find(|check| !check.others.is_empty())
        .map(|check| check.others.iter().map(|(name, _)| name.as_str()).collect())
        .unwrap_or_default();
    let first = reproduction.variants.first().map_or("ours", String::as_str);
    let mut head = format!(
        "<th>row</th><th class=\"name\">number</th><th>published</th><th>{}</th>\
         <th>95 % confidence</th><th>tolerance</th><th>verdict</th>",
        escaped(first)
    );
    for other in &others {
        let _ = write!(head, "<th>{}</th>", escaped(other));
    }
    let mut rows = String::new();
    for check in &reproduction.checks {
        rows += &row(check, first, &others);
    }
    let open = if reproduction.checks.len() <= 40 { " open" } else { "" };
    let count = match reproduction.checks.len() {
        1 => "1 number".to_owned(),
        count => format!("{count} numbers"),
    };
    format!(
        "<details{open}><summary>{count}</summary><div class=\"scroll\"><table class=\"rows\">\
         <tr>{head}</tr>\n{rows}</table></div></details>\n"
    )
}

fn row(check: &Check, first: &str, others: &[&str]) -> String {
    let (class, verdict) = match check.pass {
        Some(true) => ("true", "within"),
        Some(false) => ("false", "outside"),
        None if check.gates() => ("open", "undecided"),
        None if check.undecidable.is_some() => ("soft", "undecidable"),
        None => ("soft", ""),
    };
    let interval = match check.interval {
        [Some(low), Some(high)] if low == high => String::new(),
        [None, None] => String::new(),
        [low, high] => {
            let end = |value: Option<f64>| value.map_or_else(|| "?".to_owned(), number);
            format!("{} to {}", end(low), end(high))
        }
    };
    // On a phone a row is a paragraph, and each number says what it is.
    let cell = |head: &str, class: &str, text: &str| {
        format!("<td data-h=\"{}\" class=\"{class}\">{text}</td>", escaped(head))
    };
    let tolerance = check.tolerance.map(|t| escaped(&t.to_string())).unwrap_or_default();
    let mut out = format!(
        "<tr><td>{}</td><td class=\"name\">{}</td>",
        escaped(&check.row),
        escaped(&check.label)
    );
    out += &cell("published", "", &optional(check.published));
    out += &cell(first, "", &optional(check.measured));
    out += &cell("95 % confidence", "soft", &interval);
    out += &cell("tolerance", "soft", &tolerance);
    let cause = check.cause.iter().filter(|_| check.pass == Some(false));
    let unknown = check.missing.iter().chain(&check.aside).chain(&check.undecidable).chain(cause);
    let unknown: String = unknown.map(|text| format!(" ({})", escaped(text))).collect();
    let _ = write!(out, "<td class=\"{class}\">{verdict}{unknown}</td>");
    for name in others {
        let value = check.others.iter().find(|(other, _)| other == name).and_then(|(_, v)| *v);
        out += &cell(name, "", &optional(value));
    }
    out + "</tr>\n"
}
