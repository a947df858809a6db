//! Blocks of fields as requests and trailers (RFC 9113 §8.1 to §8.3).
//!
//! What a field means is found out once, when it comes as a literal: the decoder's table keeps the outcome, so that
//! a request that says what the one before said costs little.

use std::sync::OnceLock;

use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue, TE};
use http::uri::{self, Authority, PathAndQuery, Scheme, Uri};
use http::{Method, Request, Version};
use offramp_http::h1::{MAX_METHOD, is_name};
use offramp_http::hpack::{Entry, STATIC};
use offramp_http::{Http1Fault, target};

/// The protocol that an extended CONNECT asks for (RFC 8441 §4), among the extensions of a request.
#[derive(Clone, Debug)]
pub(super) struct Protocol(pub(super) HeaderValue);

/// Marks a request of whose header only a part is here, among its extensions: it is larger than is unpacked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TooLarge;

/// Marks a request for what cannot be served, among its extensions: for a target or a scheme that the guard of
/// HTTP/1 would refuse as well.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unfit(pub(crate) Http1Fault);

/// A field, understood.
#[derive(Clone, Debug)]
pub(super) enum Field {
    Method(Method),
    Scheme(Result<Scheme, Http1Fault>),
    Authority(Authority),
    Path(Result<PathAndQuery, Http1Fault>),
    Protocol(HeaderValue),
    Plain(HeaderName, HeaderValue),
    /// One that no request may have, or with such a value; its name, which others may refer to.
    Malformed(Bytes),
}

impl Field {
    fn read(name: &[u8], value: &[u8]) -> Option<Self> {
        let copy = || Bytes::copy_from_slice(value);
        Some(match name {
            b":method" if value.len() > MAX_METHOD => return None,
            b":method" => Self::Method(Method::from_bytes(value).ok()?),
            b":scheme" => Self::Scheme(scheme(value)?),
            b":authority" => Self::Authority(Authority::from_maybe_shared(copy()).ok()?),
            b":path" => Self::Path(path(value)?),
            b":protocol" => Self::Protocol(HeaderValue::from_bytes(value).ok()?),
            // They concern one connection, and HTTP/2 has no such fields (RFC 9113 §8.2.2).
            b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding" | b"upgrade" => {
                return None;
            }
            // The type takes names in quotes, too.
            _ if !is_name(name) => return None,
            _ => {
                let name = HeaderName::from_lowercase(name).ok()?;
                if name == TE && value != b"trailers" {
                    return None;
                }
                Self::Plain(name, plain_value(value)?)
            }
        })
    }

    fn name(&self) -> &[u8] {
        match self {
            Self::Method(_) => b":method",
            Self::Scheme(_) => b":scheme",
            Self::Authority(_) => b":authority",
            Self::Path(_) => b":path",
            Self::Protocol(_) => b":protocol",
            Self::Plain(name, _) => name.as_str().as_bytes(),
            Self::Malformed(name) => name,
        }
    }
}

impl Entry for Field {
    fn of_static(index: usize) -> Self {
        static ALL: OnceLock<Vec<Field>> = OnceLock::new();
        let all = ALL.get_or_init(|| {
            let field = |(name, value): &(&str, &str)| Field::new(name.as_bytes(), value.as_bytes());
            STATIC.iter().map(field).collect()
        });
        all[index - 1].clone()
    }

    fn new(name: &[u8], value: &[u8]) -> Self {
        Self::read(name, value).unwrap_or_else(|| Self::Malformed(Bytes::copy_from_slice(name)))
    }

    fn with_value(&self, value: &[u8]) -> Self {
        match self {
            Self::Plain(name, _) if *name != TE => match plain_value(value) {
                Some(value) => Self::Plain(name.clone(), value),
                None => Self::Malformed(Bytes::copy_from_slice(self.name())),
            },
            _ => Self::new(self.name(), value),
        }
    }
}

