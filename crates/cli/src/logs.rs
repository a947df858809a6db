//! `offramp logs`: access logs into the store, and questions to it, also Grafana's.

mod ask;
mod ingest;
pub(crate) mod place;
mod progress;
mod serve;
mod sink;
mod tail;
pub(crate) mod when;

use std::time::SystemTime;

use offramp_analytics::{Error, Writer};

use crate::failure::Failure;
use crate::flags::logs::{Command, Logs, Tidy};
use crate::surroundings::say;

use place::Place;

/// Does what `offramp logs …` says.
///
/// # Errors
/// It could not be done.
pub(crate) fn run(arguments: Logs) -> Result<(), Failure> {
    match arguments.command {
        Command::Ingest(arguments) => ingest::run(arguments),
        Command::Top(arguments) => ask::top(arguments),
        Command::Traffic(arguments) => ask::traffic(arguments),
        Command::Visitors(arguments) => ask::visitors(arguments),
        Command::Compare(arguments) => ask::compare(arguments),
        Command::Tail(arguments) => tail::run(arguments),
        Command::Search(arguments) => ask::search(arguments),
        Command::Query(arguments) => ask::query(arguments),
        Command::Serve(arguments) => serve::run(arguments),
        Command::Tidy(arguments) => tidy(arguments),
    }
}

fn tidy(arguments: Tidy) -> Result<(), Failure> {
    let place = Place::find(arguments.store)?;
    let mut options = place.options;
    options.retention = arguments.retention.or(options.retention);
    options.rollup_retention = arguments.rollup_retention.or(options.rollup_retention);
    let mut writer = Writer::open(&place.url, &options).map_err(|error| failure(&error))?;
    writer.finish(SystemTime::now()).map_err(|error| failure(&error))?;
    say("the store is tidy");
    Ok(())
}

/// Whose the fault is.
fn failure(error: &Error) -> Failure {
    let is_usage = matches!(error, Error::Url(_) | Error::Question(_));
    let text = format!("error: {error}");
    if is_usage { Failure::Usage(text) } else { Failure::Runtime(text) }
}
