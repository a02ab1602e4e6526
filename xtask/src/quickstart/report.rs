//! The verdict and the short report at the end of a quick start.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use crate::quickstart::slices::Slices;
use crate::quickstart::watch::{Attempt, Instance};
use crate::quickstart::writer::{Reading, Rows};
use crate::time::Shown;

/// What was seen of the table, before or after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Side {
    pub(crate) slices: Slices,
    pub(crate) reading: Reading,
    /// State of the compaction's instant on the timeline; absent when the timeline does not have it.
    pub(crate) state: Option<String>,
}

/// All that the report tells.
#[derive(Clone, Debug)]
pub(crate) struct Report<'a> {
    pub(crate) release: &'a str,
    pub(crate) instant: &'a str,
    /// What the writer wrote, counted without Spark.
    pub(crate) written: Rows,
    pub(crate) before: Side,
    pub(crate) after: Side,
    /// Base files of the newest slices that the compaction wrote.
    pub(crate) n_base_new: usize,
    /// The compaction as TMS tells of it, ended.
    pub(crate) instance: &'a Instance,
    pub(crate) table: &'a Path,
    /// Whether the table stays.
    pub(crate) is_kept: bool,
    pub(crate) steps: &'a [(&'static str, Duration)],
    /// Folder of the logs, when it stays.
    pub(crate) logs: Option<&'a Path>,
}

impl Report<'_> {
    /// Everything that is not as it must be; empty when the quick start went well.
    pub(crate) fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if self.after.state.as_deref() != Some("completed") {
            let state = self.after.state.as_deref().unwrap_or("absent");
            faults.push(format!("the timeline says {state} of {}, not completed", self.instant));
        }
        if self.instance.state != "succeeded" {
            faults.push(format!("TMS says {}, not succeeded", self.instance.state));
        }
        if self.n_base_new == 0 {
            faults.push(format!("no base file is of the compaction {}", self.instant));
        }
        for (when, side) in [("before", &self.before), ("after", &self.after)] {
            let reading = side.reading;
            for (how, rows) in
                [("with", reading.with_metadata_table), ("without", reading.without_metadata_table)]
            {
                if rows != self.written {
                    faults.push(format!(
                        "rows {when}, read {how} the metadata table: {rows:?}, written were {:?}",
                        self.written
                    ));
                }
            }
        }
        faults
    }

    /// The report as people read it.
    pub(crate) fn text(&self) -> String {
        let mut out = String::new();
        let state = |side: &Side| side.state.clone().unwrap_or_else(|| "absent".to_owned());
        let (old, new) = (&self.before, &self.after);
        let rows: [(&str, String, String); 6] = [
            ("instant on the timeline", state(old), state(new)),
            ("log files to merge", old.slices.n_log_files.to_string(), new.slices.n_log_files.to_string()),
            (
                "base files",
                old.slices.n_base_files.to_string(),
                format!("{} ({} of them new)", new.slices.n_base_files, self.n_base_new),
            ),
            ("rows", n_rows(old), n_rows(new)),
            ("checksum of the rows", checksum(old), checksum(new)),
            ("", String::new(), String::new()),
        ];
        let headline =
            format!("Compaction {} of a table written by stock Hudi {}", self.instant, self.release);
        let mut line = |text: String| {
            // Writing to a String cannot fail.
            writeln!(out, "{}", text.trim_end()).ok();
        };
        line(headline);
        line(String::new());
        line(format!("  {:<25}{:<18}{}", "", "before", "after"));
        for (name, before, after) in rows {
            line(format!("  {name:<25}{before:<18}{after}"));
        }
        line(format!(
            "  {:<25}{} rows, some of them updated; checksum {:x}",
            "the writer wrote", self.written.n_rows, self.written.checksum
        ));
        let attempt = self.instance.attempt.as_ref().map_or_else(|| "no attempt".to_owned(), Attempt::shown);
        line(format!("  {:<25}instance {}, {attempt}", "TMS ran it as", self.instance.id));
        let fate = if self.is_kept { "kept" } else { "removed now; --keep keeps it" };
        line(format!("  {:<25}{} ({fate})", "the table", self.table.display()));
        line(String::new());
        let total: Duration = self.steps.iter().map(|(_, took)| *took).sum();
        let steps: Vec<String> =
            self.steps.iter().map(|(name, took)| format!("{name} {}", Shown(*took))).collect();
        line(format!("  time  {} in all steps: {}", Shown(total), steps.join(", ")));
        if let Some(logs) = self.logs {
            line(format!("  logs  {}", logs.display()));
        }
        out
    }
}