/// A scheme; `None` for what is none, and a fault for one that is not served.
fn scheme(value: &[u8]) -> Option<Result<Scheme, Http1Fault>> {
    match target::Scheme::read(value) {
        Some(target::Scheme::Http) => Some(Ok(Scheme::HTTP)),
        Some(target::Scheme::Https) => Some(Ok(Scheme::HTTPS)),
        None => Scheme::try_from(value).ok().map(|_| Err(Http1Fault::TargetForm)),
    }
}

/// A path with its query, or `*`; `None` for what is none (RFC 9113 §8.3.1) or would end a line of HTTP/1, and a fault
/// where HTTP/1 would say so.
fn path(value: &[u8]) -> Option<Result<PathAndQuery, Http1Fault>> {
    if value == b"*" {
        return Some(Ok(PathAndQuery::from_static("*")));
    }
    let ends = |byte: &u8| byte.is_ascii_control() || *byte == b' ';
    if !value.starts_with(b"/") || value.iter().any(ends) {
        return None;
    }
    let long = |_| Http1Fault::TargetTooLong;
    let whole = || PathAndQuery::from_maybe_shared(Bytes::copy_from_slice(value)).map_err(long);
    Some(target::check(value).and_then(|()| whole()))
}

/// A value without whitespace around it, nor bytes that end a line (RFC 9113 §8.2.1).
fn plain_value(value: &[u8]) -> Option<HeaderValue> {
    let blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    let bare = !blank(value.first()) && !blank(value.last());
    bare.then(|| HeaderValue::from_bytes(value).ok()).flatten()
}

/// A block of fields as it is read.
pub(super) struct Heading {
    method: Option<Method>,
    scheme: Option<Result<Scheme, Http1Fault>>,
    authority: Option<Authority>,
    path: Option<Result<PathAndQuery, Http1Fault>>,
    protocol: Option<HeaderValue>,
    headers: HeaderMap,
    /// Bytes of all fields so far, and how many they may be (RFC 9113 §6.5.2).
    size: usize,
    most: usize,
    /// Whether a field came that is not one of the pseudo fields.
    plain: bool,
    malformed: bool,
}

impl Heading {
    /// An empty one of at most so many bytes, with the memory of a header map.
    pub(super) fn new(most: usize, headers: HeaderMap) -> Self {
        Self {
            method: None,
            scheme: None,
            authority: None,
            path: None,
            protocol: None,
            headers,
            size: 0,
            most,
            plain: false,
            malformed: false,
        }
    }

    /// Takes a field. Those beyond the bound are dropped.
    pub(super) fn take(&mut self, field: Field, size: usize) {
        fn once<T>(place: &mut Option<T>, value: T) -> bool {
            place.replace(value).is_none()
        }
        self.size += size;
        if self.size > self.most {
            return;
        }
        let fresh = match field {
            Field::Plain(name, value) => {
                self.plain = true;
                // A map that has no room for it is beyond any bound that can be configured.
                self.malformed |= self.headers.try_append(name, value).is_err();
                return;
            }
            Field::Malformed(_) => false,
            Field::Method(method) => once(&mut self.method, method),
            Field::Scheme(scheme) => once(&mut self.scheme, scheme),
            Field::Authority(authority) => once(&mut self.authority, authority),
            Field::Path(path) => once(&mut self.path, path),
            Field::Protocol(protocol) => once(&mut self.protocol, protocol),
        };
        // Pseudo fields come once, and before all others (RFC 9113 §8.3).
        self.malformed |= !fresh || self.plain;
    }

