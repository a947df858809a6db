//! `offramp logs`: import of access logs into the log store, and queries, also for Grafana.

mod ask;
mod ingest;
mod progress;
mod serve;
mod sink;
mod tail;

use std::time::SystemTime;

use offramp_analytics::Writer;

pub(crate) use ask::open as open_store;
pub(crate) use ingest::{advice as format_advice, format as input_format};

use crate::failure::Failure;
use crate::flags::logs::{Logs, LogsCommand, Tidy};
use crate::log_store::StoreTarget;
use crate::surroundings::say;

/// Runs a subcommand of `logs`.
///
/// # Errors
/// The arguments make no sense, or the store failed.
pub(crate) fn run(arguments: Logs) -> Result<(), Failure> {
    match arguments.command {
        LogsCommand::Ingest(arguments) => ingest::run(arguments),
        LogsCommand::Top(arguments) => ask::top(arguments),
        LogsCommand::Traffic(arguments) => ask::traffic(arguments),
        LogsCommand::Visitors(arguments) => ask::visitors(arguments),
        LogsCommand::Compare(arguments) => ask::compare(arguments),
        LogsCommand::Tail(arguments) => tail::run(arguments),
        LogsCommand::Search(arguments) => ask::search(arguments),
        LogsCommand::Query(arguments) => ask::query(arguments),
        LogsCommand::Serve(arguments) => serve::run(arguments),
        LogsCommand::Tidy(arguments) => tidy(arguments),
    }
}

fn tidy(arguments: Tidy) -> Result<(), Failure> {
    let place = StoreTarget::find(arguments.store)?;
    let mut options = place.options;
    options.retention = arguments.retention.or(options.retention);
    options.rollup_retention = arguments.rollup_retention.or(options.rollup_retention);
    let mut writer = Writer::open(&place.url, &options).map_err(|error| Failure::of_store(&error))?;
    writer.finish(SystemTime::now()).map_err(|error| Failure::of_store(&error))?;
    say("the store is tidy");
    Ok(())
}
