//! Why a request got no answer: a status, and a sentence that whoever made the dashboard can act upon.

use hyper::StatusCode;
use offramp_analytics::Error;

/// A request that is not answered.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) text: String,
}

impl Refusal {
    /// The request is wrong.
    pub(crate) fn wrong(text: impl Into<String>) -> Self {
        Self { status: StatusCode::BAD_REQUEST, text: text.into() }
    }

    /// It may work later, or with another connection to the store.
    pub(crate) fn later(text: impl Into<String>) -> Self {
        Self { status: StatusCode::SERVICE_UNAVAILABLE, text: text.into() }
    }

    /// It took too long.
    pub(crate) fn late() -> Self {
        Self {
            status: StatusCode::GATEWAY_TIMEOUT,
            text: "the query took longer than its time limit: use a shorter time range or fewer series"
                .to_owned(),
        }
    }
}

impl From<Error> for Refusal {
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
