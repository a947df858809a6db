//! The consumers of events beside the access log: the log store, and the spans of distributed traces.

use std::sync::Arc;

use offramp_config::Config;
use offramp_config::model::Anonymize;
use offramp_process::Finding;

use crate::data_plane::DataPlane;
use crate::event_store::EventStore;
use crate::push::Spans;
use crate::service::{Service, Way};

/// The consumers, and the settings that they tap events by.
pub(crate) struct EventTaps {
    store: Option<Box<dyn EventStore>>,
    spans: Spans,
    tapped: Option<TapSettings>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct TapSettings {
    spans: bool,
    anonymize: Anonymize,
}

impl EventTaps {
    /// No event is tapped yet.
    pub(crate) fn none(spans: Spans) -> Self {
        Self { store: None, spans, tapped: None }
    }

    /// Takes the log store, which is opened once.
    pub(crate) fn store_in(&mut self, store: Option<Box<dyn EventStore>>) {
        self.store = store;
    }

    /// Closes the log store, which has got every event, and gives how many it has lost.
    pub(crate) fn close(&mut self) -> u64 {
        self.store.take().map_or(0, EventStore::stop)
    }
}

impl Service for EventTaps {
    /// The whole of it: the log store is a crate of its own.
    type Wanted<'a> = &'a Arc<Config>;
    type Step = Arc<Config>;

    fn prepare(&self, wanted: &Arc<Config>, _: Way) -> Result<Arc<Config>, Vec<Finding>> {
        Ok(Arc::clone(wanted))
    }

    fn commit(&mut self, config: Arc<Config>, plane: &DataPlane) {
        let settings = TapSettings {
            spans: config.telemetry.tracing.otlp.is_some(),
            anonymize: config.telemetry.access_log.anonymize,
        };
        if self.tapped.replace(settings) != Some(settings) {
            let store = self.store.as_ref().map(|store| store.tap(&config));
            plane.flusher.set_taps(self.spans.tap(&config).into_iter().chain(store).collect());
        }
    }
}
