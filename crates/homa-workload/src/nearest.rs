//! "Did you mean": the known name nearest to a misspelt one.
//!
//! Every refusal of a name asks here, so that schemes, figures, workloads, keys of plans and
//! transports are corrected by the same rule. Left out: flags of commands, which clap corrects.

/// The known name that `name` was meant to be: the one with the fewest letters changed, missing,
/// added or swapped with a neighbour. Case counts for nothing, nor whether words are joined by `-`
/// or `_`. `None` if even the nearest differs in more than a third of the letters of `name`.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |text: &str| text.to_lowercase().replace('_', "-");
    let name = plain(name);
    let letters = name.chars().count();
    let most = letters / 3;
    let near = known.into_iter().filter_map(|known| {
        let other = plain(known);
        // Texts of unlike length differ by more, and are not worth the quadratic comparison.
        let alike = other.chars().count().abs_diff(letters) <= most;
        let distance = alike.then(|| strsim::osa_distance(&name, &other))?;
        (distance <= most).then_some((distance, known))
    });
    near.min_by_key(|&(distance, _)| distance).map(|(_, known)| known)
}

/// The end of a message about an unknown name: ``did you mean `tcp`? allowed: tcp, udp``, or only
/// the allowed names if no known name is near.
pub fn choices<'a>(name: &str, known: impl IntoIterator<Item = &'a str> + Clone) -> String {
    let all = known.clone().into_iter().collect::<Vec<_>>().join(", ");
    match nearest(name, known) {
        Some(near) => format!("did you mean `{near}`? allowed: {all}"),
        None => format!("allowed: {all}"),
    }
}

/// The same without the list if a name is near, for messages to people.
pub fn choice<'a>(name: &str, known: impl IntoIterator<Item = &'a str> + Clone) -> String {
    match nearest(name, known.clone()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => choices(name, known),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 7] = ["homa", "homa-p4", "tcp", "dctcp", "dctcp-30k", "w3", "web-search"];

    #[test]
    fn a_slip_leads_to_the_name_that_was_meant() {
        let slips = [
            ("hama", "homa"),
            ("hom", "homa"),
            ("HOMA", "homa"),
            ("tpc", "tcp"),
            ("dctpc", "dctcp"),
            ("dctcp_30k", "dctcp-30k"),
            ("dctcp30k", "dctcp-30k"),
            ("websearch", "web-search"),
            ("homa-p5", "homa-p4"),
        ];
        for (slip, meant) in slips {
            assert_eq!(nearest(slip, KNOWN), Some(meant), "{slip}");
        }
    }

    #[test]
    fn another_name_is_not_taken_for_a_slip() {
        for other in ["", "w9", "quic", "swift", "x", &"tcp".repeat(100_000)] {
            assert_eq!(nearest(other, KNOWN), None, "{other:.9}");
        }
    }

    #[test]
    fn the_list_is_shown_unless_one_name_is_near() {
        let known = ["tcp", "udp"];
        assert_eq!(choices("tpc", known), "did you mean `tcp`? allowed: tcp, udp");
        assert_eq!(choice("tpc", known), "did you mean `tcp`?");
        assert_eq!(choice("quic", known), "allowed: tcp, udp");
    }
}
