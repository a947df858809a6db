//! The log store that a command uses, and its options.

use std::path::PathBuf;

use offramp_analytics::Options;
use offramp_config::Config;

use crate::check;
use crate::failure::Failure;
use crate::flags::ConfigFile;
use crate::flags::logs::StoreOptions;
use crate::surroundings;

/// URL and options of the log store that a command uses.
#[derive(Debug)]
pub(crate) struct StoreTarget {
    pub(crate) url: String,
    /// Options for opening it as a writer.
    pub(crate) options: Options,
    /// GeoIP file of the configuration.
    pub(crate) geoip: Option<PathBuf>,
}

impl StoreTarget {
    /// Returns the store of `--store`, else that of the configuration, which is located as for `run`.
    ///
    /// # Errors
    /// There is no store, or its configuration is invalid.
    pub(crate) fn find(options: StoreOptions) -> Result<Self, Failure> {
        if let Some(url) = options.store {
            offramp_analytics::check_url(&url).map_err(|error| Failure::of_store(&error))?;
            return Ok(Self { url: with_password(&url), options: Options::default(), geoip: None });
        }
        let path = check::find(ConfigFile { path: options.config }).map_err(|_| {
            Failure::usage(
                "error: which store? There is no configuration here, neither ./offramp.toml nor \
                 /etc/offramp/offramp.toml\nName one: --store sqlite:/path/access.db, or a configuration with \
                 -c FILE",
            )
        })?;
        let config = check::load(&path, &surroundings::environment())?;
        Self::of(&config).ok_or_else(|| {
            Failure::usage(format_args!(
                "error: {} has no log store\nAdd [log_store] with its url, or name one here: \
                 --store sqlite:/path/access.db",
                path.display()
            ))
        })
    }

    /// Returns the store of a configuration, if it has one.
    pub(crate) fn of(config: &Config) -> Option<Self> {
        let store = &config.telemetry.log_store;
        let options = Options {
            full_text: Some(store.full_text),
            retention: Some(store.retention),
            rollup_retention: Some(store.rollup_retention),
            ..Options::default()
        };
        let geoip = store.geoip.as_ref().map(|file| file.path.clone());
        Some(Self { url: with_password(&store.url.as_ref()?.to_string()), options, geoip })
    }
}

/// Adds the password of the environment to a URL without one.
fn with_password(url: &str) -> String {
    match surroundings::postgres_password() {
        Some(password) => offramp_analytics::with_password(url, &password),
        None => url.to_owned(),
    }
}
