//! Compression of responses as they pass.
//!
//! Whether a response is compressed is decided by its head: a type that gains, enough content, nothing that is encoded
//! already, nothing of which only a part is sent, nothing that must not be changed. The content then goes through
//! [`stream`]. It does not matter where the response comes from: head and body come in, head and body go out. A route
//! without `compress` never comes here.
//!
//! **Bounds.** A worker compresses only so many responses at a time that their memory is within
//! `limits.compression_memory`; others are sent as they are, and counted. Where the worker is busy, the level falls
//! ([`Load`]). While the process holds as much memory as it may, none begins.

mod encoder;
mod load;
mod stream;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use http::{Method, StatusCode, Version};
use offramp_http::h1::content_length;
use offramp_http::head::{self, Fields, Known, Response};
use offramp_http::semantics::accept_encoding::{Coding, choose};
use offramp_observe::counters::Compression;

use super::body::Reply;
use super::session::Session;
use crate::snapshot::http::Compress;
use encoder::Machine;
use load::Load;
pub(crate) use stream::Compressed;

/// Fields that speak of the bytes of the content: they would be wrong.
const DIGESTS: [&[u8]; 4] = [b"content-digest", b"repr-digest", b"digest", b"content-md5"];

/// The coding of a response, as its request and its route want it.
pub(crate) struct Wanted {
    policy: Arc<Compress>,
    /// `None`: the client wants the content as it is.
    coding: Option<Coding>,
    /// Set if the request identifies its user.
    personal: bool,
}

/// Codings that a request wants of a route that compresses. Known before the request changes on its way to the
/// server. `identified`: the client showed a certificate.
pub(crate) fn wanted(policy: &Arc<Compress>, request: &head::Request, identified: bool) -> Box<Wanted> {
    let fields = &request.fields;
    // A client of HTTP/1.0 could tell the end of it only by that of the connection.
    let coding = (request.version != Version::HTTP_10)
        .then(|| choose(fields.named(b"accept-encoding"), &policy.algorithms))
        .flatten();
    let personal =
        identified || fields.contains(Known::Cookie) || fields.named(b"authorization").next().is_some();
    Box::new(Wanted { policy: Arc::clone(policy), coding, personal })
}

/// The compressors of a worker.
#[derive(Default)]
pub(crate) struct Compressors {
    shared: Rc<CompressorPool>,
    load: Load,
}

#[derive(Default)]
struct CompressorPool {
    /// The memory of all that are under way.
    used: Cell<usize>,
    /// The latest machine of each coding that has finished.
    spare: RefCell<[Option<Machine>; 3]>,
}

/// The memory of one compressor, until it is dropped.
struct CompressorSlot {
    shared: Rc<CompressorPool>,
    coding: Coding,
    taken: usize,
}

impl Compressors {
    /// Gives up what is not in use, while the process holds as much memory as it may: so much may be used then.
    fn shrink(&self) -> usize {
        self.shared.spare.take();
        0
    }

    /// Takes memory for a compressor, if all of the worker's have less than `most` with it.
    fn take(&self, coding: Coding, most: usize) -> Option<CompressorSlot> {
        let taken = encoder::memory(coding);
        let used = self.shared.used.get() + taken;
        (used <= most).then(|| {
            self.shared.used.set(used);
            CompressorSlot { shared: Rc::clone(&self.shared), coding, taken }
        })
    }
}

impl CompressorSlot {
    /// A machine that has finished, if there is one.
    fn spare(&self) -> Option<Machine> {
        self.shared.spare.borrow_mut()[self.coding as usize].take()
    }

    /// Gives the place back, and a machine that has finished.
    fn finished(self, machine: Option<Machine>) {
        if machine.is_some() {
            self.shared.spare.borrow_mut()[self.coding as usize] = machine;
        }
    }
}

impl Drop for CompressorSlot {
    fn drop(&mut self) {
        self.shared.used.set(self.shared.used.get() - self.taken);
    }
}

/// Has the response to `request` compressed, if it can be and the client wants that. That to HEAD gets the fields of the
/// response to GET. `most` is the memory that compressors may have.
pub(crate) fn response(
    session: &Session,
    wanted: &Wanted,
    request: &head::Request,
    most: usize,
    mut response: Response<Reply>,
) -> Response<Reply> {
    let head = request.method == Method::HEAD;
    match judge(&wanted.policy, head, &response) {
        CompressionVerdict::Passes => return response,
        CompressionVerdict::Varies => {
            vary(&mut response.fields);
            return response;
        }
        CompressionVerdict::Revalidates => {
            revalidated(&request.fields, &mut response.fields);
            return response;
        }
        CompressionVerdict::Gains => vary(&mut response.fields),
    }
    let Some(coding) = wanted.coding else { return response };
    if wanted.policy.secrets && (wanted.personal || is_personal(&response.fields)) {
        return response;
    }
    if head {
        encoded(&mut response.fields, coding);
        return response;
    }
    let (worker, compressors) = (&session.worker, &session.http.compressors);
    let most = if worker.shared.pressure.is_high() { compressors.shrink() } else { most };
    let Some(place) = compressors.take(coding, most) else {
        worker.counters.compression(Compression::None);
        return response;
    };
    let level = load::eased(encoder::level(coding, wanted.policy.level), compressors.load.share());
    let length = response.body.length();
    let Ok(encoder) = encoder::Encoder::new(coding, level, length, place.spare()) else { return response };
    worker.counters.compression(match coding {
        Coding::Zstd => Compression::Zstd,
        Coding::Brotli => Compression::Brotli,
        Coding::Gzip => Compression::Gzip,
    });
    let live = media_type(&response.fields).eq_ignore_ascii_case(b"text/event-stream");
    encoded(&mut response.fields, coding);
    response.map(|body| body.compressed(|body| Compressed::new(body, encoder, place, live)))
}

