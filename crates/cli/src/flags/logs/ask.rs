//! The options of questions to the log store.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum, ValueHint};
use offramp_analytics::question::{Bots, Order, Per, StatusRange, Top};
use offramp_analytics::{Network, TimeStep};

use crate::flags::logs::StoreOptions;
use crate::logs::when::{self, When};

/// Which requests count.
#[derive(Debug, Args)]
#[command(next_help_heading = "Which requests")]
pub(crate) struct FilterOptions {
    /// Only this host; * stands for any text; may be repeated
    #[arg(long, value_name = "HOST")]
    pub(crate) host: Vec<String>,
    /// Only this status: 404, 5xx or 400-499; may be repeated, or a list with commas
    #[arg(long, value_name = "STATUS", value_delimiter = ',')]
    pub(crate) status: Vec<StatusRange>,
    /// Only this method; may be repeated, or a list with commas
    #[arg(long, value_name = "METHOD", value_delimiter = ',')]
    pub(crate) method: Vec<String>,
    /// Only this path, without its query; * stands for any text, as in '/api*'; may be repeated
    #[arg(long, value_name = "PATH")]
    pub(crate) path: Vec<String>,
    /// Only from this address or network, such as 10.0.0.0/8; may be repeated, or a list with commas
    #[arg(long, value_name = "NET", value_delimiter = ',')]
    pub(crate) client: Vec<Network>,
    /// Only from pages of this host and its subdomains, or from this URL, in which * stands for any text; may be
    /// repeated
    #[arg(long, value_name = "REFERRER")]
    pub(crate) referrer: Vec<String>,
    /// Only bots, as their agents tell, or only others
    #[arg(long, value_name = "WHICH", value_enum)]
    pub(crate) bot: Option<YesNo>,
    /// The same in other words
    #[arg(long, value_name = "WHAT", value_enum, hide = true, conflicts_with = "bot")]
    pub(crate) bots: Option<BotsChoice>,
    /// Not from this address, one's own for example; may be repeated, or a list with commas
    #[arg(long, value_name = "ADDR", value_delimiter = ',')]
    pub(crate) exclude_client: Vec<Network>,
    /// Not from this network, such as 10.0.0.0/8; may be repeated, or a list with commas
    #[arg(long, value_name = "NET", value_delimiter = ',')]
    pub(crate) exclude_networks: Vec<Network>,
    /// Only from then on: 24h or 7d ago, today, yesterday, 2026-11-22, or 2026-11-22T10:00
    #[arg(long, value_name = "TIME", value_parser = when::parse)]
    pub(crate) since: Option<When>,
    /// Only before then, written as for --since
    #[arg(long, value_name = "TIME", value_parser = when::parse)]
    pub(crate) until: Option<When>,
    /// At most so many rows; by time the newest [default: 20 in lists, 100 in searches, 10 to begin with in tail, all
    /// otherwise]
    #[arg(long, short = 'n', value_name = "N")]
    pub(crate) limit: Option<usize>,
    /// Times, days, weeks and months are UTC's, not those of the time zone here
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

/// Whether only they, or only others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum YesNo {
    /// Only bots
    Yes,
    /// Only others
    No,
}

/// What is done with bots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BotsChoice {
    /// They count like everybody
    Include,
    /// They do not count
    Exclude,
    /// Only they count
    Only,
}

/// How an answer is made and written.
#[derive(Debug, Args)]
pub(crate) struct AnswerOptions {
    /// Write an array of flat JSON objects instead of a table
    #[arg(long, conflicts_with = "csv")]
    pub(crate) json: bool,
    /// Write comma-separated values (RFC 4180) instead of a table
    #[arg(long)]
    pub(crate) csv: bool,
    /// End the question after so long
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = when::duration)]
    pub(crate) time_limit: Duration,
}

/// What `logs top` lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// The heaviest of something.
    Heaviest(Top),
    /// What is slow.
    Slow,
    /// What fails.
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
    /// Of what
    #[arg(value_name = "WHAT", value_parser = What::parser())]
    pub(crate) what: What,
    /// What the heaviest have most of
    #[arg(long, value_enum, default_value = "requests")]
    pub(crate) by: By,
    /// What is slow: pages or servers [default: page]
    #[arg(long, value_enum)]
    pub(crate) per: Option<SlowPer>,
    /// Count each request instead of using sums by the hour, whose lists leave out what was rare
    #[arg(long)]
    pub(crate) exact: bool,
    /// A GeoIP file in MaxMind's format, for countries and cities [default: the configuration's]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) geoip: Option<PathBuf>,
    /// How it is written.
    #[command(flatten)]
    pub(crate) answer: AnswerOptions,
    /// Which store.
    #[command(flatten)]
    pub(crate) store: StoreOptions,
    /// Which requests.
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

