//! Samples, ratios, and the report that a person or a script reads.
//!
//! - A value is a median, and its row says of how many samples.
//! - What was not measured has no number, only the reason.

use std::time::Duration;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde::Serialize;

/// Columns of a table that no terminal limits.
const PIPE_WIDTH: u16 = 150;

/// Measured values of one quantity, in milliseconds or whatever else the quantity is in.
#[derive(Debug, Clone, Default)]
pub struct Samples(Vec<f64>);

impl Samples {
    /// Takes a duration, in milliseconds.
    pub fn push(&mut self, took: Duration) {
        self.0.push(took.as_secs_f64() * 1000.0);
    }

    /// Takes a plain number.
    pub fn push_value(&mut self, value: f64) {
        self.0.push(value);
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The middle value; of an even number the mean of both in the middle.
    pub fn median(&self) -> Option<f64> {
        let sorted = self.sorted();
        let middle = sorted.len() / 2;
        let upper = sorted.get(middle)?;
        if sorted.len() % 2 == 1 {
            return Some(*upper);
        }
        Some(f64::midpoint(sorted[middle - 1], *upper))
    }

    /// The smallest value that `share` of all values do not exceed (nearest rank). `share` is in 0 to 1.
    pub fn percentile(&self, share: f64) -> Option<f64> {
        let sorted = self.sorted();
        let rank = (share * sorted.len() as f64).ceil() as usize;
        sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied()
    }

    fn sorted(&self) -> Vec<f64> {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted
    }
}

/// What a number is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    Milliseconds,
    PerSecond,
    Ratio,
    Megabytes,
    Count,
}

/// The design's bound for a value.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Target {
    AtMost(f64),
    AtLeast(f64),
}

impl Target {
    fn is_met(self, value: f64) -> bool {
        match self {
            Target::AtMost(bound) => value <= bound,
            Target::AtLeast(bound) => value >= bound,
        }
    }

    fn text(self) -> String {
        match self {
            Target::AtMost(bound) => format!("≤ {bound}"),
            Target::AtLeast(bound) => format!("≥ {bound}"),
        }
    }
}

/// One line of the report.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    pub measure: String,
    pub unit: Unit,
    /// `None`: not measured, and `note` says why.
    pub value: Option<f64>,
    pub p95: Option<f64>,
    /// Samples behind the value; of a ratio the smaller number of both.
    pub n: usize,
    pub target: Option<Target>,
    pub met: Option<bool>,
    pub note: Option<String>,
}

impl Row {
    /// The median of samples in `unit`.
    pub fn median(measure: impl Into<String>, unit: Unit, samples: &Samples) -> Self {
        let mut row = Self::value(measure, unit, samples.median(), samples.count());
        row.p95 = samples.percentile(0.95);
        row
    }

    /// A number found otherwise.
    pub fn value(measure: impl Into<String>, unit: Unit, value: Option<f64>, n: usize) -> Self {
        let note = value.is_none().then(|| "not measured".to_owned());
        Self {
            measure: measure.into(),
            unit,
            value,
            p95: None,
            n,
            target: None,
            met: None,
            note,
        }
    }

    /// Median by median. Without samples of either there is no ratio.
    pub fn ratio(measure: impl Into<String>, of: &Samples, to: &Samples) -> Self {
        let value = match (of.median(), to.median()) {
            (Some(of), Some(to)) if to > 0.0 => Some(of / to),
            _ => None,
        };
        Self::value(measure, Unit::Ratio, value, of.count().min(to.count()))
    }

    /// What could not be measured, and why.
    pub fn missing(measure: impl Into<String>, unit: Unit, why: impl Into<String>) -> Self {
        Self::value(measure, unit, None, 0).noted(why)
    }

    /// The same with the design's bound.
    #[must_use]
    pub fn against(mut self, target: Target) -> Self {
        self.met = self.value.map(|value| target.is_met(value));
        self.target = Some(target);
        self
    }

    /// The same with a remark.
    #[must_use]
    pub fn noted(mut self, note: impl Into<String>) -> Self {
        self.note = Some(note.into());
        self
    }

    fn cells(&self) -> [String; 7] {
        let unit = match self.unit {
            Unit::Milliseconds => "ms",
            Unit::PerSecond => "/s",
            Unit::Ratio => "×",
            Unit::Megabytes => "MB",
            Unit::Count => "",
        };
        let number = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), shown);
        let verdict = match self.met {
            Some(true) => "met",
            Some(false) => "missed",
            None => "",
        };
        [
            self.measure.clone(),
            self.value.map_or_else(
                || "–".to_owned(),
                |value| format!("{} {unit}", shown(value)),
            ),
            self.p95.map_or_else(String::new, |_| number(self.p95)),
            self.n.to_string(),
            self.target.map(Target::text).unwrap_or_default(),
            verdict.to_owned(),
            self.note.clone().unwrap_or_default(),
        ]
    }
}