    /// The request, if it is well-formed (RFC 9113 §8.3.1, RFC 8441 §4).
    pub(super) fn request(mut self) -> Option<Request<()>> {
        let mut request = Request::new(());
        *request.version_mut() = Version::HTTP_2;
        if self.size > self.most {
            request.extensions_mut().insert(TooLarge);
            self.complete();
        }
        let method = self.method?;
        let connects = method == Method::CONNECT;
        let whole = match (connects, &self.protocol) {
            (false, None) => self.scheme.is_some() && self.path.is_some(),
            (false, Some(_)) => false,
            (true, None) => self.scheme.is_none() && self.path.is_none() && self.authority.is_some(),
            (true, Some(_)) => self.scheme.is_some() && self.path.is_some() && self.authority.is_some(),
        };
        if self.malformed || !whole {
            return None;
        }
        let mut parts = uri::Parts::default();
        let (scheme, path) = match (self.scheme.transpose(), self.path.transpose()) {
            (Ok(scheme), Ok(path)) => (scheme, path),
            // It is answered without being passed on.
            (Err(fault), _) | (_, Err(fault)) => {
                request.extensions_mut().insert(Unfit(fault));
                (Some(Scheme::HTTPS), Some(PathAndQuery::from_static("/")))
            }
        };
        // Without an authority the type has no place for a scheme.
        parts.scheme = scheme.filter(|_| self.authority.is_some());
        parts.authority = self.authority;
        parts.path_and_query = path;
        *request.uri_mut() = Uri::from_parts(parts).ok()?;
        *request.method_mut() = method;
        *request.headers_mut() = self.headers;
        if let Some(protocol) = self.protocol {
            request.extensions_mut().insert(Protocol(protocol));
        }
        Some(request)
    }

    /// Puts in what may be missing of a request that is answered without being passed on.
    fn complete(&mut self) {
        self.method.get_or_insert(Method::GET);
        self.scheme.get_or_insert(Ok(Scheme::HTTPS));
        self.path.get_or_insert(Ok(PathAndQuery::from_static("/")));
        if self.method == Some(Method::CONNECT) && self.protocol.is_none() {
            (self.scheme, self.path) = (None, None);
        }
    }

