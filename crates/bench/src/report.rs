//! What a run found, summed up: the form of `summary.json`, and the pages made from it.

pub(crate) mod echo;
pub(crate) mod html;
pub(crate) mod markdown;
pub(crate) mod plots;
pub(crate) mod raw;
pub(crate) mod svg;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::contestant::Contestant;
use crate::error::{Error, Result, read_text, write_file};
use crate::machine::Machine;
use crate::metrics::{self, Metric};
use crate::report::raw::Sample;
use crate::scenario::Case;
use crate::stats::{Spread, median};

/// The contestant that the others are compared with, where it takes part.
pub(crate) const OFFRAMP: &str = "offramp";

/// A whole run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Summary {
    /// When it began, UTC.
    pub(crate) date: String,
    /// Whether it was interrupted before its end.
    pub(crate) partial: bool,
    /// How the proxies reached the backend: `tcp` or `unix`.
    pub(crate) transport: String,
    pub(crate) machine: Machine,
    /// The contestant that ratios refer to.
    pub(crate) reference: String,
    /// Names and versions.
    pub(crate) contestants: BTreeMap<String, String>,
    pub(crate) cases: Vec<CaseSummary>,
    pub(crate) notes: Vec<Note>,
}

/// What a case is, without its results.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CaseInfo {
    pub(crate) scenario: String,
    pub(crate) name: String,
    pub(crate) what: String,
    pub(crate) unit: String,
    /// The name of the figure that it is all about.
    pub(crate) figure: String,
    /// The row that the others are compared with; absent: the run's.
    pub(crate) reference: Option<String>,
}

impl CaseInfo {
    pub(crate) fn of(case: &Case) -> Self {
        Self {
            scenario: case.scenario.to_owned(),
            name: case.name.clone(),
            what: case.what.clone(),
            unit: case.unit.to_owned(),
            figure: case.method.figure().to_owned(),
            reference: case.method.reference().map(str::to_owned),
        }
    }

    /// The row that the others are compared with, `of_run` unless the case has its own.
    pub(crate) fn reference<'a>(&'a self, of_run: &'a str) -> &'a str {
        self.reference.as_deref().unwrap_or(of_run)
    }

    /// The figure that the case is all about.
    pub(crate) fn metric(&self) -> Option<&'static Metric> {
        metrics::find(&self.figure)
    }
}

/// A case with its results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct CaseSummary {
    #[serde(flatten)]
    pub(crate) info: CaseInfo,
    pub(crate) rows: Vec<Row>,
}

/// One contestant in one case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) contestant: String,
    pub(crate) metrics: BTreeMap<String, Spread>,
    /// The reference's value over this contestant's, taken round by round, then the median.
    pub(crate) ratios: BTreeMap<String, f64>,
    /// What makes some of these figures less than they seem.
    pub(crate) flags: Vec<String>,
}

impl Row {
    /// System calls by name and number per unit, the most frequent first, those below one in a hundred
    /// units left out; none where they were not counted.
    pub(crate) fn calls(&self) -> Option<String> {
        let named =
            |name: &'_ str| name.strip_prefix(metrics::SYSCALLS)?.strip_prefix('/').map(str::to_owned);
        let mut calls: Vec<(String, f64)> = self
            .metrics
            .iter()
            .filter_map(|(name, spread)| Some((named(name)?, spread.median)))
            .filter(|(_, each)| *each >= 0.01)
            .collect();
        calls.sort_by(|a, b| b.1.total_cmp(&a.1));
        let list: Vec<String> = calls.iter().map(|(name, each)| format!("{name} {each:.2}")).collect();
        (!list.is_empty()).then(|| list.join(", "))
    }
}

/// Something that went wrong or could not be, with its reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Note {
    /// Empty: the whole run.
    pub(crate) case: String,
    /// Empty: all contestants.
    pub(crate) contestant: String,
    pub(crate) text: String,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in [&self.case, &self.contestant] {
            if !part.is_empty() {
                write!(f, "{part}: ")?;
            }
        }
        f.write_str(&self.text)
    }
}

