//! The settings of the process itself, and the environment that their defaults depend on.

use std::num::NonZeroU16;
use std::path::PathBuf;

use super::words::words;
use crate::error::At;

/// The settings of the process, at the top of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessSettings {
    /// The number of worker threads.
    pub workers: Workers,
    /// The user that the process switches to after start, if any.
    pub user: Option<User>,
    /// The absolute path of the directory for the local CA and other state.
    pub state_dir: PathBuf,
    /// Set to reload when the file changes.
    pub watch: bool,
    /// The sandbox of the process.
    pub sandbox: Sandbox,
}

impl ProcessSettings {
    /// Every default of the language in `environment`.
    pub(super) fn for_environment(environment: &Environment) -> Self {
        ProcessSettings {
            workers: Workers::Auto,
            user: environment.is_root.then(User::default),
            state_dir: environment.state_dir(),
            watch: false,
            sandbox: Sandbox::On,
        }
    }
}

/// The number of worker threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workers {
    /// One per core available to the process.
    Auto,
    /// This many, at most 1024.
    Count(NonZeroU16),
}

/// The user that the process switches to after start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The name in the system's user database.
    pub name: String,
    /// The place; nowhere for the default, which need not exist on a machine.
    pub at: At,
}

impl Default for User {
    fn default() -> Self {
        User { name: "offramp".to_owned(), at: At::NOWHERE }
    }
}

words! {
    /// The sandbox: access that the process gives up after start.
    pub enum Sandbox {
        /// As far as the kernel supports it; the rest is a warning.
        On = "on",
        /// Complete, or the start fails.
        Required = "required",
        /// Complete, and without access to files and TCP ports that the configuration does not name.
        Strict = "strict",
        /// No sandbox: the process keeps all access.
        Off = "off",
    }
}

/// The environment that defaults depend on. Passed in: this crate reads no environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// Set if the process was started as root.
    pub is_root: bool,
    /// The variable `XDG_STATE_HOME`, if set.
    pub xdg_state_home: Option<PathBuf>,
    /// The variable `HOME`, if set.
    pub home: Option<PathBuf>,
}

impl Environment {
    /// The default of `state_dir`: the system's for root, else the user's by the XDG base directory
    /// specification (which ignores a relative `XDG_STATE_HOME`), else the system's.
    pub fn state_dir(&self) -> PathBuf {
        let absolute = |path: &&PathBuf| path.is_absolute();
        let users = if self.is_root {
            None
        } else if let Some(state) = self.xdg_state_home.as_ref().filter(absolute) {
            Some(state.join("offramp"))
        } else {
            self.home.as_ref().filter(absolute).map(|home| home.join(".local/state/offramp"))
        };
        users.unwrap_or_else(|| PathBuf::from("/var/lib/offramp"))
    }
}
