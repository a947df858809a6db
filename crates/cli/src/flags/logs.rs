//! The options of `offramp logs`.

mod ask;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueHint};
use offramp_analytics::format::LogFormat;
use offramp_config::model::ListenAddress;

pub(crate) use crate::flags::logs::ask::{
    AnswerOptions, Compare, FilterOptions, List, Query, Search, Tail, Traffic, Visitors, What,
};
use crate::logs::when;

/// Options of `logs`.
#[derive(Debug, Args)]
pub(crate) struct Logs {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do with logs.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Read access logs of any server into the store
    ///
    /// Lines that do not parse are counted, the first ten are shown with the place where parsing failed, and all
    /// can be kept with --rejects; only a file of which no line parses is an error. gzip and Zstandard are recognised.
    /// What was read is remembered: the same file again adds nothing, under whatever name, and of one that has grown
    /// only what is new is read.
    Ingest(Ingest),
    /// The heaviest pages, clients and others with their requests and bytes; what is slow; what fails
    Top(List),
    /// Requests and bytes over time
    Traffic(Traffic),
    /// Different clients by the day
    ///
    /// Counted by a hash of their addresses: exact up to 2048 a day, within some two percent above.
    Visitors(Visitors),
    /// A period of time and the one before it, side by side
    Compare(Compare),
    /// Requests as they come, a line each, until stopped
    ///
    /// What took longer than ten minutes is not seen.
    Tail(Tail),
    /// Requests whose path, query, referrer or agent has a text, the newest first
    ///
    /// With `full_text` in the configuration each word of the text must begin a word there, which an index
    /// answers; without, the text must be contained as it is, and every text in the store is looked at.
    Search(Search),
    /// Answer a statement in the database's own SQL, which must only read
    ///
    /// The view `requests` has a row per request: time, time_us, host, client, network, method, path, query,
    /// protocol, status, bytes, received, duration_us, referer, agent, bot, user, route, server, tls, cause,
    /// request_id.
    Query(Query),
    /// Answer Grafana from the store, without a proxy
    ///
    /// The data source is at http://ADDR/, for Grafana's plugin simpod-json-datasource. `offramp run` has the same at
    /// /grafana of its `[admin]` address. SIGTERM and SIGINT end it.
    Serve(Serve),
    /// Roll up what is complete, remove what is older than its retention, and give space back
    ///
    /// `offramp run` and `logs ingest` do it as they write; a store that nobody writes to needs this.
    Tidy(Tidy),
}

/// Which store.
#[derive(Debug, Args)]
pub(crate) struct StoreOptions {
    /// The store: sqlite:/path or postgres://user@host/database (default: `[log_store]` of the configuration)
    #[arg(long, value_name = "URL")]
    pub(crate) store: Option<String>,
    /// The configuration that names the store [default: ./offramp.toml, else /etc/offramp/offramp.toml]
    #[arg(long = "config", short = 'c', value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,
}

/// Options of `logs ingest`.
#[derive(Debug, Args)]
pub(crate) struct Ingest {
    /// Files to read, in this order; - is standard input, as is naming none
    #[arg(value_name = "FILES", value_hint = ValueHint::FilePath, conflicts_with = "log")]
    pub(crate) files: Vec<PathBuf>,
    /// Read files that were read before once more; their requests are then there twice
    #[arg(long, conflicts_with = "log")]
    pub(crate) again: bool,
    /// How lines are written.
    #[command(flatten)]
    pub(crate) format: FormatOptions,
    /// Read this file and all that is added to it, until stopped; rotation, truncation and restarts neither lose
    /// nor double a line
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, group = "log")]
    pub(crate) follow: Option<PathBuf>,
    /// Read what is new in this log since the last time, also what was rotated away meanwhile, and end: for cron
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, group = "log")]
    pub(crate) resume: Option<PathBuf>,
    /// Begin with the present end of a log that was never followed before, not with its beginning
    #[arg(long, requires = "log")]
    pub(crate) from_end: bool,
    /// Append lines that do not parse to this file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) rejects: Option<PathBuf>,
    /// The host of requests whose lines name none
    #[arg(long, value_name = "HOST")]
    pub(crate) host: Option<String>,
    /// How far times without an offset are ahead of UTC, such as +01:00; HAProxy writes none
    #[arg(long, value_name = "OFFSET", default_value = "+00:00", allow_hyphen_values = true, value_parser = when::offset)]
    pub(crate) utc_offset: i32,
    /// Which store.
    #[command(flatten)]
    pub(crate) store: StoreOptions,
}

/// How lines are written.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub(crate) struct FormatOptions {
    /// A format by its name: combined, vhost, common, json (of Offramp and others), haproxy, caddy [default: combined]
    #[arg(long, value_name = "NAME", value_parser = LogFormat::named)]
    pub(crate) format: Option<LogFormat>,
    /// The string of an nginx log_format, or the whole directive
    #[arg(long, value_name = "STRING", value_parser = LogFormat::nginx)]
    pub(crate) log_format: Option<LogFormat>,
    /// A regular expression with groups named as nginx's variables, or time, client, host, method, path or status
    #[arg(long, value_name = "RE", value_parser = LogFormat::regex)]
    pub(crate) regex: Option<LogFormat>,
}

/// Options of `logs serve`.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Where to listen: an address and a port (0: any free one), or unix: and a path; not for the public
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:3333")]
    pub(crate) address: ListenAddress,
    /// A GeoIP file in MaxMind's format, for countries and cities [default: the configuration's]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) geoip: Option<PathBuf>,
    /// Which store.
    #[command(flatten)]
    pub(crate) store: StoreOptions,
}

/// Options of `logs tidy`.
#[derive(Debug, Args)]
pub(crate) struct Tidy {
    /// How long requests are kept, such as 90d [default: the configuration's, for ever with --store]
    #[arg(long, value_name = "TIME", value_parser = when::duration)]
    pub(crate) retention: Option<Duration>,
    /// How long hourly and daily sums are kept [default: the configuration's, for ever with --store]
    #[arg(long, value_name = "TIME", value_parser = when::duration)]
    pub(crate) rollup_retention: Option<Duration>,
    /// Which store.
    #[command(flatten)]
    pub(crate) store: StoreOptions,
}