/// What a run was, before its results.
#[derive(Debug)]
pub(crate) struct Heading<'a> {
    pub(crate) date: String,
    pub(crate) transport: &'a str,
    pub(crate) machine: Machine,
    pub(crate) contestants: &'a [Contestant],
}

impl Summary {
    /// Sums up samples.
    pub(crate) fn build(
        heading: Heading<'_>,
        cases: &[CaseInfo],
        samples: &[Sample],
        notes: Vec<Note>,
        partial: bool,
    ) -> Self {
        let names: Vec<&str> = heading.contestants.iter().map(|c| c.peer.name).collect();
        let first = names.first().copied().unwrap_or(OFFRAMP);
        let reference = if names.contains(&OFFRAMP) { OFFRAMP } else { first };
        let cases = cases
            .iter()
            .map(|info| {
                let of_case: Vec<&Sample> = samples.iter().filter(|s| s.case == info.name).collect();
                CaseSummary { info: info.clone(), rows: rows(&of_case, info.reference(reference)) }
            })
            .filter(|case| !case.rows.is_empty())
            .collect();
        Self {
            date: heading.date,
            partial,
            transport: heading.transport.to_owned(),
            machine: heading.machine,
            reference: reference.to_owned(),
            contestants: heading
                .contestants
                .iter()
                .map(|c| (c.peer.name.to_owned(), c.version.clone()))
                .collect(),
            cases,
            notes,
        }
    }

    /// Writes `summary.json`, `report.md`, `report.html` and the plots to a directory.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub(crate) fn write(&self, samples: &[Sample], dir: &Path) -> Result<()> {
        let json = serde_json::to_string_pretty(self)
            .map_err(|e| Error::io("encoding the summary", std::io::Error::other(e)))?;
        write_file(&dir.join("summary.json"), json + "\n")?;
        write_file(&dir.join("report.md"), markdown::page(self))?;
        let plots: Vec<_> = self.cases.iter().map(|case| plots::of_case(case, self, samples)).collect();
        for plot in plots.iter().flatten() {
            write_file(&dir.join(&plot.file), &plot.svg)?;
        }
        let matrix = echo::csv(samples);
        if !matrix.is_empty() {
            write_file(&dir.join("echo.csv"), matrix)?;
        }
        write_file(&dir.join("report.html"), html::page(self, &plots))
    }

    /// Reads a run from its directory or its `summary.json`.
    ///
    /// # Errors
    /// When there is none, or it is of another form.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let file: PathBuf = if path.is_dir() { path.join("summary.json") } else { path.to_owned() };
        serde_json::from_str(&read_text(&file)?)
            .map_err(|e| Error::Usage(format!("{} is not a summary of a run: {e}", file.display())))
    }

    /// The results of one contestant in one case.
    pub(crate) fn row(&self, case: &str, contestant: &str) -> Option<&Row> {
        self.cases.iter().find(|c| c.info.name == case)?.rows.iter().find(|r| r.contestant == contestant)
    }
}

/// One row for each contestant, the reference first, then in the order of the first round.
fn rows(samples: &[&Sample], reference: &str) -> Vec<Row> {
    let mut names: Vec<&str> = Vec::new();
    for sample in samples {
        if !names.contains(&sample.contestant.as_str()) {
            names.push(&sample.contestant);
        }
    }
    // Stable, so that the others keep their order.
    names.sort_by_key(|name| *name != reference);
    names.iter().map(|name| row(samples, name, reference)).collect()
}

