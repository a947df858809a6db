//! The autosave: the configuration in force, written to `running.toml` in the state directory after each change.
//!
//! `offramp run --resume` starts from it ([`resume`](crate::resume)). A change that waits to be confirmed is not in it. The
//! file is written on a thread of its own, since a disk may be slow, and a change is answered when it is there; a failure to
//! write refuses no change. It is logged once, counted, shown by the status and by the answers of changes, and the write is
//! tried again. Of the processes that use a state directory, the one with the lock writes ([`folder`]).

mod coming;
mod folder;
mod form;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use offramp_config::Config;
use offramp_net::ownership;
use offramp_observe::Log;
use offramp_process::Origin;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use crate::figures::Reloads;

pub(crate) use coming::adopt;
pub(crate) use folder::{
    AutosaveFolder, AutosaveLock, FoundAutosave, NotLocked, forget_attempt, note_attempt, was_attempted,
};
pub(crate) use form::Saved;
pub use form::saved_document;

/// The time that a change waits for the disk.
const PATIENCE: Duration = Duration::from_secs(5);
/// The pause after a failure.
const AGAIN: Duration = Duration::from_secs(60);
/// The greatest file that is written and read: the texts of two configurations, and the lines around them.
const LARGEST: u64 = 64 << 20;

/// The path of the autosave in a state directory.
pub(crate) fn path_in(state_dir: &Path) -> PathBuf {
    state_dir.join("running.toml")
}

/// The path of one that was not used; it is kept, so that nothing is lost.
pub(crate) fn unused_path_in(state_dir: &Path) -> PathBuf {
    state_dir.join("running.unused.toml")
}

/// An autosave as it was found.
#[derive(Debug)]
pub(crate) struct SavedFile {
    pub(crate) content: String,
    /// Set if root reads what another user may have written.
    pub(crate) is_of_other: bool,
}

/// Reads the autosave of a state directory; `None` if there is none.
///
/// # Errors
/// It cannot be read, or others than its owner may have written it.
pub(crate) fn read(path: &Path) -> io::Result<Option<SavedFile>> {
    match ownership::read_private(path, LARGEST) {
        Ok(file) => {
            let content = String::from_utf8(file.bytes)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.utf8_error()))?;
            Ok(Some(SavedFile { content, is_of_other: file.is_of_other }))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The writer of the autosave.
#[derive(Debug)]
pub(crate) struct Autosave {
    /// `None` where nothing is saved: changes come from the file alone there.
    state_dir: Option<PathBuf>,
    /// `None` while a write is under way.
    folder: Option<AutosaveFolder>,
    /// The content of the file.
    saved: Option<Arc<str>>,
    /// The write that has not ended, and goes on if nothing waits for it.
    writing: Option<Writing>,
    retry_at: Option<Instant>,
    /// The reason of the latest failure, until a write succeeds.
    failure: Option<Arc<str>>,
}

#[derive(Debug)]
struct Writing {
    /// Content of the autosave after the write; `None` for the coming one.
    content: Option<Arc<str>>,
    outcome: oneshot::Receiver<(AutosaveFolder, Result<(), String>)>,
}

impl Autosave {
    /// The autosave of a process that has `found` one.
    pub(crate) fn of(config: &Config, origin: &Origin, found: FoundAutosave) -> Self {
        let state_dir = origin.keeps_changes(config).then(|| config.process.state_dir.clone());
        let folder = state_dir.clone().map(|state_dir| AutosaveFolder::new(state_dir, found));
        Self { state_dir, folder, saved: None, writing: None, retry_at: None, failure: None }
    }

    /// The time of the next attempt after a failure.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.retry_at
    }

    /// The reason why the configuration in force is not saved.
    pub(crate) fn failure(&self) -> Option<&Arc<str>> {
        self.failure.as_ref()
    }

    /// True while the file has a configuration that is not in force; unknown during a write.
    pub(crate) fn has_unused(&self) -> bool {
        self.folder.as_ref().is_some_and(AutosaveFolder::has_unused)
    }

    /// Writes `content`, unless the file has it.
    pub(crate) async fn save(&mut self, content: impl FnOnce() -> String, log: &Log, reloads: &Reloads) {
        let Some(state_dir) = &self.state_dir else { return };
        let shown = path_in(state_dir).display().to_string();
        self.retry_at = None;
        match self.write(content().into()).await {
            Ok(()) if self.failure.take().is_some() => {
                log.info("the configuration in force is saved again", &[("path", (&shown).into())]);
            }
            Ok(()) => {}
            Err(reason) => {
                self.retry_at = Some(Instant::now() + AGAIN);
                reloads.note_unsaved();
                if self.failure.is_none() {
                    let fields = [("path", (&shown).into()), ("reason", (&reason).into())];
                    let message = "the configuration in force cannot be saved; until it is, `run --resume` would start from \
                                   an older one";
                    log.warn(message, &fields);
                }
                self.failure = Some(reason.into());
            }
        }
    }

    /// Gives the file to the process that takes over, or that starts while this one drains. A write under way ends first,
    /// and keeps the lock for as long as that takes.
    pub(crate) async fn release(&mut self) {
        // What it says is logged by nobody any more.
        let _ = self.end_of_write().await;
        (self.state_dir, self.folder, self.writing, self.retry_at) = (None, None, None, None);
    }

    async fn write(&mut self, content: Arc<str>) -> Result<(), String> {
        // Two at once would use one temporary file.
        let earlier = self.end_of_write().await;
        if self.writing.is_some() {
            return earlier;
        }
        if self.saved.as_ref() == Some(&content) {
            return Ok(());
        }
        let bytes = Arc::clone(&content);
        self.begin(Some(content), move |folder| folder.write(bytes.as_bytes()))?;
        self.end_of_write().await
    }

    /// Begins to write on a thread; no other write may be under way.
    ///
    /// # Errors
    /// No thread can be started.
    fn begin(
        &mut self,
        content: Option<Arc<str>>,
        write: impl FnOnce(&mut AutosaveFolder) -> Result<(), String> + Send + 'static,
    ) -> Result<(), String> {
        let lost = || {
            self.state_dir.clone().map(|state_dir| AutosaveFolder::new(state_dir, FoundAutosave::default()))
        };
        let Some(mut folder) = self.folder.take().or_else(lost) else { return Ok(()) };
        let (done, outcome) = oneshot::channel();
        let work = move || {
            let written = write(&mut folder);
            // The process may be about to end.
            let _ = done.send((folder, written));
        };
        let thread = std::thread::Builder::new().name("offramp-autosave".to_owned()).spawn(work);
        thread.map_err(|error| format!("cannot start a thread: {error}"))?;
        self.writing = Some(Writing { content, outcome });
        Ok(())
    }

    /// Waits for the write under way, if there is one; may be dropped and called again.
    async fn end_of_write(&mut self) -> Result<(), String> {
        let Some(writing) = &mut self.writing else { return Ok(()) };
        let Ok(outcome) = timeout(PATIENCE, &mut writing.outcome).await else {
            return Err(format!("the disk has not answered for {} s", PATIENCE.as_secs()));
        };
        let content = self.writing.take().and_then(|writing| writing.content);
        let Ok((folder, written)) = outcome else { return Err("a fault of Offramp's own".to_owned()) };
        self.folder = Some(folder);
        if written.is_ok() && content.is_some() {
            self.saved = content;
        }
        written
    }
}

#[cfg(test)]
mod tests;
