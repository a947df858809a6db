//! Files of a route with a `root`: which one a request asks for, and the response with it.
//!
//! The worker opens and reads what the kernel has in memory. Whatever else is done on a few threads beside it, which may
//! wait for a disk; see [`offramp_net::file`].

mod coded;
mod content;
mod find;
mod listing;

use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, StatusCode};
use offramp_http::files::conditions::{self, Outcome as Judged, Validators};
use offramp_http::files::path::{self, PathFault};
use offramp_http::files::range::{self, Selection};
use offramp_http::head::{self, Fields, Known, Response};
use offramp_http::semantics::accept::Form;
use offramp_http::semantics::accept_encoding::Coding;
use offramp_net::file::{File, Wait};
use offramp_observe::{Cause, Close};
use tokio::task::{JoinHandle, spawn_blocking};

use super::answer::{self, Refusal};
use super::body::Reply;
use super::exchange::{Outcome, own};
use super::record::RecordGuard;
use super::session::{Session, decimal};
use crate::media::media_type;
use crate::snapshot::http::Files;
use coded::Wishes;
pub(crate) use content::{FileContent, Piece};
pub(crate) use find::Roots;
use find::{Found, Search};

/// What a request for a file has come to. Large, and moved once.
#[allow(clippy::large_enum_variant)]
pub(crate) enum Step {
    /// It has a response, or is refused.
    Answered(Outcome),
    /// A disk is waited for.
    Waiting(Box<Waiting>),
}

/// A search on a thread that may wait.
pub(crate) struct Waiting {
    search: JoinHandle<io::Result<Found>>,
    record_guard: RecordGuard,
}

/// Begins to answer a request.
pub(crate) fn begin(
    session: &Session,
    files: &Arc<Files>,
    request: &head::Request,
    record_guard: RecordGuard,
) -> Step {
    if !matches!(request.method, Method::GET | Method::HEAD) {
        let refusal = Refusal::new(StatusCode::METHOD_NOT_ALLOWED, Cause::Completed);
        return Step::Answered(Err((refusal.with_field(b"allow", "GET, HEAD"), record_guard)));
    }
    let path = request.path();
    // What the route matches by whole segments, so that a slash or nothing follows.
    let below = match path.get(files.strip..) {
        Some("") | None => "/",
        Some(below) => below,
    };
    let name = match path::decode(below, files.hidden) {
        Ok(name) => name,
        Err(PathFault::Malformed) => {
            let close = Close::from(Cause::BadRequest).with_detail("the path names no file");
            return Step::Answered(Err((Refusal::new(StatusCode::BAD_REQUEST, close), record_guard)));
        }
        Err(PathFault::NotFound | PathFault::Hidden) => {
            return Step::Answered(Err((
                Refusal::new(StatusCode::NOT_FOUND, Cause::Completed),
                record_guard,
            )));
        }
    };
    let wishes = if files.precompressed { Wishes::of(&request.fields) } else { Wishes::default() };
    let mut search = Search { files: Arc::clone(files), name, wishes, listing: None };
    match session.worker.roots.search(&search) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            search.listing = files.listing.then(|| order(request, &search.name, files.strip));
            let search = spawn_blocking(move || search.run(None, Wait::Allowed));
            Step::Waiting(Box::new(Waiting { search, record_guard }))
        }
        found => Step::Answered(respond(session, files, request, found, record_guard)),
    }
}

impl Waiting {
    /// Answers the request when the search has ended.
    pub(crate) async fn answer(self, session: &Session, files: &Files, request: &head::Request) -> Outcome {
        let found = self.search.await.unwrap_or_else(|error| Err(io::Error::other(error)));
        respond(session, files, request, found, self.record_guard)
    }
}

/// How a client wants the list of a directory: programs that ask for it get JSON.
fn order(request: &head::Request, name: &str, strip: usize) -> listing::Order {
    let form = answer::form(request.fields.all(Known::Accept));
    let before = request.path().get(..strip).unwrap_or_default();
    listing::Order { path: format!("{before}/{name}"), json: matches!(form, Form::Json | Form::Problem) }
}

/// The response with what was found.
fn respond(
    session: &Session,
    files: &Files,
    request: &head::Request,
    found: io::Result<Found>,
    record_guard: RecordGuard,
) -> Outcome {
    let refused = |status, close: Close| Refusal::new(status, close);
    let refusal = match found {
        Ok(Found::File(file, name, coding)) => {
            return sent(session, files, request, (file, &name, coding), record_guard);
        }
        Ok(Found::Directory) => {
            let query = request.query().map(|query| format!("?{query}")).unwrap_or_default();
            let to = format!("{}/{query}", request.path());
            match answer::redirect(StatusCode::MOVED_PERMANENTLY, to) {
                Some(response) => {
                    let head = request.method == Method::HEAD;
                    return Ok(own(response, record_guard, Cause::Completed.into(), head));
                }
                None => refused(StatusCode::BAD_REQUEST, Cause::BadRequest.into()),
            }
        }
        Ok(Found::Listing(page)) => match session.worker.roots.listings.response(page) {
            Some(response) => {
                let head = request.method == Method::HEAD;
                return Ok(own(response, record_guard, Cause::Completed.into(), head));
            }
            None => {
                let refusal = refused(StatusCode::SERVICE_UNAVAILABLE, Cause::ListingsHeld.into());
                Refusal { retry_after: Some(1), ..refusal }
            }
        },
        Ok(Found::Nothing) => refused(StatusCode::NOT_FOUND, Cause::Completed.into()),
        Ok(Found::Denied) => refused(StatusCode::FORBIDDEN, Cause::Completed.into()),
        Err(error) => {
            let close = Close::from(Cause::FileFailed).with_detail(&error.to_string());
            refused(StatusCode::INTERNAL_SERVER_ERROR, close)
        }
    };
    Err((refusal, record_guard))
}

