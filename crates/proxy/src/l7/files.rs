//! Files of a route with a `root`: which one a request asks for, and the response with it.
//!
//! What was asked for a moment ago is kept ([`cache`]). The worker opens and reads what the kernel has in memory. Whatever else is done on a few threads beside it, which may
//! wait for a disk; see [`offramp_net::file`].

mod cache;
mod coded;
mod content;
mod find;
mod listing;
mod lists;
mod ready;

use std::io;
use std::net::IpAddr;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, StatusCode};
use offramp_http::files::conditions::{self, Outcome as Judged};
use offramp_http::files::path::{self, PathFault};
use offramp_http::files::range::{self, Selection};
use offramp_http::head::{self, Fields, Known, Response};
use offramp_http::path::Ambiguity;
use offramp_http::semantics::accept::Form;
use offramp_net::clock::coarse_ms;
use offramp_net::file::Wait;
use offramp_observe::{Cause, Close};
use tokio::task::{JoinHandle, spawn_blocking};

use super::answer::{self, Refusal};
use super::body::Reply;
use super::exchange::{Outcome, own};
use super::record::{Record, RecordGuard};
use super::session::{Session, decimal};
use crate::snapshot::http::Files;
use cache::{Asked, Kept};
use coded::Wishes;
pub(crate) use content::{FileContent, Piece};
pub(crate) use find::Roots;
use find::{Found, Search};
use lists::{ListKey, ListWaiter, Listed};
use ready::{Content, Ready};

/// What a request for a file has come to. Large, and moved once.
#[allow(clippy::large_enum_variant)]
pub(crate) enum Step {
    /// It has a response, or is refused.
    Answered(Outcome),
    /// A disk is waited for.
    Waiting(Box<Waiting>),
}

/// A request that waits for a thread beside the worker.
pub(crate) struct Waiting {
    pending: Pending,
    wishes: Wishes,
    old: Option<Rc<Ready>>,
    /// The bytes that may be kept.
    most: usize,
    client: Option<IpAddr>,
    record_guard: RecordGuard,
}

/// The work that a request waits for.
enum Pending {
    /// A search for a file, and the list that is made where it finds a directory without one.
    Search(Aborting<io::Result<Found>>, Option<ListKey>),
    List(ListWaiter),
}

/// Work that is given up with the request, unless a thread has begun it.
struct Aborting<T>(JoinHandle<T>);

impl<T> Drop for Aborting<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Has a client pay for a list that it gives up.
struct Unfinished<'r>(&'r Record);

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        self.0.abandon(ABANDONED);
    }
}

/// The price of a list that a client has begun and given up, in control frames of HTTP/2: it may do that some twenty times a
/// second.
const ABANDONED: u32 = 10;

/// A request for a file, and what is known of it beside its head.
pub(crate) struct FileRequest<'r> {
    pub(crate) request: &'r head::Request,
    pub(crate) client: Option<IpAddr>,
    pub(crate) host: Option<&'r str>,
    /// The bytes of small files that may be kept.
    pub(crate) most: usize,
}

/// Begins to answer a request.
pub(crate) fn begin(
    session: &Session,
    files: &Arc<Files>,
    of: &FileRequest<'_>,
    record_guard: RecordGuard,
) -> Step {
    let FileRequest { request, client, most, .. } = *of;
    if !matches!(request.method, Method::GET | Method::HEAD) {
        let refusal = Refusal::new(StatusCode::METHOD_NOT_ALLOWED, Cause::Completed);
        return Step::Answered(Err((refusal.with_field(b"allow", "GET, HEAD"), record_guard)));
    }
    // Before what is kept, which is known by the normal form.
    if request.spelling().ambiguity().is_some_and(|ambiguity| ambiguity != Ambiguity::DoubleEscape) {
        return Step::Answered(Err((unnamed(PathFault::Malformed), record_guard)));
    }
    let path = request.normal_path();
    let wishes = if files.precompressed { Wishes::of(&request.fields) } else { Wishes::default() };
    let asked = Asked { files, wishes, path };
    let kept = session.worker.roots.cache.borrow_mut().get(asked, coarse_ms());
    let old = match kept {
        Kept::Fresh(ready) if ready.is_as_said() => {
            return Step::Answered(sent(session, request, &ready, record_guard));
        }
        Kept::Fresh(ready) | Kept::Old(ready) => Some(ready),
        Kept::Unknown => None,
    };
    // What the route matches by whole segments, so that a slash or nothing follows.
    let below = match path.get(files.strip..) {
        // The directory of the route itself, whose relative links need the slash.
        Some("") if files.strip > 0 => {
            return Step::Answered(directory(request, record_guard));
        }
        Some("") | None => "/",
        Some(below) => below,
    };
    let name = match path::decode(below, files.hidden) {
        Ok(name) => name,
        Err(fault) => return Step::Answered(Err((unnamed(fault), record_guard))),
    };
    let search = Search { files: Arc::clone(files), name, wishes };
    let pending = match session.worker.roots.search(&search) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            let list = files.listing.then(|| list_key(files, of, &search.name));
            let search = spawn_blocking(move || search.run(None, Wait::Allowed));
            Pending::Search(Aborting(search), list)
        }
        Ok(Found::Bare(stamp)) => {
            let lists = &session.worker.roots.lists;
            let key = list_key(files, of, &search.name);
            if let Some(listed) = lists.remembered(&key, stamp) {
                return Step::Answered(listing_response(request, listed, record_guard));
            }
            Pending::List(lists.wait(key, stamp, client))
        }
        found => return Step::Answered(respond(session, request, (asked, old, most), found, record_guard)),
    };
    Step::Waiting(Box::new(Waiting { pending, wishes, old, most, client, record_guard }))
}

