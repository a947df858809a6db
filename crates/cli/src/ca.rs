//! `offramp ca`: where the local CA is, and which stores of this machine trust it.

mod trust;

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use offramp_certs::local_ca::{LocalCa, trust_instructions};
use offramp_config::Config;

use crate::check;
use crate::failure::Failure;
use crate::flags::ca::{Ca, CaCommand, CaPlace};
use crate::surroundings::{self, print};

/// Runs `offramp ca`.
///
/// # Errors
/// The CA cannot be used, or a store failed.
pub(crate) fn run(arguments: Ca) -> Result<(), Failure> {
    match arguments.command {
        None => {
            let ca = open(&state_dir(arguments.place)?)?;
            print(trust_instructions(&ca.certificate_path()).as_bytes())
        }
        Some(CaCommand::Trust(arguments)) => trust::trust(&arguments),
        Some(CaCommand::Untrust(arguments)) => trust::untrust(&arguments),
    }
}

/// The state directory of a CA.
fn state_dir(place: CaPlace) -> Result<PathBuf, Failure> {
    let environment = surroundings::environment();
    let config = match place.config {
        Some(path) => check::load(&path, &environment)?,
        None => with_state_dir(place.state_dir, Config::for_environment(&environment))?,
    };
    Ok(config.process.state_dir)
}

/// Sets the state directory, if one is given.
pub(crate) fn with_state_dir(state_dir: Option<PathBuf>, mut config: Config) -> Result<Config, Failure> {
    if let Some(dir) = state_dir {
        config.process.state_dir = offramp_config::absolute(dir).map_err(Failure::usage)?;
    }
    Ok(config)
}

/// Opens the CA, or creates it.
pub(crate) fn open(state_dir: &Path) -> Result<LocalCa, Failure> {
    LocalCa::open_or_create(state_dir, SystemTime::now())
        .map_err(|error| Failure::runtime(format_args!("error: {error}")))
}
