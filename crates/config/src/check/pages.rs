//! The pages of errors of a route.

use super::Reader;
use crate::error::Problem;
use crate::model::{ErrorPages, Maintenance, StatusRange};
use crate::raw::{Section, Spanned};

/// What clients get where there is an error.
pub(super) fn error_pages(section: &Section, reader: &mut Reader<'_, '_>) -> ErrorPages {
    let mut files: Vec<(StatusRange, _)> = Vec::new();
    let pairs = section.pairs("error_pages");
    for (at, (status, file)) in pairs.iter().enumerate() {
        let origin = reader.origin(&file.span);
        let file = reader.tell(&file.span, origin.file(&file.value));
        // One status with several files is one key.
        let again = at > 0 && pairs[at - 1].0.span == status.span;
        let parsed = status.value.parse::<StatusRange>().and_then(of_an_error);
        let parsed = if again { parsed.ok() } else { reader.tell(&status.span, parsed) };
        files.extend(parsed.zip(file));
    }
    // What is said of one status goes before what is said of its class. The sort is stable.
    files.sort_by_key(|(status, _)| (status.last() - status.first(), *status));
    let intercept = section.bool("intercept_errors").unwrap_or_default();
    if intercept && !section.mentions("error_pages") {
        let problem = Problem::new("`intercept_errors` has no pages to send");
        let help = "add `error_pages`, or leave it out";
        reader.report.whole(section.key_span("intercept_errors"), problem.help(help));
    }
    ErrorPages { files, intercept }
}

/// Whether the route is closed for a while.
pub(super) fn maintenance(section: &Section, reader: &mut Reader<'_, '_>) -> Option<Maintenance> {
    let Some(details) = section.section("maintenance") else {
        return section.bool("maintenance")?.then(Maintenance::default);
    };
    let retry_after = details.duration("retry_after").unwrap_or(Maintenance::default().retry_after);
    let allow = reader.list(details, "allow", |text: &Spanned<String>, _| text.value.parse());
    Some(Maintenance { retry_after, allow })
}

/// The pages for requests without a route.
pub(super) fn of_all(defaults: &Section, reader: &mut Reader<'_, '_>) -> ErrorPages {
    ErrorPages { intercept: false, ..error_pages(defaults, reader) }
}

fn of_an_error(status: StatusRange) -> Result<StatusRange, Problem> {
    if status.first() >= 400 {
        return Ok(status);
    }
    let problem = Problem::new(format!("`{status}` is not the status of an error"));
    Err(problem.help("write statuses from 400 to 599, or the classes 4xx and 5xx"))
}
