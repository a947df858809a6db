//! A configuration that is or was in force, together with the text that says it.

use std::sync::Arc;

use offramp_config::{Config, Edit, includes_files};

/// A configuration with its text: that of the user's file and of the edits since, so that comments stay, or the printed
/// form where a text cannot stand alone.
///
/// Keys that take effect only at a restart may have other values in the text than in force: a start takes them from the
/// file in any case.
#[derive(Clone, Debug)]
pub(crate) struct RunningConfig {
    pub(crate) config: Arc<Config>,
    pub(crate) text: Arc<str>,
}

impl RunningConfig {
    /// A configuration in its printed form.
    pub(crate) fn printed(config: Arc<Config>) -> Self {
        let text = Edit::text_of(&config).into();
        Self { config, text }
    }

    /// A configuration that was read from `text`, whose relative paths start beside the configuration's file. A text that
    /// includes files says less than is in force once they change, and is replaced by the printed form. A byte order mark is
    /// part of a file, not of its text.
    pub(crate) fn read(config: Arc<Config>, text: &str) -> Self {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        if includes_files(text) { Self::printed(config) } else { Self { config, text: text.into() } }
    }
}
