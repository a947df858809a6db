//! `offramp compare`: recorded requests, sent to an old side and a new one, and how their answers differ.
//!
//! Nothing is sent to another machine that was not named, no method that may change something unless it was named, and no
//! credential of a HAR file unless told. Redirects are not followed.
//!
//! - `source`: requests of an access log, the log store or a HAR file; `request`, one of them; `sample`, an even choice
//! - `side`, `client`: the two sides, and requests to them
//! - `answer`, `location`, `difference`, `certificate`: answers, and their differences, pure
//! - `asking`: the order of events: ask both, and again where they differ
//! - `report`: groups of differences as text, JSON and a page; `curl`, lines to be repeated; `redact`, texts without secrets

mod answer;
mod asking;
mod certificate;
mod client;
mod curl;
mod difference;
mod location;
mod redact;
mod report;
mod request;
mod sample;
mod side;
mod source;

use std::time::SystemTime;

use hyper::header::HeaderName;

use asking::Comparison;
use client::{AnswerLimits, SideClient};
use report::{CompareReport, CompareVerdict};
use side::{ComparedSide, SideTls, default_authority};

use crate::failure::Failure;
use crate::flags::compare::CompareArguments;
use crate::surroundings::print;

/// Compares, and prints the report.
///
/// # Errors
/// The sides differ (exit code 1), or could not be compared (2).
pub(crate) fn run(arguments: CompareArguments) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::usage(format_args!("error: cannot wait: {error}")))?;
    let (html, is_json) = (arguments.html.clone(), arguments.json);
    let report = runtime.block_on(compare(arguments));
    // A connection that hangs must not delay the end.
    runtime.shutdown_background();
    let report = report?;
    if let Some(file) = html {
        std::fs::write(&file, report.html()).map_err(|error| {
            Failure::usage(format_args!("error: cannot write {}: {error}", file.display()))
        })?;
    }
    let text = if is_json { format!("{:#}\n", report.json()) } else { report.text() };
    print(text.as_bytes())?;
    match report.verdict() {
        CompareVerdict::Same => Ok(()),
        CompareVerdict::Different => Err(Failure::runtime("old and new differ")),
        CompareVerdict::NotCompared => Err(Failure::usage(format_args!("error: {}", report.sentence()))),
    }
}

async fn compare(arguments: CompareArguments) -> Result<CompareReport, Failure> {
    let CompareArguments { sides: options, source, asking, rules, .. } = arguments;
    let ignored = rules.ignore_header.iter().map(|name| field(name)).collect::<Result<Vec<_>, _>>()?;
    let sides = ComparedSide::both(&options).await?;
    let authority = default_authority(asking.host.as_deref(), &sides[0])?;
    let limits = AnswerLimits { time: rules.timeout, body: u64::from(rules.max_body) << 20 };
    let mut clients = Vec::with_capacity(2);
    for side in sides {
        // Each side has its own memory of the chain that it has shown.
        let tls = SideTls::new(&options, SystemTime::now())?;
        clients.push(SideClient::new(side, tls, limits, options.http2));
    }
    let gathered = source::gather(source, &asking)?;
    let comparison = Comparison::new(clients, options, authority, ignored, &rules);
    comparison.run(gathered, asking.rate).await
}

/// A name of `--ignore-header`, in lower case.
fn field(name: &str) -> Result<String, Failure> {
    HeaderName::from_bytes(name.as_bytes()).map(|name| name.as_str().to_owned()).map_err(|_| {
        Failure::usage(format_args!(
            "error: --ignore-header {name}: write the name of a field, such as --ignore-header X-Served-By"
        ))
    })
}
