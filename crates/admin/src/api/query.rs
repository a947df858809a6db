//! Query parameters: known names, each at most once.

use std::time::Duration;

use offramp_analytics::when;
use offramp_config::model::Cidr;
use percent_encoding::percent_decode_str;

use super::ProblemDetails;

/// A parameter of an operation.
#[derive(Clone, Copy)]
pub(crate) struct Parameter {
    pub(crate) name: &'static str,
    pub(crate) kind: ParameterKind,
    pub(crate) doc: &'static str,
}

/// The type of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ParameterKind {
    /// `true` or `false`; an empty value means `true`.
    Flag,
    /// A duration such as `60s`.
    Time,
    Number,
    /// Any non-empty text.
    Text,
    /// A format: `json` or `toml`.
    Format,
    /// An integer from 1 to this.
    UpTo(u16),
    /// A duration such as `10s`, up to years.
    Age,
    /// A size such as `1MiB`.
    Size,
    /// An address or a network.
    Network,
    /// The start of a page of connections.
    Cursor,
    /// One of these words.
    Words(&'static [&'static str]),
    /// A point in time, as `offramp logs` takes it.
    When,
    /// The length of an interval, as `offramp logs` takes it.
    Step,
}

/// The parameters of a request.
#[derive(Debug, Default)]
pub(crate) struct QueryParameters(Vec<(&'static str, String)>);

impl QueryParameters {
    pub(crate) fn read(text: Option<&str>, known: &[Parameter]) -> Result<Self, ProblemDetails> {
        let mut found = Self::default();
        for part in text.unwrap_or_default().split('&').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let decode = |text: &str| {
                let text = text.replace('+', " ");
                percent_decode_str(&text).decode_utf8().map(std::borrow::Cow::into_owned)
            };
            let (Ok(name), Ok(value)) = (decode(name), decode(value)) else {
                return Err(ProblemDetails::wrong("the query is not UTF-8"));
            };
            let Some(parameter) = known.iter().find(|parameter| parameter.name == name) else {
                let names = known.iter().map(|parameter| parameter.name);
                let mut problem = ProblemDetails::unknown("parameter", &name, names);
                problem.status = hyper::StatusCode::BAD_REQUEST;
                return Err(problem);
            };
            if found.text(parameter.name).is_some() {
                return Err(ProblemDetails::wrong(format!("`{name}` is written twice")));
            }
            found.0.push((parameter.name, value));
            check(parameter, &found)?;
        }
        Ok(found)
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
    }

    /// Returns `true` if a flag is set; its value was validated.
    pub(crate) fn flag(&self, name: &str) -> bool {
        matches!(self.text(name), Some("" | "true"))
    }

    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }

    /// A duration that may be days.
    pub(crate) fn age(&self, name: &str) -> Option<Duration> {
        let text = self.text(name)?;
        quantity(text, &[("s", 1), ("m", 60), ("h", 3600), ("d", 86_400)]).map(Duration::from_secs)
    }

    /// A size in bytes.
    pub(crate) fn size(&self, name: &str) -> Option<u64> {
        quantity(self.text(name)?, &[("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)])
    }

    pub(crate) fn time(&self, name: &str) -> Option<Duration> {
        time(self.text(name)?)
    }
}

fn check(parameter: &Parameter, query: &QueryParameters) -> Result<(), ProblemDetails> {
    let name = parameter.name;
    let value = query.text(name).unwrap_or_default();
    let (fits, takes) = match parameter.kind {
        ParameterKind::Flag => (matches!(value, "" | "true" | "false"), "`true` or `false`"),
        ParameterKind::Time => (query.time(name).is_some(), "a time from `1s` to `24h`, such as `60s`"),
        ParameterKind::Number => (query.number(name).is_some(), "a whole number"),
        ParameterKind::Text => (!value.is_empty(), "a text"),
        ParameterKind::UpTo(most) => {
            let fits = query.number(name).is_some_and(|number| (1..=u64::from(most)).contains(&number));
            let takes = format!("`{name}` takes a whole number from 1 to {most}");
            return if fits { Ok(()) } else { Err(ProblemDetails::wrong(takes)) };
        }
        ParameterKind::Age => (query.age(name).is_some(), "a time such as `10s`, `5m`, `2h` or `1d`"),
        ParameterKind::Size => {
            (query.size(name).is_some(), "an amount such as `1MiB`; units are B, KiB, MiB and GiB")
        }
        ParameterKind::Network => {
            // The syntax of the configuration.
            return match value.parse::<Cidr>() {
                Ok(_) => Ok(()),
                Err(problem) => Err(ProblemDetails::wrong(format!("`{name}`: {problem}"))),
            };
        }
        ParameterKind::Cursor => (value.parse::<offramp_control::Cursor>().is_ok(), "the `next` of a page"),
        ParameterKind::Words(words) => {
            let takes = || ProblemDetails::wrong(format!("`{name}` takes one of {}", words.join(", ")));
            return if words.contains(&value) { Ok(()) } else { Err(takes()) };
        }
        ParameterKind::When | ParameterKind::Step => {
            let read = match parameter.kind {
                ParameterKind::When => when::parse(value).map(drop),
                _ => when::step(value).map(drop),
            };
            return read.map_err(|why| ProblemDetails::wrong(format!("`{name}`: {why}")));
        }
        ParameterKind::Format => (matches!(value, "json" | "toml"), "`json` or `toml`"),
    };
    if fits { Ok(()) } else { Err(ProblemDetails::wrong(format!("`{name}` takes {takes}"))) }
}

/// Parses an unsigned integer with one of these units.
fn quantity(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    let (_, factor) = units.iter().find(|(known, _)| *known == unit)?;
    number.parse::<u64>().ok()?.checked_mul(*factor)
}

/// Parses whole seconds, minutes or hours, from a second to a day.
fn time(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return None,
    };
    let seconds = number.parse::<u64>().ok()?.checked_mul(seconds)?;
    (1..=24 * 3600).contains(&seconds).then(|| Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[Parameter] = &[
        Parameter { name: "dry_run", kind: ParameterKind::Flag, doc: "" },
        Parameter { name: "confirm", kind: ParameterKind::Time, doc: "" },
        Parameter { name: "name", kind: ParameterKind::Text, doc: "" },
        Parameter { name: "limit", kind: ParameterKind::UpTo(10), doc: "" },
        Parameter { name: "older", kind: ParameterKind::Age, doc: "" },
        Parameter { name: "larger", kind: ParameterKind::Size, doc: "" },
        Parameter { name: "client", kind: ParameterKind::Network, doc: "" },
        Parameter { name: "after", kind: ParameterKind::Cursor, doc: "" },
        Parameter { name: "by", kind: ParameterKind::Words(&["requests", "bytes"]), doc: "" },
        Parameter { name: "since", kind: ParameterKind::When, doc: "" },
        Parameter { name: "interval", kind: ParameterKind::Step, doc: "" },
    ];

    #[test]
    fn quantities_have_units() {
        let query = QueryParameters::read(Some("older=2d&larger=3MiB&limit=10&after=0-7"), KNOWN).unwrap();
        assert_eq!(query.age("older"), Some(Duration::from_secs(2 * 86_400)));
        assert_eq!(query.size("larger"), Some(3 << 20));
    }

    #[test]
    fn known_names_are_read_and_others_refused() {
        let query = QueryParameters::read(Some("dry_run&confirm=2m&name=a%2Fb+c"), KNOWN).unwrap();
        assert!(query.flag("dry_run") && !query.flag("persist"));
        assert_eq!(query.time("confirm"), Some(Duration::from_secs(120)));
        assert_eq!(query.text("name"), Some("a/b c"));
        for (text, why) in [
            ("dryrun", "the nearest one is `dry_run`"),
            ("dry_run=1", "`true` or `false`"),
            ("confirm=60", "such as `60s`"),
            ("confirm=0s", "from `1s`"),
            ("confirm=25h", "to `24h`"),
            ("confirm=99999999999999999999h", "to `24h`"),
            ("name=", "a text"),
            ("limit=0", "from 1 to 10"),
            ("limit=11", "from 1 to 10"),
            ("older=10", "such as `10s`"),
            ("older=99999999999999999d", "such as `10s`"),
            ("larger=1MB", "units are"),
            ("client=x", "a network"),
            ("client=127.0.0.3%2F30", "bits set beyond the first 30"),
            ("after=1", "`next`"),
            ("by=byte", "one of requests, bytes"),
            ("since=soon", "write how long ago"),
            ("since=1969-01-01", "write how long ago"),
            ("interval=year", "write a length"),
            ("name=a&name=b", "twice"),
            ("name=%ff", "UTF-8"),
        ] {
            let problem = QueryParameters::read(Some(text), KNOWN).unwrap_err();
            assert_eq!(problem.status, 400, "{text}");
            assert!(problem.detail.contains(why), "{text}: {}", problem.detail);
        }
    }
}
