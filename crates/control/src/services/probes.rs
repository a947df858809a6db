//! The active health checks of servers.

use offramp_process::Finding;

use crate::data_plane::DataPlane;
use crate::probes::Probes;
use crate::service::{Service, Way};

impl Service for Probes {
    /// The snapshot has the checks.
    type Wanted<'a> = ();
    type Step = ();

    fn prepare(&self, (): (), _: Way) -> Result<(), Vec<Finding>> {
        Ok(())
    }

    fn commit(&mut self, (): (), plane: &DataPlane) {
        self.follow(plane.shared.current.load().generation);
    }

    fn stop(&mut self) {
        self.end();
    }
}
