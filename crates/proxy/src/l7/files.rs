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
use offramp_http::files::conditions::{self, PreconditionOutcome};
use offramp_http::files::path::{self, PathFault};
use offramp_http::files::range::{self, RangeSelection};
use offramp_http::head::{self, Fields, Known, Response};
use offramp_http::path::Ambiguity;
use offramp_http::semantics::accept::MessageFormat;
use offramp_net::clock::coarse_ms;
use offramp_net::file::Wait;
use offramp_observe::{Cause, Close};
use tokio::task::{JoinHandle, spawn_blocking};

use super::answer::{self, ErrorReply};
use super::body::ReplyContent;
use super::exchange::{RequestOutcome, own};
use super::record::RequestRecord;
use super::session::Session;
use crate::snapshot::http::Files;
use cache::{CacheState, FileQuery};
use coded::Wishes;
pub(crate) use content::{ContentPiece, FileContent};
pub(crate) use find::Roots;
use find::{FileSearch, SearchResult};
use lists::{ListKey, ListWaiter, ListingOutcome};
use ready::{ContentLocation, ReadyFile};

/// The state of a request for a file. Large, and moved once.
#[allow(clippy::large_enum_variant)]
pub(crate) enum FileStep {
    /// It has a response, or is refused.
    Answered(RequestOutcome),
    /// A disk is waited for.
    Waiting(Box<WaitingFile>),
}

/// A request that waits for a thread beside the worker.
pub(crate) struct WaitingFile {
    pending: PendingWork,
    wishes: Wishes,
    old: Option<Rc<ReadyFile>>,
    /// The bytes that may be kept.
    most: usize,
    client: Option<IpAddr>,
}

/// The work that a request waits for.
enum PendingWork {
    /// A search for a file, and the list that is made where it finds a directory without one.
    Search(Aborting<io::Result<SearchResult>>, Option<ListKey>),
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
struct Unfinished<'r>(&'r RequestRecord);

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
pub(crate) fn begin(session: &Session, files: &Arc<Files>, of: &FileRequest<'_>) -> FileStep {
    let FileRequest { request, client, most, .. } = *of;
    if !matches!(request.method, Method::GET | Method::HEAD) {
        let refusal = ErrorReply::new(StatusCode::METHOD_NOT_ALLOWED, Cause::Completed);
        return FileStep::Answered(Err(refusal.with_field(b"allow", "GET, HEAD")));
    }
    // Before what is kept, which is known by the normal form.
    if request.spelling().ambiguity().is_some_and(|ambiguity| ambiguity != Ambiguity::DoubleEscape) {
        return FileStep::Answered(Err(unnamed(PathFault::Malformed)));
    }
    let path = request.normal_path();
    let wishes = if files.precompressed { Wishes::of(&request.fields) } else { Wishes::default() };
    let asked = FileQuery { files, wishes, path };
    let kept = session.http.roots.cache.borrow_mut().get(asked, coarse_ms());
    let old = match kept {
        CacheState::Fresh(ready) if ready.is_as_said() => {
            return FileStep::Answered(sent(session, request, &ready));
        }
        CacheState::Fresh(ready) | CacheState::Old(ready) => Some(ready),
        CacheState::Unknown => None,
    };
    // What the route matches by whole segments, so that a slash or nothing follows.
    let below = match path.get(files.strip..) {
        // The route's own directory: relative links in it need the slash.
        Some("") if files.strip > 0 => {
            return FileStep::Answered(directory(request));
        }
        Some("") | None => "/",
        Some(below) => below,
    };
    let name = match path::decode(below, files.hidden) {
        Ok(name) => name,
        Err(fault) => return FileStep::Answered(Err(unnamed(fault))),
    };
    let search = FileSearch { files: Arc::clone(files), name, wishes };
    let pending = match session.http.roots.search(&search) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            let list = files.listing.then(|| list_key(files, of, &search.name));
            let search = spawn_blocking(move || search.run(None, Wait::Allowed));
            PendingWork::Search(Aborting(search), list)
        }
        Ok(SearchResult::Bare(stamp)) => {
            let lists = &session.http.roots.lists;
            let key = list_key(files, of, &search.name);
            if let Some(listed) = lists.remembered(&key, stamp) {
                return FileStep::Answered(listing_response(request, listed));
            }
            PendingWork::List(lists.wait(key, stamp, client))
        }
        found => return FileStep::Answered(respond(session, request, Sought { asked, old, most }, found)),
    };
    FileStep::Waiting(Box::new(WaitingFile { pending, wishes, old, most, client }))
}

/// The refusal of a path that names no file.
fn unnamed(fault: PathFault) -> ErrorReply {
    match fault {
        PathFault::Malformed => {
            let close = Close::from(Cause::BadRequest).with_detail("the path names no file");
            ErrorReply::new(StatusCode::BAD_REQUEST, close)
        }
        PathFault::NotFound | PathFault::Hidden => ErrorReply::new(StatusCode::NOT_FOUND, Cause::Completed),
    }
}

