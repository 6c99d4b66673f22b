//! The two forms of the output, written as the capture is read.

use std::io::{self, BufWriter, Stdout, Write};

use serde::Serialize;

use super::rows::COLUMNS;
use super::spool::Spool;
use super::totals::{Counts, Totals};
use crate::output::{Align, Format, TextTable};

/// The requested output.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// The form.
    pub format: Format,
    /// A row per packet.
    pub packets: bool,
    /// A row per RPC.
    pub rpcs: bool,
}

/// The summary of a capture behind its rows.
#[derive(Debug, Serialize)]
pub struct Summary<'a> {
    /// Time of the first frame, nanoseconds since 1970: a string, because it needs 63 bits.
    pub start_unix_ns: Option<String>,
    /// Nanoseconds from the first frame to the latest.
    pub duration_ns: Option<i64>,
    /// Why the file could not be read to its end.
    pub damage: Option<&'a str>,
    /// Counts.
    pub totals: &'a Totals,
}

/// Writes rows and summaries to stdout.
#[derive(Debug)]
pub struct Output {
    out: BufWriter<Stdout>,
    wanted: Wanted,
    /// Rows of RPCs that wait for the last packet.
    spool: Spool,
    captures: u64,
    rows: [u64; 2],
}

impl Output {
    /// To stdout.
    pub fn new(wanted: Wanted) -> Self {
        let out = BufWriter::with_capacity(65_536, io::stdout());
        Self { out, wanted, spool: Spool::default(), captures: 0, rows: [0; 2] }
    }

    fn json(&self) -> bool {
        self.wanted.format == Format::Json
    }

    /// Begins a capture; `alone` when it is the only one.
    pub fn begin(&mut self, file: &str, format: &str, alone: bool) -> io::Result<()> {
        if self.json() {
            let start = if self.captures == 0 { "{\"captures\":[\n" } else { ",\n" };
            let file = serde_json::to_string(file)?;
            write!(self.out, "{start}{{\"file\":{file},\"format\":\"{format}\"")?;
            if self.wanted.packets {
                self.out.write_all(b",\"packets\":[")?;
            } else if self.wanted.rpcs {
                self.out.write_all(b",\"rpcs\":[")?;
            }
        } else if !alone {
            let gap = if self.captures == 0 { "" } else { "\n" };
            writeln!(self.out, "{gap}{file}:")?;
        }
        self.captures += 1;
        self.rows = [0; 2];
        Ok(())
    }

    /// A packet.
    pub fn packet<T: Serialize>(
        &mut self,
        line: impl FnOnce() -> String,
        row: impl FnOnce() -> T,
    ) -> io::Result<()> {
        if !self.wanted.packets {
            return Ok(());
        }
        let first = self.rows[0] == 0;
        self.rows[0] += 1;
        if self.json() {
            self.out.write_all(if first { b"\n" } else { b",\n" })?;
            serde_json::to_writer(&mut self.out, &row())?;
            Ok(())
        } else {
            writeln!(self.out, "{}", line())
        }
    }

    /// An RPC.
    pub fn rpc<T: Serialize>(
        &mut self,
        cells: impl FnOnce() -> Vec<String>,
        row: impl FnOnce() -> T,
    ) -> io::Result<()> {
        let Wanted { packets, rpcs, .. } = self.wanted;
        if !rpcs {
            return Ok(());
        }
        let first = self.rows[1] == 0;
        self.rows[1] += 1;
        let json = self.json();
        let to: &mut dyn Write = if packets { &mut self.spool } else { &mut self.out };
        if json {
            to.write_all(if first { b"\n" } else { b",\n" })?;
            to.write_all(serde_json::to_string(&row())?.as_bytes())
        } else {
            let columns = COLUMNS.map(|(title, width)| {
                let left = ["id", "client > server", "ended"].contains(&title);
                (title, if left { Align::Left } else { Align::Right }, width)
            });
            let table = TextTable::new(&columns);
            if first {
                writeln!(to, "{}{}", if packets { "\n" } else { "" }, table.head())?;
            }
            writeln!(to, "{}", table.row(&cells()))
        }
    }

    /// Ends a capture.
    pub fn end(&mut self, summary: &Summary<'_>) -> io::Result<()> {
        let Wanted { packets, rpcs, .. } = self.wanted;
        if !self.json() {
            std::mem::take(&mut self.spool).replay(&mut self.out)?;
            if self.rows != [0; 2] {
                writeln!(self.out)?;
            }
            self.totals(summary)?;
            return self.out.flush();
        }
        if packets {
            self.out.write_all(b"\n]")?;
        }
        if packets && rpcs {
            self.out.write_all(b",\"rpcs\":[")?;
            std::mem::take(&mut self.spool).replay(&mut self.out)?;
        }
        if rpcs {
            self.out.write_all(b"\n]")?;
        }
        // The summary's own braces: one closes this capture, the other is the comma.
        let summary = serde_json::to_string(summary)?;
        write!(self.out, ",\n{}", summary.trim_start_matches('{'))?;
        self.out.flush()
    }

    /// Shows what there is.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Ends the output.
    pub fn finish(&mut self) -> io::Result<()> {
        if self.json() {
            self.out.write_all(b"\n]}\n")?;
        }
        self.out.flush()
    }

    fn totals(&mut self, summary: &Summary<'_>) -> io::Result<()> {
        let totals = summary.totals;
        let duration = summary.duration_ns.map_or(0.0, |nanos| nanos as f64 / 1e9);
        let out = &mut self.out;
        writeln!(
            out,
            "{} frames in {duration:.6} s, {} with Homa; {} packets: {}",
            totals.frames,
            totals.homa_frames,
            totals.packets,
            list(&totals.types)
        )?;
        if totals.trains > 0 {
            let (trains, datagrams) = (totals.trains, totals.datagrams);
            writeln!(out, "{trains} frames are trains (GSO, GRO); {datagrams} datagrams over UDP")?;
        }
        for (count, what) in [
            (
                totals.copies,
                "copies of datagrams captured before (on two interfaces, or duplicated), left out",
            ),
            (totals.retransmitted, "DATA packets marked as retransmitted"),
            (totals.duplicates, "DATA packets of bytes captured before, not marked"),
            (totals.cut, "packets cut by the capture before their fields end"),
            (totals.unclear_trains, "frames cut too short to tell whether they are trains"),
            (totals.dropped.unwrap_or(0), "frames lost while the capture was made"),
            (totals.backward_steps, "frames older than the one before"),
            (totals.stray_acks, "acknowledgements of RPCs that the capture does not show"),
            (
                totals.under_way.at_start,
                "RPCs without their beginning: under way when the capture began, or packets lost",
            ),
            (totals.under_way.at_end, "RPCs under way when the capture ended"),
        ] {
            if count > 0 {
                writeln!(out, "{count} {what}")?;
            }
        }
        for (counts, what) in [
            (&totals.encapsulations, "carried in"),
            (&totals.endings, "RPCs by how they ended"),
            (&totals.icmp, "refused by ICMP"),
            (&totals.malformed, "malformed"),
            (&totals.unreadable, "unreadable frames"),
            (&totals.other, "not Homa"),
        ] {
            if !counts.is_empty() {
                writeln!(out, "{what}: {}", list(counts))?;
            }
        }
        match summary.damage {
            Some(damage) => writeln!(out, "the capture is incomplete: {damage}"),
            None => Ok(()),
        }
    }
}

/// `ACK 3, DATA 6`.
fn list(counts: &Counts) -> String {
    let items: Vec<String> = counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
    items.join(", ")
}
