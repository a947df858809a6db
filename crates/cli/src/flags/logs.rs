//! Arguments of `offramp logs`.

mod ask;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueHint};
use offramp_analytics::format::InputFormat;
use offramp_config::model::ListenAddress;

pub(crate) use crate::flags::logs::ask::{
    AnswerOptions, Compare, FilterOptions, LogsTop, Query, Search, Tail, TopSubject, Traffic, Visitors,
};
use offramp_analytics::when;

/// Arguments of `offramp logs`.
#[derive(Debug, Args)]
pub(crate) struct Logs {
    #[command(subcommand)]
    pub(crate) command: LogsCommand,
}

/// Subcommands of `offramp logs`.
#[derive(Debug, Subcommand)]
pub(crate) enum LogsCommand {
    /// Read access logs of any server into the store
    ///
    /// Lines that do not parse are counted. The first ten are shown with the position where parsing failed; --rejects
    /// keeps all. If no line of a file parses, that is an error. gzip and Zstandard are recognized. The store
    /// remembers what was read: reading the same file again adds nothing, whatever its name. If a file has grown, only
    /// its new lines are read.
    Ingest(Ingest),
    /// The heaviest pages, clients and so on, with requests and bytes; slow pages; errors
    Top(LogsTop),
    /// Requests and bytes over time
    Traffic(Traffic),
    /// Different clients per day
    ///
    /// Exact up to 2048 per interval. Above that an estimate, the same each time, with its error in a column of its own.
    Visitors(Visitors),
    /// A period of time, compared with the one before
    Compare(Compare),
    /// Requests live, one per line, until stopped
    ///
    /// Does not show requests that took longer than ten minutes.
    Tail(Tail),
    /// Requests, the newest first, or those whose path, query, referrer or agent contains a text
    ///
    /// With `full_text` in the configuration it uses an index, and each word of the text must be the beginning of a
    /// word there. Without it the whole text must be contained, and every text in the store is searched.
    Search(Search),
    /// Run a read-only SQL statement of the database
    ///
    /// The view `requests` has one row per request: time, time_us, host, client, network, method, path, query,
    /// protocol, status, bytes, received, duration_us, referer, agent, bot, user, route, server, tls, cause,
    /// request_id, queue_us, connect_us, first_byte_us.
    Query(Query),
    /// Serve the store to Grafana, without a proxy
    ///
    /// The data source is at http://ADDR/, for Grafana's plugin simpod-json-datasource. `offramp run` serves the same at
    /// /grafana of its `[admin]` address. SIGTERM and SIGINT stop it.
    Serve(LogsServe),
    /// Roll up complete hours, remove what is older than its retention, and free the space
    ///
    /// `offramp run` and `logs ingest` do this while they write. Run it for a store that no process writes to.
    Tidy(Tidy),
}

/// Options that select the log store.
#[derive(Debug, Args)]
pub(crate) struct StoreOptions {
    /// The store: sqlite:/path or postgres://user@host/database (default: `[log_store]` of the configuration)
    #[arg(long, value_name = "URL")]
    pub(crate) store: Option<String>,
    /// The configuration that names the store [default: ./offramp.toml, else /etc/offramp/offramp.toml]
    #[arg(long = "config", short = 'c', value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,
}

/// Arguments of `logs ingest`.
#[derive(Debug, Args)]
pub(crate) struct Ingest {
    /// Files to read, in this order; - or no file is standard input
    #[arg(value_name = "FILES", value_hint = ValueHint::FilePath, conflicts_with = "log")]
    pub(crate) files: Vec<PathBuf>,
    /// Read files again that were read before; the store then has their requests twice
    #[arg(long, conflicts_with = "log")]
    pub(crate) again: bool,
    #[command(flatten)]
    pub(crate) format: FormatOptions,
    /// Read this file and follow it until stopped; rotation, truncation and restarts neither lose nor duplicate a
    /// line
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, group = "log")]
    pub(crate) follow: Option<PathBuf>,
    /// Read what is new in this log since the last run, including files that were rotated meanwhile, and exit: for cron
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, group = "log")]
    pub(crate) resume: Option<PathBuf>,
    /// Begin at the current end of a log that was never followed before, not at its beginning
    #[arg(long, requires = "log")]
    pub(crate) from_end: bool,
    /// Append lines that do not parse to this file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) rejects: Option<PathBuf>,
    /// The host for lines that have none
    #[arg(long, value_name = "HOST")]
    pub(crate) host: Option<String>,
    /// The UTC offset of times that have none, such as +01:00; HAProxy writes none
    #[arg(long, value_name = "OFFSET", default_value = "+00:00", allow_hyphen_values = true, value_parser = when::offset)]
    pub(crate) utc_offset: i32,
    #[command(flatten)]
    pub(crate) store: StoreOptions,
}

/// The format of lines.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub(crate) struct FormatOptions {
    /// A format by its name: combined, common, main, vhost, vhost_combined, vhost_common (nginx, Apache), json (of
    /// Offramp and others), caddy, traefik, haproxy, httplog, httpslog [default: combined]
    #[arg(long, value_name = "NAME", value_parser = InputFormat::named)]
    pub(crate) format: Option<InputFormat>,
    /// The string of an nginx log_format, or the whole directive
    #[arg(long, value_name = "STRING", value_parser = InputFormat::nginx)]
    pub(crate) log_format: Option<InputFormat>,
    /// A regular expression with groups named like nginx's variables, or time, client, host, method, path or status
    #[arg(long, value_name = "RE", value_parser = InputFormat::regex)]
    pub(crate) regex: Option<InputFormat>,
}

/// Arguments of `logs serve`.
#[derive(Debug, Args)]
pub(crate) struct LogsServe {
    /// Where to listen: an address and a port (0: any free one), or unix: and a path; do not make it public
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:3333")]
    pub(crate) address: ListenAddress,
    /// A GeoIP file in MaxMind's format, for countries and cities [default: the configuration's]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) geoip: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) store: StoreOptions,
}

/// Arguments of `logs tidy`.
#[derive(Debug, Args)]
pub(crate) struct Tidy {
    /// How long to keep requests, such as 90d [default: the configuration's, forever with --store]
    #[arg(long, value_name = "TIME", value_parser = when::duration)]
    pub(crate) retention: Option<Duration>,
    /// How long to keep hourly and daily sums [default: the configuration's, forever with --store]
    #[arg(long, value_name = "TIME", value_parser = when::duration)]
    pub(crate) rollup_retention: Option<Duration>,
    #[command(flatten)]
    pub(crate) store: StoreOptions,
}
