//! The data source for Grafana: the protocol of its "JSON" plugins, answered from the log store.
//!
//! Two plugins use it: `grafana-simple-json-datasource`, and its successor `simpod-json-datasource`, which
//! requests `/metrics` instead of `/search`. Both are served alike. `target` has the subjects of queries,
//! `parameters` their details, `buckets` the division of time. All of it is read-only.

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

use crate::query_pool::StoreSession;
use crate::refusal::PlainRefusal;

/// The path of the data source for Grafana.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mount {
    /// Below `/grafana`, beside other paths.
    Grafana,
    /// At `/`, without any other path.
    Root,
}

/// The operations of the protocol, by path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GrafanaCall {
    /// The health check of the data source.
    Health,
    /// Names of targets, or values for a variable.
    Search,
    /// Points over time, and tables.
    Query,
    /// Annotations: marks in time.
    Annotations,
    /// The keys of ad hoc filters.
    TagKeys,
    /// The values of ad hoc filters.
    TagValues,
    /// Targets with their parameters.
    Metrics,
    /// The values of a target's parameter.
    PayloadOptions,
    /// The values for a dashboard variable.
    Variable,
}

impl GrafanaCall {
    /// The operation of a path below the data source's own, without a leading slash.
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

/// The names of all targets in dashboards.
#[must_use]
pub fn target_names() -> Vec<&'static str> {
    target::ALL.iter().map(|target| target.name()).collect()
}

/// Performs an operation. `places` states that lists of countries and cities are possible.
pub(crate) fn answer(
    call: GrafanaCall,
    body: &[u8],
    places: bool,
    now: SystemTime,
    session: &mut StoreSession<'_>,
) -> Result<Value, PlainRefusal> {
    match call {
        // The store was opened successfully to get here.
        GrafanaCall::Health => Ok(json!({ "status": "ok", "name": "Offramp" })),
        GrafanaCall::Search => options::search(&parse(body)?, places, now, session),
        GrafanaCall::Query => answer::query(parse(body)?, now, session),
        GrafanaCall::Annotations => annotations::annotations(&parse(body)?, now, session),
        GrafanaCall::TagKeys => Ok(options::tag_keys()),
        GrafanaCall::TagValues => options::tag_values(&parse(body)?, now, session),
        GrafanaCall::Metrics => Ok(options::metrics(places)),
        GrafanaCall::PayloadOptions => options::payload_options(&parse(body)?, now, session),
        GrafanaCall::Variable => options::variable(&parse(body)?, now, session),
    }
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, PlainRefusal> {
    let body = if body.trim_ascii().is_empty() { b"{}" } else { body };
    serde_json::from_slice(body)
        .map_err(|error| PlainRefusal::wrong(format!("the request is not understood: {error}")))
}
