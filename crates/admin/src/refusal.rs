//! Refusals of queries: a status, and a sentence that the author of a dashboard can act upon.

use hyper::StatusCode;
use offramp_analytics::Error;

/// The refusal of a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PlainRefusal {
    pub(crate) status: StatusCode,
    pub(crate) text: String,
}

impl PlainRefusal {
    pub(crate) fn wrong(text: impl Into<String>) -> Self {
        Self { status: StatusCode::BAD_REQUEST, text: text.into() }
    }

    /// A temporary failure, or one of the connection to the store.
    pub(crate) fn later(text: impl Into<String>) -> Self {
        Self { status: StatusCode::SERVICE_UNAVAILABLE, text: text.into() }
    }

    /// A timeout of the query.
    pub(crate) fn late() -> Self {
        Self {
            status: StatusCode::GATEWAY_TIMEOUT,
            text: "the query took longer than its time limit: use a shorter time range or fewer series"
                .to_owned(),
        }
    }
}

impl From<Error> for PlainRefusal {
    fn from(error: Error) -> Self {
        let status = match error {
            Error::Question(_) => StatusCode::BAD_REQUEST,
            Error::TimedOut => return Self::late(),
            Error::Url(_) | Error::TooNew(..) | Error::Store(_) => StatusCode::INTERNAL_SERVER_ERROR,
            Error::Busy(_)
            | Error::Away(_)
            | Error::ReadOnly(_)
            | Error::Full(_)
            | Error::Corrupt(_)
            | Error::Io(..) => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self { status, text: error.to_string() }
    }
}
