//! The page of metrics, which Prometheus reads.

use std::io;

use offramp_config::model;
use offramp_net::Address;
use offramp_observe::Log;
use offramp_process::Finding;
use offramp_process::inherited::{Inherited, Label, Offer, Purpose, Unwanted};

use crate::data_plane::DataPlane;
use crate::listeners::net_address;
use crate::metrics::{self, Endpoint, Opened};
use crate::service::{Service, Way};

/// The endpoint of the configuration, and its socket.
pub(crate) struct MetricsEndpoint {
    settings: Option<model::ServiceEndpoint>,
    running: Option<Endpoint>,
    log: Log,
}

/// The endpoint that a change wants.
pub(crate) struct MetricsWanted<'a> {
    pub(crate) endpoint: Option<&'a model::ServiceEndpoint>,
    /// The sockets of another process, from which it may be taken.
    pub(crate) inherited: &'a mut Inherited,
}

/// A change of the endpoint.
pub(crate) enum MetricsStep {
    Keep,
    Close,
    Open(Box<(model::ServiceEndpoint, Opened)>),
}

impl MetricsEndpoint {
    /// No page is served yet.
    pub(crate) fn new(log: Log) -> Self {
        Self { settings: None, running: None, log }
    }

    /// The address that the page is served at.
    pub(crate) fn address(&self) -> Option<&Address> {
        self.running.as_ref().map(Endpoint::address)
    }
}

impl Service for MetricsEndpoint {
    type Wanted<'a> = MetricsWanted<'a>;
    type Step = MetricsStep;

    fn prepare(&self, wanted: MetricsWanted<'_>, _: Way) -> Result<MetricsStep, Vec<Finding>> {
        match wanted.endpoint {
            same if same == self.settings.as_ref() => Ok(MetricsStep::Keep),
            None => Ok(MetricsStep::Close),
            Some(endpoint) => {
                let opened = metrics::open(endpoint, wanted.inherited).map_err(|finding| vec![finding])?;
                Ok(MetricsStep::Open(Box::new((endpoint.clone(), opened))))
            }
        }
    }

    fn commit(&mut self, step: MetricsStep, plane: &DataPlane) {
        match step {
            MetricsStep::Keep => {}
            MetricsStep::Close => (self.settings, self.running) = (None, None),
            MetricsStep::Open(opened) => {
                let (settings, opened) = *opened;
                let running = Endpoint::serve(opened, plane.page.clone(), &self.log);
                (self.settings, self.running) = (Some(settings), Some(running));
            }
        }
    }

    fn abandon(&self, step: &MetricsStep) {
        if let MetricsStep::Open(opened) = step {
            opened.1.abandon();
        }
    }

    fn offer(&self, offer: &mut Offer) -> io::Result<()> {
        let (Some(running), Some(endpoint)) = (&self.running, &self.settings) else { return Ok(()) };
        let address = net_address(&endpoint.address).to_string();
        let label =
            Label { purpose: Purpose::Metrics, name: String::new(), address, foreign: running.foreign };
        offer.add(label, [running.socket()])
    }

    async fn hand_over(&mut self, unwanted: &mut Unwanted, _: &DataPlane) {
        if let Some(running) = self.running.take()
            && !unwanted.next_is_left()
        {
            running.leave();
        }
    }

    fn stop(&mut self) {
        self.running = None;
    }
}
