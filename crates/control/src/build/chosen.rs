//! The route of a request, as the tables of workers choose it: what explains routes is held against this.

use std::time::SystemTime;

use offramp_config::Config;
use offramp_http::path::normalize;
use offramp_process::Error;
use offramp_proxy::{Action, Snapshot, Target};

use super::{build, with_inputs};

/// The tables of routes of a configuration, as they are built for workers.
pub struct BuiltRoutes(Snapshot);

/// The way of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChosenRoute {
    /// Its TLS passes to the server of this route.
    Passes(String),
    /// This route takes it.
    Takes(String),
    /// It is redirected to TLS, which this route needs.
    Secured(String),
    /// None takes it.
    None,
}

impl BuiltRoutes {
    /// Builds the tables, as a start would, and writes nothing.
    ///
    /// # Errors
    /// Everything that a start would be refused for.
    pub fn of(config: &Config, now: SystemTime) -> Result<Self, Error> {
        with_inputs(config, now, |inputs| build(config, inputs).map(|built| Self(built.snapshot)))
    }

    /// Chooses for a request of `host`, which is in lower case, on a listener of mode `http`; `None` if there is no such
    /// listener.
    #[must_use]
    pub fn choose(&self, listener: &str, host: &str, path: &str) -> Option<ChosenRoute> {
        let listener = self.0.listeners.get(listener)?;
        if listener.tls.is_some()
            && let Some(route) = listener.routes.find(Some(host), |_| true)
            && matches!(route.target, Target::Passthrough(_))
        {
            return Some(ChosenRoute::Passes(route.name.to_string()));
        }
        let found = listener.http.as_ref()?.routes.find(Some(host), &normalize(path).text);
        Some(found.map_or(ChosenRoute::None, |route| match route.action {
            Action::ToTls { .. } => ChosenRoute::Secured(route.name.to_string()),
            _ => ChosenRoute::Takes(route.name.to_string()),
        }))
    }
}
