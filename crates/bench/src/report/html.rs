//! The report as one HTML file that needs nothing else: no script, no font, no network.

use std::fmt::Write;

use crate::report::markdown::{Table, bytes, cells, intro};
use crate::report::plots::Plot;
use crate::report::svg::escape;
use crate::report::{CaseSummary, Summary};

/// The whole page; `plots` are those of each case in order.
pub(crate) fn page(summary: &Summary, plots: &[Vec<Plot>]) -> String {
    let machine = &summary.machine;
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\">\
         <title>Benchmark of {}</title><style>{STYLE}</style></head><body>\n\
         <h1>What TLS costs in front of an application</h1>\n",
        escape(&summary.date)
    );
    if summary.partial {
        out.push_str("<p class=\"warn\">Partial: the run was interrupted. This was measured before.</p>\n");
    }
    let _ = writeln!(
        out,
        "<p>{}. {}, {} usable cores, {} of memory, Linux {}, load average {:.1} at the start. All traffic is on the \
         loopback, {}; the proxies reach the application over {}.</p>",
        escape(&summary.date),
        escape(&machine.cpu),
        machine.cores,
        bytes(machine.memory_bytes),
        escape(&machine.kernel),
        machine.load_at_start,
        escape(&machine.network.clause()),
        if summary.transport == "unix" { "a Unix socket" } else { "TCP" }
    );
    for paragraph in intro(summary) {
        let _ = writeln!(out, "<p>{}</p>", escape(&paragraph));
    }
    out.push_str("<table><thead><tr><th>contestant</th><th class=\"l\">version</th></tr></thead><tbody>\n");
    for (name, version) in &summary.contestants {
        let _ = writeln!(out, "<tr><td>{}</td><td class=\"l\">{}</td></tr>", escape(name), escape(version));
    }
    out.push_str("</tbody></table>\n<nav>");
    for case in &summary.cases {
        let name = escape(&case.info.name);
        let _ = write!(out, "<a href=\"#{name}\">{name}</a> ");
    }
    out.push_str("</nav>\n");
    for (case, plots) in summary.cases.iter().zip(plots) {
        section(&mut out, case, &summary.reference, plots);
    }
    if !summary.notes.is_empty() {
        out.push_str("<h2>Left out, and why</h2>\n<ul>\n");
        for note in &summary.notes {
            let _ = writeln!(out, "<li>{}</li>", escape(&note.to_string()));
        }
        out.push_str("</ul>\n");
    }
    out + "</body></html>\n"
}

fn section(out: &mut String, case: &CaseSummary, reference: &str, plots: &[Plot]) {
    let info = &case.info;
    let (name, what, unit) = (escape(&info.name), escape(&info.what), escape(&info.unit));
    let _ = writeln!(out, "<section id=\"{name}\"><h2>{name}</h2>\n<p>{what}. Unit: {unit}.</p>");
    for plot in plots {
        let _ = writeln!(
            out,
            "<figure>{}<figcaption>{}</figcaption></figure>",
            plot.svg.trim_end(),
            escape(&plot.sentence)
        );
    }
    table(out, &cells(case, reference));
    syscalls(out, case);
    for row in &case.rows {
        for flag in &row.flags {
            let (who, flag) = (escape(&row.contestant), escape(flag));
            let _ = writeln!(out, "<p class=\"warn\">¹ {who}: {flag}.</p>");
        }
    }
    out.push_str("</section>\n");
}

fn table(out: &mut String, lines: &Table) {
    let Some((head, body)) = lines.split_first() else { return };
    let line = |cells: &[String], tag: &str| {
        let cells: Vec<String> = cells.iter().map(|c| format!("<{tag}>{}</{tag}>", escape(c))).collect();
        format!("<tr>{}</tr>\n", cells.concat())
    };
    let rows: String = body.iter().map(|cells| line(cells, "td")).collect();
    let _ = writeln!(
        out,
        "<div class=\"wide\"><table><thead>{}</thead><tbody>{rows}</tbody></table></div>",
        line(head, "th")
    );
}

/// System calls by name, where they were counted.
fn syscalls(out: &mut String, case: &CaseSummary) {
    for row in &case.rows {
        if let Some(list) = row.calls() {
            let _ = writeln!(out, "<p><b>{}</b>: {}</p>", escape(&row.contestant), escape(&list));
        }
    }
}

const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1f2430;--soft:#5b6470;--line:#d9dde3;--ground:#fff;--warn:#9a3412}\
@media(prefers-color-scheme:dark){:root{--ink:#e5e7eb;--soft:#9ca3af;--line:#374151;--ground:#14171d;--warn:#fdba74}}\
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--ground);max-width:60rem;margin:2rem auto;\
padding:0 1rem}h1{font-size:1.6rem}h2{font-size:1.2rem;margin-top:2.5rem;border-bottom:1px solid var(--line)}\
table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:13px;margin:1rem 0}\
th,td{padding:.25rem .6rem;text-align:right;border-bottom:1px solid var(--line);vertical-align:bottom}\
th:first-child,td:first-child,.l{text-align:left}.wide{overflow-x:auto}figure{margin:1rem 0}\
figcaption{color:var(--soft);font-size:13px}svg{width:100%;height:auto}nav a{margin-right:.6rem}\
.warn{color:var(--warn)}";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;
    use crate::metrics;
    use crate::report::raw::Sample;
    use crate::report::{CaseInfo, Heading, Note, plots};

    #[test]
    fn the_page_holds_every_case_and_needs_nothing_else() {
        let text = str::to_owned;
        let info = CaseInfo {
            scenario: text("syscalls"),
            name: text("syscalls/request"),
            what: text("calls <each>"),
            unit: text("request"),
            figure: text(metrics::SYSCALLS),
            reference: None,
        };
        let sample = |metric: &str, value| Sample {
            scenario: text("syscalls"),
            case: text("syscalls/request"),
            contestant: text("offramp"),
            round: 0,
            metric: text(metric),
            value,
        };
        let samples =
            [sample("syscalls", 4.0), sample("syscalls/recvfrom", 2.0), sample("syscalls/brk", 0.001)];
        let machine = Machine { cores: 2, ..Machine::default() };
        let heading = Heading { date: text("today"), transport: "tcp", machine, contestants: &[] };
        let note = Note { case: String::new(), contestant: text("hitch"), text: text("not installed") };
        let summary = Summary::build(heading, &[info], &samples, vec![note], true);
        let plots: Vec<_> = summary.cases.iter().map(|c| plots::of_case(c, &summary, &samples)).collect();
        let page = page(&summary, &plots);
        for part in [
            "Partial",
            "calls &lt;each&gt;",
            "<svg",
            "recvfrom 2.00",
            "hitch: not installed",
            "Fewer than three",
        ] {
            assert!(page.contains(part), "{part}");
        }
        // Rare calls are noise.
        assert!(!page.contains("brk"));
        assert!(!page.contains("<script") && !page.contains("src=") && !page.contains("@import"));
    }
}
