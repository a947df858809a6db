//! Arguments of `offramp ca`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

/// Arguments of `offramp ca`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Ca {
    #[command(flatten)]
    pub(crate) place: CaPlace,
    #[command(subcommand)]
    pub(crate) command: Option<CaCommand>,
}

/// Subcommands of `offramp ca`.
#[derive(Debug, Subcommand)]
pub(crate) enum CaCommand {
    /// Make this machine trust the local CA: the system, browsers and Java
    ///
    /// The system's store, the databases of Chromium and the profiles of Firefox of this user, and the keystores of Java, as
    /// far as they are there. The store of the system and those of Java need root: sudo offramp ca trust, which sees to the
    /// browsers of the user who called sudo. A CA that was made anew takes the place of the old one. The exit code is 1 if
    /// a store failed.
    Trust(TrustArguments),
    /// Take the local CA out of all stores again
    Untrust(TrustArguments),
}

/// Place of the local CA.
#[derive(Debug, Args)]
pub(crate) struct CaPlace {
    /// A configuration that names the state_dir of the CA
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "state_dir")]
    pub(crate) config: Option<PathBuf>,
    /// The directory of the local CA [default: the default state_dir, see offramp --help]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) state_dir: Option<PathBuf>,
}

/// Arguments of `offramp ca trust` and `offramp ca untrust`.
#[derive(Debug, Args)]
pub(crate) struct TrustArguments {
    /// The certificate of a CA, such as a copy of the ca.pem of another machine [default: that of this machine's local CA]
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with_all = ["config", "state_dir"])]
    pub(crate) certificate: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) place: CaPlace,
    /// Only the store of the system [default: all stores]
    #[arg(long)]
    pub(crate) system: bool,
    /// Only Chromium, Firefox and their relatives [default: all stores]
    #[arg(long)]
    pub(crate) browsers: bool,
    /// Only the keystores of Java [default: all stores]
    #[arg(long)]
    pub(crate) java: bool,
    /// Stores in the tree of files below this directory, such as an image, instead of those of this machine
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) root: Option<PathBuf>,
    /// Change nothing; print the commands of a shell that do the same
    #[arg(long)]
    pub(crate) print: bool,
}
