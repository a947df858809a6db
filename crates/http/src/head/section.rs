//! Field sections of HTTP/2 as heads and trailers (RFC 9113 §8.1 to §8.3).

use http::{Method, StatusCode, Version};

use super::{FieldLine, Fields, Kind, Known, Request, Response, Span};
use crate::h1::Http1Fault;
use crate::hpack::Field;
use crate::target::{self, QueryForm, Scheme};

/// A field section as it is decoded.
///
/// [`FieldSection::take`] takes in what a [`Decoder`](crate::hpack::Decoder) gives, field by field; then
/// [`FieldSection::request`], [`FieldSection::response`] or [`FieldSection::trailers`] says what it is, or that it is
/// malformed.
#[derive(Debug)]
pub struct FieldSection {
    fields: Fields,
    method: Option<Method>,
    scheme: Option<Result<Scheme, Http1Fault>>,
    /// Whether the first field is `Host` as `:authority` said it.
    authority: bool,
    path: Option<Result<Span, Http1Fault>>,
    protocol: Option<Span>,
    status: Option<u16>,
    /// Bytes of all fields so far, and how many they may be (RFC 9113 §6.5.2).
    size: usize,
    most: usize,
    /// Whether a pseudo-header field came, and whether another one did.
    pseudo: bool,
    plain: bool,
    malformed: bool,
}

/// What a request of HTTP/2 says besides its head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlData {
    /// The scheme.
    pub scheme: Option<Scheme>,
    /// The protocol that an extended CONNECT asks for (RFC 8441 §4).
    pub protocol: Option<Box<[u8]>>,
    /// Why it cannot be served, though it is well-formed.
    pub unserved: Option<Unserved>,
}

/// Why a well-formed request cannot be served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unserved {
    /// Its field section is larger than the bound; only a part of it is in the head.
    TooLarge,
    /// Its target or scheme is one that the guard of HTTP/1 would refuse as well. The head asks for `/`.
    Target(Http1Fault),
}

impl FieldSection {
    /// An empty one of at most `most` bytes, as sizes of lists count (RFC 9113 §6.5.2). It uses the memory of `fields`.
    #[must_use]
    pub fn new(mut fields: Fields, most: usize) -> Self {
        fields.clear();
        Self {
            fields,
            method: None,
            scheme: None,
            authority: false,
            path: None,
            protocol: None,
            status: None,
            size: 0,
            most,
            pseudo: false,
            plain: false,
            malformed: false,
        }
    }

    /// Bytes of all fields that came, those beyond the bound with them.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// Takes a field. Those beyond the bound are dropped.
    #[inline]
    pub fn take(&mut self, field: Field<'_>) {
        self.size += field.size();
        if self.size > self.most {
            return;
        }
        match field.kind() {
            Kind::Plain(known) => {
                self.plain = true;
                self.fields.append_line(&field, known);
            }
            kind => self.pseudo(kind, field.value()),
        }
    }

    /// Takes a pseudo-header field: each comes once, and before all others (RFC 9113 §8.3).
    fn pseudo(&mut self, kind: Kind, value: &[u8]) {
        fn once<T>(place: &mut Option<T>, value: T) -> bool {
            place.replace(value).is_none()
        }
        let fresh = match kind {
            Kind::Method => match Method::from_bytes(value) {
                Ok(method) => once(&mut self.method, method),
                // It was one when it came.
                Err(_) => false,
            },
            Kind::Scheme(scheme) => once(&mut self.scheme, scheme),
            Kind::Authority => {
                self.fields.append_known(Known::Host, value);
                !std::mem::replace(&mut self.authority, true)
            }
            Kind::Path(path) => {
                let place = path.map(|form| match form {
                    QueryForm::Encoded => self.fields.push(value),
                    QueryForm::Raw => self.fields.push(&target::encode(value)),
                });
                once(&mut self.path, place)
            }
            Kind::Protocol => {
                let place = self.fields.push(value);
                once(&mut self.protocol, place)
            }
            Kind::Status(status) => once(&mut self.status, status),
            Kind::Plain(_) | Kind::Malformed => false,
        };
        self.pseudo = true;
        self.malformed |= !fresh || self.plain;
    }

