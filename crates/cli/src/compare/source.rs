//! The places that requests are taken from: an access log, the log store, a HAR file.

mod har;

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use hyper::Method;
use offramp_analytics::format::recognise;
use offramp_analytics::ingest::{EntrySink, FileRecord, Input, LogImport, Mark, Rejects, StopSignal};
use offramp_analytics::{Error, LogEntry, QuerySettings, RequestFilter, SqlValue};

use super::request::{RecordedLine, SkipCounts, SkipReason, admit};
use super::sample::{ChosenRequests, RequestSample};
use crate::failure::Failure;
use crate::flags::compare::{AskingOptions, RecordOptions};
use crate::logs;
use crate::surroundings;

/// Requests of a source, and what was left out.
#[derive(Debug)]
pub(super) struct GatheredRequests {
    pub(super) chosen: ChosenRequests,
    pub(super) skipped: SkipCounts,
    /// Sentences about the source.
    pub(super) notes: Vec<String>,
}

/// Requests on their way into the sample.
#[derive(Debug)]
struct Gathering {
    sample: RequestSample,
    skipped: SkipCounts,
    methods: Vec<Method>,
    /// The time that counts, in microseconds since 1970.
    from: i64,
    to: i64,
}

impl Gathering {
    fn skip(&mut self, reason: SkipReason, count: u64) {
        if count > 0 {
            *self.skipped.entry(reason).or_default() += count;
        }
    }

    fn line(&mut self, line: &RecordedLine<'_>) {
        match admit(line, &self.methods) {
            Ok(request) => self.sample.add(request),
            Err(reason) => self.skip(reason, 1),
        }
    }

    fn end(self, notes: Vec<String>) -> GatheredRequests {
        GatheredRequests { chosen: self.sample.choose(), skipped: self.skipped, notes }
    }
}

/// Reads the source that the arguments name.
///
/// # Errors
/// It cannot be read, or has not one request that can be sent.
pub(super) fn gather(source: RecordOptions, asking: &AskingOptions) -> Result<GatheredRequests, Failure> {
    let methods = asking.methods.iter().map(|name| method(name)).collect::<Result<Vec<_>, _>>()?;
    let (now, zone) = (SystemTime::now(), surroundings::time_zone());
    let [since, until] = [source.since, source.until].map(|when| when.map(|when| when.time(now, &zone)));
    let gathering = Gathering {
        sample: RequestSample::new(usize::from(asking.most)),
        skipped: SkipCounts::new(),
        methods,
        from: since.map_or(i64::MIN, micros),
        to: until.map_or(i64::MAX, micros),
    };
    let gathered = if let Some(path) = source.log.clone() {
        of_log(&path, source, gathering)?
    } else if let Some(path) = &source.har {
        of_har(path, asking.send_credentials, gathering)?
    } else {
        let filter = RequestFilter { since, until, limit: Some(STORED), ..RequestFilter::default() };
        of_store(source, &filter, gathering)?
    };
    if gathered.chosen.requests.is_empty() {
        let reasons =
            gathered.skipped.iter().map(|(reason, count)| format!("\n  {count} {}", reason.words()));
        let what = reasons.collect::<String>();
        return Err(Failure::usage(format_args!(
            "error: there is no request that can be sent{}",
            if what.is_empty() {
                ": the source is empty".to_owned()
            } else {
                format!("; left out were:{what}")
            }
        )));
    }
    Ok(gathered)
}

/// A method of `--methods`.
fn method(name: &str) -> Result<Method, Failure> {
    let parsed = Method::from_bytes(name.trim().to_ascii_uppercase().as_bytes()).ok();
    let parsed = parsed.filter(|method| !matches!(*method, Method::CONNECT | Method::TRACE));
    parsed.ok_or_else(|| {
        Failure::usage(format_args!(
            "error: --methods {name}: it is no method that can be repeated; write --methods GET,HEAD"
        ))
    })
}

