//! `cert`: which certificates there are, and what is wrong with one.

mod inspect;
mod list;
mod order;
mod renew;

use crate::failure::Failure;
use crate::flags::cert::{Cert, Command};

/// Does what is asked for.
///
/// # Errors
/// It could not be done, or something is wrong with what was looked at.
pub(crate) fn run(arguments: Cert) -> Result<(), Failure> {
    match arguments.command {
        Command::List(arguments) => list::list(arguments),
        Command::Inspect(arguments) => inspect::inspect(&arguments),
        Command::Order(arguments) => order::order(*arguments),
        Command::Renew(arguments) => renew::renew(arguments),
    }
}
