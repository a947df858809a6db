//! The report as a page: one file that loads nothing, in which all text of requests and answers is escaped.

use std::fmt::Write as _;

use super::{CompareReport, CompareVerdict, number};

/// Makes the page.
pub(super) fn page(report: &CompareReport) -> String {
    let state = match report.verdict() {
        CompareVerdict::Same => "same",
        CompareVerdict::Different => "different",
        CompareVerdict::NotCompared => "unknown",
    };
    let [old, new] = report.urls.each_ref().map(|url| escaped(url));
    let mut text = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta http-equiv=\"Content-Security-Policy\" \
         content=\"default-src 'none'; style-src 'unsafe-inline'\">\n<meta name=\"viewport\" \
         content=\"width=device-width\">\n<title>{old} and {new}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>Comparison \
         of two servers</h1>\n<p class=\"{state}\">{}</p>\n<dl><dt>old</dt><dd>{old}</dd><dt>new</dt><dd>{new}</dd></dl>\n<ul>\n",
        escaped(&report.sentence())
    );
    for line in report.coverage() {
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(text, "<li>{}</li>", escaped(&line));
    }
    text.push_str("</ul>\n");
    let groups = report.groups.sorted();
    if !groups.is_empty() {
        text.push_str("<h2>Differences, the most important first</h2>\n<ol>\n");
    }
    for group in &groups {
        let _ = write!(
            text,
            "<li><h3>{} in {}</h3>\n<dl><dt>old</dt><dd>{}</dd><dt>new</dt><dd>{}</dd><dt>for example</dt><dd>{}</dd></dl>\n\
             <pre>{}\n{}</pre></li>\n",
            escaped(&group.example.part.words()),
            number(group.requests, "request"),
            escaped(&group.example.old),
            escaped(&group.example.new),
            escaped(&group.request),
            escaped(&group.curl[0]),
            escaped(&group.curl[1]),
        );
    }
    if !groups.is_empty() {
        text.push_str("</ol>\n");
    }
    let _ = write!(text, "<p>{}</p>\n</body>\n</html>\n", escaped(&report.uncompared()));
    text
}

/// The text without markup.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

const STYLE: &str = "\
:root{color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}\
p.same,p.different,p.unknown{font-size:1.25rem;padding:.5rem 1rem;border-left:.5rem solid}\
p.same{border-color:#2a7d3f}p.different{border-color:#b3541e}p.unknown{border-color:#777}\
dl{display:grid;grid-template-columns:max-content 1fr;gap:.25rem 1rem}dd{margin:0;overflow-wrap:anywhere}\
h3{font-size:1rem;margin-bottom:0}pre{white-space:pre-wrap;overflow-wrap:anywhere;padding:.5rem;border:1px solid #8888}";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::escaped;

    proptest! {
        #[test]
        fn no_text_is_markup(text in ".{0,60}") {
            let shown = escaped(&text);
            prop_assert!(!shown.contains(['<', '>', '"', '\'']));
            let back = shown.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&#39;", "'");
            prop_assert_eq!(back.replace("&amp;", "&"), text);
        }
    }
}