fn micros(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

fn unreadable(error: &Error) -> Failure {
    Failure::usage(format_args!("error: {error}"))
}

/// Reads an access log, as `offramp logs ingest` does.
fn of_log(path: &Path, source: RecordOptions, gathering: Gathering) -> Result<GatheredRequests, Failure> {
    let parser = logs::input_format(source.format)?.parser(0);
    let name = if path == Path::new("-") { "standard input".to_owned() } else { path.display().to_string() };
    let failed = |error: std::io::Error| Failure::usage(format_args!("error: {name}: {error}"));
    let mut input =
        if path == Path::new("-") { Input::stdin() } else { Input::open(path) }.map_err(failed)?;
    let stop = StopSignal::new().map_err(failed)?;
    let mut import = LogImport::new(parser, gathering, Rejects::new(), stop);
    let outcome = import.read(&mut input);
    let (mut gathering, report, rejects) = import.finish();
    // A compressed log that breaks off has requests all the same.
    let mut notes = Vec::new();
    if let Err(error) = outcome {
        if report.accepted == 0 {
            return Err(unreadable(&error));
        }
        notes.push(format!("the log was not read to its end: {error}"));
    }
    if report.accepted == 0 && report.rejected > 0 {
        let advice = logs::format_advice(rejects.samples());
        return Err(Failure::usage(format_args!("error: {name}: {advice}")));
    }
    if let Some(format) = recognise(rejects.samples()) {
        notes.push(format!("lines that do not have the format look like `{format}`"));
    }
    gathering.skip(SkipReason::Unparsed, report.rejected);
    gathering.skip(SkipReason::NoRequest, report.skipped);
    Ok(gathering.end(notes))
}

impl EntrySink for Gathering {
    fn add(&mut self, entry: &LogEntry<'_>) -> Result<(), Error> {
        if entry.time_us < self.from || entry.time_us >= self.to {
            self.skip(SkipReason::Time, 1);
            return Ok(());
        }
        let request = entry.request;
        self.line(&RecordedLine {
            method: request.method,
            host: entry.host,
            path: request.path,
            query: request.query,
        });
        Ok(())
    }

    fn commit(&mut self, _mark: Option<Mark<'_>>) -> Result<(), Error> {
        Ok(())
    }

    fn files(&mut self, _source: &str) -> Result<Vec<FileRecord>, Error> {
        Ok(Vec::new())
    }

    fn files_with_head(&mut self, _head: u64) -> Result<Vec<(String, FileRecord)>, Error> {
        Ok(Vec::new())
    }
}

/// Reads the newest requests of the log store.
fn of_store(
    source: RecordOptions,
    filter: &RequestFilter,
    mut gathering: Gathering,
) -> Result<GatheredRequests, Failure> {
    let limit = QuerySettings::default().time_limit;
    let mut questions = logs::open_store(source.store, limit, Some(STORED), None)
        .map_err(|failure| Failure::usage(&failure))?;
    let found = questions.found(None, &["method", "host", "path", "query"], filter);
    let mut found = found.map_err(|error| unreadable(&error))?;
    let mut notes = std::mem::take(&mut found.notes);
    if found.rows.len() >= STORED {
        notes.push(format!("only the newest {STORED} requests of the store were looked at"));
    }
    // The newest are first, and logs begin with the oldest.
    for row in found.rows.iter().rev() {
        let text = |at: usize| match row.get(at) {
            Some(SqlValue::Text(text)) => Some(text.as_bytes()),
            _ => None,
        };
        let line = RecordedLine {
            method: text(0),
            host: text(1),
            path: text(2).unwrap_or_default(),
            query: text(3),
        };
        gathering.line(&line);
    }
    Ok(gathering.end(notes))
}

/// Reads a HAR file.
fn of_har(
    path: &Path,
    with_credentials: bool,
    mut gathering: Gathering,
) -> Result<GatheredRequests, Failure> {
    let name = path.display();
    let failed = |why: &dyn std::fmt::Display| Failure::usage(format_args!("error: {name}: {why}"));
    let file = har::read(path).map_err(|why| failed(&why))?;
    let entries = har::entries(&file).map_err(|why| failed(&why))?;
    let mut unsent = har::UnsentFields::default();
    for entry in entries {
        match har::request(entry, &gathering.methods, with_credentials, &mut unsent) {
            Ok(request) => gathering.sample.add(request),
            Err(reason) => gathering.skip(reason, 1),
        }
    }
    Ok(gathering.end(unsent.note().into_iter().collect()))
}

/// The requests of a store that are looked at, which bounds memory: an answer is read whole.
const STORED: usize = 100_000;