    /// Makes it the head of a request, if it is well-formed (RFC 9113 §8.3.1, RFC 8441 §4). `head` gets the memory back
    /// in any case.
    #[must_use]
    pub fn request(mut self, head: &mut Request) -> Option<ControlData> {
        let mut unserved = None;
        if self.size > self.most {
            unserved = Some(Unserved::TooLarge);
            self.complete();
        }
        let control = self.control(unserved);
        let Self { fields, method, authority, path, .. } = self;
        head.version = Version::HTTP_2;
        head.fields = fields;
        head.method = method.unwrap_or_default();
        head.set_authority_from_host(authority);
        match path {
            Some(Ok(place)) => head.set_target_at(place),
            // It is answered without being passed on, or has no path.
            _ => head.set_target(b"/"),
        }
        control
    }

    /// What it says besides its head; nothing where it is malformed.
    fn control(&self, unserved: Option<Unserved>) -> Option<ControlData> {
        let connects = self.method.as_ref()? == Method::CONNECT;
        let whole = match (connects, self.protocol) {
            (false, None) => self.scheme.is_some() && self.path.is_some(),
            (false, Some(_)) => false,
            (true, None) => self.scheme.is_none() && self.path.is_none() && self.authority,
            (true, Some(_)) => self.scheme.is_some() && self.path.is_some() && self.authority,
        };
        if self.malformed || self.status.is_some() || !whole {
            return None;
        }
        let fault = match (self.scheme, self.path) {
            (Some(Err(fault)), _) | (_, Some(Err(fault))) => Some(Unserved::Target(fault)),
            _ => None,
        };
        let protocol = self.protocol.map(|place| self.fields.bytes[place.range()].into());
        let scheme = self.scheme.and_then(Result::ok);
        Some(ControlData { scheme, protocol, unserved: unserved.or(fault) })
    }

    /// Puts in what may be missing of a request that is answered without being passed on.
    fn complete(&mut self) {
        let method = self.method.get_or_insert(Method::GET);
        if *method == Method::CONNECT && self.protocol.is_none() {
            (self.scheme, self.path) = (None, None);
            return;
        }
        self.scheme.get_or_insert(Ok(Scheme::Https));
        if self.path.is_none() {
            self.path = Some(Ok(self.fields.push(b"/")));
        }
    }

    /// Makes it the head of a response, if it is well-formed (RFC 9113 §8.3.2) and not too large.
    #[must_use]
    pub fn response(self) -> Option<Response> {
        let asks = self.method.is_some() || self.scheme.is_some() || self.authority;
        if asks || self.path.is_some() || self.protocol.is_some() || self.malformed || self.size > self.most {
            return None;
        }
        let mut response = Response::new(StatusCode::from_u16(self.status?).ok()?, ());
        (response.version, response.fields) = (Version::HTTP_2, self.fields);
        Some(response)
    }

    /// The trailers, if they are well-formed (RFC 9113 §8.1) and not too large.
    #[must_use]
    pub fn trailers(self) -> Option<Fields> {
        (!self.pseudo && !self.malformed && self.size <= self.most).then_some(self.fields)
    }
}

impl Fields {
    /// Puts a field of HTTP/2 behind all others.
    #[inline]
    fn append_line(&mut self, field: &Field<'_>, known: Known) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(field.line());
        self.have.insert(known);
        self.index.push(FieldLine {
            start: start as u32,
            value: field.value().len() as u32,
            // A longer one is malformed.
            name: field.name().len() as u16,
            known,
            plain: true,
        });
    }
}

#[cfg(test)]
mod tests;
