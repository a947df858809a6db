//! The commit of a change: its steps, in one order. Nothing in here is refused any more.

use std::time::Duration;

use tokio::time::sleep;

use crate::data_plane::DataPlane;
use crate::plan::Steps;
use crate::service::Service as _;
use crate::services::Services;

/// The time for which workers accept the clients in the queue of a removed listener, before the snapshot forgets it.
/// Only a change that removes a listener takes this time.
const SETTLE: Duration = Duration::from_millis(50);

/// The fate of sockets that a change gives up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sockets {
    /// They are closed at once.
    Close,
    /// They are kept for the way back.
    Keep,
}

/// Puts the steps in force. The order leaves no gap: outputs first, then removed listeners stop, the snapshot is replaced,
/// and new listeners begin.
pub(crate) async fn commit(services: &mut Services, plane: &DataPlane, steps: Steps, sockets: Sockets) {
    let Steps { outputs, listeners, mut snapshot, followers, .. } = steps;
    services.log.commit(outputs.log, plane);
    services.access_log.commit(outputs.access_log, plane);
    services.store.commit(outputs.store, plane);
    services.listeners.begin(&listeners);
    if services.listeners.retire(&listeners, plane, sockets == Sockets::Keep) {
        sleep(SETTLE).await;
    }
    services.listeners.assign(&listeners, &mut snapshot.built.snapshot);
    services.snapshot.commit(snapshot, plane);
    services.limits.commit(steps.limits, plane);
    services.listeners.commit(listeners, plane);
    services.probes.commit((), plane);
    services.metrics.commit(steps.metrics, plane);
    services.senders.push.commit(outputs.push, plane);
    services.senders.notify.commit(outputs.notify, plane);
    services.jwks.commit(followers.jwks, plane);
    services.resolver.commit(followers.resolver, plane);
    services.tickets.commit(steps.tickets, plane);
    services.certificates.commit(followers.certificates, plane);
    services.acme.commit(followers.acme, plane);
    services.admin.commit((), plane);
}
