//! From and to the types of the `http` crate, in which trailers and requests of our own come.

use bytes::Bytes;
use http::header::{HOST, HeaderMap, HeaderName, HeaderValue};
use http::uri::PathAndQuery;

use super::{Fields, Known, Request};

impl Fields {
    /// Takes in the fields of a map.
    pub fn load_map(&mut self, map: &HeaderMap) {
        for (name, value) in map {
            self.append(name.as_str().as_bytes(), value.as_bytes());
        }
    }

    /// The same fields as a map. Those that the types of `http` cannot have, with control bytes or names above 64 KiB,
    /// cannot come here, and would be left out.
    #[must_use]
    pub fn to_map(&self) -> HeaderMap {
        // One allocation for all values.
        let bytes = Bytes::copy_from_slice(&self.bytes);
        let mut map = HeaderMap::with_capacity(self.len());
        for line in &self.index {
            let name = match line.known {
                Known::Other => HeaderName::from_bytes(&bytes[line.name()]),
                known => Ok(HeaderName::from_static(known.name())),
            };
            let value = HeaderValue::from_maybe_shared(bytes.slice(line.value()));
            if let (Ok(name), Ok(value)) = (name, value) {
                let _ = map.try_append(name, value);
            }
        }
        map
    }
}

impl<B> From<&http::Request<B>> for Request {
    fn from(request: &http::Request<B>) -> Self {
        let mut head = Self::new();
        head.version = request.version();
        let target = request.uri().path_and_query().map_or("/", PathAndQuery::as_str);
        head.set_method(request.method().clone());
        head.set_target(target.as_bytes());
        // What the target says is what a server of HTTP/1.1 is told (RFC 9112 §3.2.2).
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
