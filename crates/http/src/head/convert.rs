//! Conversions from the types of the `http` crate, used for our own requests.

use http::header::{HOST, HeaderMap};
use http::uri::PathAndQuery;

use super::{Fields, Known, Request};

impl Fields {
    /// Appends the fields of a map.
    pub fn load_map(&mut self, map: &HeaderMap) {
        for (name, value) in map {
            self.append(name.as_str().as_bytes(), value.as_bytes());
        }
    }
}

impl<B> From<&http::Request<B>> for Request {
    fn from(request: &http::Request<B>) -> Self {
        let mut head = Self::new();
        head.version = request.version();
        let target = request.uri().path_and_query().map_or("/", PathAndQuery::as_str);
        head.set_method(request.method().clone());
        head.set_target(target.as_bytes());
        // The authority of the target is sent as Host (RFC 9112 §3.2.2).
        let authority = request.uri().authority().map(|authority| authority.as_str().as_bytes());
        if let Some(authority) = authority.filter(|_| !request.headers().contains_key(HOST)) {
            head.fields.append_known(Known::Host, authority);
            head.set_authority_from_host(true);
        } else {
            head.set_authority(authority);
        }
        head.fields.load_map(request.headers());
        head
    }
}
