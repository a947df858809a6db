//! The handle of a worker, for the thread that starts and commands it.

use std::io;
use std::thread::JoinHandle;

use tokio::sync::mpsc::{UnboundedSender, WeakUnboundedSender};
use tokio::sync::oneshot;

use crate::command::WorkerCommand;

/// Handle of a running worker.
pub struct WorkerHandle {
    pub(super) thread: JoinHandle<u64>,
    /// Its other end is dropped with the thread, however that ends.
    pub(super) alive: oneshot::Receiver<()>,
    pub(super) commands: UnboundedSender<WorkerCommand>,
}

impl WorkerHandle {
    /// Sends an order to the worker. A worker that has ended ignores it.
    pub fn send(&self, command: WorkerCommand) {
        let _ = self.commands.send(command);
    }

    /// Waits until the thread has ended: after a drain, or because of a fault of ours.
    pub async fn ended(&mut self) {
        let _ = (&mut self.alive).await;
    }

    /// The thread has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Sends orders to the worker as long as there are other handles of it.
    pub(crate) fn weak(&self) -> WeakUnboundedSender<WorkerCommand> {
        self.commands.downgrade()
    }

    /// Another handle of the worker; the drain ends at once when all handles are gone.
    #[must_use]
    pub fn commander(&self) -> Commander {
        Commander(self.commands.clone())
    }

    /// Waits for the thread to end; gives the number of connections that it cut, or `None` if it panicked.
    #[must_use]
    pub fn join(self) -> Option<u64> {
        self.thread.join().ok()
    }
}

/// A worker with a thread that may not run yet: on a busy core that takes its time, and several can wait for theirs
/// together.
pub struct StartingWorker {
    pub(super) handle: WorkerHandle,
    pub(super) outcome: std::sync::mpsc::Receiver<io::Result<()>>,
}

impl StartingWorker {
    /// Waits until it runs.
    ///
    /// # Errors
    /// Where its event loop cannot be made.
    pub fn started(self) -> io::Result<WorkerHandle> {
        match self.outcome.recv() {
            Ok(outcome) => outcome.map(|()| self.handle),
            Err(_) => Err(io::Error::other("the worker's thread ended at once")),
        }
    }
}

/// Sender of commands to a worker.
#[derive(Clone)]
pub struct Commander(UnboundedSender<WorkerCommand>);

impl Commander {
    /// Sends an order to the worker. A worker that has ended ignores it.
    pub fn send(&self, command: WorkerCommand) {
        let _ = self.0.send(command);
    }
}
