//! `watch = true`: when to reload because the file of the configuration, or one that it includes, has changed.
//!
//! As with certificates, a moment passes until nothing changes any more, for people save one file after the other. Then
//! the texts are compared by a digest: a copy that an editor leaves beside is no reload.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use offramp_config::{Config, Environment, IncludedSources, keep_until_restart, load, sources};
use offramp_net::watch::{DirectoryWatch, WatchedFiles};
use offramp_observe::Log;
use offramp_process::Origin;
use tokio::time::Instant;

use crate::certificates::watcher::{LONGEST, POLL, QUIET, add_file, changed, until};

/// Waits for changes of the configuration's files.
#[derive(Debug, Default)]
pub struct ConfigWatch {
    following: Option<Following>,
    /// Set once it is logged that the kernel cannot tell of changes.
    warned: bool,
}

/// The watch while the key is set.
#[derive(Debug)]
struct Following {
    watch: Option<DirectoryWatch>,
    /// The files at the last look; `None` before the first.
    seen: Option<IncludedSources>,
    /// The beginning of the series of changes that is under way.
    begun: Option<Instant>,
    /// The time of the next look.
    look_at: Option<Instant>,
    /// Set while some file is not watched.
    blind: bool,
}

impl ConfigWatch {
    /// Begins or ends to watch, as the configuration says that is in use. Must be called within a tokio runtime.
    pub fn follow(&mut self, config: &Config, origin: &Origin, log: &Log) {
        let Origin::File(path) = origin else { return };
        if !config.process.watch {
            self.following = None;
        } else if self.following.is_none() {
            // What changed before it was watched is found by a look at once.
            let mut new = Following {
                watch: None,
                seen: None,
                begun: None,
                look_at: Some(Instant::now()),
                blind: true,
            };
            self.warned |= new.watch(&sources(path), log, self.warned);
            self.following = Some(new);
        }
    }

    /// Waits until it is time for [`ConfigWatch::has_changed`]. May be dropped and called again.
    pub async fn due(&mut self) {
        let Some(following) = &mut self.following else { return std::future::pending().await };
        loop {
            let changed = tokio::select! {
                changed = changed(following.watch.as_ref()) => changed,
                () = until(following.look_at) => return,
            };
            let now = Instant::now();
            match changed {
                Ok(()) => {
                    let begun = *following.begun.get_or_insert(now);
                    following.look_at = Some((now + QUIET).min(begun + LONGEST));
                }
                Err(_) => {
                    (following.watch, following.blind) = (None, true);
                    following.look_at = Some(now + POLL);
                }
            }
        }
    }

    /// Looks at the files: whether they say something else than at the last look; at the first, than `known`, which they
    /// said when they were read. What is in force may be another by changes that are not written, or not yet.
    pub fn has_changed(
        &mut self,
        known: &Config,
        origin: &Origin,
        environment: &Environment,
        log: &Log,
    ) -> bool {
        let (Some(following), Origin::File(path)) = (&mut self.following, origin) else { return false };
        let found = sources(path);
        // Anew each time: links may lead elsewhere, and a folder may be there that was not.
        following.look_at = None;
        self.warned |= following.watch(&found, log, self.warned);
        following.begun = None;
        let poll = following.blind.then(|| Instant::now() + POLL);
        following.look_at = following.look_at.or(poll);
        let digest = found.digest;
        let seen = following.seen.replace(found);
        seen.map_or_else(|| differs(path, known, environment), |seen| seen.digest != digest)
    }

    /// A reload is about to read the files, for whatever reason.
    pub fn reloading(&mut self, origin: &Origin) {
        if let (Some(following), Origin::File(path)) = (&mut self.following, origin) {
            following.seen = Some(sources(path));
        }
    }
}

