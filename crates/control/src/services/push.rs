//! Figures and spans that are pushed to Graphite and to a collector of OpenTelemetry.

use offramp_process::Finding;
use offramp_process::inherited::Unwanted;

use crate::data_plane::DataPlane;
use crate::push::{PushTargets, Pushers};
use crate::service::{Service, Way};

impl Service for Pushers {
    type Wanted<'a> = PushTargets;
    type Step = PushTargets;

    fn prepare(&self, wanted: PushTargets, _: Way) -> Result<PushTargets, Vec<Finding>> {
        Ok(wanted)
    }

    fn commit(&mut self, targets: PushTargets, plane: &DataPlane) {
        self.change(targets, &plane.page, &plane.spans, &plane.shared.log);
    }

    async fn hand_over(&mut self, _: &mut Unwanted, _: &DataPlane) {
        *self = Self::default();
    }
}
