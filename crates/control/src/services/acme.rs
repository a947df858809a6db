//! Certificates from authorities that speak ACME.

use std::sync::Arc;

use offramp_config::Config;
use offramp_process::Finding;
use offramp_process::inherited::Unwanted;

use crate::acme::{Acme, Want};
use crate::data_plane::DataPlane;
use crate::service::{Service, Way};

/// The certificates that a change wants.
pub(crate) struct AcmeWanted<'a> {
    /// The rules of certificates on demand, and all that an order of theirs needs.
    pub(crate) config: &'a Arc<Config>,
    pub(crate) wants: &'a [Want],
}

/// A change of what is ordered.
pub(crate) struct AcmeStep {
    config: Arc<Config>,
    wants: Vec<Want>,
}

impl Service for Acme {
    type Wanted<'a> = AcmeWanted<'a>;
    type Step = AcmeStep;

    fn prepare(&self, wanted: AcmeWanted<'_>, _: Way) -> Result<AcmeStep, Vec<Finding>> {
        Ok(AcmeStep { config: Arc::clone(wanted.config), wants: wanted.wants.to_vec() })
    }

    fn commit(&mut self, step: AcmeStep, _: &DataPlane) {
        self.configure(&step.config);
        self.follow(&step.wants);
    }

    async fn hand_over(&mut self, _: &mut Unwanted, _: &DataPlane) {
        self.give_way().await;
    }
}
