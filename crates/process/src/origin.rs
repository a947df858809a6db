//! The origin of configurations: a file, or a command line.

use std::path::{Path, PathBuf};

use offramp_config::{Config, Environment};

/// The origin of configurations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A file, which a reload reads again.
    File(PathBuf),
    /// A command line: a reload reads certificates again, and nothing else.
    CommandLine,
}

impl Origin {
    /// The file of the configuration.
    ///
    /// # Errors
    /// There is none.
    pub fn file(&self) -> Result<&Path, String> {
        match self {
            Self::File(path) => Ok(path),
            Self::CommandLine => Err("there is no file: Offramp was started without one".to_owned()),
        }
    }

    /// The path that relative paths of a text start beside: the file of the configuration.
    pub fn path(&self) -> &Path {
        match self {
            Self::File(path) => path,
            Self::CommandLine => Path::new("/"),
        }
    }

    /// True if the process of a configuration keeps what is in force in its state directory. Without a file or an admin
    /// interface no change needs it.
    pub fn keeps_changes(&self, config: &Config) -> bool {
        matches!(self, Self::File(_)) && config.admin.enabled
    }
}

/// The source of the next configuration: its origin, and the environment that gives absent keys their defaults.
#[derive(Clone, Debug)]
pub struct Source {
    /// The file, or the command line.
    pub origin: Origin,
    /// The home and rights that defaults follow.
    pub environment: Environment,
}