fn row(samples: &[&Sample], name: &str, reference: &str) -> Row {
    let mut values: BTreeMap<&str, BTreeMap<usize, f64>> = BTreeMap::new();
    for sample in samples.iter().filter(|s| s.contestant == name) {
        values.entry(&sample.metric).or_default().insert(sample.round, sample.value);
    }
    let mut row = Row {
        contestant: name.to_owned(),
        metrics: BTreeMap::new(),
        ratios: BTreeMap::new(),
        flags: Vec::new(),
    };
    for (metric, by_round) in &values {
        let all: Vec<f64> = by_round.values().copied().collect();
        row.metrics.extend(Spread::of(&all).map(|spread| ((*metric).to_owned(), spread)));
        let pairs: Vec<f64> = by_round
            .iter()
            .filter_map(|(round, value)| {
                let other = samples
                    .iter()
                    .find(|s| s.contestant == reference && s.metric == *metric && s.round == *round)?;
                Some(other.value / value).filter(|ratio| ratio.is_finite())
            })
            .collect();
        if name != reference {
            row.ratios.extend(median(&pairs).map(|ratio| ((*metric).to_owned(), ratio)));
        }
    }
    row.flags = flags(&row.metrics);
    row
}

/// What the reader must be told about a row.
fn flags(metrics: &BTreeMap<String, Spread>) -> Vec<String> {
    let value = |name: &str| metrics.get(name).map(|s| s.median);
    let mut flags = Vec::new();
    // Arrivals at a fixed rate leave both sides idle on purpose.
    let closed = !metrics.contains_key(metrics::RATE);
    let busy = value(metrics::PROXY_BUSY).zip(value(metrics::LOAD_BUSY)).filter(|_| closed);
    if busy.is_some_and(|(proxy, load)| proxy < 0.5 && load < 0.5) {
        flags.push(
            "disturbed: neither side was busy, so other work of the machine had the cores; throughput and latency \
             say nothing, CPU per unit is noisy"
                .to_owned(),
        );
    }
    if busy.is_some_and(|(proxy, load)| load > 0.9 && proxy < 0.9) {
        flags.push("load-bound: the load or the backend was the limit, not the proxy; CPU per unit holds, throughput and latency do not".to_owned());
    }
    if metrics.get(metrics::ERRORS).is_some_and(|errors| errors.max > 0.0) {
        flags.push("errors: some units failed".to_owned());
    }
    flags
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(contestant: &str, round: usize, value: f64) -> Sample {
        Sample {
            scenario: "s".into(),
            case: "s".into(),
            contestant: contestant.into(),
            round,
            metric: metrics::CPU.into(),
            value,
        }
    }

    #[test]
    fn ratios_are_taken_within_each_round() {
        // Twice as slow a machine in the second round must not change the ratio.
        let all = [
            sample("offramp", 0, 10.0),
            sample("nginx", 0, 20.0),
            sample("offramp", 1, 20.0),
            sample("nginx", 1, 40.0),
            sample("offramp", 2, 10.0),
            sample("nginx", 2, 40.0),
        ];
        let all: Vec<&Sample> = all.iter().collect();
        assert_eq!(rows(&all, "nginx")[0].contestant, "nginx");
        let rows = rows(&all, "offramp");
        assert_eq!(rows[1].ratios[metrics::CPU], 0.5);
        assert!(rows[0].ratios.is_empty());
        assert_eq!(rows[0].metrics[metrics::CPU].median, 10.0);
    }

    #[test]
    fn a_busy_load_beside_an_idle_proxy_is_flagged() {
        let one = |value| Spread::of(&[value]).unwrap();
        let mut metrics: BTreeMap<String, Spread> = BTreeMap::new();
        metrics.insert(metrics::PROXY_BUSY.into(), one(0.5));
        metrics.insert(metrics::LOAD_BUSY.into(), one(0.97));
        assert!(flags(&metrics)[0].starts_with("load-bound"));
        metrics.insert(metrics::PROXY_BUSY.into(), one(0.97));
        assert!(flags(&metrics).is_empty());
        metrics.insert(metrics::PROXY_BUSY.into(), one(0.2));
        metrics.insert(metrics::LOAD_BUSY.into(), one(0.3));
        assert!(flags(&metrics)[0].starts_with("disturbed"));
        // Unless that is what the case is about.
        metrics.insert(metrics::RATE.into(), one(1000.0));
        assert!(flags(&metrics).is_empty());
    }
}
