//! Parameters as a filter of requests, and as words of a command.

use std::str::FromStr;
use std::time::SystemTime;

use jiff::tz::TimeZone;
use offramp_analytics::question::{Bots, DataSource, SortOrder};
use offramp_analytics::{RequestFilter, when};

use super::LogList;
use crate::api::ProblemDetails;
use crate::api::query::{Parameter, ParameterKind, QueryParameters};

const fn text(name: &'static str, doc: &'static str) -> Parameter {
    Parameter { name, kind: ParameterKind::Text, doc }
}

/// The parameters that select requests.
pub(super) const FILTER: [Parameter; 11] = [
    text("host", "Only these hosts, joined by commas; * matches any text"),
    text("status", "Only these statuses, joined by commas: 404, 5xx or 400-499"),
    text("method", "Only these methods, joined by commas"),
    text("path", "Only this path, without its query; * matches any text, as in /api*"),
    text("client", "Only from these addresses or networks, joined by commas"),
    text(
        "referrer",
        "Only from pages of this host and its subdomains, or from this URL, in which * matches any text",
    ),
    Parameter {
        name: "bot",
        kind: ParameterKind::Words(&["yes", "no"]),
        doc: "Only bots (by their user agent), or only others",
    },
    text("exclude_client", "Leave out these addresses, joined by commas"),
    text("exclude_networks", "Leave out these networks, joined by commas"),
    Parameter {
        name: "since",
        kind: ParameterKind::When,
        doc: "Only from this time on: 24h or 7d ago, today, yesterday, 2026-11-22, or 2026-11-22T10:00; in UTC",
    },
    Parameter {
        name: "until",
        kind: ParameterKind::When,
        doc: "Only before this time, in the form of since",
    },
];

/// The bound of an answer.
pub(super) const ANSWER: Parameter = Parameter {
    name: "limit",
    kind: ParameterKind::UpTo(1500),
    doc: "The most rows; for rows by time, the newest; by default lists 20, searches 100, times 1500",
};

/// The filter of a query.
pub(super) fn filter(query: &QueryParameters) -> Result<RequestFilter, ProblemDetails> {
    let now = SystemTime::now();
    let at =
        |name| -> Option<SystemTime> { Some(when::parse(query.text(name)?).ok()?.time(now, &TimeZone::UTC)) };
    let exclude: Vec<_> =
        parsed(query, "exclude_client")?.into_iter().chain(parsed(query, "exclude_networks")?).collect();
    Ok(RequestFilter {
        hosts: listed(query, "host"),
        statuses: parsed(query, "status")?,
        methods: listed(query, "method"),
        paths: query.text("path").map(str::to_owned).into_iter().collect(),
        clients: parsed(query, "client")?,
        referrers: query.text("referrer").map(str::to_owned).into_iter().collect(),
        since: at("since"),
        until: at("until"),
        exclude,
        bots: match query.text("bot") {
            Some("yes") => Bots::Only,
            Some(_) => Bots::Excluded,
            None => Bots::Included,
        },
        limit: query.number("limit").and_then(|limit| usize::try_from(limit).ok()),
        order: if query.text("by") == Some("bytes") { SortOrder::Bytes } else { SortOrder::Requests },
        source: if query.flag("exact") { DataSource::Requests } else { DataSource::Either },
        ..RequestFilter::default()
    })
}

fn listed(query: &QueryParameters, name: &str) -> Vec<String> {
    let parts = query.text(name).unwrap_or_default().split(',');
    parts.filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

fn parsed<T: FromStr<Err: std::fmt::Display>>(
    query: &QueryParameters,
    name: &str,
) -> Result<Vec<T>, ProblemDetails> {
    let parse = |part: String| {
        part.parse().map_err(|error: T::Err| ProblemDetails::wrong(format!("`{name}`: {error}")))
    };
    listed(query, name).into_iter().map(parse).collect()
}

/// The command of a shell that asks the same.
pub(super) fn command(list: LogList, query: &QueryParameters) -> String {
    let mut words = vec!["offramp".to_owned(), "logs".to_owned()];
    words.push(
        match list {
            LogList::Top => "top",
            LogList::Traffic => "traffic",
            LogList::Visitors => "visitors",
            LogList::Compare => "compare",
            LogList::Search | LogList::Requests => "search",
        }
        .to_owned(),
    );
    let first = match list {
        LogList::Top => Some(query.text("what").unwrap_or("pages")),
        LogList::Compare => query.text("what"),
        LogList::Search => query.text("text"),
        LogList::Traffic | LogList::Visitors | LogList::Requests => None,
    };
    let options = ["by", "per", "exact", "interval", "by_host"].into_iter();
    for name in options.chain(FILTER.iter().map(|parameter| parameter.name)).chain([ANSWER.name]) {
        let Some(value) = query.text(name) else { continue };
        let option = format!("--{}", name.replace('_', "-"));
        match name {
            "exact" | "by_host" => words.extend(query.flag(name).then_some(option)),
            // A host is an option of its own each time.
            "host" => listed(query, name).iter().for_each(|host| {
                words.extend([option.clone(), quoted(host)]);
            }),
            _ if value.starts_with('-') => words.push(format!("{option}={}", quoted(value))),
            _ => words.extend([option, quoted(value)]),
        }
    }
    words.push("--utc".to_owned());
    // A text that looks like an option goes behind the end of the options.
    words.extend(first.filter(|first| first.starts_with('-')).map(|_| "--".to_owned()));
    match first {
        Some(first) if first.starts_with('-') => words.push(quoted(first)),
        Some(first) => words.insert(3, quoted(first)),
        None => {}
    }
    words.join(" ")
}

/// A word as a shell takes it (POSIX, 2.2.2).
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:,@%+=".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::logs::{REQUESTS, SEARCH, TOP, TRAFFIC};

    #[test]
    fn the_command_asks_the_same() {
        let of = |list, text: &str, known: &[Parameter]| {
            command(list, &QueryParameters::read(Some(text), known).unwrap())
        };
        for (list, text, known, command) in [
            (LogList::Top, "", &TOP[..], "offramp logs top pages --utc"),
            (
                LogList::Top,
                "what=slow&per=server&since=24h&host=a.test,*.b.test&limit=5",
                &TOP,
                "offramp logs top slow --per server --host a.test --host '*.b.test' --since 24h --limit 5 --utc",
            ),
            (
                LogList::Traffic,
                "by_host&interval=1h",
                &TRAFFIC,
                "offramp logs traffic --interval 1h --by-host --utc",
            ),
            (
                LogList::Search,
                "text=it%27s&path=-x",
                &SEARCH,
                "offramp logs search 'it'\\''s' --path=-x --utc",
            ),
            (LogList::Search, "text=--all", &SEARCH, "offramp logs search --utc -- --all"),
            (LogList::Requests, "status=5xx", &REQUESTS, "offramp logs search --status 5xx --utc"),
        ] {
            assert_eq!(of(list, text, known), command);
        }
    }

    #[test]
    fn wrong_values_are_told() {
        for (text, why) in [
            ("status=high", "`high`"),
            ("client=10.0.0.0%2F99", "`client`"),
            ("exclude_client=x", "`exclude_client`"),
        ] {
            let query = QueryParameters::read(Some(text), &REQUESTS).unwrap();
            let problem = filter(&query).unwrap_err();
            assert!(problem.status == 400 && problem.detail.contains(why), "{}", problem.detail);
        }
    }
}
