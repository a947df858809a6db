//! Parameters of a target: hosts, exclusions, limits.
//!
//! They have three sources, later ones taking precedence: the payload of the target (JSON), the target's text
//! (`pages?host=a.test&limit=5`), and the dashboard's ad hoc filters, which can only narrow. Nothing is
//! ignored: an invalid parameter is refused with a sentence.

mod decode;

use offramp_analytics::question::{Bots, SortOrder};
use offramp_analytics::{AddressRange, RequestFilter};
use serde_json::Value;

use crate::grafana::request::AdhocFilter;
use crate::grafana::target::{PanelShape, QueryTarget};
use crate::grafana::time::duration;
use crate::refusal::PlainRefusal;
use decode::{percent, values_of_json, values_of_text};

/// The name of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ParameterKey {
    Host,
    Exclude,
    Bots,
    Limit,
    By,
    Interval,
    Format,
    Text,
    Share,
    Least,
}

const KEYS: [ParameterKey; 10] = [
    ParameterKey::Host,
    ParameterKey::Exclude,
    ParameterKey::Bots,
    ParameterKey::Limit,
    ParameterKey::By,
    ParameterKey::Interval,
    ParameterKey::Format,
    ParameterKey::Text,
    ParameterKey::Share,
    ParameterKey::Least,
];

impl ParameterKey {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Exclude => "exclude",
            Self::Bots => "bots",
            Self::Limit => "limit",
            Self::By => "by",
            Self::Interval => "interval",
            Self::Format => "format",
            Self::Text => "text",
            Self::Share => "share",
            Self::Least => "least",
        }
    }

    fn of(name: &str) -> Option<Self> {
        KEYS.into_iter().find(|key| key.name() == name)
    }

    /// The meaning, for menus.
    pub(crate) const fn hint(self) -> &'static str {
        match self {
            Self::Host => "all hosts",
            Self::Exclude => "addresses and networks: 192.0.2.1, 10.0.0.0/8",
            Self::Bots => "include",
            Self::Limit => "how many",
            Self::By => "requests",
            Self::Interval => "as the panel needs: 5m, 1h, 1d",
            Self::Format => "time_series or table",
            Self::Text => "what to search for",
            Self::Share => "percent of requests that make a burst: 5",
            Self::Least => "errors that make a burst: 5",
        }
    }

    /// The values to choose from, if they are few.
    pub(crate) const fn choices(self) -> &'static [&'static str] {
        match self {
            Self::Bots => &["include", "only", "exclude"],
            Self::By => &["requests", "bytes"],
            Self::Format => &["time_series", "table"],
            _ => &[],
        }
    }
}

pub(crate) const MOST: usize = 10_000;

/// The parameters of a target.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TargetParameters {
    /// The hosts; empty for all.
    pub(crate) hosts: Vec<String>,
    pub(crate) exclude: Vec<AddressRange>,
    pub(crate) bots: Option<Bots>,
    pub(crate) limit: Option<usize>,
    pub(crate) by: Option<SortOrder>,
    /// The length of intervals in milliseconds.
    pub(crate) interval: Option<i64>,
    pub(crate) shape: Option<PanelShape>,
    pub(crate) text: Option<String>,
    /// The share of failed requests in percent.
    pub(crate) share: Option<i64>,
    pub(crate) least: Option<i64>,
    /// Set if filters contradict each other, so that no request matches.
    pub(crate) nothing: bool,
}

impl TargetParameters {
    /// Splits a target's text into the target and its parameters.
    pub(crate) fn of_text(text: &str) -> Result<(QueryTarget, Self), PlainRefusal> {
        Self::read(text, &[])
    }

    /// The target of a text, with the parameters in its text and the payloads.
    pub(crate) fn read(text: &str, payloads: &[&Value]) -> Result<(QueryTarget, Self), PlainRefusal> {
        let (name, said) = text.split_once('?').unwrap_or((text, ""));
        let target = QueryTarget::of(name.trim())?;
        let mut parameters = Self::default();
        for payload in payloads {
            parameters.take_json(target, payload)?;
        }
        for pair in said.split('&').filter(|pair| !pair.trim().is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = percent(value)
                .ok_or_else(|| PlainRefusal::wrong(format!("`{value}` has a % that no two digits follow")))?;
            let key = Self::key(target, key.trim())?;
            let values = if key == ParameterKey::Text { vec![value] } else { values_of_text(&value) };
            parameters.set(key, &values)?;
        }
        Ok((target, parameters))
    }

    fn take_json(&mut self, target: QueryTarget, payload: &Value) -> Result<(), PlainRefusal> {
        let wrong =
            || PlainRefusal::wrong("the payload is no object like {\"host\": \"a.test\", \"limit\": 5}");
        match payload {
            Value::Null => Ok(()),
            Value::String(text) if text.trim().is_empty() => Ok(()),
            Value::String(text) => {
                let inner: Value = serde_json::from_str(text).map_err(|_| wrong())?;
                if inner.is_string() { Err(wrong()) } else { self.take_json(target, &inner) }
            }
            Value::Object(object) => {
                for (key, value) in object {
                    let key = Self::key(target, key)?;
                    let values = values_of_json(value, key == ParameterKey::Text).ok_or_else(|| {
                        PlainRefusal::wrong(format!(
                            "`{}` in the payload is neither text, number nor a list",
                            key.name()
                        ))
                    })?;
                    self.set(key, &values)?;
                }
                Ok(())
            }
            _ => Err(wrong()),
        }
    }

