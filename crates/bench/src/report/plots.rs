//! Which plots a case gets, and the sentence that explains each.

use crate::metrics::{self, Better, Metric};
use crate::report::echo;
use crate::report::raw::Sample;
use crate::report::svg::{Ladder, Series, dots, ladders};
use crate::report::{CaseSummary, Summary};

/// A plot with its file name and its sentence.
#[derive(Clone, Debug)]
pub(crate) struct Plot {
    pub(crate) file: String,
    pub(crate) svg: String,
    pub(crate) sentence: String,
}

/// The plots of one case: its first figure with every round, and the latency where it is what matters.
pub(crate) fn of_case(case: &CaseSummary, summary: &Summary, samples: &[Sample]) -> Vec<Plot> {
    let paced = case.rows.iter().any(|r| r.metrics.contains_key(metrics::RATE));
    let tails = paced || ["slow-clients", "churn"].contains(&case.info.scenario.as_str());
    let first = summary.cases.iter().find(|c| c.info.scenario == case.info.scenario);
    let opens_echo = case.info.scenario == echo::SCENARIO && first == Some(case);
    let mut plots = Vec::new();
    plots.extend(opens_echo.then(|| echo::plot(samples)).flatten());
    plots.extend(case.info.metric().map(|metric| rounds(case, summary, samples, metric)));
    plots.extend(tails.then(|| percentiles(case, summary)));
    plots
}

fn rounds(case: &CaseSummary, summary: &Summary, samples: &[Sample], metric: &Metric) -> Plot {
    let rows: Vec<Series> = case
        .rows
        .iter()
        .filter_map(|row| {
            let points = samples
                .iter()
                .filter(|s| {
                    s.case == case.info.name && s.contestant == row.contestant && s.metric == metric.name
                })
                .map(|s| s.value)
                .collect();
            Some(Series {
                label: row.contestant.clone(),
                accent: row.contestant == case.info.reference(&summary.reference),
                points,
                median: row.metrics.get(metric.name)?.median,
            })
        })
        .collect();
    let axis = format!("{} ({})", metric.label, case.info.unit);
    let direction = match metric.better {
        Better::Lower => "further left is better",
        Better::Higher => "further right is better",
        Better::Neutral => "neither side is better",
    };
    let sentence = format!(
        "Each point is one round: {}; the line is the median; {direction}.{}",
        explain(case, metric),
        verdict(case, summary, metric)
    );
    let title = format!("{}: {}", case.info.name, metric.label);
    Plot { file: file(case, "svg"), svg: dots(&title, metric.name, &axis, &rows), sentence }
}

fn percentiles(case: &CaseSummary, summary: &Summary) -> Plot {
    const STEPS: [(&str, &str); 4] = [("p50", "50"), ("p90", "90"), ("p99", "99"), ("p999", "99.9")];
    let rows: Vec<Ladder> = case
        .rows
        .iter()
        .map(|row| Ladder {
            label: row.contestant.clone(),
            accent: row.contestant == case.info.reference(&summary.reference),
            steps: STEPS
                .iter()
                .filter_map(|(name, short)| Some((*short, row.metrics.get(*name)?.median)))
                .collect(),
        })
        .collect();
    let title = format!("{}: latency percentiles", case.info.name);
    let sentence = "From left to right the time within which 50, 90, 99 and 99.9 of 100 units were done \
                    (medians over the rounds, logarithmic); the farther right the last point, the worse the bad \
                    moments.";
    let axis = "µs, logarithmic";
    Plot { file: file(case, "latency.svg"), svg: ladders(&title, axis, &rows), sentence: sentence.to_owned() }
}

/// The figure in words.
fn explain(case: &CaseSummary, metric: &Metric) -> String {
    let unit = &case.info.unit;
    let served = case.info.reference.is_some();
    match metric.name {
        metrics::CPU if served => format!("CPU time of application and proxy together per {unit}"),
        metrics::SYSCALLS if served => {
            format!("system calls of the application per {unit}, counted by strace")
        }
        metrics::CPU => format!("CPU time of the proxy's whole process tree per {unit}"),
        metrics::CONNECTION_BYTES => {
            "memory of the process tree that each idle connection adds, kernel memory left out".to_owned()
        }
        metrics::START_RESIDENT => "resident memory of the process tree once it listens".to_owned(),
        metrics::SYSCALLS => format!("system calls of the proxy per {unit}, counted by strace"),
        "p99" => format!("the time within which 99 of 100 {unit}s were done"),
        _ => format!("{} per {unit}", metric.label),
    }
}

/// Where the reference stands beside the best other contestant.
fn verdict(case: &CaseSummary, summary: &Summary, metric: &Metric) -> String {
    let ratios = case.rows.iter().filter_map(|r| Some((r.contestant.as_str(), *r.ratios.get(metric.name)?)));
    let best = match metric.better {
        Better::Higher => ratios.min_by(|a, b| a.1.total_cmp(&b.1)),
        _ => ratios.max_by(|a, b| a.1.total_cmp(&b.1)),
    };
    best.map_or_else(String::new, |(name, ratio)| {
        format!(
            " {} is at {ratio:.2} of the best other one, {name}.",
            case.info.reference(&summary.reference)
        )
    })
}

fn file(case: &CaseSummary, end: &str) -> String {
    format!("{}.{end}", case.info.name.replace('/', "-"))
}