/// Why a path that names no file is refused.
fn unnamed(fault: PathFault) -> Refusal {
    match fault {
        PathFault::Malformed => {
            let close = Close::from(Cause::BadRequest).with_detail("the path names no file");
            Refusal::new(StatusCode::BAD_REQUEST, close)
        }
        PathFault::NotFound | PathFault::Hidden => Refusal::new(StatusCode::NOT_FOUND, Cause::Completed),
    }
}

impl Waiting {
    /// Answers the request when the search has ended.
    pub(crate) async fn answer(
        self,
        session: &Session,
        files: &Arc<Files>,
        request: &head::Request,
    ) -> Outcome {
        let Self { pending, wishes, old, most, client, record_guard } = self;
        let waiter = match pending {
            Pending::List(waiter) => waiter,
            Pending::Search(mut search, list) => {
                let found = (&mut search.0).await.unwrap_or_else(|error| Err(io::Error::other(error)));
                match (found, list) {
                    (Ok(Found::Bare(stamp)), Some(key)) => {
                        session.worker.roots.lists.wait(key, stamp, client)
                    }
                    (found, _) => {
                        let asked = Asked { files, wishes, path: request.normal_path() };
                        return respond(session, request, (asked, old, most), found, record_guard);
                    }
                }
            }
        };
        let unfinished = Unfinished(&record_guard.0);
        let listed = waiter.outcome().await;
        std::mem::forget(unfinished);
        listing_response(request, listed, record_guard)
    }
}

/// The list that a request asks for: programs that ask for it get JSON.
fn list_key(files: &Arc<Files>, of: &FileRequest<'_>, name: &str) -> ListKey {
    let (request, strip) = (of.request, files.strip);
    let form = answer::form(request.fields.all(Known::Accept));
    let before = request.normal_path().get(..strip).unwrap_or_default();
    let order = listing::Order {
        host: of.host.unwrap_or_default().into(),
        path: format!("{before}/{name}"),
        json: matches!(form, Form::Json | Form::Problem),
    };
    ListKey { files: Arc::clone(files), name: name.to_owned(), order }
}

/// The response with what was found.
fn respond(
    session: &Session,
    request: &head::Request,
    (asked, old, most): (Asked<'_>, Option<Rc<Ready>>, usize),
    found: io::Result<Found>,
    record_guard: RecordGuard,
) -> Outcome {
    let refused = |status, close: Close| Refusal::new(status, close);
    let refusal = match found {
        Ok(Found::File(file, name, coding)) => {
            let ready = session.worker.roots.ready(asked, (file, name, coding), old, most);
            return sent(session, request, &ready, record_guard);
        }
        Ok(Found::Directory) => return directory(request, record_guard),
        // It is listed before this where it is listed at all.
        Ok(Found::Nothing | Found::Bare(_)) => refused(StatusCode::NOT_FOUND, Cause::Completed.into()),
        Ok(Found::Denied) => refused(StatusCode::FORBIDDEN, Cause::Completed.into()),
        Err(error) => {
            let close = Close::from(Cause::FileFailed).with_detail(&error.to_string());
            refused(StatusCode::INTERNAL_SERVER_ERROR, close)
        }
    };
    Err((refusal, record_guard))
}

/// The redirect to a directory that was asked for without the slash at its end: by the path that the client knows.
fn directory(request: &head::Request, record_guard: RecordGuard) -> Outcome {
    let query = request.query().map(|query| format!("?{query}")).unwrap_or_default();
    // A rule may have taken a slash off, and would do so again.
    let asked = Some(request.asked_path()).filter(|path| !path.ends_with('/'));
    let to = format!("{}/{query}", asked.unwrap_or_else(|| request.normal_path()));
    match answer::redirect(StatusCode::MOVED_PERMANENTLY, to) {
        Some(response) => {
            Ok(own(response, record_guard, Cause::Completed.into(), request.method == Method::HEAD))
        }
        None => Err((Refusal::new(StatusCode::BAD_REQUEST, Cause::BadRequest), record_guard)),
    }
}

/// The response with the list of a directory.
fn listing_response(request: &head::Request, listed: Listed, record_guard: RecordGuard) -> Outcome {
    let refusal = match listed {
        Listed::Page { body, json } => {
            let head = request.method == Method::HEAD;
            return Ok(own(listing::response(body, json), record_guard, Cause::Completed.into(), head));
        }
        Listed::Denied => Refusal::new(StatusCode::FORBIDDEN, Cause::Completed),
        Listed::Busy => {
            let refusal = Refusal::new(StatusCode::SERVICE_UNAVAILABLE, Cause::ListingsHeld);
            Refusal { retry_after: Some(1), ..refusal }
        }
        Listed::Failed(error) => {
            let close = Close::from(Cause::FileFailed).with_detail(&error);
            Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, close)
        }
    };
    Err((refusal, record_guard))
}

