//! Refusals in the form of RFC 9457: `application/problem+json`.

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{ALLOW, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use hyper::{Response, StatusCode};
use offramp_config::EditError;
use offramp_control::NotChanged;
use serde_json::{Map, Value, json};

use super::{respond, time};
use crate::refusal::PlainRefusal;

/// The reason for a refusal.
#[derive(Debug)]
pub struct ProblemDetails {
    /// The status of the response.
    pub status: StatusCode,
    /// The sentence for people.
    pub detail: String,
    /// Members in addition to those of the RFC.
    more: Map<String, Value>,
    header: Option<Box<(HeaderName, HeaderValue)>>,
}

impl ProblemDetails {
    /// A refusal without further members.
    pub fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { status, detail: detail.into(), more: Map::new(), header: None }
    }

    /// A malformed or invalid request.
    pub(crate) fn wrong(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    /// An unknown name of this kind.
    pub(crate) fn unknown<'n>(kind: &str, name: &str, known: impl IntoIterator<Item = &'n str>) -> Self {
        let near = offramp_config::nearest(name, known);
        let mut detail = format!("there is no {kind} `{name}`");
        if let Some(near) = near {
            detail.push_str(&format!("; the nearest one is `{near}`"));
        }
        Self::new(StatusCode::NOT_FOUND, detail).with("nearest", near.into())
    }

    /// A path with other methods.
    pub fn method(allowed: &str) -> Self {
        let mut problem = Self::new(StatusCode::METHOD_NOT_ALLOWED, format!("use {allowed} here"));
        problem.header = HeaderValue::from_str(allowed).ok().map(|value| Box::new((ALLOW, value)));
        problem
    }

    /// A missing or wrong token.
    pub(crate) fn token(wrong: bool) -> Self {
        let detail = if wrong {
            "this is not the token of `token_file`; the right one goes into `Authorization: Bearer TOKEN`"
        } else {
            "the token of `token_file` is needed: send it as `Authorization: Bearer TOKEN`"
        };
        let mut problem = Self::new(StatusCode::UNAUTHORIZED, detail);
        problem.header =
            Some(Box::new((WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"offramp\""))));
        problem
    }

    /// A temporary failure: a retry may succeed.
    pub(crate) fn busy(detail: impl Into<String>) -> Self {
        let mut problem = Self::new(StatusCode::SERVICE_UNAVAILABLE, detail);
        problem.header = Some(Box::new((RETRY_AFTER, HeaderValue::from_static("1"))));
        problem
    }

    /// A refusal of a client that may try again after so many seconds.
    pub(crate) fn after(mut self, seconds: u128) -> Self {
        self.header =
            HeaderValue::try_from(seconds.to_string()).ok().map(|value| Box::new((RETRY_AFTER, value)));
        self
    }

    pub(super) fn with(mut self, name: &str, value: Value) -> Self {
        if !value.is_null() {
            self.more.insert(name.to_owned(), value);
        }
        self
    }

    /// The response to the client.
    #[must_use]
    pub fn response(self) -> Response<Full<Bytes>> {
        let mut body = self.more;
        body.insert("type".to_owned(), "about:blank".into());
        body.insert("title".to_owned(), self.status.canonical_reason().unwrap_or("Refused").into());
        body.insert("status".to_owned(), self.status.as_u16().into());
        body.insert("detail".to_owned(), self.detail.into());
        let mut response = respond(self.status, "application/problem+json", Value::Object(body).to_string());
        response.headers_mut().extend(self.header.map(|header| *header));
        response
    }
}

impl From<PlainRefusal> for ProblemDetails {
    fn from(refusal: PlainRefusal) -> Self {
        Self::new(refusal.status, refusal.text)
    }
}

impl From<EditError> for ProblemDetails {
    fn from(error: EditError) -> Self {
        let detail = error.to_string();
        match error {
            EditError::Unknown { nearest, .. } => {
                Self::new(StatusCode::NOT_FOUND, detail).with("nearest", nearest.into())
            }
            _ => Self::new(StatusCode::CONFLICT, detail),
        }
    }
}

impl From<NotChanged> for ProblemDetails {
    fn from(why: NotChanged) -> Self {
        let detail = why.to_string();
        match why {
            NotChanged::Invalid(error) => {
                let errors = error.findings().iter().map(
                    |finding| json!({ "at": finding.place().map(ToString::to_string), "text": finding.text }),
                );
                let errors: Vec<Value> = errors.collect();
                let detail = match errors.len() {
                    1 => detail,
                    count => format!("the configuration has {count} errors"),
                };
                Self::new(StatusCode::UNPROCESSABLE_ENTITY, detail).with("errors", errors.into())
            }
            // RFC 9110 §13.1.1 forbids the change, and MAY signal it by 412. 409 says more (§15.5.10): the
            // client can resolve the conflict with the content of the response, and send the change again.
            NotChanged::Version { version, difference } => Self::new(StatusCode::CONFLICT, detail)
                .with("version", version.into())
                .with("difference", difference.into()),
            NotChanged::Unconfirmed { until } | NotChanged::StillWaits { until, .. } => {
                Self::new(StatusCode::CONFLICT, detail).with("confirm_until", time(until).into())
            }
            NotChanged::Forgotten { known, .. } => {
                Self::new(StatusCode::NOT_FOUND, detail).with("versions", known.into())
            }
            NotChanged::Edit(error) => error.into(),
            NotChanged::NothingToConfirm | NotChanged::NotWritten(_) | NotChanged::NotUpgraded(_) => {
                Self::new(StatusCode::CONFLICT, detail)
            }
            NotChanged::Busy | NotChanged::Ended => Self::busy(detail),
        }
    }
}
