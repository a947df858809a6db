//! Field sections of HTTP/2 as heads and trailers (RFC 9113 §8.1 to §8.3).

use http::{Method, StatusCode, Version};

use super::{Fields, HeadRange, Request, Response};
use crate::fault::Http1Fault;
use crate::field::{FieldClass, FieldLine, Known};
use crate::hpack::DecodedField;
use crate::target::{self, QueryForm, Scheme};

/// A field section during decoding.
///
/// [`FieldSection::take`] adds the fields of a [`HpackDecoder`](crate::hpack::HpackDecoder) one by one; then
/// [`FieldSection::request`], [`FieldSection::response`] or [`FieldSection::trailers`] converts it, unless it
/// is malformed.
#[derive(Debug)]
pub struct FieldSection {
    fields: Fields,
    method: Option<Method>,
    scheme: Option<Result<Scheme, Http1Fault>>,
    /// Set if the first field is the `Host` made from `:authority`.
    authority: bool,
    path: Option<Result<HeadRange, Http1Fault>>,
    protocol: Option<HeadRange>,
    status: Option<u16>,
    /// Size of all fields so far, and its maximum, in bytes (RFC 9113 §6.5.2).
    size: usize,
    most: usize,
    /// Set once a pseudo-header field was added, and once a regular one was.
    pseudo: bool,
    plain: bool,
    malformed: bool,
}

/// Control data of an HTTP/2 request beyond its head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlData {
    /// Scheme of the request.
    pub scheme: Option<Scheme>,
    /// Protocol requested by an extended CONNECT (RFC 8441 §4).
    pub protocol: Option<Box<[u8]>>,
    /// Reason for which the well-formed request cannot be served.
    pub unserved: Option<Unserved>,
}

/// Reason for which a well-formed request cannot be served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unserved {
    /// The field section exceeds the bound; the head holds only a part of it.
    TooLarge,
    /// The HTTP/1 guard would reject its target or scheme, too. The head has the target `/`.
    Target(Http1Fault),
}

impl FieldSection {
    /// An empty section of at most `most` bytes, counted as in SETTINGS_MAX_HEADER_LIST_SIZE (RFC 9113
    /// §6.5.2). It reuses the memory of `fields`.
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

    /// Size of all fields added, including those beyond the bound.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// Adds a field. Fields beyond the bound are counted and dropped.
    #[inline]
    pub fn take(&mut self, field: DecodedField<'_>) {
        self.size += field.size();
        if self.size > self.most {
            return;
        }
        match field.kind() {
            FieldClass::Plain(known) => {
                self.plain = true;
                self.fields.append_line(&field, known);
            }
            kind => self.pseudo(kind, field.value()),
        }
    }

    /// Adds a pseudo-header field: each occurs once, and before all regular fields (RFC 9113 §8.3).
    fn pseudo(&mut self, kind: FieldClass, value: &[u8]) {
        fn once<T>(place: &mut Option<T>, value: T) -> bool {
            place.replace(value).is_none()
        }
        let fresh = match kind {
            FieldClass::Method => match Method::from_bytes(value) {
                Ok(method) => once(&mut self.method, method),
                // The method was validated when it arrived.
                Err(_) => false,
            },
            FieldClass::Scheme(scheme) => once(&mut self.scheme, scheme),
            FieldClass::Authority => {
                self.fields.append_known(Known::Host, value);
                !std::mem::replace(&mut self.authority, true)
            }
            FieldClass::Path(path) => {
                let place = path.map(|form| match form {
                    QueryForm::Encoded => self.fields.push(value),
                    QueryForm::Raw => self.fields.push(&target::encode(value)),
                });
                once(&mut self.path, place)
            }
            FieldClass::Protocol => {
                let place = self.fields.push(value);
                once(&mut self.protocol, place)
            }
            FieldClass::Status(status) => once(&mut self.status, status),
            FieldClass::Plain(_) | FieldClass::Malformed => false,
        };
        self.pseudo = true;
        self.malformed |= !fresh || self.plain;
    }

    /// Converts it to the head of a request, if it is well-formed (RFC 9113 §8.3.1, RFC 8441 §4). `head` gets
    /// the memory back in any case.
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
            // Not forwarded, or without a path.
            _ => head.set_target(b"/"),
        }
        control
    }

    /// Control data; `None` for a malformed request.
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

    /// Adds parts that may be missing from a request that is not forwarded.
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

    /// Converts it to the head of a response, if it is well-formed (RFC 9113 §8.3.2) and within the bound.
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

    /// Converts it to trailers, if they are well-formed (RFC 9113 §8.1) and within the bound.
    #[must_use]
    pub fn trailers(self) -> Option<Fields> {
        (!self.pseudo && !self.malformed && self.size <= self.most).then_some(self.fields)
    }
}

impl Fields {
    /// Appends a field of HTTP/2.
    #[inline]
    fn append_line(&mut self, field: &DecodedField<'_>, known: Known) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(field.line());
        self.have.insert(known);
        self.index.push(FieldLine::written(start, field.name().len(), field.value().len(), known));
    }
}

#[cfg(test)]
mod tests;
