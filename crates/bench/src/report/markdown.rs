//! Tables in Markdown, for the terminal and for `report.md`.

use std::fmt::Write;

use crate::metrics::{self, METRICS, Metric};
use crate::report::{CaseSummary, Row, Summary};
use crate::stats::Spread;

/// The whole page.
pub(crate) fn page(summary: &Summary) -> String {
    let mut out = String::from("# Benchmark\n\n");
    out.push_str(&heading(summary));
    for case in &summary.cases {
        out.push_str(&section(case, &summary.reference));
    }
    if !summary.notes.is_empty() {
        out.push_str("## Left out, and why\n\n");
        for note in &summary.notes {
            let _ = writeln!(out, "- {note}");
        }
    }
    out
}

/// The machine, the contestants, and how to read the tables.
fn heading(summary: &Summary) -> String {
    let machine = &summary.machine;
    let mut out = String::new();
    if summary.partial {
        out.push_str("**Partial: the run was interrupted. What follows was measured before.**\n\n");
    }
    let _ = writeln!(
        out,
        "{}; {}, {} cores usable, {} of memory, Linux {}; load average {:.1} at the start; loopback; {}; proxies \
         reach the application over {}.\n",
        summary.date,
        machine.cpu,
        machine.cores,
        bytes(machine.memory_bytes),
        machine.kernel,
        machine.load_at_start,
        machine.network.clause(),
        if summary.transport == "unix" { "a Unix socket" } else { "TCP" },
    );
    for (name, version) in &summary.contestants {
        let _ = writeln!(out, "- {name}: {version}");
    }
    out.push('\n');
    for paragraph in intro(summary) {
        let _ = writeln!(out, "{paragraph}\n");
    }
    out
}

/// How to read the figures, in plain paragraphs.
pub(crate) fn intro(summary: &Summary) -> Vec<String> {
    let mut paragraphs = vec![format!(
        "Medians over the rounds, with the least and the greatest in brackets. A ratio is {}'s value over the \
         contestant's in the same round, then the median: below 1, {} needs less.",
        summary.reference, summary.reference
    )];
    paragraphs.push(
        "What this does not say: nothing here crosses a network, so that no figure is a user's latency; memory \
         leaves out what the kernel holds for sockets; loads wait for each answer before they ask again, except \
         where requests arrive at a fixed rate; a proxy that parses HTTP does more than one that forwards bytes."
            .to_owned(),
    );
    if summary.machine.cores < 3 {
        paragraphs.push(
            "Fewer than three cores: load and backend share one, so that throughput and latency are often theirs \
             and not the proxy's. CPU time per unit of work is what to compare."
                .to_owned(),
        );
    }
    paragraphs.extend(summary.machine.network.caveat());
    paragraphs
}

/// One case: its sentence, its table, its flags.
pub(crate) fn section(case: &CaseSummary, reference: &str) -> String {
    let mut out = format!("## {}\n\n{}. Unit: {}.\n\n", case.info.name, case.info.what, case.info.unit);
    out.push_str(&table(case, reference));
    for row in &case.rows {
        if let Some(calls) = row.calls() {
            let _ = writeln!(out, "\n{}: {calls}", row.contestant);
        }
    }
    for row in &case.rows {
        for flag in &row.flags {
            let _ = writeln!(out, "\n¹ {}: {flag}.", row.contestant);
        }
    }
    out.push('\n');
    out
}

/// The figures of a case that belong into a table: the one that it is about, then all others that were
/// taken, the explaining ones left out.
fn columns(case: &CaseSummary) -> Vec<&'static Metric> {
    const HIDDEN: &[&str] = &["mean", "stdev", "max", metrics::REQUESTS];
    let others = METRICS.iter().filter(|m| m.name != case.info.figure && !HIDDEN.contains(&m.name));
    case.info
        .metric()
        .into_iter()
        .chain(others)
        .filter(|m| case.rows.iter().any(|r| r.metrics.contains_key(m.name)))
        .filter(|m| m.name != metrics::ERRORS || case.rows.iter().any(has_errors))
        .collect()
}

fn has_errors(row: &Row) -> bool {
    row.metrics.get(metrics::ERRORS).is_some_and(|e| e.max > 0.0)
}