/// The verdict of compression on a response.
#[derive(Debug, PartialEq, Eq)]
enum CompressionVerdict {
    /// It passes as it is to any client.
    Passes,
    /// It passes as it is, but others for the same URL do not.
    Varies,
    /// The client's copy is right (304): perhaps the compressed form.
    Revalidates,
    /// It is compressed where the client wants that.
    Gains,
}

/// Judges if a response may be compressed and gains by it. `head`: it is one to HEAD.
fn judge(policy: &Compress, head: bool, response: &Response<Reply>) -> CompressionVerdict {
    let status = response.status;
    if status == StatusCode::NOT_MODIFIED {
        return CompressionVerdict::Revalidates;
    }
    let bodiless = matches!(status, StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT);
    let fields = &response.fields;
    if bodiless || status.is_informational() || is_fixed(fields) || !policy.covers(media_type(fields)) {
        return CompressionVerdict::Passes;
    }
    let part = status == StatusCode::PARTIAL_CONTENT || first(fields, b"content-range").is_some();
    if part {
        return CompressionVerdict::Varies;
    }
    let said = fields.get(Known::ContentLength).and_then(|value| content_length(value).ok());
    let length = if head { said } else { response.body.length().or(said) };
    let empty = if head { length == Some(0) } else { response.body.is_end_stream() };
    if empty || length.is_some_and(|length| length < policy.min_size) {
        return CompressionVerdict::Passes;
    }
    CompressionVerdict::Gains
}

/// The content must stay as it is: it is encoded already, or a field says so.
fn is_fixed(fields: &Fields) -> bool {
    let coded = fields.named(b"content-encoding").any(|value| !value.eq_ignore_ascii_case(b"identity"));
    let bound = DIGESTS.iter().any(|name| fields.named(name).next().is_some());
    coded || bound || says(fields, b"cache-control", b"no-transform")
}

/// The response is for one user alone.
fn is_personal(fields: &Fields) -> bool {
    let says = |word: &[u8]| says(fields, b"cache-control", word);
    first(fields, b"set-cookie").is_some() || says(b"private") || says(b"no-store")
}

/// The list has a member.
fn says(fields: &Fields, name: &'static [u8], word: &[u8]) -> bool {
    fields.named(name).any(|value| members(value).any(|member| member.eq_ignore_ascii_case(word)))
}

/// The members of a list, without blanks around them.
fn members(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii)
}

/// The first value of a field.
fn first<'f>(fields: &'f Fields, name: &'static [u8]) -> Option<&'f [u8]> {
    fields.named(name).next()
}

/// The media type of the content without its parameters, as it was written.
pub(super) fn media_type(fields: &Fields) -> &[u8] {
    let value = first(fields, b"content-type").unwrap_or_default();
    value.split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii()
}

/// Says that the response depends on Accept-Encoding (RFC 9110 §12.5.5), in the one field that there is, because some
/// caches read no more than one.
fn vary(fields: &mut Fields) {
    let known = |member: &[u8]| member == b"*" || member.eq_ignore_ascii_case(b"accept-encoding");
    if fields.named(b"vary").any(|value| members(value).any(known)) {
        return;
    }
    let before: Vec<&[u8]> = fields.named(b"vary").filter(|value| !value.is_empty()).collect();
    if before.is_empty() {
        return fields.set(b"vary", b"Accept-Encoding");
    }
    let all = [&before.join(&b", "[..])[..], b", Accept-Encoding"].concat();
    fields.set(b"vary", &all);
}

/// Makes the fields those of content in this coding: other bytes, so that no strong validator, length or range of the
/// original is right (RFC 9110 §8.8.1).
fn encoded(fields: &mut Fields, coding: Coding) {
    fields.remove(Known::ContentLength);
    fields.remove_named(b"accept-ranges");
    fields.set(b"content-encoding", coding.name().as_bytes());
    if let Some(weak) = weak(fields) {
        fields.set(b"etag", &weak);
    }
}

/// The weak form of a strong entity tag.
fn weak(fields: &Fields) -> Option<Vec<u8>> {
    let strong = first(fields, b"etag").filter(|tag| tag.starts_with(b"\""));
    strong.map(|tag| [b"W/", tag].concat())
}

/// The response that has not changed is known by the entity tag that the client has of it: the weak one, where it has
/// the compressed form (RFC 9110 §15.4.5).
fn revalidated(request: &Fields, fields: &mut Fields) {
    let Some(weak) = weak(fields) else { return };
    let has = |list: &[u8]| list.windows(weak.len()).any(|tag| tag == weak);
    if request.named(b"if-none-match").any(has) {
        fields.set(b"etag", &weak);
        vary(fields);
    }
}

#[cfg(test)]
mod tests;