    fn key(target: QueryTarget, name: &str) -> Result<ParameterKey, PlainRefusal> {
        let keys = target.keys();
        ParameterKey::of(name).filter(|key| keys.contains(key)).ok_or_else(|| {
            let known: Vec<&str> = keys.iter().map(|key| key.name()).collect();
            PlainRefusal::wrong(format!(
                "`{}` has no parameter `{name}`; it has {}",
                target.name(),
                known.join(", ")
            ))
        })
    }

    /// Sets a parameter; an empty value removes it.
    fn set(&mut self, key: ParameterKey, values: &[String]) -> Result<(), PlainRefusal> {
        match key {
            ParameterKey::Host => {
                self.hosts = values.iter().map(|host| host.to_ascii_lowercase()).collect();
                return Ok(());
            }
            ParameterKey::Exclude => {
                self.exclude = networks(values)?;
                return Ok(());
            }
            _ => {}
        }
        let value = match values {
            [] => return Ok(()),
            [value] => value.as_str(),
            _ => return Err(PlainRefusal::wrong(format!("`{}` has more than one value", key.name()))),
        };
        let wrong = |meant: &str| {
            PlainRefusal::wrong(format!("`{}={value}` is not understood: it is {meant}", key.name()))
        };
        let number = |most: i64| value.parse().ok().filter(|number| (1..=most).contains(number));
        match key {
            ParameterKey::Bots => {
                self.bots = Some(bots(value).ok_or_else(|| wrong("include, only or exclude"))?);
            }
            ParameterKey::Limit => {
                let limit = value.parse().ok().filter(|limit| (1..=MOST).contains(limit));
                self.limit = Some(limit.ok_or_else(|| wrong("a number from 1 to 10000"))?);
            }
            ParameterKey::By => {
                self.by = Some(match value {
                    "requests" => SortOrder::Requests,
                    "bytes" => SortOrder::Bytes,
                    _ => return Err(wrong("requests or bytes")),
                });
            }
            ParameterKey::Interval if matches!(value, "auto" | "$__auto") => self.interval = None,
            ParameterKey::Interval => {
                self.interval = Some(duration(value).ok_or_else(|| wrong("a time like 30s, 5m, 6h or 1d"))?);
            }
            ParameterKey::Format => {
                self.shape = Some(shape(value).ok_or_else(|| wrong("time_series or table"))?);
            }
            ParameterKey::Text => self.text = Some(value.to_owned()),
            ParameterKey::Share => {
                self.share = Some(number(100).ok_or_else(|| wrong("a percentage from 1 to 100"))?);
            }
            ParameterKey::Least => {
                self.least = Some(number(i64::MAX).ok_or_else(|| wrong("a number from 1 on"))?);
            }
            ParameterKey::Host | ParameterKey::Exclude => {}
        }
        Ok(())
    }

    /// Narrows by the filters of a dashboard.
    pub(crate) fn narrow(&mut self, filters: &[AdhocFilter]) -> Result<(), PlainRefusal> {
        for filter in filters {
            let mut values = filter.values.clone().unwrap_or_default();
            if values.is_empty() {
                values.extend(filter.value.clone());
            }
            match (filter.key.as_str(), filter.operator.as_str()) {
                ("host", "=" | "=|") => {
                    let allowed: Vec<String> = values.iter().map(|host| host.to_ascii_lowercase()).collect();
                    if self.hosts.is_empty() {
                        self.hosts = allowed;
                    } else {
                        self.hosts.retain(|host| allowed.contains(host));
                        self.nothing |= self.hosts.is_empty();
                    }
                }
                ("client" | "network", "!=" | "!=|") => self.exclude.extend(networks(&values)?),
                ("bots", "=") => {
                    let value = values.first().map_or("", String::as_str);
                    let wrong = || PlainRefusal::wrong("the filter `bots` is include, only or exclude");
                    self.bots = Some(bots(value).ok_or_else(wrong)?);
                }
                ("host" | "client" | "network" | "bots", operator) => {
                    return Err(PlainRefusal::wrong(format!(
                        "the filter `{}` has no operator `{operator}`: there are host =, client !=, network != \
                         and bots =",
                        filter.key
                    )));
                }
                (key, _) => {
                    return Err(PlainRefusal::wrong(format!(
                        "there is no filter `{key}`; there are host, client, network and bots"
                    )));
                }
            }
        }
        Ok(())
    }

    /// The filter of queries about a target, without a range of time and a limit.
    pub(crate) fn filter(&self, target: QueryTarget) -> RequestFilter {
        let bots = if target == QueryTarget::BlogHits { Bots::Excluded } else { Bots::Included };
        let order = if target == QueryTarget::OutboundData { SortOrder::Bytes } else { SortOrder::Requests };
        RequestFilter {
            hosts: self.hosts.clone(),
            exclude: self.exclude.clone(),
            bots: self.bots.unwrap_or(bots),
            order: self.by.unwrap_or(order),
            ..RequestFilter::default()
        }
    }
}

fn networks(values: &[String]) -> Result<Vec<AddressRange>, PlainRefusal> {
    values.iter().map(|value| value.parse::<AddressRange>().map_err(PlainRefusal::from)).collect()
}

fn bots(value: &str) -> Option<Bots> {
    match value {
        "include" => Some(Bots::Included),
        "only" => Some(Bots::Only),
        "exclude" => Some(Bots::Excluded),
        _ => None,
    }
}

/// Parses the shape of an answer, under the names in panels and parameters.
pub(crate) fn shape(value: &str) -> Option<PanelShape> {
    match value {
        "time_series" | "timeseries" | "timeserie" => Some(PanelShape::Series),
        "table" => Some(PanelShape::Table),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
