//! One thread with one event loop, which owns each connection that it accepted until the connection ends.
//!
//! Nothing on the data path is shared between workers. The [`event_loop`] accepts and obeys commands; its connections use
//! the [`Resources`] of the worker.

mod accept;
mod event_loop;
mod handle;
#[cfg(test)]
pub(crate) mod rig;
mod stand_by;
#[cfg(test)]
mod swaps;

use std::io;
use std::sync::Arc;

use offramp_net::turn;
use offramp_observe::{EventSender, WorkerCounters};
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::mpsc::unbounded_channel;
use tokio::sync::oneshot;

use crate::resources::{Resources, SharedResources};
use event_loop::EventLoop;

pub use handle::{Commander, StartingWorker, WorkerHandle};

/// Threads of a worker that wait for disks at a time; files that are in memory need none.
const DISK_THREADS: usize = 8;

/// A worker that was not started yet.
pub struct Worker {
    /// Its number, from 0 on.
    pub index: usize,
    /// The core that its thread is tied to, if it is tied to one.
    pub core: Option<usize>,
    /// Counters of this worker alone.
    pub counters: WorkerCounters,
    /// Its own way to the access log.
    pub events: EventSender,
    /// The state that all workers share.
    pub shared: SharedResources,
    /// Random, and the same for all workers of the process: it makes connection ids unique.
    pub seed: u64,
}

impl Worker {
    /// Starts the worker, and waits until it runs; see [`Worker::spawn`].
    ///
    /// # Errors
    /// The thread or its event loop cannot be made.
    pub fn start(self) -> io::Result<WorkerHandle> {
        self.spawn()?.started()
    }

    /// Begins to start the worker on a thread of its own.
    ///
    /// # Errors
    /// The thread cannot be made.
    pub fn spawn(self) -> io::Result<StartingWorker> {
        let Self { index, core, counters, events, shared, seed } = self;
        let (commands, receiver) = unbounded_channel();
        // Made here, so that the caller learns of a failure; the loop itself is bound to its thread.
        let mut builder = Builder::new_current_thread();
        builder.enable_io().enable_time().max_blocking_threads(DISK_THREADS).thread_name("offramp-disk");
        let beating = shared.late.add();
        let (sleeps, wakes) = (Arc::clone(&beating), Arc::clone(&beating));
        builder.on_thread_park(move || sleeps.sleeps()).on_thread_unpark(move || {
            turn::woke();
            wakes.wakes();
        });
        let (started, outcome) = std::sync::mpsc::channel();
        let (living, alive) = oneshot::channel::<()>();
        let thread = std::thread::Builder::new().name(format!("offramp-{index}")).spawn(move || {
            let _living = living;
            if let Some(core) = core {
                // A core that went away is no reason not to work on another.
                let _ = offramp_net::cores::pin(core);
            }
            let runtime = match builder.build_local(LocalOptions::default()) {
                Ok(runtime) => runtime,
                Err(error) => {
                    drop(started.send(Err(error)));
                    return 0;
                }
            };
            let _ = started.send(Ok(()));
            let pulse = Arc::clone(&beating);
            let resources = Resources::new(index, counters, events, shared, pulse, seed);
            let cut_off = resources.open.cut_off();
            runtime.block_on(EventLoop::new(index, resources).run(receiver));
            beating.ends();
            // What is still open ends here. A disk that does not answer is not waited for.
            runtime.shutdown_background();
            cut_off.get()
        })?;
        Ok(StartingWorker { handle: WorkerHandle { thread, alive, commands }, outcome })
    }
}
