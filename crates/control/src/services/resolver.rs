//! The host names of servers, looked up again and again.

use offramp_process::Finding;
use offramp_sources::resolve::{Names, Resolver};

use crate::data_plane::DataPlane;
use crate::service::{Service, Way};

impl Service for Resolver {
    type Wanted<'a> = &'a Names;
    type Step = Names;

    fn prepare(&self, names: &Names, _: Way) -> Result<Names, Vec<Finding>> {
        Ok(names.clone())
    }

    fn commit(&mut self, names: Names, plane: &DataPlane) {
        *self = Self::start(&names, &plane.shared.log);
    }
}
