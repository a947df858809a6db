//! Arguments of `offramp compare`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args, ValueHint, value_parser};
use offramp_analytics::when::{self, When};

use super::ctl::time;
use super::logs::{FormatOptions, StoreOptions};
use crate::measured_url::MeasuredUrl;

/// Arguments of `offramp compare`.
#[derive(Debug, Args)]
pub(crate) struct CompareArguments {
    #[command(flatten)]
    pub(crate) sides: SideOptions,
    #[command(flatten)]
    pub(crate) source: RecordOptions,
    #[command(flatten)]
    pub(crate) asking: AskingOptions,
    #[command(flatten)]
    pub(crate) rules: RuleOptions,
    /// Print the report as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Write the report as a page for browsers, too
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) html: Option<PathBuf>,
}

/// The two sides, and the way to them.
#[derive(Debug, Args)]
pub(crate) struct SideOptions {
    /// The side that is in use.
    // rustdoc would have the second URL be a link.
    #[arg(
        long,
        value_name = "URL",
        help = "The side that is in use: http://127.0.0.1:8080, https://example.org or unix:/run/app.sock",
        value_parser = MeasuredUrl::parse
    )]
    pub(crate) old: MeasuredUrl,
    /// The side that shall answer the same
    #[arg(long, value_name = "URL", value_parser = MeasuredUrl::parse)]
    pub(crate) new: MeasuredUrl,
    /// Connect to this address and port for --old, whatever its name stands for
    #[arg(long, value_name = "ADDR")]
    pub(crate) old_at: Option<SocketAddr>,
    /// Connect to this address and port for --new, whatever its name stands for
    #[arg(long, value_name = "ADDR")]
    pub(crate) new_at: Option<SocketAddr>,
    /// Send requests to another machine: its name, once more; may be repeated
    ///
    /// Only this machine is asked otherwise. Ask the operator of the other one first.
    #[arg(long, value_name = "HOST")]
    pub(crate) remote: Vec<String>,
    /// The authorities in PEM that certificates are checked against [default: the system's]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) ca: Option<PathBuf>,
    /// Go on with certificates that are not trusted
    #[arg(long)]
    pub(crate) insecure: bool,
    /// Speak HTTP/2 with sides of https://, instead of HTTP/1.1
    #[arg(long)]
    pub(crate) http2: bool,
}

/// The place that requests are taken from.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("requests").required(true).args(["log", "from_store", "har"]))]
pub(crate) struct RecordOptions {
    /// Take requests from an access log, in any format of `offramp logs ingest`; - is standard input
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) log: Option<PathBuf>,
    /// Take requests from the log store, the newest 100,000
    #[arg(long)]
    pub(crate) from_store: bool,
    /// Take requests from a HAR file, as the developer tools of browsers save it
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) har: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) format: FormatOptions,
    #[command(flatten)]
    pub(crate) store: StoreOptions,
    /// Only requests from this time on: 24h or 7d ago, today, 2026-11-22, or 2026-11-22T10:00; not for --har
    #[arg(long, value_name = "TIME", value_parser = when::parse, conflicts_with = "har")]
    pub(crate) since: Option<When>,
    /// Only requests before this time, in the form of --since
    #[arg(long, value_name = "TIME", value_parser = when::parse, conflicts_with = "har")]
    pub(crate) until: Option<When>,
}

/// The requests that are sent.
#[derive(Debug, Args)]
pub(crate) struct AskingOptions {
    /// The number of requests at most; of more, each method, host and path comes first
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = value_parser!(u16).range(1..=10_000))]
    pub(crate) most: u16,
    /// Requests a second to each side, at most
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = value_parser!(u16).range(1..=1000))]
    pub(crate) rate: u16,
    /// The methods that are sent; others than GET, HEAD and OPTIONS may change something, and on both sides
    #[arg(long, value_name = "METHODS", value_delimiter = ',', default_value = "GET,HEAD,OPTIONS")]
    pub(crate) methods: Vec<String>,
    /// The host of requests that name none [default: that of --old]
    #[arg(long, value_name = "HOST")]
    pub(crate) host: Option<String>,
    /// Send the cookies, authorizations and all other fields that a HAR file has
    #[arg(long, requires = "har")]
    pub(crate) send_credentials: bool,
}

/// Rules of the comparison.
#[derive(Debug, Args)]
pub(crate) struct RuleOptions {
    /// Do not compare this field of answers; may be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) ignore_header: Vec<String>,
    /// The time for an answer; a body that has not ended then is compared by what came
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = time)]
    pub(crate) timeout: Duration,
    /// The part of each body that is read, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 16, value_parser = value_parser!(u16).range(1..=1024))]
    pub(crate) max_body: u16,
    /// A difference of time: how much later the new side answers, twice
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = time)]
    pub(crate) slower: Duration,
}
