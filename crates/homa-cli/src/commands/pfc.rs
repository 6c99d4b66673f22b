//! `homa pfc thresholds`: when a lossless port has to pause its sender (IEEE 802.1Qbb; DeTail
//! §4.3.1).

use homa_proto::Rate;
use homa_sim::fabric::cioq::pfc::{PfcLink, detail_thresholds, safe_pause, standard_response_bits};
use homa_sim::{LinkRate, SimDuration};
use homa_workload::units::Quantity;
use serde::Serialize;

use crate::failure::{Hint, Outcome, Verdict};
use crate::output::{Format, json, line};
use crate::values;

/// Arguments of `homa pfc`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Derive pause and unpause thresholds at which a port loses nothing, whatever arrives.
    ///
    /// A port pauses a priority when its ingress buffer holds more bytes of it and of higher ones
    /// than the pause threshold, and resumes it below the unpause threshold. Data keeps arriving
    /// until a pause takes effect: the control frame waits for the frame on the wire, is sent,
    /// propagates and is acted on; the frame just begun is completed, and what is on the cable
    /// arrives.
    Thresholds(Thresholds),
}

/// Arguments of `homa pfc thresholds`.
#[derive(Debug, clap::Args)]
struct Thresholds {
    /// Rate of the link.
    #[arg(long, value_parser = values::rate, value_name = "RATE")]
    link: u64,
    /// Length of the cable; 4.9 ns a metre, as light in glass takes (copper: 4.76).
    #[arg(long, default_value = "100m", value_parser = values::metres, value_name = "LENGTH")]
    cable: f64,
    /// Ingress memory: of the port, or of the switch with `--ports`.
    #[arg(long, value_parser = values::bytes, value_name = "BYTES")]
    buffer: u64,
    /// Ports that share the buffer in equal parts.
    #[arg(long, default_value = "1", value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=4_096))]
    ports: u32,
    /// Priorities that are paused independently.
    #[arg(long, default_value = "8", value_name = "N",
          value_parser = clap::value_parser!(u8).range(1..=8))]
    priorities: u8,
    /// Longest frame on the wire, preamble and gap included.
    #[arg(long, default_value = "1538", value_name = "BYTES",
          value_parser = values::within::<u32>(Quantity::Bytes, 84..=65_536))]
    frame: u32,
    /// Delay of the transceivers and MACs of both ends, in addition to the cable. [default: none]
    #[arg(long, value_parser = values::duration, value_name = "TIME")]
    transceivers: Option<std::time::Duration>,
    /// Bit times from the arrival of a control frame until it takes effect [default: what IEEE
    /// 802.3 Annex 31B allows: 512 up to 100 Mbit/s, 1024 at 1 Gbit/s, 37888 at 10 (10GBASE-T;
    /// others 30720), 40960 at 25, 60416 at 40, 75264 at 50, 201728 at 100, 231936 at 200, 463360
    /// at 400; above that, it is required].
    #[arg(long, value_name = "BITS",
          value_parser = clap::value_parser!(u32).range(0..=100_000_000))]
    response_bits: Option<u32>,
    /// Output format.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

#[derive(Debug, Serialize)]
struct PfcReport {
    link_bps: u64,
    cable_m: f64,
    frame_bytes: u32,
    priorities: u8,
    buffer_bytes: u64,
    response_bits: u32,
    reaction: Pieces,
    headroom_bytes: u64,
    safe_pause_bytes: Option<u32>,
    pause_bytes: Option<u32>,
    unpause_bytes: Option<u32>,
}

#[derive(Debug, Serialize)]
struct Pieces {
    wire_busy_us: f64,
    control_us: f64,
    control_delay_us: f64,
    response_us: f64,
    last_frame_us: f64,
    data_delay_us: f64,
    total_us: f64,
    bytes: u64,
}

/// Runs the command.
pub fn run(args: &Args) -> Outcome {
    let What::Thresholds(args) = &args.what;
    let unknown = || anyhow::anyhow!("no time to heed a pause is listed above 400 Gbit/s");
    let response_bits = args.response_bits.or_else(|| standard_response_bits(Rate(args.link)));
    let response_bits = response_bits.ok_or_else(unknown);
    let found = derive(args, response_bits.hint("give the card's own with --response-bits")?);
    match args.format {
        Format::Json => json(&found)?,
        Format::Table => print(&found),
    }
    Ok(match found.safe_pause_bytes {
        Some(_) => Verdict::Passed,
        None => Verdict::CheckFailed,
    })
}