impl WaitingFile {
    /// Answers the request when the search has ended.
    pub(crate) async fn answer(
        self,
        session: &Session,
        record: &RequestRecord,
        files: &Arc<Files>,
        request: &head::Request,
    ) -> RequestOutcome {
        let Self { pending, wishes, old, most, client } = self;
        let waiter = match pending {
            PendingWork::List(waiter) => waiter,
            PendingWork::Search(mut search, list) => {
                let found = (&mut search.0).await.unwrap_or_else(|error| Err(io::Error::other(error)));
                match (found, list) {
                    (Ok(SearchResult::Bare(stamp)), Some(key)) => {
                        let lists = &session.http.roots.lists;
                        if let Some(listed) = lists.remembered(&key, stamp) {
                            return listing_response(request, listed);
                        }
                        lists.wait(key, stamp, client)
                    }
                    (found, _) => {
                        let asked = FileQuery { files, wishes, path: request.normal_path() };
                        return respond(session, request, Sought { asked, old, most }, found);
                    }
                }
            }
        };
        let unfinished = Unfinished(record);
        let listed = waiter.outcome().await;
        std::mem::forget(unfinished);
        listing_response(request, listed)
    }
}

/// The list that a request asks for: programs that ask for it get JSON.
fn list_key(files: &Arc<Files>, of: &FileRequest<'_>, name: &str) -> ListKey {
    let (request, strip) = (of.request, files.strip);
    let form = answer::form(request.fields.all(Known::Accept));
    let before = request.normal_path().get(..strip).unwrap_or_default();
    let order = listing::ListingRequest {
        host: of.host.unwrap_or_default().into(),
        path: format!("{before}/{name}"),
        json: matches!(form, MessageFormat::Json | MessageFormat::Problem),
    };
    ListKey { files: Arc::clone(files), name: name.to_owned(), order }
}

/// A file that was looked for.
struct Sought<'a> {
    asked: FileQuery<'a>,
    /// The file as it was kept, which may have changed.
    old: Option<Rc<ReadyFile>>,
    /// The bytes that may be kept.
    most: usize,
}

/// The response with the file that was found.
fn respond(
    session: &Session,
    request: &head::Request,
    Sought { asked, old, most }: Sought<'_>,
    found: io::Result<SearchResult>,
) -> RequestOutcome {
    let refused = |status, close: Close| ErrorReply::new(status, close);
    let refusal = match found {
        Ok(SearchResult::File(found)) => {
            let ready = session.http.roots.ready(asked, found, old, most);
            return sent(session, request, &ready);
        }
        Ok(SearchResult::Directory) => return directory(request),
        // It is listed before this where it is listed at all.
        Ok(SearchResult::Nothing | SearchResult::Bare(_)) => {
            refused(StatusCode::NOT_FOUND, Cause::Completed.into())
        }
        Ok(SearchResult::Guarded) => {
            let close =
                Close::from(Cause::Completed).with_detail("another route of the host guards this path");
            refused(StatusCode::NOT_FOUND, close)
        }
        Ok(SearchResult::Denied) => refused(StatusCode::FORBIDDEN, Cause::Completed.into()),
        Err(error) => {
            let close = Close::from(Cause::FileFailed).with_detail(&error.to_string());
            refused(StatusCode::INTERNAL_SERVER_ERROR, close)
        }
    };
    Err(refusal)
}

/// The redirect to a directory that was asked for without the slash at its end: by the path that the client knows.
fn directory(request: &head::Request) -> RequestOutcome {
    let query = request.query().map(|query| format!("?{query}")).unwrap_or_default();
    // A rule may have taken a slash off, and would do so again.
    let asked = Some(request.asked_path()).filter(|path| !path.ends_with('/'));
    let to = format!("{}/{query}", asked.unwrap_or_else(|| request.normal_path()));
    match answer::redirect(StatusCode::MOVED_PERMANENTLY, to) {
        Some(response) => Ok(own(response, request.method == Method::HEAD)),
        None => Err(ErrorReply::new(StatusCode::BAD_REQUEST, Cause::BadRequest)),
    }
}

/// The response with the list of a directory.
fn listing_response(request: &head::Request, listed: ListingOutcome) -> RequestOutcome {
    let refusal = match listed {
        ListingOutcome::Page { body, json } => {
            let head = request.method == Method::HEAD;
            return Ok(own(listing::response(body, json), head));
        }
        ListingOutcome::Denied => ErrorReply::new(StatusCode::FORBIDDEN, Cause::Completed),
        ListingOutcome::Busy => {
            let refusal = ErrorReply::new(StatusCode::SERVICE_UNAVAILABLE, Cause::ListingsHeld);
            ErrorReply { retry_after: Some(1), ..refusal }
        }
        ListingOutcome::Failed(error) => {
            let close = Close::from(Cause::FileFailed).with_detail(&error);
            ErrorReply::new(StatusCode::INTERNAL_SERVER_ERROR, close)
        }
    };
    Err(refusal)
}

