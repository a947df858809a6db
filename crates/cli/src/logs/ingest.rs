//! `offramp logs ingest`.
//!
//! SIGINT and SIGTERM end it between two lines, with everything before them in the store. A second one ends it at
//! once, and so do [`LAST`] seconds in which the store does not answer: what was not committed is read again the next time.

use std::future::pending;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use offramp_analytics::follow::{Seen, Start, follow, resume};
use offramp_analytics::format::{LogFormat, recognise};
use offramp_analytics::ingest::{Again, FileOutcome, Ingest, Input, Rejects, Report, Stop};
use offramp_analytics::writer::{move_aside, was_a_store};
use offramp_analytics::{Error, Options, StoreSink};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

use crate::failure::Failure;
use crate::flags::logs::{self, FormatOptions};
use crate::surroundings::say;

use super::failure;
use super::place::Place;
use super::progress::{Meter, note};
use super::sink::IngestSink;

/// Texts at hand, and KiB of the database's cache, while files are imported: more than a proxy's store has, as it is
/// over soon.
const MEMORY_OF_AN_IMPORT: (usize, u32) = (32_768, 16 << 10);

/// The same while a log is followed, which goes on for months and is rarely in a hurry.
const MEMORY_OF_A_FOLLOWER: (usize, u32) = (4096, 2 << 10);

/// Between attempts to open a store that is away, while following.
const BETWEEN_ATTEMPTS: Duration = Duration::from_secs(1);

/// After a signal, how long the store may take for what is under way. Less than service managers wait before they kill.
const LAST: Duration = Duration::from_secs(15);

pub(super) fn run(arguments: logs::Ingest) -> Result<(), Failure> {
    let place = Place::find(arguments.store)?;
    let import = arguments.follow.is_none();
    let (texts_at_hand, cache_kib) = if import { MEMORY_OF_AN_IMPORT } else { MEMORY_OF_A_FOLLOWER };
    let options = Options { texts_at_hand, cache_kib, ..place.options };
    let rejects = match &arguments.rejects {
        Some(path) => Rejects::to_file(path).map_err(|error| failure(&error))?,
        None => Rejects::new(),
    };
    let rejects = rejects.on_reject(|rejection| note(&rejection.to_string()));
    let parser = format(arguments.format)?.parser(arguments.utc_offset);
    let unable = |error| Failure::runtime(format_args!("error: cannot wait: {error}"));
    let stop = Stop::new().map_err(unable)?;
    obey_signals(stop.clone())?;
    let mut tell = tell_once();
    let store = loop {
        match StoreSink::open(&place.url, &options, stop.clone()) {
            Ok(store) => break store.on_trouble(tell),
            // Whatever begins together with the store must not fail because it is the first.
            Err(error) if matches!(error, Error::Busy(_) | Error::Away(_) | Error::Full(_)) && !import => {
                tell(&error);
                if stop.rest(BETWEEN_ATTEMPTS).map_err(unable)? {
                    return Ok(());
                }
            }
            Err(error @ Error::Corrupt(_)) if was_a_store(&place.url) => {
                let aside = move_aside(&place.url).map_err(|error| failure(&error))?;
                say(&format!("warning: {error}; moved to {}, a new store begins", aside.display()));
            }
            Err(error) => return Err(failure(&error)),
        }
    };
    let meter = Meter::of(&arguments.files);
    let mut ingest = Ingest::new(parser, IngestSink::new(store, arguments.host), rejects, stop.clone())
        .on_gap(|gap| note(&format!("warning: {gap}")))
        .on_progress(meter.show());
    let start = if arguments.from_end { Start::End } else { Start::Beginning };
    let again = if arguments.again { Again::Yes } else { Again::No };
    // Of a log that was understood before a strange line is no surprise.
    let mut may_be_strange = !import;
    let outcome = match (&arguments.follow, &arguments.resume) {
        (Some(path), _) => follow(&mut ingest, path, start),
        (None, Some(path)) => {
            resume(&mut ingest, path, start).map(|seen| may_be_strange = seen == Seen::Before)
        }
        (None, None) => import_all(&mut ingest, &arguments.files, again, &meter),
    };
    let (sink, report, rejects) = ingest.finish();
    // What was read before a failure is in the store, so it is told as well.
    note(&summary(&report));
    outcome.map_err(|error| failure(&error))?;
    if !may_be_strange && report.accepted == 0 && report.rejected > 0 {
        return Err(Failure::runtime(advice(rejects.samples())));
    }
    if let Some(name) = recognise(rejects.samples()) {
        note(&format!(
            "the lines that did not parse look like `{name}`: read such logs with --format {name}"
        ));
    }
    match import && !stop.is_requested() {
        true => sink.into_store().finish(SystemTime::now()).map_err(|error| failure(&error)),
        false => Ok(()),
    }
}

/// What may be wrong where no line makes sense.
fn advice(samples: &[Vec<u8>]) -> String {
    let what = match recognise(samples) {
        Some(name) => format!("they look like `{name}`: add --format {name}"),
        None => "name the format with --format, or give the server's own: --log-format with nginx's log_format, or \
                 --regex"
            .to_owned(),
    };
    format!("error: no line has the given format\n{what}\nNothing was stored or remembered")
}

fn format(options: FormatOptions) -> Result<LogFormat, Failure> {
    match options.format.or(options.log_format).or(options.regex) {
        Some(format) => Ok(format),
        None => LogFormat::named("combined").map_err(Failure::usage),
    }
}

/// Reads one input after the other.
fn import_all(
    ingest: &mut Ingest<IngestSink>,
    files: &[PathBuf],
    again: Again,
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
            if let Some(text) = told(file, &outcome) {
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

/// The message about a file that was read before, or whose lines do not parse.
fn told(file: &Path, outcome: &FileOutcome) -> Option<String> {
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

/// Tells of trouble with the store when it begins and when it becomes another one.
fn tell_once() -> impl FnMut(&Error) + Send {
    let mut last = String::new();
    move |error| {
        let text = error.to_string();
        if text != last {
            note(&format!("warning: {text}; waiting for it"));
            last = text;
        }
    }
}

fn summary(report: &Report) -> String {
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

/// Has `stop` requested by SIGINT and SIGTERM.
fn obey_signals(stop: Stop) -> Result<(), Failure> {
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
                    true => sleep(LAST).await,
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
                std::process::exit(1);
            }
            is_asked = true;
            stop.request();
        }
    };
    let thread = std::thread::Builder::new().name("signals".to_owned());
    thread.spawn(move || runtime.block_on(listen)).map_err(failed)?;
    Ok(())
}
