//! The keys of tokens that are fetched from servers.

use std::sync::Arc;

use offramp_process::Finding;
use offramp_sources::jwks::{Fetchers, Provider};

use crate::data_plane::DataPlane;
use crate::service::{Service, Way};

impl Service for Fetchers {
    type Wanted<'a> = Vec<Arc<Provider>>;
    type Step = Vec<Arc<Provider>>;

    fn prepare(&self, providers: Self::Step, _: Way) -> Result<Self::Step, Vec<Finding>> {
        Ok(providers)
    }

    fn commit(&mut self, providers: Self::Step, _: &DataPlane) {
        self.follow(providers.into_iter());
    }
}