/// The response with a file, or what its conditions lead to instead.
fn sent(session: &Session, request: &head::Request, ready: &ReadyFile) -> RequestOutcome {
    let ranges = match conditions::judge(&request.method, &request.fields, &ready.validators) {
        PreconditionOutcome::Send { ranges } => ranges,
        PreconditionOutcome::NotModified => {
            let mut response = Response::new(StatusCode::NOT_MODIFIED, Bytes::new());
            response.fields = ready.described.clone();
            return Ok(own(response, false));
        }
        PreconditionOutcome::Failed => {
            return Err(ErrorReply::new(StatusCode::PRECONDITION_FAILED, Cause::Completed));
        }
    };
    let mut asked = request.fields.named(b"range").filter(|_| ranges);
    let selection = match (asked.next(), asked.next()) {
        (Some(value), None) => range::select(value, ready.size()),
        _ => RangeSelection::Whole,
    };
    let parts = match selection {
        RangeSelection::Whole => None,
        RangeSelection::Parts(parts) => Some(parts),
        RangeSelection::Unsatisfiable => {
            let refusal = ErrorReply::new(StatusCode::RANGE_NOT_SATISFIABLE, Cause::Completed);
            let all = format!("bytes */{}", ready.size());
            return Err(refusal.with_field(b"content-range", all));
        }
    };
    let is_head = request.method == Method::HEAD;
    let status = if parts.is_some() { StatusCode::PARTIAL_CONTENT } else { StatusCode::OK };
    let mut response = Response::new(status, ());
    let content = match parts {
        None => {
            response.fields = ready.whole.clone();
            if is_head { ReplyContent::Empty } else { whole(ready) }
        }
        Some(parts) => {
            response.fields = ready.with_content();
            let pieces = pieces(session, ready, parts, &mut response.fields);
            let content = partial(ready, pieces);
            let length = content.length().unwrap_or_default();
            response.fields.set_known(Known::ContentLength, itoa::Buffer::new().format(length).as_bytes());
            content
        }
    };
    Ok(response.map(|()| content))
}

fn whole(ready: &ReadyFile) -> ReplyContent {
    match &ready.content {
        ContentLocation::Memory(bytes) => ReplyContent::own(bytes.clone()),
        ContentLocation::File(fd) => {
            let all = vec![ContentPiece::File(0..ready.size())];
            ReplyContent::file(FileContent::new(Arc::clone(fd), all))
        }
    }
}

fn partial(ready: &ReadyFile, pieces: Vec<ContentPiece>) -> ReplyContent {
    match &ready.content {
        ContentLocation::Memory(bytes) => ReplyContent::own(ready::gathered(bytes, &pieces)),
        ContentLocation::File(fd) => ReplyContent::file(FileContent::new(Arc::clone(fd), pieces)),
    }
}

/// The content of a response with these parts, and the fields that describe it.
fn pieces(
    session: &Session,
    ready: &ReadyFile,
    parts: Vec<Range<u64>>,
    fields: &mut Fields,
) -> Vec<ContentPiece> {
    if let [part] = &parts[..] {
        fields.append(b"content-type", ready.kind().as_bytes());
        fields.append(b"content-range", content_range(part, ready.size()).as_bytes());
        return vec![ContentPiece::File(part.clone())];
    }
    let boundary = format!("{:016x}{:016x}", session.worker.random(), session.worker.random());
    fields.append(b"content-type", format!("multipart/byteranges; boundary={boundary}").as_bytes());
    in_parts(parts, &boundary, ready.kind(), ready.size())
}

fn content_range(part: &Range<u64>, size: u64) -> String {
    format!("bytes {}-{}/{size}", part.start, part.end - 1)
}

/// Several parts as one body (RFC 9110 §14.6).
fn in_parts(parts: Vec<Range<u64>>, boundary: &str, kind: &str, size: u64) -> Vec<ContentPiece> {
    let mut pieces = Vec::with_capacity(2 * parts.len() + 1);
    let mut before = "";
    for part in parts {
        let range = content_range(&part, size);
        let head = format!("{before}--{boundary}\r\ncontent-type: {kind}\r\ncontent-range: {range}\r\n\r\n");
        pieces.extend([ContentPiece::Text(head.into()), ContentPiece::File(part)]);
        before = "\r\n";
    }
    pieces.push(ContentPiece::Text(format!("\r\n--{boundary}--\r\n").into()));
    pieces
}
