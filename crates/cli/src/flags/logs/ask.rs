//! The options of queries to the log store.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum, ValueHint};
use offramp_analytics::question::{Bots, Order, Per, StatusRange, Top};
use offramp_analytics::{Network, TimeStep};

use crate::flags::logs::StoreOptions;
use crate::logs::when::{self, When};

/// Filters.
#[derive(Debug, Args)]
#[command(next_help_heading = "Filters")]
pub(crate) struct FilterOptions {
    /// Only this host; * matches any text; may be repeated
    #[arg(long, value_name = "HOST")]
    pub(crate) host: Vec<String>,
    /// Only this status: 404, 5xx or 400-499; may be repeated, or a list with commas
    #[arg(long, value_name = "STATUS", value_delimiter = ',')]
    pub(crate) status: Vec<StatusRange>,
    /// Only this method; may be repeated, or a list with commas
    #[arg(long, value_name = "METHOD", value_delimiter = ',')]
    pub(crate) method: Vec<String>,
    /// Only this path, without its query; * matches any text, as in '/api*'; may be repeated
    #[arg(long, value_name = "PATH")]
    pub(crate) path: Vec<String>,
    /// Only from this address or network, such as 10.0.0.0/8; may be repeated, or a list with commas
    #[arg(long, value_name = "NET", value_delimiter = ',')]
    pub(crate) client: Vec<Network>,
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
    pub(crate) exclude_client: Vec<Network>,
    /// Leave out this network, such as 10.0.0.0/8; may be repeated, or a list with commas
    #[arg(long, value_name = "NET", value_delimiter = ',')]
    pub(crate) exclude_networks: Vec<Network>,
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
    /// Whether bots count.
    pub(crate) fn bots(&self) -> Bots {
        match (self.bot, self.bots) {
            (Some(YesNo::Yes), _) | (None, Some(BotsChoice::Only)) => Bots::Only,
            (Some(YesNo::No), _) | (None, Some(BotsChoice::Exclude)) => Bots::Excluded,
            (None, Some(BotsChoice::Include) | None) => Bots::Included,
        }
    }
}

/// Only bots, or only others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum YesNo {
    /// Only bots
    Yes,
    /// Only others
    No,
}

/// Which requests of bots count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BotsChoice {
    /// They count
    Include,
    /// They do not count
    Exclude,
    /// Only they count
    Only,
}

/// The output of a query, and its time limit.
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

/// What `logs top` lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// The heaviest of something.
    Heaviest(Top),
    /// Slow pages or servers.
    Slow,
    /// Errors.
    Errors,
}

impl What {
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

/// Options of `logs top`.
#[derive(Debug, Args)]
pub(crate) struct List {
    /// What to list
    #[arg(value_name = "WHAT", value_parser = What::parser())]
    pub(crate) what: What,
    /// The figure that orders the list
    #[arg(long, value_enum, default_value = "requests")]
    pub(crate) by: By,
    /// Group slow requests by page or server [default: page]
    #[arg(long, value_enum)]
    pub(crate) per: Option<SlowPer>,
    /// Count each request instead of using sums by the hour, whose lists leave out rare items
    #[arg(long)]
    pub(crate) exact: bool,
    /// A GeoIP file in MaxMind's format, for countries and cities [default: the configuration's]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) geoip: Option<PathBuf>,
    /// The output.
    #[command(flatten)]
    pub(crate) answer: AnswerOptions,
    /// The store.
    #[command(flatten)]
    pub(crate) store: StoreOptions,
    /// Filters.
    #[command(flatten)]
    pub(crate) filter: FilterOptions,
}

/// What lists are sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum By {
    /// The number of requests
    Requests,
    /// The bytes that were sent
    Bytes,
}

impl From<By> for Order {
    fn from(by: By) -> Self {
        match by {
            By::Requests => Order::Requests,
            By::Bytes => Order::Bytes,
        }
    }
}

/// How slow requests are grouped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SlowPer {
    /// Pages, by host
    Page,
    /// Servers that answered
    Server,
}

