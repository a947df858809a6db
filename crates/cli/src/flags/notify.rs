//! Arguments of `offramp notify`.

use clap::{Args, Subcommand};

use super::ctl::CtlOptions;

/// Arguments of `offramp notify`.
#[derive(Debug, Args)]
pub(crate) struct Notify {
    #[command(flatten)]
    pub(crate) reach: CtlOptions,
    #[command(subcommand)]
    pub(crate) command: NotifyCommand,
}

/// Subcommands of `offramp notify`.
#[derive(Debug, Subcommand)]
pub(crate) enum NotifyCommand {
    /// Send a message to a receiver of notifications, and print what it answers
    ///
    /// Exit code 1 if a receiver does not take the message.
    Test {
        /// The name of the receiver [default: all of them]
        name: Option<String>,
    },
    /// List the receivers, and how many messages they have taken
    List,
}
