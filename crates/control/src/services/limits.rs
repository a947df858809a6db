//! The limits of the process that are not in a snapshot, and the figures by client.

use offramp_config::Config;
use offramp_config::model::Size;
use offramp_observe::ClientSettings;
use offramp_process::Finding;
use offramp_proxy::refusals::Show;

use crate::data_plane::DataPlane;
use crate::metrics;
use crate::outputs;
use crate::service::{Service, Way};

/// The limits of the process. The data plane has their state.
pub(crate) struct RuntimeLimits;

/// The limits that a change sets.
pub(crate) struct LimitsStep {
    process_memory: Option<u64>,
    /// The part of clients' addresses that the log shows.
    shown: Show,
    clients: ClientSettings,
}

impl From<&Config> for LimitsStep {
    fn from(config: &Config) -> Self {
        Self {
            process_memory: config.limits.process_memory.map(Size::bytes),
            shown: outputs::shown_clients(config),
            clients: metrics::clients(config),
        }
    }
}

impl Service for RuntimeLimits {
    type Wanted<'a> = LimitsStep;
    type Step = LimitsStep;

    fn prepare(&self, wanted: LimitsStep, _: Way) -> Result<LimitsStep, Vec<Finding>> {
        Ok(wanted)
    }

    fn commit(&mut self, step: LimitsStep, plane: &DataPlane) {
        plane.shared.admission.limit_changed();
        plane.shared.refusals.show(step.shown);
        plane.shared.pressure.bound(step.process_memory);
        plane.page.counters.watch_clients(step.clients);
    }
}