/// Lines of cells, the heading first.
pub(crate) type Table = Vec<Vec<String>>;

fn table(case: &CaseSummary, reference: &str) -> String {
    align(&cells(case, reference))
}

/// The table of a case.
pub(crate) fn cells(case: &CaseSummary, reference: &str) -> Table {
    let columns = columns(case);
    let reference = case.info.reference(reference);
    let Some(first) = columns.first() else { return Vec::new() };
    let mut heading = vec!["contestant".to_owned()];
    heading.extend(columns.iter().map(|m| m.label.to_owned()));
    heading.push(format!("ratio ({})", first.label));
    let mut lines = vec![heading];
    for row in &case.rows {
        let mark = if row.flags.is_empty() { "" } else { " ¹" };
        let mut line = vec![format!("{}{mark}", row.contestant)];
        for (index, metric) in columns.iter().enumerate() {
            let spread = row.metrics.get(metric.name);
            line.push(spread.map_or_else(String::new, |s| cell(metric, s, index == 0)));
        }
        let ratio = row.ratios.get(first.name).map(|r| format!("{r:.2}"));
        let own = if row.contestant == reference { "1" } else { "" };
        line.push(ratio.unwrap_or_else(|| own.to_owned()));
        lines.push(line);
    }
    lines
}

fn cell(metric: &Metric, spread: &Spread, with_range: bool) -> String {
    let value = number(metric.name, spread.median);
    if with_range && spread.rounds > 1 {
        format!("{value} ({}–{})", number(metric.name, spread.min), number(metric.name, spread.max))
    } else {
        value
    }
}

/// A number as a reader wants it: three significant digits or whole thousands.
pub(crate) fn number(metric: &str, value: f64) -> String {
    match metric {
        metrics::START_RESIDENT | metrics::START_PROPORTIONAL | metrics::START_ANONYMOUS => {
            format!("{:.1} MiB", value / (1 << 20) as f64)
        }
        metrics::PROXY_BUSY | metrics::LOAD_BUSY => format!("{:.0} %", value * 100.0),
        metrics::ERRORS => format!("{value:.0}"),
        _ if value >= 1000.0 => thousands(value),
        _ if value >= 100.0 => format!("{value:.0}"),
        _ if value >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A Markdown table whose columns line up in plain text too.
pub(crate) fn align(lines: &[Vec<String>]) -> String {
    let count = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        lines.iter().filter_map(|l| l.get(column)).map(|c| c.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..count).map(width).collect();
    let mut out = String::new();
    for (index, line) in lines.iter().enumerate() {
        out.push('|');
        for (column, width) in widths.iter().enumerate() {
            let text = line.get(column).map_or("", String::as_str);
            let gap = " ".repeat(width - text.chars().count());
            if column == 0 {
                let _ = write!(out, " {text}{gap} |");
            } else {
                let _ = write!(out, " {gap}{text} |");
            }
        }
        out.push('\n');
        if index == 0 {
            out.push('|');
            for (column, width) in widths.iter().enumerate() {
                let end = if column == 0 { "-" } else { ":" };
                let _ = write!(out, " {}{end} |", "-".repeat(width.saturating_sub(1)));
            }
            out.push('\n');
        }
    }
    out
}

/// Bytes in the largest fitting binary unit.
pub(crate) fn bytes(count: u64) -> String {
    let value = count as f64;
    match count {
        0..1024 => format!("{count} B"),
        1024..1_048_576 => format!("{:.1} KiB", value / 1024.0),
        1_048_576..1_073_741_824 => format!("{:.1} MiB", value / 1_048_576.0),
        _ => format!("{:.1} GiB", value / 1_073_741_824.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!(number("cpu_us", 23.456), "23.5");
        assert_eq!(number("per_second", 1_234_567.8), "1,234,568");
        assert_eq!(number("proxy_busy", 0.934), "93 %");
        assert_eq!(bytes(1536), "1.5 KiB");
    }

    #[test]
    fn tables_line_up() {
        let lines = vec![vec!["a".into(), "bb".into()], vec!["ccc".into(), "d".into()]];
        assert_eq!(align(&lines), "| a   | bb |\n| --- | -: |\n| ccc |  d |\n");
    }
}
