//! The report of an import: the fate of each directive.

use std::fmt::{self, Write as _};

use crate::source::FoundAt;

/// The outcome for one directive, from the best to the worst.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// The result does the same.
    Taken,
    /// The result does nearly the same.
    Changed(String),
    /// The result does not do it.
    NotTaken {
        /// The reason, in words for operators.
        why: String,
        /// The remedy, in words for operators.
        remedy: String,
    },
}

impl Fate {
    pub(crate) fn changed(how: impl Into<String>) -> Self {
        Fate::Changed(printable(&how.into()))
    }

    pub(crate) fn not(why: impl Into<String>, remedy: impl Into<String>) -> Self {
        Fate::NotTaken { why: printable(&why.into()), remedy: printable(&remedy.into()) }
    }
}

/// One directive and its fate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The place.
    pub at: FoundAt,
    /// The directive, shortened, without secrets.
    pub text: String,
    /// The outcome.
    pub fate: Fate,
}

/// The fates of all directives, in the order of the files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImportReport {
    /// The directives.
    pub findings: Vec<Finding>,
    /// The warnings that `offramp check` has for the result.
    pub warnings: Vec<String>,
}

impl ImportReport {
    /// The number of directives that were not taken.
    pub fn left_out(&self) -> usize {
        self.findings.iter().filter(|finding| matches!(finding.fate, Fate::NotTaken { .. })).count()
    }

    /// The counts in one line.
    pub fn summary(&self) -> String {
        let changed = self.findings.iter().filter(|finding| matches!(finding.fate, Fate::Changed(_))).count();
        let (all, out) = (self.findings.len(), self.left_out());
        let (are, s) = if all == 1 { ("is", "") } else { ("are", "s") };
        format!(
            "of {all} directive{s} {} {are} taken, {changed} changed, {out} not taken",
            all - changed - out
        )
    }

    /// The report as text; with `all`, what was taken is listed too.
    pub fn text(&self, all: bool) -> String {
        let mut text = format!("{}\n", self.summary());
        // Writing to a String cannot fail.
        let _ = self.write(&mut text, all);
        text
    }

    fn write(&self, out: &mut String, all: bool) -> fmt::Result {
        let parts: [ReportPart; 3] = [
            ("not taken", |fate| matches!(fate, Fate::NotTaken { .. })),
            ("changed", |fate| matches!(fate, Fate::Changed(_))),
            ("taken", |fate| *fate == Fate::Taken),
        ];
        for (title, is_in) in &parts[..if all { 3 } else { 2 }] {
            let mut found = self.findings.iter().filter(|finding| is_in(&finding.fate)).peekable();
            if found.peek().is_some() {
                write!(out, "\n{title}:\n")?;
            }
            for Finding { at, text, fate } in found {
                writeln!(out, "  {at}: {text}")?;
                match fate {
                    Fate::Taken => {}
                    Fate::Changed(how) => writeln!(out, "      {how}")?,
                    Fate::NotTaken { why, remedy } => writeln!(out, "      {why}; {remedy}")?,
                }
            }
        }
        if !self.warnings.is_empty() {
            out.push_str("\nwarnings of offramp check:\n");
        }
        for warning in &self.warnings {
            writeln!(out, "  {warning}")?;
        }
        Ok(())
    }
}

/// The title of a part of a report, and the fates that it has.
type ReportPart = (&'static str, fn(&Fate) -> bool);

/// The most characters of a directive in a report.
const SHOWN: usize = 80;

/// A directive as one line, without what may be a secret.
pub(crate) fn shown(name: &str, arguments: &[String]) -> String {
    let mut line = printable(name);
    let is_path = name.ends_with("_key") || name.ends_with("_file") || name.starts_with("proxy_cookie");
    let mut hide = is_secret(name) && !is_path && name != "server_tokens";
    for argument in arguments {
        line.push(' ');
        if hide {
            line.push('…');
        } else {
            line.push_str(&without_password(&printable(argument)));
        }
        hide = hide || is_secret(argument);
    }
    if line.chars().count() > SHOWN {
        line = line.chars().take(SHOWN - 1).chain(['…']).collect();
    }
    line
}

/// The words in names of fields and options with secret values.
const SECRETS: [&str; 8] =
    ["authorization", "cookie", "token", "secret", "password", "passwd", "api-key", "apikey"];

/// Returns `true` for the name of something with a secret value.
pub(crate) fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace('_', "-");
    SECRETS.iter().any(|word| name.contains(word)) || name.ends_with("-key")
}

fn printable(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

/// A URL without its user and password.
fn without_password(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    let end = rest.find('/').unwrap_or(rest.len());
    match rest[..end].rfind('@') {
        Some(at) => format!("{scheme}://…{}", &rest[at..]),
        None => text.to_owned(),
    }
}
