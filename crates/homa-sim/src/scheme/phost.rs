//! pHost (CoNEXT 2015): receivers hand out tokens over drop-tail switches of two data priorities.

use crate::scenario::{PHostFirst, PHostOptions, ScenarioError, SchemeOptions};
use crate::transport::phost::{PHostConfig, PHostLevels};

use super::{Environment, plain_format};

/// The row's hosts. Periods that the paper's text gives in round trips follow the network's.
pub fn configure(
    environment: &Environment<'_>,
    options: &SchemeOptions,
) -> Result<PHostConfig, ScenarioError> {
    let PHostOptions { mtu, bare, free_tokens, free_for_long, window, first, .. } =
        options.phost.unwrap_or_default();
    let wire = plain_format((mtu, bare), "options.phost.mtu")?;
    let bdp = environment.bdp(wire.full());
    let PHostOptions { downgrade, expiry, resend, .. } = options.phost.unwrap_or_default();
    let round_trips = f64::from(3 * environment.rtt_bytes) / f64::from(wire.full());
    let tenths = |times: f64| (times * 10.0).round().max(1.0) as u32;
    let wrong = |field, must: &str| Err(ScenarioError::field(field, must));
    let (downgrade, expiry) = (downgrade.unwrap_or(round_trips), expiry.unwrap_or(1.5));
    let resend = resend.unwrap_or(round_trips.max(1.0));
    if !(downgrade > 0.0 && downgrade < 1e6 && expiry > 0.0 && expiry < 1e6) {
        let must = "be packet times above 0 and below a million";
        return wrong("options.phost.downgrade and expiry", must);
    }
    // Sooner, a host repeats itself faster than its link can say it.
    if !(1.0..1e6).contains(&resend) {
        return wrong("options.phost.resend", "be packet times from 1 to below a million");
    }
    if window == Some(0) {
        return wrong("options.phost.window", "be at least 1");
    }
    Ok(PHostConfig {
        wire,
        link: environment.link,
        free_tokens: free_tokens.unwrap_or(bdp),
        free_for_long: free_for_long.unwrap_or(true),
        window: window.unwrap_or(bdp),
        downgrade: tenths(downgrade),
        expiry: tenths(expiry),
        resend: tenths(resend),
        levels: match first {
            None | Some(PHostFirst::Blind) => PHostLevels::Blind,
            Some(PHostFirst::Short) => PHostLevels::ShortMessages,
            Some(PHostFirst::All) => PHostLevels::One,
        },
    })
}

/// Wire bytes of a port's memory, where the scenario sets no limit (pHost §4.1: 36 KB, three
/// bandwidth-delay products there).
pub fn memory(rtt_bytes: u32, options: &SchemeOptions) -> Result<u64, ScenarioError> {
    let PHostOptions { mtu, bare, queue_packets, .. } = options.phost.unwrap_or_default();
    let wire = plain_format((mtu, bare), "options.phost.mtu")?;
    let packets = queue_packets.unwrap_or(3 * rtt_bytes.div_ceil(wire.full()).max(1));
    Ok((u64::from(packets) + 1) * u64::from(wire.full()))
}
