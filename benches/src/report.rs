//! What a bench found: figures with the values of all runs, bars with their verdicts; printed and written as JSON.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};

/// The result of one bench.
#[derive(Debug)]
pub(crate) struct Report {
    name: String,
    figures: Vec<Figure>,
    bars: Vec<Bar>,
    notes: Vec<String>,
}

#[derive(Debug)]
struct Figure {
    what: String,
    unit: &'static str,
    runs: Vec<f64>,
}

#[derive(Debug)]
struct Bar {
    what: String,
    unit: &'static str,
    measured: f64,
    wanted: f64,
    at: Side,
}

/// On which side of the bar a figure must lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// At the bar or below it.
    Most,
    /// At the bar or above it.
    Least,
}

impl Bar {
    fn is_met(&self) -> bool {
        match self.at {
            Side::Most => self.measured <= self.wanted,
            Side::Least => self.measured >= self.wanted,
        }
    }

    fn verdict(&self) -> String {
        if !self.measured.is_finite() {
            return "not measured".to_owned();
        }
        if self.is_met() {
            return "met".to_owned();
        }
        let (large, small) = match self.at {
            Side::Most => (self.measured, self.wanted),
            Side::Least => (self.wanted, self.measured),
        };
        format!("MISSED, {:.2} times off", large / small.max(f64::MIN_POSITIVE))
    }
}

/// Returns the middle of the values; of an even number the mean of the two in the middle; no value: NaN.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
    }
}

/// Returns the value below which `share` (0 to 1) of the values lie, by the nearest rank; no value: NaN.
pub(crate) fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rank of the list")]
    let rank = ((n as f64 * share).ceil() as usize).clamp(1, n.max(1));
    sorted.get(rank - 1).copied().unwrap_or(f64::NAN)
}

impl Report {
    /// Begins the report of a bench.
    pub(crate) fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), figures: Vec::new(), bars: Vec::new(), notes: Vec::new() }
    }

    /// Adds a figure with the values of all its runs and returns their median.
    pub(crate) fn figure(&mut self, what: impl Into<String>, unit: &'static str, runs: &[f64]) -> f64 {
        let what = what.into();
        println!("  {what}: {} {unit}", shown(median(runs)));
        self.figures.push(Figure { what, unit, runs: runs.to_vec() });
        median(runs)
    }

    /// Adds a bar.
    pub(crate) fn bar(
        &mut self,
        what: impl Into<String>,
        unit: &'static str,
        measured: f64,
        at: Side,
        wanted: f64,
    ) {
        self.bars.push(Bar { what: what.into(), unit, measured, wanted, at });
    }

    /// Adds a sentence that the figures need.
    pub(crate) fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    /// Prints everything and writes `<folder>/<name>.json`.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn finish(&self, folder: &Path) -> Result<()> {
        println!("\n{}\n{}", self.name, "=".repeat(self.name.len()));
        let width = self.figures.iter().map(|figure| figure.what.chars().count()).max().unwrap_or(0);
        for figure in &self.figures {
            let runs: Vec<String> = figure.runs.iter().map(|value| shown(*value)).collect();
            let of = if runs.len() > 1 { format!("   ({})", runs.join(", ")) } else { String::new() };
            println!("{:width$}  {:>12} {}{of}", figure.what, shown(median(&figure.runs)), figure.unit);
        }
        if !self.bars.is_empty() {
            println!("\nBars");
        }
        for bar in &self.bars {
            let word = if bar.at == Side::Most { "at most" } else { "at least" };
            let (measured, wanted) = (shown(bar.measured), shown(bar.wanted));
            println!("  {}: {measured} {}, {word} {wanted}: {}", bar.what, bar.unit, bar.verdict());
        }
        for note in &self.notes {
            println!("  Note: {note}");
        }
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let file = folder.join(format!("{}.json", self.name));
        let text = serde_json::to_string_pretty(&self.json()).context("cannot write the figures")?;
        std::fs::write(&file, text + "\n").with_context(|| format!("cannot write {}", file.display()))?;
        println!("\nWritten to {}", file.display());
        Ok(())
    }

    fn json(&self) -> Value {
        let figures: Vec<Value> = self
            .figures
            .iter()
            .map(|f| json!({"what": f.what, "unit": f.unit, "median": median(&f.runs), "runs": f.runs}))
            .collect();
        let bars: Vec<Value> = self
            .bars
            .iter()
            .map(|b| {
                let at = if b.at == Side::Most { "at most" } else { "at least" };
                json!({"what": b.what, "unit": b.unit, "measured": b.measured, "bar": b.wanted, "is": at,
                       "met": b.is_met(), "verdict": b.verdict()})
            })
            .collect();
        json!({"bench": self.name, "figures": figures, "bars": bars, "notes": self.notes})
    }
}

/// A number with about three digits that matter.
fn shown(value: f64) -> String {
    match value.abs() {
        _ if !value.is_finite() => "-".to_owned(),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 0.1 => format!("{value:.2}"),
        0.0 => "0".to_owned(),
        _ => format!("{value:.4}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_quantiles_are_of_the_sorted_values() {
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < 1e-9);
        assert!((median(&[4.0, 1.0]) - 2.5).abs() < 1e-9);
        let values: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert!((quantile(&values, 0.99) - 99.0).abs() < 1e-9);
        assert!((quantile(&values, 1.0) - 100.0).abs() < 1e-9);
        assert!(median(&[]).is_nan() && quantile(&[], 0.5).is_nan());
    }

    #[test]
    fn a_bar_tells_by_how_much_it_is_missed() {
        let bar = |measured, at, wanted| Bar { what: "x".to_owned(), unit: "s", measured, wanted, at };
        assert_eq!(bar(2.0, Side::Most, 2.0).verdict(), "met");
        assert_eq!(bar(2.0, Side::Least, 2.0).verdict(), "met");
        assert_eq!(bar(5.0, Side::Most, 2.0).verdict(), "MISSED, 2.50 times off");
        assert_eq!(bar(2.0, Side::Least, 5.0).verdict(), "MISSED, 2.50 times off");
        assert_eq!(bar(f64::NAN, Side::Most, 2.0).verdict(), "not measured");
    }
}
