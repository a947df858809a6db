//! Figures in Graphite's plaintext protocol: one line of path, value and time for each.
//!
//! A path is the prefix, the metric's name without `offramp_`, and the label values in order; so
//! `offramp_requests_total{route="git.example.org",…,code="2xx"}` becomes
//! `offramp.requests_total.git:example:org.….2xx`. Histograms end in `count`, `sum` and `le.` with a bound,
//! and are cumulative. Label values are escaped so that each is one node of the tree and no two collide:
//! letters, digits, `_` and `-` stay, a dot becomes `:`, every other byte `%` and two hexadecimal digits, and
//! an empty text `%`.

use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::exposition::{Distribution, Exposition, MetricVisitor, SampleValue};
use crate::names::Metric;

impl Exposition {
    /// Appends a line per figure to `out`, each with the time `now` in seconds and a path that starts with
    /// `prefix`, one or more names joined by dots.
    pub fn render_graphite(&self, prefix: &str, now: SystemTime, out: &mut Vec<u8>) {
        let time = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        self.walk(&mut GraphiteWriter { out, prefix, time });
    }
}

/// The lines under construction. Writing into a `Vec` cannot fail, so the results of `write!` are dropped.
struct GraphiteWriter<'a> {
    out: &'a mut Vec<u8>,
    prefix: &'a str,
    time: u64,
}

impl MetricVisitor for GraphiteWriter<'_> {
    fn family(&mut self, _: &Metric) {}

    fn sample(&mut self, metric: &Metric, labels: &[&str], value: SampleValue) {
        self.path(metric, labels);
        self.end(value);
    }

    fn histogram(&mut self, metric: &Metric, labels: &[&str], distribution: &Distribution) {
        let mut line = |node: &str, bound: Option<f64>, value: SampleValue| {
            self.path(metric, labels);
            self.out.extend_from_slice(node.as_bytes());
            if let Some(bound) = bound {
                escape(&format!("{bound:?}"), self.out);
            }
            self.end(value);
        };
        for (bound, count) in &distribution.buckets {
            line(".le.", Some(*bound), (*count).into());
        }
        line(".count", None, distribution.count.into());
        line(".sum", None, distribution.sum.into());
    }
}

impl GraphiteWriter<'_> {
    fn path(&mut self, metric: &Metric, labels: &[&str]) {
        self.out.extend_from_slice(self.prefix.as_bytes());
        self.out.push(b'.');
        let name = metric.name.strip_prefix("offramp_").unwrap_or(metric.name);
        self.out.extend_from_slice(name.as_bytes());
        for label in labels {
            self.out.push(b'.');
            escape(label, self.out);
        }
    }

    fn end(&mut self, value: SampleValue) {
        let time = self.time;
        let _ = match value {
            SampleValue::Whole(value) => writeln!(self.out, " {value} {time}"),
            SampleValue::Real(value) => writeln!(self.out, " {value} {time}"),
        };
    }
}

fn escape(text: &str, out: &mut Vec<u8>) {
    if text.is_empty() {
        out.push(b'%');
    }
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' => out.push(byte),
            b'.' => out.push(b':'),
            byte => {
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::escape;
    use proptest::prelude::*;

    fn escaped(text: &str) -> String {
        let mut out = Vec::new();
        escape(text, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn ordinary_values_stay_readable() {
        assert_eq!(escaped("git.example.org"), "git:example:org");
        assert_eq!(escaped("unix:/run/my_app.sock"), "unix%3A%2Frun%2Fmy_app:sock");
        assert_eq!(escaped("2001:db8::/64"), "2001%3Adb8%3A%3A%2F64");
        assert_eq!(escaped(""), "%");
    }

    proptest! {
        #[test]
        fn each_value_is_one_node_and_no_two_are_alike(one in ".{0,12}", other in ".{0,12}") {
            let (a, b) = (escaped(&one), escaped(&other));
            prop_assert_eq!(one == other, a == b);
            prop_assert!(!a.is_empty() && a.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'.'));
            let is_special = a.contains(['/', ';', '=', '{', '}', '*', '\\']);
            prop_assert!(!is_special);
        }
    }
}
