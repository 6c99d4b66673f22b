//! Pages of the documentation that messages and help name, where users of this program have them.
//!
//! In the sources, and in what libraries say, a page has its name in the repository, such as
//! `docs/limits.md`. What the program prints names the file in the folder `HOMA_DOCS` if that was
//! set when the program was compiled, as for the Debian package. Otherwise it names the page's
//! address in the repository, at the tag of this version; and if the sources name no repository,
//! it says that the page is there. Left out: documentation comments of the crates.

/// Where users have the pages.
#[derive(Clone, Copy, Debug)]
enum DocsPlace<'a> {
    /// In a folder of this machine.
    Folder(&'a str),
    /// At the address of the repository.
    Address(&'a str),
    /// Somewhere in the repository.
    Repository,
}

/// Where users of this program have them.
const HERE: DocsPlace<'_> = match option_env!("HOMA_DOCS") {
    Some(folder) => DocsPlace::Folder(folder),
    None if env!("CARGO_PKG_REPOSITORY").is_empty() => DocsPlace::Repository,
    None => DocsPlace::Address(env!("CARGO_PKG_REPOSITORY")),
};

const START: &str = "docs/";
/// What libraries say after the name of a page.
const THERE: &str = " in the repository";

/// The text with pages named where users of this program have them.
pub fn located(text: &str) -> String {
    at(text, HERE)
}

/// The text of `located` for users who have the pages at this place.
fn at(mut text: &str, place: DocsPlace<'_>) -> String {
    let mut all = String::new();
    while let Some(start) = text.find(START) {
        let (before, from) = text.split_at(start);
        let is_of_path = |last: char| last.is_alphanumeric() || "/.-_".contains(last);
        let length = length_of_page(&from[START.len()..]).filter(|_| !before.ends_with(is_of_path));
        all += before;
        let Some(length) = length else {
            all += START;
            text = &from[START.len()..];
            continue;
        };
        let (page, rest) = from[START.len()..].split_at(length);
        all += &match place {
            DocsPlace::Folder(folder) => format!("{folder}/{page}"),
            DocsPlace::Address(address) => {
                format!("{address}/blob/v{}/{START}{page}", env!("CARGO_PKG_VERSION"))
            }
            DocsPlace::Repository => format!("{START}{page}{THERE}"),
        };
        text = rest.strip_prefix(THERE).unwrap_or(rest);
    }
    all + text
}

/// How many bytes the rest of a page's name has; `None` if the text does not begin with one.
fn length_of_page(text: &str) -> Option<usize> {
    let other = |c: char| !(c.is_ascii_alphanumeric() || "/-_.".contains(c));
    let word = &text[..text.find(other).unwrap_or(text.len())];
    word.find(".md").map(|end| end + ".md".len())
}

/// The commands with help that names pages where users of this program have them.
pub fn located_help(mut command: clap::Command) -> clap::Command {
    let changed = |text: Option<&clap::builder::StyledStr>| {
        let text = text?.to_string();
        text.contains(START).then(|| located(&text))
    };
    if let Some(text) = changed(command.get_about()) {
        command = command.about(text);
    }
    if let Some(text) = changed(command.get_long_about()) {
        command = command.long_about(text);
    }
    if let Some(text) = changed(command.get_after_help()) {
        command = command.after_help(text);
    }
    let command = command.mut_args(|mut arg| {
        if let Some(text) = changed(arg.get_help()) {
            arg = arg.help(text);
        }
        match changed(arg.get_long_help()) {
            Some(text) => arg.long_help(text),
            None => arg,
        }
    });
    command.mut_subcommands(located_help)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_named_where_the_user_has_it() {
        let same = "no page: https://a.org/docs/x.md, mydocs/y.md, docs/, docs/results.";
        let text = format!(
            "See (docs/operating/host.md), or docs/json.md. docs/limits.md in the repository says \
             more; {same}"
        );
        for (place, [host, json, limits]) in [
            (
                DocsPlace::Folder("/usr/share/doc/homa"),
                ["operating/host.md", "json.md", "limits.md"]
                    .map(|page| format!("/usr/share/doc/homa/{page}")),
            ),
            (
                DocsPlace::Address("https://code.org/a/b"),
                ["operating/host.md", "json.md", "limits.md"].map(|page| {
                    let version = env!("CARGO_PKG_VERSION");
                    format!("https://code.org/a/b/blob/v{version}/docs/{page}")
                }),
            ),
            (
                DocsPlace::Repository,
                ["operating/host.md", "json.md", "limits.md"]
                    .map(|page| format!("docs/{page} in the repository")),
            ),
        ] {
            let expected = format!("See ({host}), or {json}. {limits} says more; {same}");
            assert_eq!(at(&text, place), expected, "{place:?}");
        }
    }

    /// All help texts of a command and of those below it.
    fn help(command: &clap::Command, texts: &mut Vec<String>) {
        let mut own = command.clone();
        texts.push(own.render_long_help().to_string());
        texts.push(own.render_help().to_string());
        command.get_subcommands().for_each(|below| help(below, texts));
    }

    #[test]
    fn help_names_pages_where_the_user_has_them() {
        let mut texts = Vec::new();
        help(&crate::args::command(), &mut texts);
        let named = texts.iter().filter(|text| text.contains(START)).count();
        assert!(named > 2, "homa, homa sim, homa pcap, homa report");
        for text in texts {
            // Lines may end within the words.
            let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert_eq!(located(&words), words);
        }
    }
}
