//! The store of a command: its URL, and how to open it.

use std::path::PathBuf;

use offramp_analytics::Options;
use offramp_config::Config;

use crate::check;
use crate::failure::Failure;
use crate::flags::ConfigFile;
use crate::flags::logs::StoreOptions;
use crate::surroundings;

/// Where the store is.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) url: String,
    /// How it is written.
    pub(crate) options: Options,
    /// The configuration's GeoIP file.
    pub(crate) geoip: Option<PathBuf>,
}

impl Place {
    /// The store that is named, else that of the configuration, which is found as `run` finds it.
    ///
    /// # Errors
    /// There is neither.
    pub(crate) fn find(options: StoreOptions) -> Result<Self, Failure> {
        if let Some(url) = options.store {
            offramp_analytics::check_url(&url).map_err(|error| super::failure(&error))?;
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

    /// The store of a configuration, if it has one.
    pub(crate) fn of(config: &Config) -> Option<Self> {
        let store = &config.log_store;
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

/// The URL, with the password of the environment if the URL has none.
fn with_password(url: &str) -> String {
    match surroundings::postgres_password() {
        Some(password) => offramp_analytics::with_password(url, &password),
        None => url.to_owned(),
    }
}