/// What is slow.
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
    /// The length of an interval: 5m, 1h, or a day, week (from Monday) or month of the calendar [default: by the range]
    #[arg(long, value_name = "TIME", value_parser = when::step)]
    pub(crate) interval: Option<TimeStep>,
    /// A row for each host
    #[arg(long)]
    pub(crate) by_host: bool,
    /// How it is written.
    #[command(flatten)]
    pub(crate) answer: AnswerOptions,
    /// Which store.
    #[command(flatten)]
    pub(crate) store: StoreOptions,
    /// Which requests.
    #[command(flatten)]
    pub(crate) filter: FilterOptions,
}

/// Options of `logs visitors`.
#[derive(Debug, Args)]
pub(crate) struct Visitors {
    /// The length of an interval: 1h, or a day, week (from Monday) or month of the calendar
    #[arg(long, value_name = "TIME", default_value = "day", value_parser = when::step)]
    pub(crate) interval: TimeStep,
    /// How it is written.
    #[command(flatten)]
    pub(crate) answer: AnswerOptions,
    /// Which store.
    #[command(flatten)]
    pub(crate) store: StoreOptions,
    /// Which requests.
    #[command(flatten)]
    pub(crate) filter: FilterOptions,
}

/// Options of `logs compare`.
#[derive(Debug, Args)]
pub(crate) struct Compare {
    /// By what; all in all without it
    #[arg(value_name = "WHAT", value_parser = PossibleValuesParser::new(COMPARED.map(Top::name)).map(|name| named(&name)))]
    pub(crate) what: Option<Top>,
    /// What the heaviest have most of
    #[arg(long, value_enum, default_value = "requests")]
    pub(crate) by: By,
    /// Count each request instead of using sums by the hour, whose lists leave out what was rare
    #[arg(long)]
    pub(crate) exact: bool,
    /// How it is written.
    #[command(flatten)]
    pub(crate) answer: AnswerOptions,
    /// Which store.
    #[command(flatten)]
    pub(crate) store: StoreOptions,
    /// Which requests.
    #[command(flatten)]
    pub(crate) filter: FilterOptions,
}

/// Lists that can be compared.
const COMPARED: [Top; 7] =
    [Top::Pages, Top::Referrers, Top::Hosts, Top::Clients, Top::Status, Top::Agents, Top::Networks];

/// Options of `logs tail`.
#[derive(Debug, Args)]
pub(crate) struct Tail {
    /// Write a JSON object for each request
    #[arg(long)]
    pub(crate) json: bool,
    /// Which store.
    #[command(flatten)]
    pub(crate) store: StoreOptions,
    /// Which requests.
    #[command(flatten)]
    pub(crate) filter: FilterOptions,
}

/// Options of `logs search`.
#[derive(Debug, Args)]
pub(crate) struct Search {
    /// What to look for
    pub(crate) text: String,
    /// How it is written.
    #[command(flatten)]
    pub(crate) answer: AnswerOptions,
    /// Which store.
    #[command(flatten)]
    pub(crate) store: StoreOptions,
    /// Which requests.
    #[command(flatten)]
    pub(crate) filter: FilterOptions,
}

/// Options of `logs query`.
#[derive(Debug, Args)]
pub(crate) struct Query {
    /// The statement
    pub(crate) sql: String,
    /// At most so many rows
    #[arg(long, short = 'n', value_name = "N", default_value_t = 100_000)]
    pub(crate) limit: usize,
    /// How it is written.
    #[command(flatten)]
    pub(crate) answer: AnswerOptions,
    /// Which store.
    #[command(flatten)]
    pub(crate) store: StoreOptions,
}

fn named(name: &str) -> Top {
    // The parser lets only the names of lists pass.
    Top::ALL.into_iter().find(|top| top.name() == name).unwrap_or(Top::Pages)
}
