//! Changing the certificates of the running process, and nothing else.
//!
//! The configuration stays as it is and is not read. The sources of certificates are looked at beside what runs;
//! what can be used is swapped in whole, for handshakes that begin from then on. A source that cannot be used keeps
//! what was read from it before, and the reason is reported once.

use std::sync::Arc;
use std::time::SystemTime;

use offramp_config::Config;
use tokio::sync::oneshot;

use super::{OnFault, Sources};
use crate::build::{Inputs, Material, rebuild};
use crate::error::{Error, Finding};
use crate::reload::new_certificates;
use crate::running::{Running, tell};
use crate::sandbox;

/// What a change of certificates came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// What is in use is what the sources hold, or all that can be used of it.
    Unchanged,
    /// New handshakes use what was found, with so many certificates that were not in use before.
    Changed {
        /// How many.
        new_certificates: usize,
    },
    /// Nothing was changed; the log says why.
    Refused,
}

impl Running {
    /// Looks at every source of certificates (files, folders, the local CA, the authorities of clients and servers) and
    /// swaps what has changed into the running snapshot. To be called by whoever knows that a source has changed; where none
    /// has, it costs a look at the files.
    ///
    /// Says in the log what changed, and once for each source that cannot be used why not.
    pub(crate) async fn change_certificates(&mut self) -> Outcome {
        let now = SystemTime::now();
        let material = match self
            .read_material(&self.config, self.ground.sources.clone(), now, OnFault::KeepOld, true)
            .await
            .and_then(Material::none_or_refused)
        {
            Ok(material) => material,
            Err(error) => return self.refuse(&sandbox::explain(&self.source, &error)),
        };
        tell(&self.log, "certificate", &material.warnings);
        self.tell_faults(&material.faults);
        let (old, new) = (self.ground.store.certificates(), material.store.certificates());
        if old.map(Arc::as_ptr).eq(new.map(Arc::as_ptr)) && self.ground.sources.same_trust(&material.sources)
        {
            self.ground.sources = material.sources;
            return Outcome::Unchanged;
        }
        match self.swap(material, now) {
            Ok(new_certificates) => {
                let count = self.ground.store.certificates().count();
                let fields = [("new_certificates", new_certificates.into()), ("certificates", count.into())];
                self.log.info("certificates changed", &fields);
                Outcome::Changed { new_certificates }
            }
            Err(error) => self.refuse(&error),
        }
    }

    /// Keeps everything, and says why unless that was said of the last change.
    fn refuse(&mut self, error: &Error) -> Outcome {
        let reason = error.to_string();
        if self.ground.sources.refused.as_ref() != Some(&reason) {
            self.log.error("the certificates stay as they were", &[("reason", (&reason).into())]);
        }
        self.ground.sources.refused = Some(reason);
        Outcome::Refused
    }

    /// Reads the sources of `config` on a thread of its own: the loop goes on serving the metrics meanwhile, and obeys an
    /// order to stop, however slow the disk is. Dropped, it changes nothing. `before`: what was read from them before.
    pub(crate) async fn read_material(
        &self,
        config: &Config,
        before: Sources,
        now: SystemTime,
        on_fault: OnFault,
        mint: bool,
    ) -> Result<Material, Error> {
        let config = config.clone();
        let (done, outcome) = oneshot::channel();
        let work = move || {
            // Whoever waits may have gone.
            let _ = done.send(Material::read(&config, &before, now, on_fault, mint));
        };
        let thread = std::thread::Builder::new().name("offramp-certs".into()).spawn(work);
        thread.map_err(|error| Error::one(format!("cannot start a thread: {error}")))?;
        outcome.await.map_err(|_| Error::one("reading the certificates ended by a fault of Offramp's own"))
    }

    /// Swaps a snapshot in that differs from the one in force by its certificates alone.
    fn swap(&mut self, material: Material, now: SystemTime) -> Result<usize, Error> {
        let current = self.crew.shared.current.load_full();
        let inputs = Inputs {
            now,
            generation: self.ground.generation + 1,
            choice: self.ground.choice,
            tickets: &self.ground.tickets,
            names: &self.ground.names,
            backends: &current.backends,
            bandwidths: &current.bandwidths,
            sources: &self.ground.sources,
            contents: Some(&self.ground.contents),
            mint: true,
        };
        let built = rebuild(&self.config, &inputs, material)?;
        let mut snapshot = built.snapshot;
        // The configuration is the same, so that each is in its place. Only those whose TLS has changed are replaced:
        // the others keep their connections, their sessions and all that they have learnt.
        for (built, current) in snapshot.backends.iter_mut().zip(&current.backends) {
            if built.has_connectors_of(current) {
                built.clone_from(current);
            }
        }
        for (socket, served) in &current.sockets {
            if let Some(listener) = snapshot.listeners.get(&served.name).cloned() {
                snapshot.sockets.insert(*socket, listener);
            }
        }
        let new = new_certificates(&self.ground.store, &built.store);
        self.ground.generation = snapshot.generation;
        self.crew.shared.current.replace(snapshot);
        self.calendar.set_certificates(&built.store, &built.sources);
        (self.ground.store, self.ground.sources) = (built.store, built.sources);
        // Which hosts are left to the authorities depends on the certificates from files.
        self.acme.follow(&built.wants);
        Ok(new)
    }

    fn tell_faults(&self, faults: &[Finding]) {
        for fault in sandbox::explained(&self.source, faults) {
            let mut fields = vec![("reason", fault.text.as_str().into())];
            if let Some(place) = fault.at.place() {
                fields.insert(0, ("at", place.into()));
            }
            self.log.error("a certificate cannot be used; what was read before stays in use", &fields);
        }
    }
}
