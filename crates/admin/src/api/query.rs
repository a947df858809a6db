//! What stands behind the `?` of a request: known names, each once.

use std::time::Duration;

use offramp_config::model::Cidr;
use percent_encoding::percent_decode_str;

use super::Problem;

/// A name that an operation takes.
pub(crate) struct Parameter {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) doc: &'static str,
}

/// What it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `true` or `false`; without a value it is `true`.
    Flag,
    /// A time such as `60s`.
    Time,
    /// A whole number.
    Number,
    /// Any text.
    Text,
    /// `json` or `toml`.
    Format,
    /// A whole number from 1 to this.
    UpTo(u16),
    /// A time such as `10s`, up to years.
    Age,
    /// An amount of bytes such as `1MiB`.
    Size,
    /// An address or a network.
    Network,
    /// Where a page of connections begins.
    Cursor,
}

/// The values of a request.
#[derive(Debug, Default)]
pub(crate) struct Query(Vec<(&'static str, String)>);

impl Query {
    pub(crate) fn read(text: Option<&str>, known: &[Parameter]) -> Result<Self, Problem> {
        let mut found = Self::default();
        for part in text.unwrap_or_default().split('&').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let decode = |text: &str| {
                let text = text.replace('+', " ");
                percent_decode_str(&text).decode_utf8().map(std::borrow::Cow::into_owned)
            };
            let (Ok(name), Ok(value)) = (decode(name), decode(value)) else {
                return Err(Problem::wrong("the query is not UTF-8"));
            };
            let Some(parameter) = known.iter().find(|parameter| parameter.name == name) else {
                let names = known.iter().map(|parameter| parameter.name);
                let mut problem = Problem::unknown("parameter", &name, names);
                problem.status = hyper::StatusCode::BAD_REQUEST;
                return Err(problem);
            };
            if found.text(parameter.name).is_some() {
                return Err(Problem::wrong(format!("`{name}` is written twice")));
            }
            found.0.push((parameter.name, value));
            check(parameter, &found)?;
        }
        Ok(found)
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
    }

    /// Whether a flag is set; its value was checked.
    pub(crate) fn flag(&self, name: &str) -> bool {
        matches!(self.text(name), Some("" | "true"))
    }

    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }

    /// A time that may be days.
    pub(crate) fn age(&self, name: &str) -> Option<Duration> {
        let text = self.text(name)?;
        quantity(text, &[("s", 1), ("m", 60), ("h", 3600), ("d", 86_400)]).map(Duration::from_secs)
    }

    /// An amount of bytes.
    pub(crate) fn size(&self, name: &str) -> Option<u64> {
        quantity(self.text(name)?, &[("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)])
    }

    pub(crate) fn time(&self, name: &str) -> Option<Duration> {
        time(self.text(name)?)
    }
}

fn check(parameter: &Parameter, query: &Query) -> Result<(), Problem> {
    let name = parameter.name;
    let value = query.text(name).unwrap_or_default();
    let (fits, takes) = match parameter.kind {
        Kind::Flag => (matches!(value, "" | "true" | "false"), "`true` or `false`"),
        Kind::Time => (query.time(name).is_some(), "a time from `1s` to `24h`, such as `60s`"),
        Kind::Number => (query.number(name).is_some(), "a whole number"),
        Kind::Text => (!value.is_empty(), "a text"),
        Kind::UpTo(most) => {
            let fits = query.number(name).is_some_and(|number| (1..=u64::from(most)).contains(&number));
            let takes = format!("`{name}` takes a whole number from 1 to {most}");
            return if fits { Ok(()) } else { Err(Problem::wrong(takes)) };
        }
        Kind::Age => (query.age(name).is_some(), "a time such as `10s`, `5m`, `2h` or `1d`"),
        Kind::Size => (query.size(name).is_some(), "an amount such as `1MiB`; units are B, KiB, MiB and GiB"),
        Kind::Network => {
            // As the configuration has them.
            return match value.parse::<Cidr>() {
                Ok(_) => Ok(()),
                Err(problem) => Err(Problem::wrong(format!("`{name}`: {problem}"))),
            };
        }
        Kind::Cursor => (value.parse::<offramp_control::Cursor>().is_ok(), "the `next` of a page"),
        Kind::Format => (matches!(value, "json" | "toml"), "`json` or `toml`"),
    };
    if fits { Ok(()) } else { Err(Problem::wrong(format!("`{name}` takes {takes}"))) }
}

/// A whole number of one of these units, without a sign.
fn quantity(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    let (_, factor) = units.iter().find(|(known, _)| *known == unit)?;
    number.parse::<u64>().ok()?.checked_mul(*factor)
}

/// Whole seconds, minutes or hours: from a second to a day.
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
        Parameter { name: "dry_run", kind: Kind::Flag, doc: "" },
        Parameter { name: "confirm", kind: Kind::Time, doc: "" },
        Parameter { name: "name", kind: Kind::Text, doc: "" },
        Parameter { name: "limit", kind: Kind::UpTo(10), doc: "" },
        Parameter { name: "older", kind: Kind::Age, doc: "" },
        Parameter { name: "larger", kind: Kind::Size, doc: "" },
        Parameter { name: "client", kind: Kind::Network, doc: "" },
        Parameter { name: "after", kind: Kind::Cursor, doc: "" },
    ];

    #[test]
    fn quantities_have_units() {
        let query = Query::read(Some("older=2d&larger=3MiB&limit=10&after=0-7"), KNOWN).unwrap();
        assert_eq!(query.age("older"), Some(Duration::from_secs(2 * 86_400)));
        assert_eq!(query.size("larger"), Some(3 << 20));
    }

    #[test]
    fn known_names_are_read_and_others_refused() {
        let query = Query::read(Some("dry_run&confirm=2m&name=a%2Fb+c"), KNOWN).unwrap();
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
            ("name=a&name=b", "twice"),
            ("name=%ff", "UTF-8"),
        ] {
            let problem = Query::read(Some(text), KNOWN).unwrap_err();
            assert_eq!(problem.status, 400, "{text}");
            assert!(problem.detail.contains(why), "{text}: {}", problem.detail);
        }
    }
}
