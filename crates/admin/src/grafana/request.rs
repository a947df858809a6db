//! What Grafana sends. Fields that say nothing about the answer are not here and are passed over.

use serde::Deserialize;
use serde_json::Value;

use crate::grafana::buckets::Span;
use crate::grafana::time;
use crate::refusal::Refusal;

/// `/query`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Query {
    pub(crate) range: Option<Range>,
    pub(crate) interval_ms: Option<f64>,
    pub(crate) max_data_points: Option<f64>,
    pub(crate) targets: Option<Vec<Asked>>,
    pub(crate) adhoc_filters: Option<Vec<AdhocFilter>>,
}

/// A range of time.
#[derive(Debug, Deserialize)]
pub(crate) struct Range {
    from: Value,
    to: Value,
}

impl Range {
    pub(crate) fn span(&self) -> Result<Span, Refusal> {
        let (from, to) = (time::of_json(&self.from)?, time::of_json(&self.to)?);
        if from > to {
            return Err(Refusal::wrong("the time range ends before it begins"));
        }
        Ok(Span { from, to })
    }
}

/// One target of a panel.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Asked {
    pub(crate) target: Option<String>,
    pub(crate) ref_id: Option<String>,
    /// `timeserie`, `timeseries` or `table`.
    #[serde(rename = "type")]
    pub(crate) kind: Option<String>,
    pub(crate) hide: Option<bool>,
    /// Parameters.
    pub(crate) payload: Option<Value>,
    /// What older versions of the plugin call the payload.
    pub(crate) data: Option<Value>,
}

/// A filter over all panels.
#[derive(Debug, Deserialize)]
pub(crate) struct AdhocFilter {
    pub(crate) key: String,
    pub(crate) operator: String,
    pub(crate) value: Option<String>,
    /// Of the operators that take several.
    pub(crate) values: Option<Vec<String>>,
}

/// `/annotations`.
#[derive(Debug, Deserialize)]
pub(crate) struct Annotations {
    pub(crate) range: Option<Range>,
    /// Given back as it came.
    pub(crate) annotation: Value,
}

/// `/search`.
#[derive(Debug, Deserialize)]
pub(crate) struct Search {
    pub(crate) target: Option<String>,
}

/// `/tag-values`.
#[derive(Debug, Deserialize)]
pub(crate) struct TagValues {
    pub(crate) key: String,
}

/// `/metric-payload-options`.
#[derive(Debug, Deserialize)]
pub(crate) struct PayloadOptions {
    pub(crate) name: String,
}

/// `/variable`.
#[derive(Debug, Deserialize)]
pub(crate) struct Variable {
    pub(crate) payload: Option<Value>,
    pub(crate) range: Option<Range>,
}
