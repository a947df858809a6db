//! Detection of changed files without reading them.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The identity and version of the file at a path. Symbolic links are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    /// Seconds and nanoseconds of the last change of the content.
    modified: (i64, i64),
    /// Seconds and nanoseconds of the last change of anything, name and permissions included; cannot be set
    /// back.
    changed: (i64, i64),
}

/// The time after a change in which another one may go unnoticed: file systems have timestamps of 10 ms at
/// worst on Linux, and of 2 s on memory cards.
const UNSETTLED: Duration = Duration::from_secs(2);

impl Stamp {
    /// The stamp of a file; `None` if it is absent or inaccessible.
    #[must_use]
    pub fn of(path: &Path) -> Option<Self> {
        std::fs::metadata(path).ok().map(|found| Self::from_metadata(&found))
    }

    fn from_metadata(found: &Metadata) -> Self {
        Stamp {
            device: found.dev(),
            inode: found.ino(),
            size: found.size(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        }
    }

    /// Returns `true` if a file with this stamp, read at `now`, keeps it only as long as its content. Not so
    /// if it changed a moment ago, or in the future.
    #[must_use]
    pub fn is_settled(&self, now: SystemTime) -> bool {
        let seconds = u64::try_from(self.changed.0).unwrap_or(0);
        let nanos = u32::try_from(self.changed.1).unwrap_or(0);
        let changed = UNIX_EPOCH + Duration::new(seconds, nanos);
        now.duration_since(changed).is_ok_and(|since| since > UNSETTLED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_has_its_stamp() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = (folder.path().join("one"), folder.path().join("other"));
        assert_eq!(Stamp::of(&one), None);
        std::fs::write(&one, "a").unwrap();
        let first = Stamp::of(&one).unwrap();
        assert_eq!(Stamp::of(&one), Some(first));
        std::fs::write(&one, "ab").unwrap();
        assert_ne!(Stamp::of(&one), Some(first));
        // Another file of the same size.
        std::fs::write(&other, "ba").unwrap();
        let before = Stamp::of(&one);
        std::fs::rename(&other, &one).unwrap();
        assert_ne!(Stamp::of(&one), before);
    }

    #[test]
    fn what_changed_a_moment_ago_or_in_the_future_is_not_settled() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "a").unwrap();
        let stamp = Stamp::of(&path).unwrap();
        let now = SystemTime::now();
        assert!(!stamp.is_settled(now));
        assert!(stamp.is_settled(now + UNSETTLED + Duration::from_secs(1)));
        assert!(!stamp.is_settled(now - Duration::from_secs(365 * 24 * 3600)), "the clock was set back");
    }
}
