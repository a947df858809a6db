//! The data source for Grafana: the protocol of its "JSON" plugins, answered from the log store.
//!
//! Two plugins speak it: `grafana-simple-json-datasource`, and its successor `simpod-json-datasource`, which asks
//! `/metrics` instead of `/search`. Both are answered alike. What may be asked is in `target`, how it is asked in
//! `parameters`, how time is divided in `buckets`. Nothing here changes the store.

mod annotations;
mod answer;
mod buckets;
mod options;
mod parameters;
mod request;
mod target;
mod time;

use std::time::SystemTime;

use hyper::Method;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::desk::Asking;
use crate::refusal::Refusal;

/// What is asked, by path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// Whether the source works.
    Health,
    /// Names of targets, or values for a variable.
    Search,
    /// Points and tables.
    Query,
    /// Marks in time.
    Annotations,
    /// What can be filtered by.
    TagKeys,
    /// Values to filter by.
    TagValues,
    /// Targets with their parameters.
    Metrics,
    /// Values of a parameter.
    PayloadOptions,
    /// Values for a variable.
    Variable,
}

impl Call {
    /// The call of a path below the data source's own, without a slash before it.
    pub(crate) fn of(path: &str) -> Option<Self> {
        Some(match path {
            "" => Self::Health,
            "search" => Self::Search,
            "query" => Self::Query,
            "annotations" => Self::Annotations,
            "tag-keys" => Self::TagKeys,
            "tag-values" => Self::TagValues,
            "metrics" => Self::Metrics,
            "metric-payload-options" => Self::PayloadOptions,
            "variable" => Self::Variable,
            _ => return None,
        })
    }

    pub(crate) fn method(self) -> Method {
        if self == Self::Health { Method::GET } else { Method::POST }
    }
}

/// The names of all targets, as dashboards have them.
#[must_use]
pub fn target_names() -> Vec<&'static str> {
    target::ALL.iter().map(|target| target.name()).collect()
}

/// Answers a call. `places` says whether lists of countries and cities can be made.
pub(crate) fn answer(
    call: Call,
    body: &[u8],
    places: bool,
    now: SystemTime,
    asking: &mut Asking<'_>,
) -> Result<Value, Refusal> {
    match call {
        // The store was opened to get here.
        Call::Health => Ok(json!({ "status": "ok", "name": "Offramp" })),
        Call::Search => options::search(&parse(body)?, places, now, asking),
        Call::Query => answer::query(parse(body)?, now, asking),
        Call::Annotations => annotations::annotations(&parse(body)?, now, asking),
        Call::TagKeys => Ok(options::tag_keys()),
        Call::TagValues => options::tag_values(&parse(body)?, now, asking),
        Call::Metrics => Ok(options::metrics(places)),
        Call::PayloadOptions => options::payload_options(&parse(body)?, now, asking),
        Call::Variable => options::variable(&parse(body)?, now, asking),
    }
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    let body = if body.trim_ascii().is_empty() { b"{}" } else { body };
    serde_json::from_slice(body)
        .map_err(|error| Refusal::wrong(format!("the request is not understood: {error}")))
}
