//! `offramp logs ingest`: import of access logs.
//!
//! SIGINT and SIGTERM stop it between two lines, with all lines before committed. A second signal stops it at
//! once, and so does a store that does not answer for [`STOP_TIMEOUT`]; uncommitted lines are read again by
//! the next run.

use std::future::pending;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use offramp_analytics::follow::{Familiarity, StartAt, follow, resume};
use offramp_analytics::format::{InputFormat, recognise};
use offramp_analytics::ingest::{FileOutcome, ImportReport, Input, LogImport, Reimport, Rejects, StopSignal};
use offramp_analytics::writer::{move_aside, was_a_store};
use offramp_analytics::{Error, Options, StoreSink};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

use crate::failure::Failure;
use crate::flags::logs::{self, FormatOptions};
use crate::log_store::StoreTarget;
use crate::surroundings::say;

use super::progress::{Meter, note};
use super::sink::IngestSink;

/// Texts kept in memory, and KiB of the database's cache, for an import: more than for the store of a proxy,
/// since an import is short.
const IMPORT_MEMORY: (usize, u32) = (32_768, 16 << 10);

/// Like [`IMPORT_MEMORY`], for following a log, which runs for months and is rarely under load.
const FOLLOW_MEMORY: (usize, u32) = (4096, 2 << 10);

/// Delay between attempts to open an unreachable store while following.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Time for the store to finish after a signal; less than service managers wait before they kill.
const STOP_TIMEOUT: Duration = Duration::from_secs(15);

pub(super) fn run(arguments: logs::Ingest) -> Result<(), Failure> {
    let place = StoreTarget::find(arguments.store)?;
    let import = arguments.follow.is_none();
    let (texts_at_hand, cache_kib) = if import { IMPORT_MEMORY } else { FOLLOW_MEMORY };
    let options = Options { texts_at_hand, cache_kib, ..place.options };
    let rejects = match &arguments.rejects {
        Some(path) => Rejects::to_file(path).map_err(|error| Failure::of_store(&error))?,
        None => Rejects::new(),
    };
    let rejects = rejects.on_reject(|rejection| note(&rejection.to_string()));
    let parser = format(arguments.format)?.parser(arguments.utc_offset);
    let stop = StopSignal::new().map_err(|error| unable_to_wait(&error))?;
    obey_signals(stop.clone())?;
    let Some(store) = open_store(&place.url, &options, &stop, import)? else { return Ok(()) };
    let meter = Meter::of(&arguments.files);
    let mut ingest = LogImport::new(parser, IngestSink::new(store, arguments.host), rejects, stop.clone())
        .on_gap(|gap| note(&format!("warning: {gap}")))
        .on_progress(meter.show());
    let start = if arguments.from_end { StartAt::End } else { StartAt::Beginning };
    let again = if arguments.again { Reimport::Yes } else { Reimport::No };
    // Unparsable lines are only an error in a log that has never been parsed.
    let mut was_parsed_before = !import;
    let outcome = match (&arguments.follow, &arguments.resume) {
        (Some(path), _) => follow(&mut ingest, path, start),
        (None, Some(path)) => {
            resume(&mut ingest, path, start).map(|seen| was_parsed_before = seen == Familiarity::Before)
        }
        (None, None) => import_all(&mut ingest, &arguments.files, again, &meter),
    };
    let (sink, report, rejects) = ingest.finish();
    // Lines before a failure are in the store, so the summary is printed first.
    note(&summary(&report));
    outcome.map_err(|error| Failure::of_store(&error))?;
    if !was_parsed_before && report.accepted == 0 && report.rejected > 0 {
        let advice = advice(rejects.samples());
        return Err(Failure::runtime(format_args!("error: {advice}\nNothing was stored or remembered")));
    }
    if let Some(name) = recognise(rejects.samples()) {
        note(&format!(
            "the lines that did not parse look like `{name}`: read such logs with --format {name}"
        ));
    }
    match import && !stop.is_requested() {
        true => sink.into_store().finish(SystemTime::now()).map_err(|error| Failure::of_store(&error)),
        false => Ok(()),
    }
}

/// Opens the store; while `import` is false, an unreachable one is tried again. `None` if that is stopped.
fn open_store(
    url: &str,
    options: &Options,
    stop: &StopSignal,
    import: bool,
) -> Result<Option<StoreSink>, Failure> {
    let mut warn = warn_on_change();
    loop {
        match StoreSink::open(url, options, stop.clone()) {
            Ok(store) => return Ok(Some(store.on_trouble(warn))),
            // A service that starts together with its store must not fail because it is first.
            Err(error) if matches!(error, Error::Busy(_) | Error::Away(_) | Error::Full(_)) && !import => {
                warn(&error);
                if stop.rest(RETRY_DELAY).map_err(|error| unable_to_wait(&error))? {
                    return Ok(None);
                }
            }
            Err(error @ Error::Corrupt(_)) if was_a_store(url) => {
                let aside = move_aside(url).map_err(|error| Failure::of_store(&error))?;
                say(&format!("warning: {error}; moved to {}, a new store begins", aside.display()));
            }
            Err(error) => return Err(Failure::of_store(&error)),
        }
    }
}

