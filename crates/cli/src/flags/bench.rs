//! Arguments of `offramp bench`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueHint, value_parser};

use super::ctl::time;
use crate::measured_url::MeasuredUrl;

/// Arguments of `offramp bench`.
#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// The application: http://127.0.0.1:3000/path, https://localhost:8443/, or unix:/run/app.sock
    #[arg(value_name = "URL", value_parser = MeasuredUrl::parse)]
    pub(crate) url: MeasuredUrl,
    /// Requests a second [default: half of what is answered without a pause, at most 5000]
    #[arg(long, short, value_parser = value_parser!(u32).range(1..=200_000))]
    pub(crate) rate: Option<u32>,
    /// Connections, which are kept
    #[arg(long, default_value_t = 32, value_parser = value_parser!(u16).range(1..=1000))]
    pub(crate) connections: u16,
    /// Rounds; in each the application is measured alone, and then behind Offramp
    #[arg(long, default_value_t = 5, value_parser = value_parser!(u16).range(1..=100))]
    pub(crate) rounds: u16,
    /// The time of each half of a round
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = time)]
    pub(crate) time: Duration,
    /// The path that is asked for over a Unix socket [default: /]
    #[arg(long, value_name = "PATH")]
    pub(crate) path: Option<String>,
    /// The authorities that the certificate of https:// is checked against, in PEM [default: the system's]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) cacert: Option<PathBuf>,
    /// Write a picture of the percentiles
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) svg: Option<PathBuf>,
    /// Print the figures as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Send the load to another machine: its name, once more
    ///
    /// Only this machine is measured otherwise. Ask the operator of the other one first.
    #[arg(long, value_name = "HOST")]
    pub(crate) remote: Option<String>,
}
