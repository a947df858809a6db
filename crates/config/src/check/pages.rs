//! The error pages of a route.

use super::ValueReader;
use crate::error::Problem;
use crate::model::{ErrorPageFiles, StatusRange};
use crate::raw::Section;

/// Reads the pages of errors; `intercept` is the value of `intercept_errors`.
pub(super) fn error_pages(
    section: &Section,
    intercept: bool,
    reader: &mut ValueReader<'_, '_>,
) -> ErrorPageFiles {
    let mut files: Vec<(StatusRange, _)> = Vec::new();
    let pairs = section.pairs("error_pages");
    for (at, (status, file)) in pairs.iter().enumerate() {
        let origin = reader.origin(&file.span);
        let file = reader.ok_or_report(&file.span, origin.file(&file.value));
        // One status with several files is one key.
        let again = at > 0 && pairs[at - 1].0.span == status.span;
        let parsed = status.value.parse::<StatusRange>().and_then(of_an_error);
        let parsed = if again { parsed.ok() } else { reader.ok_or_report(&status.span, parsed) };
        files.extend(parsed.zip(file));
    }
    // Single statuses take precedence over classes. The sort is stable.
    files.sort_by_key(|(status, _)| (status.last() - status.first(), *status));
    if intercept && !section.mentions("error_pages") {
        let problem = Problem::new("`intercept_errors` has no pages to send");
        let help = "add `error_pages`, or leave it out";
        reader.report.whole(section.key_span("intercept_errors"), problem.help(help));
    }
    ErrorPageFiles { files, intercept }
}

/// Reads the pages for requests without a route.
pub(super) fn of_all(defaults: &Section, reader: &mut ValueReader<'_, '_>) -> ErrorPageFiles {
    error_pages(defaults, false, reader)
}

fn of_an_error(status: StatusRange) -> Result<StatusRange, Problem> {
    if status.first() >= 400 {
        return Ok(status);
    }
    let problem = Problem::new(format!("`{status}` is not the status of an error"));
    Err(problem.help("write statuses from 400 to 599, or the classes 4xx and 5xx"))
}
