//! Refuses options that a scheme does not have. The error names the key and the schemes that have
//! the option.
//!
//! The schemes come from the table, so that errors name a new row without a change here.

use crate::scenario::{ScenarioError, SchemeOptions, SwitchKind};

use super::{Environment, Family, HostKind, SCHEMES, Scheme, SwitchQueue, shared};

/// The error if a plan sets `field`, but `scheme` does not have `what`. Rows for which `has` is
/// true have it.
fn only(
    scheme: &Scheme,
    (field, what): (&'static str, &str),
    has: impl Fn(&Scheme) -> bool,
) -> ScenarioError {
    let rows: Vec<&Scheme> = SCHEMES.iter().filter(|row| has(row)).collect();
    let is_all = |families: &[Family]| {
        let of_families = |row: &&Scheme| families.contains(&row.host.family());
        SCHEMES.iter().filter(of_families).count() == rows.len() && rows.iter().all(of_families)
    };
    let names: Vec<String> = rows.iter().map(|row| format!("`{}`", row.name)).collect();
    // Suggest the row with the shortest name, because it is the plainest of its family.
    let plainest = rows.iter().map(|row| row.name).min_by_key(|name| name.len());
    let plainest = plainest.map_or_else(String::new, |name| format!("`{name}`"));
    let (whose, instead) = match names.as_slice() {
        _ if is_all(&[Family::Homa]) => ("Homa schemes".to_owned(), plainest),
        _ if is_all(&[Family::Tcp]) => ("TCP schemes".to_owned(), plainest),
        _ if is_all(&[Family::Homa, Family::Tcp]) => ("Homa and TCP schemes".to_owned(), plainest),
        [all @ .., last] if !all.is_empty() => {
            (format!("{} and {last}", all.join(", ")), "one of those".to_owned())
        }
        _ => (plainest.clone(), plainest),
    };
    let have = if rows.len() == 1 { "has" } else { "have" };
    let lacks = scheme.name;
    let why = format!(
        "only {whose} {have} {what}; `{lacks}` does not: leave it out, or choose {instead}"
    );
    ScenarioError::unfit(field, why)
}

/// Refuses options that belong to other schemes.
pub(super) fn check(
    scheme: &Scheme,
    environment: &Environment<'_>,
    options: &SchemeOptions,
) -> Result<(), ScenarioError> {
    for (field, what) in options.homas() {
        if !scheme.is_homa() {
            return Err(only(scheme, (field, what), Scheme::is_homa));
        }
    }
    for (field, what) in options.tables() {
        let has = |host: &dyn HostKind| host.options().contains(&field);
        if !has(scheme.host) {
            return Err(only(scheme, (field, what), |row| has(row.host)));
        }
    }
    if options.switch.is_some() && !scheme.has_switch_options(options) {
        let what = "switches that queue at their inputs";
        let has = |row: &Scheme| matches!(row.queue, SwitchQueue::Combined(_));
        return Err(only(scheme, ("options.switch", what), has));
    }
    let kind = options.switch.and_then(|switch| switch.kind);
    if kind == Some(SwitchKind::Shared) && !shared::shares_memory(&scheme.queue) {
        let what = "ports that keep every frame that has room, which shared memory needs";
        let has = |row: &Scheme| shared::shares_memory(&row.queue);
        return Err(only(scheme, ("options.switch.kind", what), has));
    }
    check_rules(scheme, environment, options)
}

/// Refuses options that change a rule if the scheme's profile of Homa does not have the rule.
fn check_rules(
    scheme: &Scheme,
    environment: &Environment<'_>,
    options: &SchemeOptions,
) -> Result<(), ScenarioError> {
    // A rule that does not exist may be turned off.
    let off = |field| match field {
        "options.tail_boost" => options.tail_boost == Some(false),
        "options.incast_control" => options.incast_control == Some(false),
        _ => false,
    };
    for (field, what) in options.homas().filter(|&(field, _)| !off(field)) {
        let has = |row: &Scheme| row.is_homa() && row.host.has_rule(field, environment);
        if !has(scheme) {
            return Err(only(scheme, (field, what), has));
        }
    }
    Ok(())
}

/// The error if `field` makes switches mark packets, but hosts do not react to marks.
pub(super) fn unheeded(scheme: &Scheme, field: &'static str) -> ScenarioError {
    only(scheme, (field, "hosts that react to marks"), |row| {
        matches!(row.queue, SwitchQueue::Ecn(_) | SwitchQueue::Phantom(..))
    })
}

#[cfg(test)]
mod tests {
    use homa_proto::Rate;
    use homa_workload::sizes::Workload;

    use super::*;
    use crate::scenario::{
        EcnConfig, NdpOptions, NicOptions, PFabricOptions, PacerOptions, PhantomOptions, Span,
        SwitchOptions, TcpOptions,
    };
    use crate::scheme::find;

    fn refused(scheme: &str, options: &SchemeOptions) -> String {
        let sizes = Workload::W3.sizes().unwrap();
        let environment = Environment {
            link: Rate::gbps(10),
            rtt_bytes: 9_680,
            byte_picos: 0,
            workload: "w3",
            sizes: &sizes,
        };
        let row = find(scheme).unwrap();
        let refused = row.configure(&environment, options).err();
        refused.or_else(|| row.queue(options, environment.scale()).err()).unwrap().to_string()
    }

    #[test]
    fn an_option_of_other_schemes_names_those_that_have_it() {
        let with = |change: fn(&mut SchemeOptions)| {
            let mut options = SchemeOptions::default();
            change(&mut options);
            options
        };
        let ecn = |o: &mut SchemeOptions| {
            o.ecn = Some(EcnConfig::new(30_000.into()));
        };
        let pfabric = |o: &mut SchemeOptions| o.pfabric = Some(PFabricOptions::default());
        let phantom = |o: &mut SchemeOptions| o.phantom = Some(PhantomOptions::default());
        let switch = |o: &mut SchemeOptions| o.switch = Some(SwitchOptions::default());
        let marks = "`sird`, `dctcp`, `pias`, `tcp-ecn`, `hull`, `dctcp-30k`, `dctcp-6k-pacer` \
                     and `tcp-ecn-pq` have hosts that react to marks";
        let inputs = "`streaming`, `flow-hashing`, `packet-scatter`, `lossless-packet-scatter` \
                      and `detail` have switches that queue at their inputs";
        for (scheme, change, field, who) in [
            (
                "dctcp",
                (|o| o.incast_control = Some(true)) as fn(&mut SchemeOptions),
                "incast_control",
                "Homa schemes have incast control",
            ),
            ("tcp", |o| o.levels = Some(4), "levels", "Homa schemes have priority levels"),
            ("homa", pfabric, "pfabric", "`pfabric` has pFabric's parameters"),
            ("homa", |o| o.ndp = Some(NdpOptions::default()), "ndp", "`ndp` has NDP's parameters"),
            ("homa", |o| o.tcp = Some(TcpOptions::default()), "tcp", "TCP schemes have TCP's"),
            ("homa", |o| o.pacer = Some(PacerOptions::default()), "pacer", "TCP schemes have"),
            ("ndp", |o| o.nic = Some(NicOptions::default()), "nic", "Homa and TCP schemes have"),
            ("tcp", switch, "switch", inputs),
            ("tcp", ecn, "ecn", marks),
            ("detail", ecn, "ecn", marks),
            ("homa", phantom, "phantom", marks),
            ("homa", |o| o.tail_boost = Some(true), "tail_boost", "`homa-sim` has a boost"),
            ("homa-sim", |o| o.resend_after = Some(Span(1)), "resend_after", "have RESENDs"),
            ("basic", |o| o.incast_control = Some(true), "incast_control", "have incast control"),
            ("homa-linux", |o| o.rtt_bytes = Some(9_000), "rtt_bytes", "have RTTbytes"),
            ("homa-linux-upstream", |o| o.levels = Some(8), "levels", "have priority levels"),
        ] {
            let said = refused(scheme, &with(change));
            assert!(said.starts_with(&format!("`options.{field}`: only ")), "{said}");
            assert!(said.contains(who), "{said}");
            assert!(said.contains(&format!("; `{scheme}` does not: leave it out, or ")), "{said}");
            assert_eq!(said.matches("options.").count(), 1, "{said}");
        }
    }
}