impl From<SlowPer> for Per {
    fn from(per: SlowPer) -> Self {
        match per {
            SlowPer::Page => Per::Page,
            SlowPer::Server => Per::Server,
        }
    }
}

/// Options of `logs traffic`.
#[derive(Debug, Args)]
pub(crate) struct Traffic {
    /// The length of an interval: 5m, 1h, or a calendar day, week (from Monday) or month [default: by the range]
    #[arg(long, value_name = "TIME", value_parser = when::step)]
    pub(crate) interval: Option<TimeStep>,
    /// One row per host
    #[arg(long)]
    pub(crate) by_host: bool,
    /// The output.
    #[command(flatten)]
    pub(crate) answer: AnswerOptions,
    /// The store.
    #[command(flatten)]
    pub(crate) store: StoreOptions,
    /// Filters.
    #[command(flatten)]
    pub(crate) filter: FilterOptions,
}

/// Options of `logs visitors`.
#[derive(Debug, Args)]
pub(crate) struct Visitors {
    /// The length of an interval: 1h, or a calendar day, week (from Monday) or month
    #[arg(long, value_name = "TIME", default_value = "day", value_parser = when::step)]
    pub(crate) interval: TimeStep,
    /// The output.
    #[command(flatten)]
    pub(crate) answer: AnswerOptions,
    /// The store.
    #[command(flatten)]
    pub(crate) store: StoreOptions,
    /// Filters.
    #[command(flatten)]
    pub(crate) filter: FilterOptions,
}

/// Options of `logs compare`.
#[derive(Debug, Args)]
pub(crate) struct Compare {
    /// What to compare; without it, the totals
    #[arg(value_name = "WHAT", value_parser = PossibleValuesParser::new(COMPARED.map(Top::name)).map(|name| named(&name)))]
    pub(crate) what: Option<Top>,
    /// The figure that orders the list
    #[arg(long, value_enum, default_value = "requests")]
    pub(crate) by: By,
    /// Count each request instead of using sums by the hour, whose lists leave out rare items
    #[arg(long)]
    pub(crate) exact: bool,
    /// The output.
    #[command(flatten)]
    pub(crate) answer: AnswerOptions,
    /// The store.
    #[command(flatten)]
    pub(crate) store: StoreOptions,
    /// Filters.
    #[command(flatten)]
    pub(crate) filter: FilterOptions,
}

/// Lists that can be compared.
const COMPARED: [Top; 7] =
    [Top::Pages, Top::Referrers, Top::Hosts, Top::Clients, Top::Status, Top::Agents, Top::Networks];

/// Options of `logs tail`.
#[derive(Debug, Args)]
pub(crate) struct Tail {
    /// Write one JSON object per request
    #[arg(long)]
    pub(crate) json: bool,
    /// The store.
    #[command(flatten)]
    pub(crate) store: StoreOptions,
    /// Filters.
    #[command(flatten)]
    pub(crate) filter: FilterOptions,
}

/// Options of `logs search`.
#[derive(Debug, Args)]
pub(crate) struct Search {
    /// The text to find
    pub(crate) text: String,
    /// The output.
    #[command(flatten)]
    pub(crate) answer: AnswerOptions,
    /// The store.
    #[command(flatten)]
    pub(crate) store: StoreOptions,
    /// Filters.
    #[command(flatten)]
    pub(crate) filter: FilterOptions,
}

/// Options of `logs query`.
#[derive(Debug, Args)]
pub(crate) struct Query {
    /// The SQL statement
    pub(crate) sql: String,
    /// The maximum number of rows
    #[arg(long, short = 'n', value_name = "N", default_value_t = 100_000)]
    pub(crate) limit: usize,
    /// The output.
    #[command(flatten)]
    pub(crate) answer: AnswerOptions,
    /// The store.
    #[command(flatten)]
    pub(crate) store: StoreOptions,
}

fn named(name: &str) -> Top {
    // The parser lets only the names of lists pass.
    Top::ALL.into_iter().find(|top| top.name() == name).unwrap_or(Top::Pages)
}
