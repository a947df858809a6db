//! Certificates that change while they are in use, and nothing else.
//!
//! The configuration stays as it is and is not read. The sources of certificates are looked at beside what runs;
//! what can be used is swapped in whole, for handshakes that begin from then on. A source that cannot be used keeps
//! what was read from it before, and the reason is reported once.

use std::sync::Arc;
use std::time::SystemTime;

use offramp_process::{Error, Finding, log_warnings, sandbox, supervise};
use offramp_sources::certificates::{OnFault, Refreshed};
use tokio::time::Instant;

use crate::build::Material;
use crate::running::Running;
use crate::service::Service as _;
use crate::services::{InUse, Swapped, are_due};

/// Does the periodic work that is due: ticket keys, an autosave that has failed, renewals of the local CA, reminders. After a panic it is tried again as
/// after a renewal that failed.
pub(crate) async fn keep_up(running: &mut Running) {
    if supervise::contained(do_what_is_due(running)).await.is_err() {
        running.services.certificates.put_off(Instant::now());
    }
}

async fn do_what_is_due(running: &mut Running) {
    let now = Instant::now();
    running.services.tickets.rotate_if_due(now);
    if running.autosave.due().is_some_and(|due| due <= now) {
        running.save().await;
    }
    if running.services.certificates.due() > now {
        return;
    }
    if are_due(&running.services.snapshot.carryover.store, SystemTime::now()) {
        // It logs the outcome.
        refresh_certificates(running).await;
    }
    let carryover = &running.services.snapshot.carryover;
    let in_use = InUse { store: &carryover.store, sources: &carryover.sources };
    running.services.certificates.looked(in_use, now);
}

/// Looks at every source of certificates (files, folders, the local CA, the authorities of clients and servers) and
/// swaps what has changed into the running snapshot. To be called when a source has changed; where none has, it costs a
/// look at the files.
///
/// Logs what changed, and once for each source that cannot be used why not.
pub(crate) async fn refresh_certificates(running: &mut Running) -> Refreshed {
    match supervise::contained(look_and_swap(running)).await {
        Ok(refreshed) => refreshed,
        Err(panicked) => refuse(running, &supervise::fault(&panicked)),
    }
}

async fn look_and_swap(running: &mut Running) -> Refreshed {
    let (config, now) = (Arc::clone(running.config()), SystemTime::now());
    let before = running.services.snapshot.carryover.sources.clone();
    let material = Material::read_on_thread(Arc::clone(&config), before, now, OnFault::KeepOld, true).await;
    let material = match material.and_then(Material::none_or_refused) {
        Ok(material) => material,
        Err(error) => return refuse(running, &sandbox::explain(&running.confinement, &error)),
    };
    log_warnings(&running.log, "certificate", &material.warnings);
    log_faults(running, &material.faults);
    let carryover = &mut running.services.snapshot.carryover;
    let (old, new) = (carryover.store.certificates(), material.store.certificates());
    if old.map(Arc::as_ptr).eq(new.map(Arc::as_ptr)) && carryover.sources.same_trust(&material.sources) {
        carryover.sources = material.sources;
        return Refreshed::Unchanged;
    }
    let services = &mut running.services;
    let swapped = services.snapshot.swap_certificates(&config, services.tickets.keys(), material, now);
    match swapped {
        Ok(Swapped { new_certificates, wants }) => {
            let carryover = &services.snapshot.carryover;
            services.certificates.follow(InUse { store: &carryover.store, sources: &carryover.sources });
            services.probes.commit((), &running.plane);
            // The hosts that are left to the authorities depend on the certificates from files.
            services.acme.follow(&wants);
            let count = services.snapshot.carryover.store.certificates().count();
            let fields = [("new_certificates", new_certificates.into()), ("certificates", count.into())];
            running.log.info("certificates changed", &fields);
            Refreshed::Changed { new_certificates }
        }
        Err(error) => refuse(running, &error),
    }
}

/// Keeps everything, and logs the reason unless it is that of the last look.
fn refuse(running: &mut Running, error: &Error) -> Refreshed {
    let reason = error.to_string();
    let sources = &mut running.services.snapshot.carryover.sources;
    if sources.refused.as_ref() != Some(&reason) {
        running.log.error("the certificates stay as they were", &[("reason", (&reason).into())]);
    }
    sources.refused = Some(reason);
    Refreshed::Refused
}

fn log_faults(running: &Running, faults: &[Finding]) {
    for fault in sandbox::explained(&running.confinement, faults) {
        let mut fields = vec![("reason", fault.text.as_str().into())];
        if let Some(place) = fault.at.place() {
            fields.insert(0, ("at", place.into()));
        }
        running.log.error("a certificate cannot be used; what was read before stays in use", &fields);
    }
}
