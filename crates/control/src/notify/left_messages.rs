//! Messages that a process leaves to the one that takes its place: a file for each, in the state directory.
//!
//! A message that a receiver does not take for now is tried for an hour, which is longer than the process before may live.
//! Files, and not the state of the hand-over: which messages are left is known only when the last try has ended, after the other
//! process has begun.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use offramp_net::ownership;
use offramp_process::state_dir;
use serde::{Deserialize, Serialize};

use super::outbox::{OLDEST, WAITING};
use super::receiver::Envelope;

/// The directory within the state directory.
const FOLDER: &str = "notify";
/// The largest file that is read; a message has some 30 KB.
const LARGEST: u64 = 1 << 20;
/// The end of the name of a file that is whole.
const WHOLE: &str = ".json";

/// The messages that one process leaves to another.
#[derive(Debug, Default)]
pub(super) struct LeftMessages {
    state_dir: Mutex<Option<PathBuf>>,
    /// The time until which a process before may leave some.
    comes_until: Mutex<Option<Instant>>,
    written: AtomicU64,
}

/// A message in a file.
#[derive(Debug, Serialize, Deserialize)]
struct LeftMessage {
    /// The time at which it was made, in milliseconds since 1970.
    made_ms: u64,
    envelope: Envelope,
}

impl LeftMessages {
    /// Keeps them below this state directory.
    pub(super) fn keep_in(&self, state_dir: &Path) {
        *lock(&self.state_dir) = Some(state_dir.to_owned());
    }

    /// Expects that the process before leaves some from now on. It has none that are older than it tries.
    pub(super) fn expect(&self, now: Instant) {
        *lock(&self.comes_until) = now.checked_add(OLDEST);
    }

    /// Returns true while a process before may leave some.
    pub(super) fn may_come(&self, now: Instant) -> bool {
        lock(&self.comes_until).is_some_and(|until| now < until)
    }

    /// Leaves a message of this age for the receiver.
    ///
    /// # Errors
    /// The reason for which it is not there, with the path.
    pub(super) fn leave(&self, receiver: &str, age: Duration, envelope: &Envelope) -> Result<(), String> {
        let Some(state_dir) = lock(&self.state_dir).clone() else {
            return Err("there is no state directory".to_owned());
        };
        let folder = state_dir.join(FOLDER);
        let made = SystemTime::now().checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH);
        let made_ms = made.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
        let number = self.written.fetch_add(1, Ordering::Relaxed);
        // In the order of their times. No name of a receiver has a colon.
        let name = format!("{receiver}:{made_ms:016x}-{}-{number:08x}", std::process::id());
        let (path, draft) = (folder.join(format!("{name}{WHOLE}")), folder.join(name + ".new"));
        let message = LeftMessage { made_ms, envelope: envelope.clone() };
        let ready = state_dir::prepare(&state_dir).and_then(|_| state_dir::prepare(&folder));
        ready.map_err(|error| error.to_string())?;
        let written = (|| {
            let text = serde_json::to_vec(&message).map_err(io::Error::other)?;
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?.write_all(&text)?;
            fs::rename(&draft, &path)
        })();
        written.map_err(|error: io::Error| {
            let _ = fs::remove_file(&draft);
            format!("{}: {error}", path.display())
        })
    }

    /// Takes the messages for a receiver, the oldest first, each with its age. What nothing takes in time is removed.
    pub(super) fn take(&self, receiver: &str) -> Vec<(Duration, Envelope)> {
        let Some(folder) = lock(&self.state_dir).as_ref().map(|dir| dir.join(FOLDER)) else {
            return Vec::new();
        };
        let Ok(entries) = fs::read_dir(&folder) else { return Vec::new() };
        let (mut own, now) = (Vec::new(), SystemTime::now());
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_whole = name.ends_with(WHOLE);
            if is_whole && name.split_once(':').is_some_and(|(to, _)| to == receiver) {
                own.push(entry.path());
            } else if entry.metadata().and_then(|found| found.modified()).is_ok_and(|at| is_old(at, now)) {
                let _ = fs::remove_file(entry.path());
            }
        }
        own.sort();
        let taken = own[own.len().saturating_sub(WAITING)..].iter().filter_map(|path| {
            let found = ownership::read_private(path, LARGEST);
            // One that stays would be sent again and again.
            fs::remove_file(path).ok()?;
            let LeftMessage { made_ms, envelope } = serde_json::from_slice(&found.ok()?.bytes).ok()?;
            let made = SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(made_ms))?;
            Some((now.duration_since(made).unwrap_or_default(), envelope))
        });
        taken.collect()
    }
}

fn is_old(at: SystemTime, now: SystemTime) -> bool {
    now.duration_since(at).is_ok_and(|age| age > OLDEST)
}

fn lock<T>(value: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // Nothing panics with the lock held.
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shelf(state_dir: &Path) -> LeftMessages {
        let left = LeftMessages::default();
        left.keep_in(state_dir);
        left
    }

    fn program(text: &str) -> Envelope {
        Envelope::Program(text.to_owned())
    }

    fn texts(taken: &[(Duration, Envelope)]) -> Vec<&str> {
        let texts = taken.iter().filter_map(|(_, one)| match one {
            Envelope::Program(text) => Some(text.as_str()),
            _ => None,
        });
        texts.collect()
    }

    #[test]
    fn another_process_takes_each_message_once_and_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let (before, after) = (shelf(folder.path()), shelf(folder.path()));
        assert_eq!(after.take("one").len(), 0);
        for (name, age, text) in [("one", 5, "b"), ("one", 60, "a"), ("one.two", 1, "c"), ("one", 5, "d")] {
            before.leave(name, Duration::from_secs(age), &program(text)).unwrap();
        }
        let taken = after.take("one");
        assert_eq!(texts(&taken), ["a", "b", "d"]);
        assert!(taken[0].0 >= Duration::from_secs(60) && taken[0].0 < Duration::from_secs(600));
        assert_eq!(after.take("one").len(), 0);
        assert_eq!(texts(&after.take("one.two")), ["c"]);
    }

    #[test]
    fn what_is_damaged_or_beyond_the_bound_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let left = shelf(folder.path());
        for number in 0..WAITING + 3 {
            left.leave("one", Duration::ZERO, &program(&number.to_string())).unwrap();
        }
        fs::write(folder.path().join("notify/one:ffffffffffffffff.json"), "{\"made_ms\": 1").unwrap();
        fs::write(folder.path().join("notify/other:1.json"), "for a receiver that there is no more").unwrap();
        let old = fs::File::create(folder.path().join("notify/gone:1.new")).unwrap();
        old.set_modified(SystemTime::now() - OLDEST - Duration::from_secs(60)).unwrap();
        let taken = left.take("one");
        assert_eq!((taken.len(), texts(&taken)[0]), (WAITING - 1, "4"));
        // Those that are too many go with age, as the outbox drops them.
        assert_eq!(fs::read_dir(folder.path().join(FOLDER)).unwrap().count(), 5);
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_told() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(FOLDER), "").unwrap();
        let failed = shelf(folder.path()).leave("one", Duration::ZERO, &program("a")).unwrap_err();
        assert!(failed.contains("/notify is not a directory"), "{failed}");
        assert!(LeftMessages::default().leave("one", Duration::ZERO, &program("a")).is_err());
    }
}
