//! `offramp password`: the line of a user for `basic_auth`.

use crate::failure::Failure;
use crate::flags::Password;
use crate::surroundings::{self, print};

/// Reads a password and prints the line of the user.
///
/// # Errors
/// There is no password, two that differ, or a name that no line can have.
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