fn unable_to_wait(error: &io::Error) -> Failure {
    Failure::runtime(format_args!("error: cannot wait: {error}"))
}

/// Text for input without a single parsable line, and what to do.
pub(crate) fn advice(samples: &[Vec<u8>]) -> String {
    let what = match recognise(samples) {
        Some(name) => format!("they look like `{name}`: add --format {name}"),
        None => "name the format with --format, or give the server's own: --log-format with nginx's log_format, or \
                 --regex"
            .to_owned(),
    };
    format!("no line has the given format\n{what}")
}

/// The format that the options name, else `combined`.
///
/// # Errors
/// The default is unknown, which does not happen.
pub(crate) fn format(options: FormatOptions) -> Result<InputFormat, Failure> {
    match options.format.or(options.log_format).or(options.regex) {
        Some(format) => Ok(format),
        None => InputFormat::named("combined").map_err(Failure::usage),
    }
}

/// Imports the inputs in order.
fn import_all(
    ingest: &mut LogImport<IngestSink>,
    files: &[PathBuf],
    again: Reimport,
    meter: &Meter,
) -> Result<(), Error> {
    let standard_input = [PathBuf::from("-")];
    let files = if files.is_empty() { &standard_input } else { files };
    for file in files {
        if file == Path::new("-") {
            let name = |error: io::Error| Error::Io("standard input".to_owned(), error);
            ingest.read(&mut Input::stdin().map_err(name)?)?;
        } else {
            let outcome = ingest.read_file(file, again)?;
            if let Some(text) = file_message(file, &outcome) {
                note(&text);
            }
            meter.passed(file);
        }
        if ingest.is_stopped() {
            break;
        }
    }
    Ok(())
}

/// Message about a file that was read before, or in which no line could be parsed.
fn file_message(file: &Path, outcome: &FileOutcome) -> Option<String> {
    let file = file.display();
    let Some(before) = &outcome.before else {
        return outcome.is_all_rejected().then(|| format!("{file}: none of its lines has this format"));
    };
    let lines = outcome.report.lines;
    let path = &before.path;
    Some(if before.is_followed {
        format!("{file}: it is followed as {path}, so nothing was added: --resume reads what is new")
    } else if lines == 0 {
        format!("{file}: all of it was read before, as {path}, so nothing was added: --again reads it again")
    } else {
        format!("{file}: {} bytes were read before, as {path}; only what follows was added", before.bytes)
    })
}

/// Returns a callback that prints an error of the store unless it repeats the previous one.
fn warn_on_change() -> impl FnMut(&Error) + Send {
    let mut last = String::new();
    move |error| {
        let text = error.to_string();
        if text != last {
            note(&format!("warning: {text}; waiting for it"));
            last = text;
        }
    }
}

fn summary(report: &ImportReport) -> String {
    let seconds = report.elapsed.as_secs_f64();
    let count = |number: u64, what: &str| match number {
        1 => format!("1 {what}"),
        number => format!("{number} {what}s"),
    };
    let mut text = format!("{}: {} stored", count(report.lines, "line"), count(report.accepted, "request"));
    if report.rejected > 0 {
        text += &format!(", {} did not parse", report.rejected);
    }
    if report.skipped > 0 {
        text += &format!(", {} without a request", report.skipped);
    }
    if report.gaps > 0 {
        text += &format!(", {} where lines may be missing", count(report.gaps, "gap"));
    }
    text + &format!("; {seconds:.1} s")
}

/// Requests `stop` on SIGINT and SIGTERM, from a thread of its own.
fn obey_signals(stop: StopSignal) -> Result<(), Failure> {
    let failed =
        |error: io::Error| Failure::runtime(format_args!("error: cannot listen to signals: {error}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let entered = runtime.enter();
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    drop(entered);
    let listen = async move {
        let mut is_asked = false;
        loop {
            let overdue = async {
                match is_asked {
                    true => sleep(STOP_TIMEOUT).await,
                    false => pending().await,
                }
            };
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                () = overdue => say(
                    "error: the store does not answer; what it has not confirmed is read again the next time",
                ),
            }
            if is_asked {
                offramp_net::process::end(1);
            }
            is_asked = true;
            stop.request();
        }
    };
    let thread = std::thread::Builder::new().name("signals".to_owned());
    thread.spawn(move || runtime.block_on(listen)).map_err(failed)?;
    Ok(())
}
