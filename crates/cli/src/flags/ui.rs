//! Arguments of `offramp ui`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueHint};

use super::ctl::{ReachOptions, time};
use crate::listen::ListenArgument;

/// Arguments of `offramp ui`.
#[derive(Debug, Args)]
pub(crate) struct Ui {
    /// Print the link, and open no browser
    #[arg(long)]
    pub(crate) no_open: bool,
    /// The address to listen on: a port of this machine, or an address and a port; other machines need --cert
    ///
    /// From another machine, ssh -L 9902:127.0.0.1:9902 HOST leads to `offramp ui --no-open --listen 9902` there.
    #[arg(long, short, value_name = "ADDR", default_value = "0", value_parser = ListenArgument::parse)]
    pub(crate) listen: ListenArgument,
    /// A certificate chain in PEM, for https; its key may be in the same file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) cert: Option<PathBuf>,
    /// The key of --cert in PEM
    #[arg(long, value_name = "FILE", requires = "cert", value_hint = ValueHint::FilePath)]
    pub(crate) key: Option<PathBuf>,
    /// The time to go on after the page was closed, such as 10m
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = time)]
    pub(crate) linger: Duration,
    #[command(flatten)]
    pub(crate) reach: ReachOptions,
}
