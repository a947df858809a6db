//! From and to the types of the `http` crate, which HTTP/2 still needs on both sides.

use http::header::{HOST, HeaderMap, HeaderName, HeaderValue, TRANSFER_ENCODING};
use http::request::Parts;
use http::uri::{self, PathAndQuery, Scheme, Uri};

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
        let mut map = HeaderMap::with_capacity(self.len());
        for (name, value) in self.iter() {
            if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) {
                let _ = map.try_append(name, value);
            }
        }
        map
    }
}

impl Request {
    /// Takes in the head of a request of `http`.
    pub fn load_http<B>(&mut self, request: &http::Request<B>) {
        self.fields.clear();
        self.version = request.version();
        let target = request.uri().path_and_query().map_or("/", PathAndQuery::as_str);
        self.set_method(request.method().clone());
        self.set_target(target.as_bytes());
        let authority = request.uri().authority().map(|authority| authority.as_str().as_bytes());
        match authority {
            // What the target says is what a server of HTTP/1.1 is told (RFC 9112 §3.2.2).
            Some(authority) if !request.headers().contains_key(HOST) => {
                self.fields.append_known(Known::Host, authority);
                self.set_authority_from_host();
            }
            authority => self.set_authority(authority),
        }
        self.fields.load_map(request.headers());
    }

    /// The same head for HTTP/2: the authority is the host that is asked for, and nothing frames the content.
    ///
    /// # Errors
    /// There is no host that can be an authority, or the target is longer than 64 KiB.
    pub fn to_http(&self, tls: bool) -> Result<Parts, http::Error> {
        let mut parts = uri::Parts::default();
        parts.path_and_query = Some(PathAndQuery::try_from(self.target())?);
        parts.scheme = Some(if tls { Scheme::HTTPS } else { Scheme::HTTP });
        parts.authority = Some(self.host().unwrap_or_default().try_into()?);
        let (mut made, ()) = http::Request::new(()).into_parts();
        made.method = self.method.clone();
        made.uri = Uri::from_parts(parts)?;
        made.headers = self.fields.to_map();
        made.headers.remove(HOST);
        made.headers.remove(TRANSFER_ENCODING);
        Ok(made)
    }
}

impl<B> From<&http::Request<B>> for Request {
    fn from(request: &http::Request<B>) -> Self {
        let mut head = Self::new();
        head.load_http(request);
        head
    }
}
