//! The access log: the output of events, and their form.

use offramp_observe::Log;
use offramp_process::{Error, Finding};

use super::log::log_failure;
use crate::data_plane::DataPlane;
use crate::outputs::{self, EventSettings, Events, OpenAs, Terminals};
use crate::service::{Service, Way};

/// The settings of the access log in force. The flusher of the data plane has the output itself.
pub(crate) struct EventOutput {
    settings: EventSettings,
    terminals: Terminals,
    log: Log,
    open_as: OpenAs,
    /// False before the data plane starts, which opens the output.
    is_open: bool,
}

impl EventOutput {
    /// The access log of a data plane that starts with these settings.
    pub(crate) fn open(settings: EventSettings, terminals: Terminals, log: Log, open_as: OpenAs) -> Self {
        Self { settings, terminals, log, open_as, is_open: false }
    }

    /// The output and the form in force, for a way back to them: the key that hashes fields is a file too.
    pub(crate) fn in_force(&self) -> Option<Events> {
        outputs::access_log(&self.settings, self.terminals).ok()
    }
}

impl EventOutput {
    /// Finds out whether the data plane will be able to open the output, before the process has become another user.
    fn try_start(&self) -> Result<(), Vec<Finding>> {
        match outputs::access_log(&self.settings, self.terminals) {
            Ok((output, _)) if outputs::is_plain_file(&output) => {
                let opened = self.open_as.try_out(&output);
                opened.map_err(|error| vec![Finding::nowhere(format!("access log: {error}"))])
            }
            // What is wrong with its fields is found by the build.
            _ => Ok(()),
        }
    }
}

/// The access log that a change wants.
pub(crate) struct EventsWanted {
    pub(crate) settings: EventSettings,
    /// Its output and form where they are known from before.
    pub(crate) known: Option<Events>,
}

/// A change of the access log.
pub(crate) struct AccessLogStep {
    settings: EventSettings,
    /// The new output and form; `None`: they stay.
    redirect: Option<Result<Events, Error>>,
}

impl Service for EventOutput {
    type Wanted<'a> = EventsWanted;
    type Step = AccessLogStep;

    fn prepare(&self, wanted: EventsWanted, way: Way) -> Result<AccessLogStep, Vec<Finding>> {
        let EventsWanted { settings, known } = wanted;
        let is_same = settings.access_log == self.settings.access_log;
        // At the level debug a terminal gets long lines.
        if is_same && settings.log_level == self.settings.log_level {
            if !self.is_open {
                self.try_start()?;
            }
            return Ok(AccessLogStep { settings, redirect: None });
        }
        let events = known.map_or_else(|| outputs::access_log(&settings, self.terminals), Ok);
        // What is wrong with its fields is found by the build.
        if let (Way::Forward, false, Ok((output, _))) = (way, is_same, &events) {
            self.open_as.try_out(output).map_err(|error| vec![Finding::nowhere(error)])?;
        }
        Ok(AccessLogStep { settings, redirect: Some(events) })
    }

    fn commit(&mut self, step: AccessLogStep, plane: &DataPlane) {
        match step.redirect {
            None => {}
            Some(Ok((output, style))) => log_failure(&self.log, plane.flusher.redirect(output, style)),
            Some(Err(error)) => {
                let message = "cannot open the new access log; the old one stays in use";
                self.log.error(message, &[("error", (&error).into())]);
            }
        }
        (self.settings, self.is_open) = (step.settings, true);
    }
}
