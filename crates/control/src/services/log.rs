//! The program's own log.

use offramp_config::model;
use offramp_observe::{Log, OutputError};
use offramp_process::Finding;

use crate::data_plane::DataPlane;
use crate::outputs::{self, OpenAs};
use crate::service::{Service, Way};

/// The log as it is open, with its part of the configuration.
pub(crate) struct ProgramLog {
    log: Log,
    settings: model::LogConfig,
    /// Set where journald reads the standard streams.
    journal: bool,
    open_as: OpenAs,
}

impl ProgramLog {
    /// A log that is open as `settings` have it.
    pub(crate) fn open(log: Log, settings: &model::LogConfig, journal: bool, open_as: OpenAs) -> Self {
        Self { log, settings: settings.clone(), journal, open_as }
    }

    /// Reopens the file, after it was renamed.
    pub(crate) fn reopen(&self) {
        let outcome = self.log.reopen();
        if outcome.is_ok() {
            self.log.info("log files reopened", &[]);
        }
        log_failure(&self.log, outcome);
    }
}

impl Service for ProgramLog {
    type Wanted<'a> = &'a model::LogConfig;
    /// The new settings, where they differ.
    type Step = Option<model::LogConfig>;

    fn prepare(&self, wanted: &model::LogConfig, way: Way) -> Result<Self::Step, Vec<Finding>> {
        if *wanted == self.settings {
            return Ok(None);
        }
        let opened = match way {
            Way::Forward => self.open_as.try_out(&outputs::log(wanted, self.journal).0),
            Way::Back => Ok(()),
        };
        opened.map_err(|error| vec![Finding::nowhere(error)])?;
        Ok(Some(wanted.clone()))
    }

    fn commit(&mut self, step: Self::Step, _: &DataPlane) {
        let Some(settings) = step else { return };
        let (output, format, level) = outputs::log(&settings, self.journal);
        // It could be opened a moment ago.
        log_failure(&self.log, self.log.redirect(output, format));
        self.log.set_level(level);
        self.settings = settings;
    }
}

/// Logs that an output stays as it was.
pub(super) fn log_failure(log: &Log, outcome: Result<(), OutputError>) {
    if let Err(error) = outcome {
        log.error("cannot open the log; the old one stays in use", &[("reason", (&error).into())]);
    }
}
