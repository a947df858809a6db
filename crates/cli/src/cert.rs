//! `offramp cert`: listing, inspection, orders and renewals of certificates.

mod inspect;
mod list;
mod order;
mod renew;

use crate::failure::Failure;
use crate::flags::cert::{Cert, CertCommand};

/// Runs a subcommand of `cert`.
///
/// # Errors
/// The subcommand failed, or `inspect` found a fault.
pub(crate) fn run(arguments: Cert) -> Result<(), Failure> {
    match arguments.command {
        CertCommand::List(arguments) => list::list(arguments),
        CertCommand::Inspect(arguments) => inspect::inspect(&arguments),
        CertCommand::Order(arguments) => order::order(*arguments),
        CertCommand::Renew(arguments) => renew::renew(arguments),
    }
}