fn derive(args: &Thresholds, response_bits: u32) -> PfcReport {
    let transceivers = args.transceivers.map_or(0.0, |time| time.as_secs_f64() * 1e12);
    let one_way = SimDuration((args.cable * 4_900.0 + transceivers).round() as u64);
    let symmetric = PfcLink::symmetric(Rate(args.link), args.frame, one_way);
    let response = LinkRate::new(Rate(args.link)).serialisation(response_bits / 8);
    let link = PfcLink { response, ..symmetric };
    let buffer = args.buffer / u64::from(args.ports);
    let reaction = link.reaction();
    let micros = |time: SimDuration| time.0 as f64 / 1e6;
    let chosen = detail_thresholds(&link, buffer, args.priorities);
    PfcReport {
        link_bps: args.link,
        cable_m: args.cable,
        frame_bytes: args.frame,
        priorities: args.priorities,
        buffer_bytes: buffer,
        response_bits,
        reaction: Pieces {
            wire_busy_us: micros(reaction.wire_busy),
            control_us: micros(reaction.control),
            control_delay_us: micros(reaction.control_delay),
            response_us: micros(reaction.response),
            last_frame_us: micros(reaction.last_frame),
            data_delay_us: micros(reaction.data_delay),
            total_us: micros(reaction.total()),
            bytes: link.reaction_bytes(),
        },
        headroom_bytes: link.reaction_bytes() * u64::from(args.priorities),
        safe_pause_bytes: safe_pause(&link, buffer, args.priorities),
        pause_bytes: chosen.map(|chosen| chosen.pause),
        unpause_bytes: chosen.map(|chosen| chosen.unpause),
    }
}

fn print(found: &PfcReport) {
    let Pieces { total_us, bytes, .. } = found.reaction;
    line(format!(
        "{} link, {} m of cable, frames of up to {} B, {} priorities, {} B of ingress buffer",
        values::show_rate(found.link_bps),
        found.cable_m,
        found.frame_bytes,
        found.priorities,
        found.buffer_bytes
    ));
    line("");
    line("from the decision to pause to the last bit that still comes:");
    let pieces = &found.reaction;
    let rows = [
        ("the frame on the wire back ends", pieces.wire_busy_us),
        ("the control frame is sent", pieces.control_us),
        ("it travels", pieces.control_delay_us),
        ("it takes effect", pieces.response_us),
        ("the frame just begun ends", pieces.last_frame_us),
        ("it travels", pieces.data_delay_us),
    ];
    rows.iter().for_each(|(what, us)| line(format!("  {us:>9.3} us  {what}")));
    line(format!("  {total_us:>9.3} us, in which {bytes} B may come: the headroom of a priority"));
    line("");
    match (found.safe_pause_bytes, found.pause_bytes, found.unpause_bytes) {
        (Some(safe), Some(pause), Some(unpause)) => {
            line(format!(
                "greatest safe pause threshold: {safe} B of a priority and those above it ({} B of \
                 headroom for all)",
                found.headroom_bytes
            ));
            line(format!("pause above {pause} B, unpause below {unpause} B (DeTail's choice)"));
        }
        _ => line(format!(
            "no threshold is safe: the buffer must hold at least {} B, here {}. Give the port more \
             memory, pause fewer priorities, or use shorter cables or frames",
            found.headroom_bytes, found.buffer_bytes
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thresholds(link: u64, buffer: u64) -> Thresholds {
        Thresholds {
            link,
            // 0.476 us.
            cable: 476.0 / 4.9,
            buffer,
            ports: 1,
            priorities: 8,
            frame: 1_530,
            transceivers: Some(std::time::Duration::from_micros(5)),
            response_bits: None,
            format: Format::Json,
        }
    }

    #[test]
    fn the_papers_link_has_the_papers_thresholds() {
        let found = derive(&thresholds(1_000_000_000, 131_072), 512);
        assert_eq!((found.reaction.total_us, found.reaction.bytes), (36.456, 4_557));
        assert_eq!(found.safe_pause_bytes, Some(11_827));
        assert_eq!((found.pause_bytes, found.unpause_bytes), (Some(8_192), Some(4_557)));
    }

    #[test]
    fn a_long_cable_leaves_no_threshold_in_a_small_buffer() {
        let small = Thresholds { cable: 10_000.0, ..thresholds(100_000_000_000, 1_000_000) };
        let found = derive(&small, 394 * 512);
        // 10 km there and back hold 1.225 MB at 100 Gbit/s.
        assert!(found.reaction.bytes > 1_225_000 && found.safe_pause_bytes.is_none());
    }
}
