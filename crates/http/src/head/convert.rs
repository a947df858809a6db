//! From and to the types of the `http` crate, which HTTP/2 towards servers still needs.

use bytes::Bytes;
use http::header::{HOST, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::uri::{self, Authority, PathAndQuery, Scheme, Uri};

use super::{Fields, Known, KnownSet, Request};

impl Fields {
    /// Takes in the fields of a map.
    pub fn load_map(&mut self, map: &HeaderMap) {
        for (name, value) in map {
            self.append(name.as_str().as_bytes(), value.as_bytes());
        }
    }

    /// The same fields as a map.
    #[must_use]
    pub fn to_map(&self) -> HeaderMap {
        self.map_of(&Bytes::copy_from_slice(&self.bytes), KnownSet::default())
    }

    /// The same fields as a map, but those `without`. Those that the types of `http` cannot have, with control bytes or
    /// names above 64 KiB, cannot come here, and would be left out.
    ///
    /// `bytes` are those of the head, once for all values of the map.
    fn map_of(&self, bytes: &Bytes, without: KnownSet) -> HeaderMap {
        let mut map = HeaderMap::with_capacity(self.len());
        for line in self.index.iter().filter(|line| !without.has(line.known)) {
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

impl Request {
    /// The same head for HTTP/2: the authority is the host that is asked for, and nothing frames the content.
    ///
    /// # Errors
    /// There is no host that can be an authority, or the target is longer than 64 KiB.
    pub fn to_http(&self, tls: bool) -> Result<Parts, http::Error> {
        // One allocation for target, authority and all values.
        let bytes = Bytes::copy_from_slice(&self.fields.bytes);
        let host = self.host_place().map_or_else(Bytes::new, |place| bytes.slice(place));
        let mut parts = uri::Parts::default();
        parts.path_and_query = Some(PathAndQuery::from_maybe_shared(bytes.slice(self.target.range()))?);
        parts.scheme = Some(if tls { Scheme::HTTPS } else { Scheme::HTTP });
        parts.authority = Some(Authority::from_maybe_shared(host)?);
        let (mut made, ()) = http::Request::new(()).into_parts();
        made.method = self.method.clone();
        made.uri = Uri::from_parts(parts)?;
        made.headers = self.fields.map_of(&bytes, KnownSet::of(&[Known::Host, Known::TransferEncoding]));
        Ok(made)
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
