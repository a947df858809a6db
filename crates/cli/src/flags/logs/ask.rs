//! Arguments of queries to the log store.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum, ValueHint};
use offramp_analytics::question::{Bots, SlowBy, SortOrder, StatusFilter, Top};
use offramp_analytics::{AddressRange, TimeStep};

use crate::flags::logs::StoreOptions;
use offramp_analytics::when::{self, When};

/// Options that select requests, common to all queries.
#[derive(Debug, Args)]
#[command(next_help_heading = "Filters")]
pub(crate) struct FilterOptions {
    /// Only this host; * matches any text; may be repeated
    #[arg(long, value_name = "HOST")]
    pub(crate) host: Vec<String>,
    /// Only this status: 404, 5xx or 400-499; may be repeated, or a list with commas
    #[arg(long, value_name = "STATUS", value_delimiter = ',')]
    pub(crate) status: Vec<StatusFilter>,
    /// Only this method; may be repeated, or a list with commas
    #[arg(long, value_name = "METHOD", value_delimiter = ',')]
    pub(crate) method: Vec<String>,
    /// Only this path, without its query; * matches any text, as in '/api*'; may be repeated
    #[arg(long, value_name = "PATH")]
    pub(crate) path: Vec<String>,
    /// Only from this address or network, such as 10.0.0.0/8; may be repeated, or a list with commas
    #[arg(long, value_name = "NET", value_delimiter = ',')]
    pub(crate) client: Vec<AddressRange>,
    /// Only from pages of this host and its subdomains, or from this URL, in which * matches any text; may be
    /// repeated
    #[arg(long, value_name = "REFERRER")]
    pub(crate) referrer: Vec<String>,
    /// Only bots (by their user agent), or only others
    #[arg(long, value_name = "WHICH", value_enum)]
    pub(crate) bot: Option<YesNo>,
    /// An older name of --bot
    #[arg(long, value_name = "WHAT", value_enum, hide = true, conflicts_with = "bot")]
    pub(crate) bots: Option<BotsChoice>,
    /// Leave out this address, for example your own; may be repeated, or a list with commas
    #[arg(long, value_name = "ADDR", value_delimiter = ',')]
    pub(crate) exclude_client: Vec<AddressRange>,
    /// Leave out this network, such as 10.0.0.0/8; may be repeated, or a list with commas
    #[arg(long, value_name = "NET", value_delimiter = ',')]
    pub(crate) exclude_networks: Vec<AddressRange>,
    /// Only from this time on: 24h or 7d ago, today, yesterday, 2026-11-22, or 2026-11-22T10:00
    #[arg(long, value_name = "TIME", value_parser = when::parse)]
    pub(crate) since: Option<When>,
    /// Only before this time, in the form of --since
    #[arg(long, value_name = "TIME", value_parser = when::parse)]
    pub(crate) until: Option<When>,
    /// The maximum number of rows; for rows by time, the newest [default: lists 20, searches 100, tail begins with
    /// 10, else all]
    #[arg(long, short = 'n', value_name = "N")]
    pub(crate) limit: Option<usize>,
    /// Use UTC for times, days, weeks and months, not the local time zone
    #[arg(long)]
    pub(crate) utc: bool,
}

impl FilterOptions {
    /// Filter for bots, from `--bot` or the older `--bots`.
    pub(crate) fn bots(&self) -> Bots {
        match (self.bot, self.bots) {
            (Some(YesNo::Yes), _) | (None, Some(BotsChoice::Only)) => Bots::Only,
            (Some(YesNo::No), _) | (None, Some(BotsChoice::Exclude)) => Bots::Excluded,
            (None, Some(BotsChoice::Include) | None) => Bots::Included,
        }
    }
}

/// Value of `--bot`: only bots, or only others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum YesNo {
    /// Requests of bots only
    Yes,
    /// Requests of others only
    No,
}

/// Value of `--bots`: include, exclude or only bots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BotsChoice {
    /// Bots count like others
    Include,
    /// Bots do not count
    Exclude,
    /// Only bots are counted
    Only,
}

/// Options for the output of a query, and its time limit.
#[derive(Debug, Args)]
pub(crate) struct AnswerOptions {
    /// Write an array of flat JSON objects instead of a table
    #[arg(long, conflicts_with = "csv")]
    pub(crate) json: bool,
    /// Write comma-separated values (RFC 4180) instead of a table
    #[arg(long)]
    pub(crate) csv: bool,
    /// End the query after this time
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = when::duration)]
    pub(crate) time_limit: Duration,
}

/// List of `logs top`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TopSubject {
    /// Items with the most requests or bytes.
    Heaviest(Top),
    /// Pages or servers with slow requests.
    Slow,
    /// Pages with the most failed requests.
    Errors,
}

impl TopSubject {
    const SLOW: &'static str = "slow";
    const ERRORS: &'static str = "errors";

    fn parser() -> impl TypedValueParser<Value = Self> {
        let names = Top::ALL.map(Top::name).into_iter().chain([Self::SLOW, Self::ERRORS]);
        PossibleValuesParser::new(names).map(|name| match name.as_str() {
            Self::SLOW => Self::Slow,
            Self::ERRORS => Self::Errors,
            name => Self::Heaviest(named(name)),
        })
    }
}