/// The response with a file, or what its conditions lead to instead.
fn sent(session: &Session, request: &head::Request, ready: &Ready, record_guard: RecordGuard) -> Outcome {
    let ranges = match conditions::judge(&request.method, &request.fields, &ready.validators) {
        Judged::Send { ranges } => ranges,
        Judged::NotModified => {
            let mut response = Response::new(StatusCode::NOT_MODIFIED, Bytes::new());
            response.fields = ready.described.clone();
            return Ok(own(response, record_guard, Cause::Completed.into(), false));
        }
        Judged::Failed => {
            return Err((Refusal::new(StatusCode::PRECONDITION_FAILED, Cause::Completed), record_guard));
        }
    };
    let mut asked = request.fields.named(b"range").filter(|_| ranges);
    let selection = match (asked.next(), asked.next()) {
        (Some(value), None) => range::select(value, ready.size()),
        _ => Selection::Whole,
    };
    let parts = match selection {
        Selection::Whole => None,
        Selection::Parts(parts) => Some(parts),
        Selection::Unsatisfiable => {
            let refusal = Refusal::new(StatusCode::RANGE_NOT_SATISFIABLE, Cause::Completed);
            let all = format!("bytes */{}", ready.size());
            return Err((refusal.with_field(b"content-range", all), record_guard));
        }
    };
    let is_head = request.method == Method::HEAD;
    let status = if parts.is_some() { StatusCode::PARTIAL_CONTENT } else { StatusCode::OK };
    let mut response = Response::new(status, ());
    record_guard.0.answered(status.as_u16());
    let reply = match parts {
        None => {
            response.fields = ready.whole.clone();
            whole(ready, record_guard, is_head)
        }
        Some(parts) => {
            response.fields = ready.with_content();
            let pieces = pieces(session, ready, parts, &mut response.fields);
            let reply = partial(ready, pieces, record_guard);
            let length = reply.length().unwrap_or_default();
            response.fields.set_known(Known::ContentLength, decimal(length, &mut [0; 20]).as_bytes());
            reply
        }
    };
    Ok(response.map(|()| reply))
}

/// All of the content, or none of it.
fn whole(ready: &Ready, record_guard: RecordGuard, is_head: bool) -> Reply {
    match &ready.content {
        _ if is_head => Reply::own(Bytes::new(), record_guard, Cause::Completed.into()),
        Content::Memory(bytes) => Reply::own(bytes.clone(), record_guard, Cause::Completed.into()),
        Content::File(fd) => {
            let all = vec![Piece::File(0..ready.size())];
            Reply::file(FileContent::new(Arc::clone(fd), all), record_guard)
        }
    }
}

fn partial(ready: &Ready, pieces: Vec<Piece>, record_guard: RecordGuard) -> Reply {
    match &ready.content {
        Content::Memory(bytes) => {
            Reply::own(ready::gathered(bytes, &pieces), record_guard, Cause::Completed.into())
        }
        Content::File(fd) => Reply::file(FileContent::new(Arc::clone(fd), pieces), record_guard),
    }
}

/// The content of a response with these parts, and the fields that describe it.
fn pieces(session: &Session, ready: &Ready, parts: Vec<Range<u64>>, fields: &mut Fields) -> Vec<Piece> {
    if let [part] = &parts[..] {
        fields.append(b"content-type", ready.kind().as_bytes());
        fields.append(b"content-range", content_range(part, ready.size()).as_bytes());
        return vec![Piece::File(part.clone())];
    }
    let boundary = format!("{:016x}{:016x}", session.worker.random(), session.worker.random());
    fields.append(b"content-type", format!("multipart/byteranges; boundary={boundary}").as_bytes());
    in_parts(parts, &boundary, ready.kind(), ready.size())
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
