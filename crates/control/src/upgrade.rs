//! Upgrade: another process takes the place of this one, with the sockets that it listens on and what this process knows:
//! ticket keys, health of servers, addresses of names. [`offramp_process::upgrade`] starts it and speaks with it.
//!
//! When it accepts connections, this process gives up what only one can have, in this order: listening, the admin interface, the metrics, the
//! right to order certificates, the autosave, the attention of the service manager. The new one learns of that (`go`), and this one
//! drains as after SIGTERM.

mod heir;
mod kept_changes;
mod state;

use std::time::Duration;

use offramp_config::model::StoreUrl;
use offramp_net::notify::Notifier;
use offramp_observe::timestamp::rfc3339_micros;
use offramp_process::upgrade::{Attempt, Successor};
use tokio::sync::oneshot;

pub use heir::Heir;
use kept_changes::KeptChanges;
use state::Known;
pub(crate) use state::State;

use crate::running::Running;

/// The process that has taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Upgraded {
    /// Its number.
    pub process: u32,
    /// The time until it accepted connections.
    pub took: Duration,
}

/// Number of the first process of a PID namespace: the kernel ends all others when it ends (pid_namespaces(7)).
const INIT: u32 = 1;
const OF_CONTAINER: &str = "this is the first process of a container, which ends together with it, and the new process too; \
                            start a container of the new image in its place";

/// Starts the program anew and waits until it accepts connections. Changes nothing here, and may be dropped: then
/// the new process is killed. With `force` changes may be lost that the file does not have.
///
/// # Errors
/// The reason why there is no new process.
pub(crate) async fn start_successor(running: &Running, force: bool) -> Result<Successor, String> {
    if std::process::id() == INIT {
        return Err(OF_CONTAINER.to_owned());
    }
    let changes = to_hand_over(running, force).await?;
    let program = running.program.clone().ok_or("it is not known which program this is")?;
    let helper = running.confinement.helper.clone();
    let limit = running.config().limits.upgrade_timeout;
    let offer = running.services.offer().map_err(|error| format!("cannot share the sockets: {error}"))?;
    let current = running.plane.shared.current.load();
    let (tickets, carryover) = (&running.services.tickets, &running.services.snapshot.carryover);
    let state = State::of(Known {
        tickets: tickets.keys(),
        rotate_in: tickets.until_rotation(),
        snapshot: &current,
        config: running.config(),
        names: &carryover.names,
        access: &carryover.sources.access,
        counters: &running.plane.page.counters,
        changes,
        autosave_unused: running.autosave.has_unused(),
        registry: running.services.senders.notify.registry(),
    });
    let state = if force { state.forced() } else { state };
    drop(current);
    Attempt { program, helper, limit }.start(offer, state).await
}

/// The changes that the file does not have, for the new process.
///
/// # Errors
/// Something would be lost that the operator has not given up.
async fn to_hand_over(running: &Running, force: bool) -> Result<KeptChanges, String> {
    if let Some(until) = running.ledger.unconfirmed_until() {
        let until = String::from_utf8_lossy(&rfc3339_micros(until)).into_owned();
        return Err(format!(
            "a change waits to be confirmed (until {until}), and the new process would not know of it; first `offramp \
             ctl confirm` or `offramp ctl rollback`"
        ));
    }
    if force {
        return Ok(KeptChanges::default());
    }
    kept_changes(running).await?.map_err(|lost| {
        let url = running.config().telemetry.log_store.url.as_ref();
        let hidden = match url.and_then(StoreUrl::masked) {
            Some(_) => ", which hides the password of the log store: put it in",
            None => "",
        };
        format!(
            "changes in force would be lost, because the file does not have them and was changed since ({lost}); write them (`offramp ctl show \
             config`{hidden}, then `apply FILE --persist`), or go without them: `offramp ctl upgrade --force`"
        )
    })
}

/// On a thread of its own: with many changes and many routes it takes a while, and the control loop goes on.
///
/// # Errors
/// Within: the changes that would be lost. Else the reason why that is not known.
async fn kept_changes(running: &Running) -> Result<Result<KeptChanges, String>, String> {
    let (in_force, file) = (running.ledger.running().clone(), running.ledger.file().clone());
    let source = running.source.clone();
    let (reply, outcome) = oneshot::channel();
    let work = move || {
        // The upgrade may have been given up.
        let _ = reply.send(KeptChanges::of(&in_force, &file, &source));
    };
    let thread = std::thread::Builder::new().name("offramp-changes".to_owned()).spawn(work);
    thread.map_err(|error| format!("cannot start a thread: {error}"))?;
    // The file may be on a disk that does not answer, and other changes wait.
    let limit = running.config().limits.upgrade_timeout;
    match tokio::time::timeout(limit, outcome).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(_)) => Err("the comparison with the file ended by a fault of Offramp's own".to_owned()),
        Err(_) => Err(format!(
            "the file of the configuration was not read within {} s (limits.upgrade_timeout)",
            limit.as_secs_f64()
        )),
    }
}

/// Logs the outcome of an upgrade. True if the new process has taken over: the drain follows.
pub(crate) async fn finish(running: &mut Running, outcome: Result<Successor, String>, took_ms: u64) -> bool {
    match outcome {
        Ok(successor) => {
            let process = give_way(running, successor).await;
            let fields = [("process", process.into()), ("took_ms", took_ms.into())];
            running.log.info("upgraded; this process serves what is open", &fields);
            true
        }
        Err(reason) => {
            running.services.senders.notify.registry().go_on();
            running.log.error("upgrade failed; this process serves on", &[("reason", (&reason).into())]);
            running.notifier.send("READY=1\nSTATUS=upgrade failed: the log says why");
            false
        }
    }
}

/// Gives up what only one process can have, and tells the new one. The drain follows.
async fn give_way(running: &mut Running, successor: Successor) -> u32 {
    running.services.hand_over(successor.unwanted(), &running.plane).await;
    running.autosave.release().await;
    if let Some(watchdog) = running.watchdog.take() {
        watchdog.abort();
    }
    let id = successor.id();
    if let Err(error) = successor.keep() {
        running.log.warn("the helper process may end the new one", &[("reason", (&error).into())]);
    }
    running.notifier.send(&format!("MAINPID={id}"));
    // What it hears from this process from now on would be taken for the new one's.
    running.notifier = Notifier::new(None);
    if let Err(error) = successor.go() {
        // It notices itself that this process has ended.
        running.log.warn("the new process does not listen", &[("reason", (&error).into())]);
    }
    id
}