/// Arguments of `logs top`.
#[derive(Debug, Args)]
pub(crate) struct LogsTop {
    /// The items of the list
    #[arg(value_name = "WHAT", value_parser = TopSubject::parser())]
    pub(crate) what: TopSubject,
    /// The figure that orders the list
    #[arg(long, value_enum, default_value = "requests")]
    pub(crate) by: SortFigure,
    /// Group slow requests by page or server [default: page]
    #[arg(long, value_enum)]
    pub(crate) per: Option<SlowPer>,
    /// Count each request instead of using sums by the hour, which leave out rare items
    #[arg(long)]
    pub(crate) exact: bool,
    /// A GeoIP file in MaxMind's format, for countries and cities [default: the configuration's]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) geoip: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) answer: AnswerOptions,
    #[command(flatten)]
    pub(crate) store: StoreOptions,
    #[command(flatten)]
    pub(crate) filter: FilterOptions,
}

/// Figure that orders a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SortFigure {
    /// The number of requests
    Requests,
    /// The bytes that were sent
    Bytes,
}

impl From<SortFigure> for SortOrder {
    fn from(by: SortFigure) -> Self {
        match by {
            SortFigure::Requests => SortOrder::Requests,
            SortFigure::Bytes => SortOrder::Bytes,
        }
    }
}

/// Grouping of slow requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SlowPer {
    /// A row per page, by host
    Page,
    /// A row per server that answered
    Server,
}

impl From<SlowPer> for SlowBy {
    fn from(per: SlowPer) -> Self {
        match per {
            SlowPer::Page => SlowBy::Page,
            SlowPer::Server => SlowBy::Server,
        }
    }
}

/// Arguments of `logs traffic`.
#[derive(Debug, Args)]
pub(crate) struct Traffic {
    /// The length of an interval: 5m, 1h, or a calendar day, week (from Monday) or month [default: by the range]
    #[arg(long, value_name = "TIME", value_parser = when::step)]
    pub(crate) interval: Option<TimeStep>,
    /// One row per host
    #[arg(long)]
    pub(crate) by_host: bool,
    #[command(flatten)]
    pub(crate) answer: AnswerOptions,
    #[command(flatten)]
    pub(crate) store: StoreOptions,
    #[command(flatten)]
    pub(crate) filter: FilterOptions,
}

/// Arguments of `logs visitors`.
#[derive(Debug, Args)]
pub(crate) struct Visitors {
    /// The length of an interval: 1h, or a calendar day, week (from Monday) or month
    #[arg(long, value_name = "TIME", default_value = "day", value_parser = when::step)]
    pub(crate) interval: TimeStep,
    #[command(flatten)]
    pub(crate) answer: AnswerOptions,
    #[command(flatten)]
    pub(crate) store: StoreOptions,
    #[command(flatten)]
    pub(crate) filter: FilterOptions,
}

/// Arguments of `logs compare`.
#[derive(Debug, Args)]
pub(crate) struct Compare {
    /// What to compare; without it, the totals
    #[arg(value_name = "WHAT", value_parser = PossibleValuesParser::new(COMPARED.map(Top::name)).map(|name| named(&name)))]
    pub(crate) what: Option<Top>,
    /// The figure that orders the list
    #[arg(long, value_enum, default_value = "requests")]
    pub(crate) by: SortFigure,
    /// Count each request instead of using sums by the hour, which leave out rare items
    #[arg(long)]
    pub(crate) exact: bool,
    #[command(flatten)]
    pub(crate) answer: AnswerOptions,
    #[command(flatten)]
    pub(crate) store: StoreOptions,
    #[command(flatten)]
    pub(crate) filter: FilterOptions,
}

/// Lists that `logs compare` accepts.
const COMPARED: [Top; 7] =
    [Top::Pages, Top::Referrers, Top::Hosts, Top::Clients, Top::Status, Top::Agents, Top::Networks];

/// Arguments of `logs tail`.
#[derive(Debug, Args)]
pub(crate) struct Tail {
    /// Write one JSON object per request
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) store: StoreOptions,
    #[command(flatten)]
    pub(crate) filter: FilterOptions,
}

/// Arguments of `logs search`.
#[derive(Debug, Args)]
pub(crate) struct Search {
    /// The text to find; without it, the newest requests
    pub(crate) text: Option<String>,
    #[command(flatten)]
    pub(crate) answer: AnswerOptions,
    #[command(flatten)]
    pub(crate) store: StoreOptions,
    #[command(flatten)]
    pub(crate) filter: FilterOptions,
}

/// Arguments of `logs query`.
#[derive(Debug, Args)]
pub(crate) struct Query {
    /// One SQL statement that only reads
    pub(crate) sql: String,
    /// The maximum number of rows
    #[arg(long, short = 'n', value_name = "N", default_value_t = 100_000)]
    pub(crate) limit: usize,
    #[command(flatten)]
    pub(crate) answer: AnswerOptions,
    #[command(flatten)]
    pub(crate) store: StoreOptions,
}

fn named(name: &str) -> Top {
    // The parser admits only names of lists.
    Top::ALL.into_iter().find(|top| top.name() == name).unwrap_or(Top::Pages)
}