    /// The trailers, if they are well-formed (RFC 9113 §8.1) and not too large.
    pub(super) fn trailers(self) -> Option<HeaderMap> {
        let pseudo = self.method.is_some()
            || self.scheme.is_some()
            || self.authority.is_some()
            || self.path.is_some()
            || self.protocol.is_some();
        (!pseudo && !self.malformed && self.size <= self.most).then_some(self.headers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heading(fields: &[(&str, &str)], most: usize) -> Heading {
        let mut heading = Heading::new(most, HeaderMap::new());
        for (name, value) in fields {
            heading.take(Field::new(name.as_bytes(), value.as_bytes()), name.len() + value.len() + 32);
        }
        heading
    }

    const GET: [(&str, &str); 4] =
        [(":method", "GET"), (":scheme", "https"), (":authority", "a.test"), (":path", "/x?y")];

    #[test]
    fn a_request_is_what_its_fields_say() {
        let request =
            heading(&[&GET[..], &[("cookie", "a"), ("cookie", "b")]].concat(), 1000).request().unwrap();
        assert_eq!(request.uri(), "https://a.test/x?y");
        assert_eq!((request.method(), request.version()), (&Method::GET, Version::HTTP_2));
        assert_eq!(request.headers().get_all("cookie").iter().count(), 2);
        assert!(request.extensions().get::<TooLarge>().is_none());
        let asterisk = [(":method", "OPTIONS"), (":scheme", "http"), (":path", "*"), ("host", "a.test")];
        assert_eq!(heading(&asterisk, 1000).request().unwrap().uri(), "*");
    }

    #[test]
    fn what_cannot_be_served_is_told_apart_from_what_is_malformed() {
        let but = |name: &str, value: &str| {
            let fields = GET.map(|(field, plain)| (field, if field == name { value } else { plain }));
            heading(&fields, 100_000)
                .request()
                .map(|request| request.extensions().get::<Unfit>().map(|fault| fault.0))
        };
        let long = format!("/{}", "x".repeat(70_000));
        for (name, value, fault) in [
            (":path", "/a#b", Http1Fault::TargetFragment),
            (":path", "/caf\u{e9}", Http1Fault::TargetByte),
            (":path", "/\u{a0}", Http1Fault::TargetByte),
            (":path", "/?q=\"x\"", Http1Fault::TargetByte),
            (":path", &long, Http1Fault::TargetTooLong),
            (":scheme", "ftp", Http1Fault::TargetForm),
        ] {
            assert_eq!(but(name, value), Some(Some(fault)), "{name} {:?}", &value[..5.min(value.len() - 1)]);
        }
        for (name, value) in
            [(":path", ""), (":path", "x"), (":path", "/a b"), (":path", "/\r\n"), (":scheme", "ht tp")]
        {
            assert_eq!(but(name, value), None, "{name} {value:?}");
        }
        for (name, value) in [(":path", "/?a|b^c"), (":scheme", "HTTP")] {
            assert_eq!(but(name, value), Some(None), "{name} {value:?}");
        }
    }

    #[test]
    fn extended_connect_says_its_protocol() {
        let fields = [&[(":method", "CONNECT"), (":protocol", "websocket")], &GET[1..]].concat();
        let request = heading(&fields, 1000).request().unwrap();
        assert_eq!(request.extensions().get::<Protocol>().unwrap().0, "websocket");
        assert_eq!(request.uri(), "https://a.test/x?y");
        assert!(heading(&[&[(":protocol", "websocket")], &GET[..]].concat(), 1000).request().is_none());
    }

    #[test]
    fn what_is_too_large_is_a_request_all_the_same() {
        let large = "y".repeat(900);
        for fields in [
            [&GET[..], &[("x", &large[..])]].concat(),
            [&[(":method", "CONNECT"), (":authority", "a.test:1")], &[("x", &large[..])][..]].concat(),
            vec![(":path", &large[..])],
        ] {
            let request = heading(&fields, 800).request().unwrap();
            assert!(request.extensions().get::<TooLarge>().is_some(), "{fields:?}");
            assert!(request.headers().is_empty());
        }
        assert!(heading(&[("x", &large[..])], 800).trailers().is_none());
    }

    #[test]
    fn trailers_have_no_pseudo_fields() {
        assert_eq!(heading(&[("x-sum", "1")], 100).trailers().unwrap().len(), 1);
        for field in GET {
            assert!(heading(&[field], 100).trailers().is_none(), "{field:?}");
        }
    }

    #[test]
    fn a_name_outlives_a_value_that_is_none() {
        for value in [&b" 1"[..], b"1\t", b"\x001"] {
            assert!(matches!(Field::new(b"x-a", b"1").with_value(value), Field::Malformed(_)));
        }
        assert!(
            matches!(Field::new(b"x-a", b"1").with_value(b""), Field::Plain(_, value) if value.is_empty())
        );
        let bad = Field::new(b"x-a", b"1\r\n2");
        assert!(matches!(&bad, Field::Malformed(name) if name == "x-a"));
        assert!(matches!(bad.with_value(b"1"), Field::Plain(name, value) if name == "x-a" && value == "1"));
        assert!(matches!(Field::new(b"te", b"trailers").with_value(b"gzip"), Field::Malformed(_)));
        for name in [&b"\"content-length\""[..], b"", b"x y", b"x:", b"X-A", b"\xff"] {
            assert!(matches!(Field::new(name, b"5"), Field::Malformed(_)), "{}", name.escape_ascii());
        }
        assert!(
            matches!(Field::new(b":path", b"x").with_value(b"/x"), Field::Path(Ok(path)) if path == "/x")
        );
        assert!(matches!(Field::of_static(2), Field::Method(method) if method == Method::GET));
        assert!(matches!(Field::of_static(61), Field::Plain(name, _) if name == "www-authenticate"));
        // A status is none of a request's fields.
        assert!(matches!(Field::of_static(8), Field::Malformed(_)));
    }
}