/// Three significant places are more than a bench on a shared machine can promise.
fn shown(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Everything that one run found.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    pub bench: &'static str,
    pub version: &'static str,
    /// Figures of a debug build say only that the program works.
    pub debug_build: bool,
    pub cpus: usize,
    /// Load average over a minute, before and after: other work on the machine moves every figure.
    pub load_before: Option<f64>,
    pub load_after: Option<f64>,
    pub rows: Vec<Row>,
}

impl Report {
    pub fn new(bench: &'static str) -> Self {
        Self {
            bench,
            version: env!("CARGO_PKG_VERSION"),
            debug_build: cfg!(debug_assertions),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            load_before: load(),
            load_after: None,
            rows: Vec::new(),
        }
    }

    pub fn add(&mut self, row: Row) {
        self.rows.push(row);
    }

    /// The measuring is over.
    pub fn close(&mut self) {
        self.load_after = load();
    }

    /// The table for a person.
    pub fn table(&self) -> String {
        let mut table = Table::new();
        table
            .load_style(presets::UTF8_HORIZONTAL_ONLY)
            .set_content_arrangement(ContentArrangement::Dynamic)
            .set_header(["measure", "median", "p95", "n", "target", "", "note"]);
        if table.width().is_none() {
            table.set_width(PIPE_WIDTH);
        }
        for row in &self.rows {
            table.add_row(row.cells());
        }
        for column in [1, 2, 3] {
            if let Some(column) = table.column_mut(column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        let number = |load: Option<f64>| load.map_or_else(|| "?".to_owned(), shown);
        let mut text = format!(
            "{table}\n{} processors; load {} before, {} after.",
            self.cpus,
            number(self.load_before),
            number(self.load_after)
        );
        if self.debug_build {
            text.push_str("\nA debug build: read no figure here as the product's.");
        }
        text
    }
}

fn load() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(values: &[f64]) -> Samples {
        Samples(values.to_vec())
    }

    #[test]
    fn the_median_is_the_middle_or_the_mean_of_the_two_in_the_middle() {
        assert_eq!(samples(&[9.0, 1.0, 5.0]).median(), Some(5.0));
        assert_eq!(samples(&[4.0, 1.0, 2.0, 100.0]).median(), Some(3.0));
        assert_eq!(samples(&[]).median(), None);
    }

    #[test]
    fn a_percentile_is_a_value_that_was_measured() {
        let hundred = Samples((1..=100).map(f64::from).collect());
        assert_eq!(hundred.percentile(0.95), Some(95.0));
        assert_eq!(hundred.percentile(0.99), Some(99.0));
        assert_eq!(samples(&[7.0]).percentile(0.5), Some(7.0));
        assert_eq!(samples(&[]).percentile(0.5), None);
    }

    #[test]
    fn a_duration_is_kept_in_milliseconds() {
        let mut taken = Samples::default();
        taken.push(Duration::from_micros(1500));
        assert_eq!(taken.median(), Some(1.5));
    }

    #[test]
    fn a_ratio_is_of_medians_and_is_held_against_its_target() {
        let row = Row::ratio("a / b", &samples(&[1.0, 2.0, 9.0]), &samples(&[4.0, 4.0]));
        assert_eq!((row.value, row.n), (Some(0.5), 2));
        assert_eq!(row.clone().against(Target::AtMost(0.5)).met, Some(true));
        assert_eq!(row.against(Target::AtLeast(0.6)).met, Some(false));
    }

    #[test]
    fn what_was_not_measured_meets_and_misses_nothing() {
        let row = Row::ratio("a / b", &samples(&[1.0]), &samples(&[]));
        let row = row.against(Target::AtMost(1.0));
        assert_eq!((row.value, row.met), (None, None));
        assert!(row.note.is_some());
    }

    #[test]
    fn the_table_shows_target_verdict_and_reason() {
        let mut report = Report::new("main");
        report.add(
            Row::ratio("cold / docker run", &samples(&[1.0]), &samples(&[4.0]))
                .against(Target::AtMost(0.65)),
        );
        report.add(Row::missing(
            "bubblewrap",
            Unit::Milliseconds,
            "bwrap is not installed",
        ));
        report.close();
        let table = report.table();
        for part in ["0.25 ×", "≤ 0.65", "met", "bwrap is not installed", "load"] {
            assert!(table.contains(part), "{part} in\n{table}");
        }
    }
}
