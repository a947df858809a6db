//! The last stage: the draft becomes text, and the text must pass the check of `offramp-config`. Items that it refuses are
//! left out and reported.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use offramp_config::{Environment, Severity, formatted, parse};

use crate::draft::{Draft, DraftItem, comment};
use crate::known::ForeignLanguage;
use crate::report::{Fate, Finding, ImportReport};
use crate::source::{FoundAt, ImportError};

/// The outcome of an import.
#[derive(Debug)]
pub struct Imported {
    /// The text of the configuration, which passes `offramp check`.
    pub toml: String,
    /// The fate of each directive.
    pub report: ImportReport,
}

/// The rounds of leaving out; an item that goes may leave others without what they name.
const ROUNDS: usize = 20;

/// The comments at the head that name what was left out.
const NAMED: usize = 200;

/// Writes and checks the draft. `findings` has the directives by number.
pub(crate) fn finish(
    language: ForeignLanguage,
    paths: &[PathBuf],
    mut draft: Draft,
    mut findings: Vec<Finding>,
) -> Result<Imported, ImportError> {
    for _ in 0..ROUNDS {
        if draft.routes.is_empty() {
            return Err(empty(language, &findings));
        }
        let (body, lines) = draft.text("");
        match parse(&body, "offramp.toml", &Environment::default()) {
            Ok((_, warnings)) => {
                let warnings = warnings.iter().map(|warning| {
                    let line = warning.place().map(|place| place.line).unwrap_or_default();
                    let origin = item_of(&lines, line).map(|id| format!("{}: ", findings[id].at));
                    let remedy = warning.remedy().map(|text| format!("; {text}")).unwrap_or_default();
                    format!("{}{}{remedy}", origin.unwrap_or_default(), warning.message())
                });
                let warnings = warnings.collect();
                let report = ImportReport { warnings, findings: merged(findings) };
                let text = head(language, paths, &report) + &body;
                let toml = formatted(&text, "offramp.toml").unwrap_or(text);
                return Ok(Imported { toml, report });
            }
            Err(errors) => {
                let mut dropped = HashSet::new();
                for problem in errors.problems().iter().filter(|one| one.severity() == Severity::Error) {
                    let line = problem.place().map(|place| place.line).unwrap_or_default();
                    let Some(id) = item_of(&lines, line) else {
                        let help = "this is a mistake of offramp import: please report it";
                        return Err(ImportError::whole(problem.message(), help));
                    };
                    let remedy = problem.remedy().unwrap_or("write it by hand");
                    let fate = Fate::not(format!("offramp check: {}", problem.message()), remedy);
                    let finding: &mut Fate = &mut findings[id].fate;
                    *finding = fate.max(finding.clone());
                    dropped.insert(id);
                }
                leave_out(&mut draft, &dropped);
            }
        }
    }
    Err(empty(language, &findings))
}

/// One finding for each place: a file that is included twice has two. The worst fate counts.
fn merged(findings: Vec<Finding>) -> Vec<Finding> {
    let mut first: HashMap<FoundAt, usize> = HashMap::new();
    let mut merged: Vec<Finding> = Vec::with_capacity(findings.len());
    for finding in findings {
        match first.get(&finding.at) {
            Some(&index) => {
                let known = &mut merged[index].fate;
                *known = finding.fate.max(known.clone());
            }
            None => {
                first.insert(finding.at.clone(), merged.len());
                merged.push(finding);
            }
        }
    }
    merged
}

/// The item that has a line.
fn item_of(lines: &[(usize, usize)], line: usize) -> Option<usize> {
    let after = lines.partition_point(|(first, _)| *first <= line);
    after.checked_sub(1).map(|index| lines[index].1)
}

fn leave_out(draft: &mut Draft, ids: &HashSet<usize>) {
    let stays = |item: &DraftItem| !ids.contains(&item.id);
    draft.listeners.retain(stays);
    draft.certificates.retain(stays);
    draft.routes.retain(|route| stays(&route.item));
    draft.backends.retain(|(_, item)| stays(item));
}

/// An import without any route: an error that says what was in the way.
fn empty(language: ForeignLanguage, findings: &[Finding]) -> ImportError {
    let first = findings.iter().find_map(|finding| match &finding.fate {
        Fate::NotTaken { why, .. } => Some(format!("{}: {}: {why}", finding.at, finding.text)),
        _ => None,
    });
    let message = match first {
        Some(first) => {
            format!("nothing that clients could reach was found. The first that was not taken: {first}")
        }
        None => "nothing that clients could reach was found".to_owned(),
    };
    let help = match language {
        ForeignLanguage::Nginx => {
            "name the file with the servers: nginx.conf, which includes them, or one of sites-enabled"
        }
        ForeignLanguage::Hitch => "name the file with `frontend`, `backend` and `pem-file`",
        ForeignLanguage::Haproxy => "name the file with `frontend` and `backend`, or `listen`",
    };
    ImportError::whole(message, help)
}

/// The comment at the head: sources, counts, and what was left out.
fn head(language: ForeignLanguage, paths: &[PathBuf], report: &ImportReport) -> String {
    let names: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    let mut text = format!(
        "# Written by offramp import from {} ({}):\n# {}.\n",
        comment(&names.join(", ")),
        language.word(),
        report.summary()
    );
    let mut left = report.findings.iter().filter(|one| matches!(one.fate, Fate::NotTaken { .. })).peekable();
    if left.peek().is_some() {
        text.push_str("#\n# Not taken:\n");
    }
    for Finding { at, text: directive, fate } in left.by_ref().take(NAMED) {
        if let Fate::NotTaken { why, remedy } = fate {
            text.push_str(&format!(
                "# - {at}: {}: {}; {}\n",
                comment(directive),
                comment(why),
                comment(remedy)
            ));
        }
    }
    if left.next().is_some() {
        text.push_str("# - and more: the report has all of them\n");
    }
    text
}