/// The response with a file, or what its conditions lead to instead.
fn sent(
    session: &Session,
    files: &Files,
    request: &head::Request,
    (file, name, coding): (File, &str, Option<Coding>),
    record_guard: RecordGuard,
) -> Outcome {
    let validators = Validators::new(file.modified, file.size, file.inode);
    let ranges = match conditions::judge(&request.method, &request.fields, &validators) {
        Judged::Send { ranges } => ranges,
        Judged::NotModified => {
            let mut response = Response::new(StatusCode::NOT_MODIFIED, Bytes::new());
            describe(&mut response.fields, files, name, &validators);
            return Ok(own(response, record_guard, Cause::Completed.into(), false));
        }
        Judged::Failed => {
            return Err((Refusal::new(StatusCode::PRECONDITION_FAILED, Cause::Completed), record_guard));
        }
    };
    let mut asked = request.fields.named(b"range").filter(|_| ranges);
    let selection = match (asked.next(), asked.next()) {
        (Some(value), None) => range::select(value, file.size),
        _ => Selection::Whole,
    };
    let kind = media_type(name);
    let mut response = Response::new(StatusCode::OK, ());
    describe(&mut response.fields, files, name, &validators);
    response.fields.append(b"accept-ranges", b"bytes");
    if let Some(coding) = coding {
        response.fields.append(b"content-encoding", coding.name().as_bytes());
    }
    let pieces = match selection {
        Selection::Unsatisfiable => {
            let refusal = Refusal::new(StatusCode::RANGE_NOT_SATISFIABLE, Cause::Completed);
            let all = format!("bytes */{}", file.size);
            return Err((refusal.with_field(b"content-range", all), record_guard));
        }
        Selection::Whole => {
            response.fields.append(b"content-type", kind.as_bytes());
            vec![Piece::File(0..file.size)]
        }
        Selection::Parts(parts) => {
            response.set_status(StatusCode::PARTIAL_CONTENT);
            if let [part] = &parts[..] {
                response.fields.append(b"content-type", kind.as_bytes());
                response.fields.append(b"content-range", content_range(part, file.size).as_bytes());
                vec![Piece::File(part.clone())]
            } else {
                let boundary = format!("{:016x}{:016x}", session.worker.random(), session.worker.random());
                let multipart = format!("multipart/byteranges; boundary={boundary}");
                response.fields.append(b"content-type", multipart.as_bytes());
                in_parts(parts, &boundary, &kind, file.size)
            }
        }
    };
    let content = FileContent::new(file.fd, pieces);
    response.fields.set_known(Known::ContentLength, decimal(content.left(), &mut [0; 20]).as_bytes());
    record_guard.0.answered(response.status.as_u16());
    let is_head = request.method == Method::HEAD;
    Ok(response.map(|()| match is_head {
        true => Reply::own(Bytes::new(), record_guard, Cause::Completed.into()),
        false => Reply::file(content, record_guard),
    }))
}

/// What is said of a file with its content and without (RFC 9110 §15.4.5).
fn describe(fields: &mut Fields, files: &Files, name: &str, validators: &Validators) {
    if let Some(date) = validators.date() {
        fields.append(b"last-modified", date.as_bytes());
    }
    fields.append(b"etag", validators.etag.as_bytes());
    if files.precompressed {
        fields.append(b"vary", b"accept-encoding");
    }
    let rule = files.cache_control.iter().find(|(pattern, _)| {
        // A pattern with a slash at its front is for the whole path below the root.
        match pattern.strip_prefix('/') {
            Some(pattern) => path::matches(pattern, name),
            None => path::matches(pattern, name.rsplit('/').next().unwrap_or(name)),
        }
    });
    if let Some((_, value)) = rule {
        fields.append(b"cache-control", value.as_bytes());
    }
}

fn content_range(part: &Range<u64>, size: u64) -> String {
    format!("bytes {}-{}/{size}", part.start, part.end - 1)
}

/// Several parts as one body (RFC 9110 §14.6).
fn in_parts(parts: Vec<Range<u64>>, boundary: &str, kind: &str, size: u64) -> Vec<Piece> {
    let mut pieces = Vec::with_capacity(2 * parts.len() + 1);
    let mut before = "";
    for part in parts {
        let range = content_range(&part, size);
        let head = format!("{before}--{boundary}\r\ncontent-type: {kind}\r\ncontent-range: {range}\r\n\r\n");
        pieces.extend([Piece::Text(head.into()), Piece::File(part)]);
        before = "\r\n";
    }
    pieces.push(Piece::Text(format!("\r\n--{boundary}--\r\n").into()));
    pieces
}
