//! `offramp top`: what a running Offramp does now, in a terminal.
//!
//! - [`once`]: one reading as text or JSON
//! - [`screen`]: the loop of the screen; [`feed`]: its messages; [`terminal`]: the terminal, taken and given back
//! - [`model`], [`rows`], [`history`]: the state of the screen, which does no I/O; [`view`]: its widgets
//! - [`tables`], [`summary`]: the figures that are shown; [`act`]: requests that keys cause; [`help`]: the keys
//! - [`text`], [`units`]: texts and numbers as cells

mod act;
mod feed;
mod help;
mod history;
mod model;
mod once;
mod rows;
mod screen;
mod summary;
mod tables;
mod terminal;
mod text;
mod units;
mod view;

use crate::ctl::client::AdminClient;
use crate::failure::Failure;
use crate::flags::top::TopArguments;
use crate::surroundings;

/// Shows the figures of a running Offramp.
///
/// # Errors
/// No Offramp answers, or it refuses; or there is no terminal for the screen.
pub(crate) fn run(arguments: &TopArguments) -> Result<(), Failure> {
    let mut client = AdminClient::of(&arguments.reach.plain())?;
    if arguments.once {
        return once::run(&mut client, arguments);
    }
    if let Some(reason) = surroundings::no_screen() {
        return Err(Failure::usage(format_args!(
            "error: {reason}\n`offramp top --once` prints the figures as text, with --json as JSON"
        )));
    }
    screen::run(client, arguments, surroundings::has_colours() && !arguments.no_color)
}
