//! Compression of responses as they pass.
//!
//! Whether a response is compressed is decided by its head: a type that gains, enough content, nothing that is encoded
//! already, nothing of which only a part is sent, nothing that must not be changed. The content then goes through
//! [`stream`]. It does not matter where the response comes from: head and body come in, head and body go out. A route
//! without `compress` never comes here.
//!
//! **Bounds.** A worker compresses only so many responses at a time that their memory is within `limits.memory`; others
//! are sent as they are. Where the worker is busy, the level falls ([`Load`]).

mod encoder;
mod load;
mod stream;

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use http::{StatusCode, Version};
use offramp_http::h1::content_length;
use offramp_http::head::{self, Fields, Known, Response};
use offramp_http::semantics::accept_encoding::{Coding, choose};

use super::body::Reply;
use crate::snapshot::http::Compress;
use load::Load;
pub(crate) use stream::Compressed;

/// Fields that speak of the bytes of the content: they would be wrong.
const DIGESTS: [&[u8]; 4] = [b"content-digest", b"repr-digest", b"digest", b"content-md5"];

/// What a request and its route say of the coding of the response.
pub(crate) struct Wanted {
    policy: Arc<Compress>,
    /// `None`: the client wants the content as it is.
    coding: Option<Coding>,
}

/// What a request wants of a route that compresses. Known before the request changes on its way to the server.
pub(crate) fn wanted(policy: &Arc<Compress>, request: &head::Request) -> Box<Wanted> {
    // A client of HTTP/1.0 could tell the end of it only by that of the connection.
    let coding = (request.version != Version::HTTP_10)
        .then(|| choose(request.fields.named(b"accept-encoding"), &policy.algorithms))
        .flatten();
    Box::new(Wanted { policy: Arc::clone(policy), coding })
}

/// What a worker knows of its compressors.
#[derive(Default)]
pub(crate) struct Compressors {
    used: Rc<Cell<usize>>,
    load: Load,
}

/// The memory of one compressor, until it is dropped.
struct Place {
    used: Rc<Cell<usize>>,
    taken: usize,
}

impl Compressors {
    /// Takes memory for a compressor, if all of the worker's have less than `most` with it.
    fn take(&self, need: usize, most: usize) -> Option<Place> {
        let used = self.used.get() + need;
        (used <= most).then(|| {
            self.used.set(used);
            Place { used: Rc::clone(&self.used), taken: need }
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.used.set(self.used.get() - self.taken);
    }
}

/// Has `response` compressed, if it can be and the client wants that. `head`: it is one to HEAD, and gets the fields of
/// the response to GET. `most` is the memory that compressors may have.
pub(crate) fn response(
    compressors: &Compressors,
    wanted: &Wanted,
    (head, most): (bool, usize),
    mut response: Response<Reply>,
) -> Response<Reply> {
    if !gains(&wanted.policy, head, &response) {
        return response;
    }
    vary(&mut response.fields);
    let Some(coding) = wanted.coding else { return response };
    let Some(place) = compressors.take(encoder::memory(coding), most) else { return response };
    let level = load::eased(encoder::level(coding, wanted.policy.level), compressors.load.share());
    let Ok(encoder) = encoder::Encoder::new(coding, level) else { return response };
    let live = media_type(&response.fields) == b"text/event-stream";
    encoded(&mut response.fields, coding);
    if head {
        return response;
    }
    response.map(|body| body.compressed(|body| Compressed::new(body, encoder, place, live)))
}

/// Whether a response may be compressed and gains by it.
fn gains(policy: &Compress, head: bool, response: &Response<Reply>) -> bool {
    let status = response.status;
    let whole = !status.is_informational()
        && !matches!(
            status,
            StatusCode::NO_CONTENT
                | StatusCode::RESET_CONTENT
                | StatusCode::PARTIAL_CONTENT
                | StatusCode::NOT_MODIFIED
        );
    if !whole || (response.body.is_end_stream() && !head) {
        return false;
    }
    let fields = &response.fields;
    let says = |name: &[u8], word: &[u8]| {
        fields.named(name).any(|value| members(value).any(|member| member.eq_ignore_ascii_case(word)))
    };
    let coded = fields.named(b"content-encoding").any(|value| !value.eq_ignore_ascii_case(b"identity"));
    let bound = DIGESTS.iter().any(|name| fields.named(name).next().is_some());
    if coded || bound || says(b"cache-control", b"no-transform") {
        return false;
    }
    if fields.named(b"content-range").next().is_some() {
        return false;
    }
    let said = fields.get(Known::ContentLength).and_then(|value| content_length(value).ok());
    let length = if head { said } else { response.body.length().or(said) };
    length.is_none_or(|length| length >= policy.min_size) && policy.covers(media_type(fields))
}

/// The members of a list, without parameters and blanks.
fn members(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii)
}

/// The first value of a field.
fn first<'f>(fields: &'f Fields, name: &'static [u8]) -> Option<&'f [u8]> {
    fields.named(name).next()
}

/// The media type of the content without its parameters, as it was written.
fn media_type(fields: &Fields) -> &[u8] {
    let value = first(fields, b"content-type").unwrap_or_default();
    value.split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii()
}

/// Says that the response depends on Accept-Encoding (RFC 9110 §12.5.5).
fn vary(fields: &mut Fields) {
    let known = |member: &[u8]| member == b"*" || member.eq_ignore_ascii_case(b"accept-encoding");
    if !fields.named(b"vary").any(|value| members(value).any(known)) {
        fields.append(b"vary", b"Accept-Encoding");
    }
}

/// Makes the fields those of content in this coding: other bytes, so that no strong validator, length or range of the
/// original is right (RFC 9110 §8.8.1).
fn encoded(fields: &mut Fields, coding: Coding) {
    fields.remove(Known::ContentLength);
    fields.remove_named(b"accept-ranges");
    fields.set(b"content-encoding", coding.name().as_bytes());
    let strong = first(fields, b"etag").filter(|tag| tag.starts_with(b"\""));
    if let Some(weak) = strong.map(|tag| [b"W/", tag].concat()) {
        fields.set(b"etag", &weak);
    }
}

#[cfg(test)]
mod tests;
