//! Requests whose version is known only when a server has agreed on one (ALPN): they come as HTTP/2 has them, and are
//! made what HTTP/1.1 has where that was agreed on.

use http::header::{CONTENT_LENGTH, HOST, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderValue, Method, Request, Uri};

use super::line::RequestBody;

/// The same request for HTTP/1.1: its authority becomes `Host`, its target a path. A body of unknown length is
/// announced where one would be left out otherwise; what another protocol will say is none.
pub(super) fn for_line<B: RequestBody>(request: Request<B>) -> Request<B> {
    let (mut parts, body) = request.into_parts();
    if let Some(authority) = parts.uri.authority()
        && let Ok(host) = HeaderValue::try_from(authority.as_str())
    {
        parts.headers.insert(HOST, host);
        let path = parts.uri.path_and_query().map(|path| Uri::from(path.clone()));
        parts.uri = path.unwrap_or_else(|| Uri::from_static("/"));
    }
    let unknown = !body.is_end_stream() && body.size_hint().exact().is_none();
    if unknown
        && matches!(parts.method, Method::GET | Method::HEAD)
        && !parts.headers.contains_key(CONTENT_LENGTH)
        && !parts.headers.contains_key(UPGRADE)
    {
        parts.headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    Request::from_parts(parts, body)
}