fn n_rows(side: &Side) -> String {
    side.reading.with_metadata_table.n_rows.to_string()
}

fn checksum(side: &Side) -> String {
    format!("{:x}", side.reading.with_metadata_table.checksum)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const WRITTEN: Rows = Rows { n_rows: 1200, checksum: 0xabc };

    fn side(n_log_files: usize, state: &str, rows: Rows) -> Side {
        Side {
            slices: Slices { n_file_groups: 3, n_base_files: 3, n_log_files },
            reading: Reading { with_metadata_table: WRITTEN, without_metadata_table: rows },
            state: Some(state.to_owned()),
        }
    }

    fn instance(state: &str) -> Instance {
        let shown = json!({
            "id": "i-1", "state": state, "events": [],
            "past_attempts": [{"number": 1, "engine": "default", "tag": "tms-1"}],
        });
        Instance::parse(&shown).unwrap()
    }

    fn report<'a>(after: Side, instance: &'a Instance, steps: &'a [(&'static str, Duration)]) -> Report<'a> {
        Report {
            release: "1.2.0",
            instant: "20260101000000001",
            written: WRITTEN,
            before: side(6, "requested", WRITTEN),
            after,
            n_base_new: 2,
            instance,
            table: Path::new("/t/trips"),
            is_kept: true,
            steps,
            logs: Some(Path::new("/t/logs")),
        }
    }

    #[test]
    fn report_shows_both_sides() {
        let steps = [("Spark", Duration::from_secs(2)), ("build", Duration::from_secs(3))];
        let ended = instance("succeeded");
        let good = report(side(0, "completed", WRITTEN), &ended, &steps);
        assert_eq!(good.faults(), Vec::<String>::new());
        let expected = "\
Compaction 20260101000000001 of a table written by stock Hudi 1.2.0

                           before            after
  instant on the timeline  requested         completed
  log files to merge       6                 0
  base files               3                 3 (2 of them new)
  rows                     1200              1200
  checksum of the rows     abc               abc

  the writer wrote         1200 rows, some of them updated; checksum abc
  TMS ran it as            instance i-1, attempt 1 on the engine default, job tms-1
  the table                /t/trips (kept)

  time  5.0 s in all steps: Spark 2.0 s, build 3.0 s
  logs  /t/logs
";
        assert_eq!(good.text(), expected);
        let gone = Report { logs: None, is_kept: false, ..good };
        assert!(
            !gone.text().contains("logs") && gone.text().contains("/t/trips (removed now; --keep keeps it)")
        );
    }

    #[test]
    fn every_fault_is_named() {
        let lost = Rows { n_rows: 1199, checksum: 1 };
        let (failed, ended) = (instance("failed"), instance("succeeded"));
        let bad = report(side(0, "inflight", lost), &failed, &[]);
        let faults = bad.faults();
        assert_eq!(faults.len(), 3, "{faults:?}");
        assert!(
            faults[0].contains("inflight")
                && faults[1].contains("failed")
                && faults[2].contains("without the metadata table")
        );
        let mut gone = report(side(0, "completed", WRITTEN), &ended, &[]);
        gone.after.state = None;
        assert!(gone.faults()[0].contains("absent"));
        let idle = Report { n_base_new: 0, ..report(side(0, "completed", WRITTEN), &ended, &[]) };
        assert!(idle.faults()[0].contains("no base file"));
    }
}
