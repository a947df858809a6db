//! `offramp password`: prints the line of a user for a `basic_auth` file.

use crate::failure::Failure;
use crate::flags::Password;
use crate::surroundings::{self, print};

/// Reads a password, twice on a terminal, and prints the line of the user.
///
/// # Errors
/// The password is missing or differs when repeated, or the name is not allowed in a line.
pub(crate) fn run(arguments: &Password) -> Result<(), Failure> {
    let failed =
        |error: std::io::Error| Failure::runtime(format_args!("error: cannot read the password: {error}"));
    let password = match surroundings::hidden_line("Password: ").map_err(failed)? {
        Some(password) => {
            let again = surroundings::hidden_line("Again: ").map_err(failed)?;
            if again.as_deref() != Some(&*password) {
                return Err(Failure::usage("error: the two passwords differ"));
            }
            password
        }
        None => surroundings::line().map_err(failed)?,
    };
    let line = offramp_control::user_line(&arguments.name, &password)
        .map_err(|error| Failure::usage(format_args!("error: {error}")))?;
    print(format!("{line}\n").as_bytes())
}