impl Following {
    /// Watches these files. True if the kernel cannot tell of all changes.
    fn watch(&mut self, sources: &IncludedSources, log: &Log, warned: bool) -> bool {
        let before = self.watch.take();
        let mut directories = BTreeMap::new();
        for path in sources.files.iter().chain(&sources.folders) {
            add_file(&mut directories, path);
        }
        // One that is not there yet is seen to come up in the folder that it will be in.
        for folder in sources.folders.iter().filter(|folder| folder.is_dir()) {
            directories.insert(folder.clone(), WatchedFiles::All);
        }
        let error = match DirectoryWatch::new(&directories) {
            Ok((watch, blind)) => {
                (self.watch, self.blind) = (Some(watch), !blind.is_empty());
                // It has watched until now.
                if before.is_some_and(|before| before.has_changed()) {
                    self.look_at = Some(Instant::now() + QUIET);
                }
                self.blind.then(|| io::Error::other("a folder is not there, or on another machine"))
            }
            Err(error) => {
                self.blind = true;
                Some(error)
            }
        };
        if let (Some(error), false) = (&error, warned) {
            let message = "changes of the configuration are looked for each minute: the kernel cannot tell of all of them";
            log.warn(message, &[("reason", error.into())]);
        }
        error.is_some()
    }
}

/// True if the file says something else than it did. One with mistakes does. What only a restart changes is none: of this
/// `known` has what is in force.
fn differs(path: &Path, known: &Config, environment: &Environment) -> bool {
    load(path, environment).map_or(true, |(mut new, _)| {
        keep_until_restart(known, &mut new);
        new != *known
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use offramp_observe::Log;

    use super::*;

    struct Rig {
        folder: tempfile::TempDir,
        origin: Origin,
        config: Config,
        watch: ConfigWatch,
    }

    impl Rig {
        fn new(text: &str) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("offramp.toml");
            fs::write(&path, text).unwrap();
            let (config, _) = load(&path, &Environment::default()).unwrap();
            let mut watch = ConfigWatch::default();
            watch.follow(&config, &Origin::File(path.clone()), &Log::silent());
            Self { folder, origin: Origin::File(path), config, watch }
        }

        fn write(&self, name: &str, text: &str) {
            fs::write(self.folder.path().join(name), text).unwrap();
        }

        /// Waits for a change that counts. One save may be told of in several pieces on a slow machine.
        async fn changed(&mut self) {
            self.watch.due().await;
            while !self.has_changed() {
                self.watch.due().await;
            }
        }

        fn has_changed(&mut self) -> bool {
            self.watch.has_changed(&self.config, &self.origin, &Environment::default(), &Log::silent())
        }
    }

    const WATCH: &str = "watch = true\ninclude = \"sites.d/*.toml\"\n[[route]]\nserver = \"a:1\"\n";

    #[tokio::test]
    async fn changes_are_noticed_and_what_says_the_same_is_none() {
        let mut rig = Rig::new(WATCH);
        assert!(!rig.has_changed(), "the first look finds what is in use");
        rig.write("offramp.toml", WATCH);
        rig.watch.due().await;
        assert!(!rig.has_changed());
        rig.write("offramp.toml", &format!("{WATCH}# another text\n"));
        rig.changed().await;
        // A folder that a pattern waits for, then a file in it, then another text of that file.
        fs::create_dir(rig.folder.path().join("sites.d")).unwrap();
        rig.watch.due().await;
        assert!(!rig.has_changed());
        rig.write("sites.d/a.toml~", "a copy");
        assert!(!rig.has_changed());
        rig.write("sites.d/a.toml", "");
        rig.changed().await;
        rig.write("sites.d/a.toml", "[[route]]");
        rig.changed().await;
        fs::remove_file(rig.folder.path().join("sites.d/a.toml")).unwrap();
        rig.changed().await;
        // Whoever reloads by a signal has seen it.
        rig.write("offramp.toml", WATCH);
        rig.watch.reloading(&rig.origin);
        assert!(!rig.has_changed());
    }

    #[tokio::test]
    async fn what_changed_before_it_was_watched_is_found_at_once() {
        let mut rig = Rig::new(WATCH);
        rig.write("offramp.toml", &WATCH.replace("a:1", "a:2"));
        rig.watch.due().await;
        assert!(rig.has_changed());
    }

    #[tokio::test]
    async fn nothing_is_watched_without_the_key() {
        let mut rig = Rig::new(&WATCH.replace("true", "false"));
        assert!(rig.watch.following.is_none());
        rig.config.process.watch = true;
        rig.watch.follow(&rig.config, &rig.origin, &Log::silent());
        assert!(rig.watch.following.is_some());
        rig.config.process.watch = false;
        rig.watch.follow(&rig.config, &rig.origin, &Log::silent());
        assert!(rig.watch.following.is_none());
    }
}
