//! Requests of Grafana. Fields without influence on the answer are ignored.

use serde::Deserialize;
use serde_json::Value;

use crate::grafana::buckets::TimeSpan;
use crate::grafana::time;
use crate::refusal::PlainRefusal;

/// The body of `/query`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GrafanaQuery {
    pub(crate) range: Option<Range>,
    pub(crate) interval_ms: Option<f64>,
    pub(crate) max_data_points: Option<f64>,
    pub(crate) targets: Option<Vec<TargetRequest>>,
    pub(crate) adhoc_filters: Option<Vec<AdhocFilter>>,
}

/// A range of time.
#[derive(Debug, Deserialize)]
pub(crate) struct Range {
    from: Value,
    to: Value,
}

impl Range {
    pub(crate) fn span(&self) -> Result<TimeSpan, PlainRefusal> {
        let (from, to) = (time::of_json(&self.from)?, time::of_json(&self.to)?);
        if from > to {
            return Err(PlainRefusal::wrong("the time range ends before it begins"));
        }
        Ok(TimeSpan { from, to })
    }
}

/// One target of a panel.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TargetRequest {
    pub(crate) target: Option<String>,
    pub(crate) ref_id: Option<String>,
    /// The shape: `timeserie`, `timeseries` or `table`.
    #[serde(rename = "type")]
    pub(crate) kind: Option<String>,
    pub(crate) hide: Option<bool>,
    /// The parameters of the target.
    pub(crate) payload: Option<Value>,
    /// The payload in older versions of the plugin.
    pub(crate) data: Option<Value>,
}

/// An ad hoc filter over all panels.
#[derive(Debug, Deserialize)]
pub(crate) struct AdhocFilter {
    pub(crate) key: String,
    pub(crate) operator: String,
    pub(crate) value: Option<String>,
    /// The values of operators that take several.
    pub(crate) values: Option<Vec<String>>,
}

/// The body of `/annotations`.
#[derive(Debug, Deserialize)]
pub(crate) struct Annotations {
    pub(crate) range: Option<Range>,
    /// Returned unchanged in every mark.
    pub(crate) annotation: Value,
}

/// The body of `/search`.
#[derive(Debug, Deserialize)]
pub(crate) struct TargetSearch {
    pub(crate) target: Option<String>,
}

/// The body of `/tag-values`.
#[derive(Debug, Deserialize)]
pub(crate) struct TagValues {
    pub(crate) key: String,
}

/// The body of `/metric-payload-options`.
#[derive(Debug, Deserialize)]
pub(crate) struct PayloadOptions {
    pub(crate) name: String,
}

/// The body of `/variable`.
#[derive(Debug, Deserialize)]
pub(crate) struct VariableQuery {
    pub(crate) payload: Option<Value>,
    pub(crate) range: Option<Range>,
}
