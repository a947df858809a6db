use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::time::SystemTime;

use offramp_config::{Environment, parse};
use proptest::prelude::*;

use super::*;
use crate::running_config::RunningConfig;

fn saved<'a>(text: &'a str, base: Option<&'a str>) -> Saved<'a> {
    Saved { digest: Some(7), changes: 2, text: text.into(), base: base.map(Into::into) }
}

const TEXT: &str = "# mine\nwatch = true\n";
const BASE: &str = "watch = false\n\n# end\n";

#[test]
fn a_form_says_what_it_was_made_of_and_is_toml() {
    for saved in [
        saved(TEXT, None),
        saved(TEXT, Some(BASE)),
        saved("watch = true", Some("")),
        Saved { digest: None, changes: 0, text: "".into(), base: None },
    ] {
        let form = saved.form(Path::new("/etc/a \"b\"\nc\u{7f}.toml"));
        assert_eq!(Saved::parse(&form), Ok(saved.clone()));
        assert!(form.lines().all(|line| line.starts_with('#') || line == "watch = true"), "{form}");
        let document = Some((saved.text.into_owned(), Some("/etc/a \"b\"\nc\u{7f}.toml".into())));
        assert_eq!(saved_document(&form), document);
        assert_eq!(saved_document(&form[1..]), None);
    }
    assert_eq!(saved_document(TEXT), None);
}

#[test]
fn a_damaged_form_is_refused_with_its_line() {
    let form = saved(TEXT, Some(BASE)).form(Path::new("/c.toml"));
    let cut = |end: &str| form[..form.find(end).unwrap()].to_owned();
    for (damaged, line) in [
        (String::new(), "line 3 "),
        (cut("# digest"), "line 3 "),
        (cut("# changes"), "line 4 "),
        (cut("# length"), "line 5 "),
        (form.replace("0000000000000007", "seven"), "line 3 "),
        (form.replace("changes = 2", "changes = two"), "line 4 "),
        (form.replace("length = 20", "length = -1"), "line 5 "),
        (form.replace("length = 20", "length = 900"), "it was cut off or edited"),
        (form.replace("# mine", "# mine too"), "it was cut off or edited"),
        (form.replace("#|watch", "watch"), "it was edited"),
        (cut("#|# end"), "line 10:"),
        (cut("watch = true"), "line 6:"),
        (form[..form.len() - 1].to_owned(), "line 12:"),
    ] {
        let refused = Saved::parse(&damaged).unwrap_err();
        assert!(refused.starts_with(line), "{refused}: {damaged}");
    }
}

/// A file that was cut off behind a line of the user's own that looks like the last one is not taken for a whole one.
#[test]
fn a_line_of_the_user_is_not_taken_for_the_end() {
    let form = saved("# end\nwatch = true\n# end\n", None).form(Path::new("/c.toml"));
    let ends: Vec<usize> = form.match_indices("# end\n").map(|(at, end)| at + end.len()).collect();
    let whole: Vec<bool> = ends.iter().map(|end| Saved::parse(&form[..*end]).is_ok()).collect();
    assert_eq!(whole, [false, false, true]);
}

proptest! {
    /// Texts as users write them mean the same after they were saved.
    #[test]
    fn a_form_means_what_its_text_means(
        lines in proptest::collection::vec(
            prop::sample::select(vec!["# end", "", "  # ü \t", "# length = 3", "#|x", "# file = \"x\""]), 0..6),
        watch in any::<bool>(),
        bom in any::<bool>(),
        crlf in any::<bool>(),
        newline in any::<bool>(),
    ) {
        let mut text = lines.join("\n");
        text.push_str(&format!("\nwatch = {watch}\n[[route]]\nserver = \"h:1\"\n[[listener]]\naddress = \"127.0.0.1:1\"\ntls = false\nmode = \"http\""));
        if newline {
            text.push_str("\n# end\n");
        }
        if crlf {
            text = text.replace('\n', "\r\n");
        }
        if bom {
            text.insert(0, '\u{feff}');
        }
        let read = |text: &str| parse(text, "/c.toml", &Environment::default()).unwrap().0;
        let config = read(&text);
        let running = RunningConfig::read(Arc::new(config.clone()), &text);
        let form = saved(&running.text, Some(&text)).form(Path::new("/c.toml"));
        let parsed = Saved::parse(&form).unwrap();
        prop_assert_eq!(&parsed.text, &*running.text);
        for text in [&form, &*parsed.text] {
            let mut again = read(text);
            again.keep_places(&config);
            prop_assert_eq!(&again, &config);
        }
    }
}

struct Rig {
    folder: tempfile::TempDir,
    autosave: Autosave,
    reloads: Arc<Reloads>,
}

impl Rig {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let autosave = autosave(&folder.path().join("state"), false);
        Self { folder, autosave, reloads: Reloads::new(SystemTime::UNIX_EPOCH) }
    }

    fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    fn path(&self) -> PathBuf {
        path_in(&self.state())
    }

    fn content(&self) -> String {
        read(&self.path()).unwrap().unwrap().content
    }

    async fn save(&mut self, content: &str) {
        self.autosave.save(|| content.to_owned(), &Log::silent(), &self.reloads).await;
    }

    fn failure(&self) -> &str {
        self.autosave.failure().map_or("", |reason| reason)
    }
}

fn autosave(state: &Path, has_unused: bool) -> Autosave {
    let mut config = Config::default();
    config.process.state_dir = state.to_owned();
    Autosave::of(&config, &Origin::File("/c.toml".into()), FoundAutosave { has_unused, lock: None })
}

#[tokio::test]
async fn it_is_private_and_written_only_when_it_differs() {
    let mut rig = Rig::new();
    rig.save("one").await;
    let inode = |rig: &Rig| fs::metadata(rig.path()).unwrap().ino();
    let first = inode(&rig);
    assert_eq!(fs::metadata(rig.path()).unwrap().mode() & 0o777, 0o600);
    rig.save("one").await;
    rig.autosave.release().await;
    rig.save("of a process that has given it up").await;
    // Another process finds what it would write.
    let mut other = autosave(&rig.state(), false);
    other.save(|| "one".to_owned(), &Log::silent(), &rig.reloads).await;
    assert_eq!((inode(&rig), other.due(), rig.reloads.unsaved()), (first, None, 0));
    rig.autosave = other;
    rig.save("two").await;
    assert_eq!(rig.content(), "two");
    let names = fs::read_dir(rig.state()).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = names.collect();
    names.sort();
    assert_eq!(names, ["running.lock", "running.toml"], "no draft is left");
}

#[tokio::test]
async fn a_failure_is_counted_and_mended_by_the_next_attempt() {
    let mut rig = Rig::new();
    let state = rig.state();
    fs::write(&state, "a file in its place").unwrap();
    rig.save("one").await;
    rig.save("two").await;
    assert!(rig.failure().contains("is not a directory") && rig.autosave.due().is_some());
    assert_eq!(rig.reloads.unsaved(), 2);
    fs::remove_file(&state).unwrap();
    rig.save("two").await;
    assert!(rig.failure().is_empty() && rig.autosave.due().is_none());
    assert_eq!(rig.content(), "two");
}

/// Of two processes that use a state directory, one saves; the other says so.
#[tokio::test]
async fn one_process_writes() {
    let mut rig = Rig::new();
    rig.save("of the first").await;
    let mut second = autosave(&rig.state(), true);
    second.save(|| "of the second".to_owned(), &Log::silent(), &rig.reloads).await;
    let process = format!("the process {} uses this state directory too", std::process::id());
    assert!(second.failure().unwrap().starts_with(&process), "{:?}", second.failure());
    assert!(second.due().is_some());
    assert_eq!((rig.content().as_str(), unused_path_in(&rig.state()).exists()), ("of the first", false));
    // The lock is that of the file which has its name, and passes on.
    fs::remove_dir_all(rig.state()).unwrap();
    rig.save("again").await;
    second.save(|| "of the second".to_owned(), &Log::silent(), &rig.reloads).await;
    assert_eq!((rig.content().as_str(), second.failure().is_some()), ("again", true));
    rig.autosave.release().await;
    second.save(|| "of the second".to_owned(), &Log::silent(), &rig.reloads).await;
    assert_eq!((rig.content().as_str(), second.failure()), ("of the second", None));
    let unused = fs::read_to_string(unused_path_in(&rig.state())).unwrap();
    assert_eq!(unused, "again", "it was not in force");
}

#[tokio::test]
async fn one_that_is_not_in_force_is_kept_or_not_overwritten() {
    let mut rig = Rig::new();
    rig.save("not in force").await;
    rig.autosave.release().await;
    rig.autosave = autosave(&rig.state(), true);
    let unused = unused_path_in(&rig.state());
    fs::create_dir_all(unused.join("in-the-way")).unwrap();
    rig.save("two").await;
    assert!(rig.failure().contains("running.unused.toml"), "{}", rig.failure());
    assert_eq!(rig.content(), "not in force");
    fs::remove_dir_all(&unused).unwrap();
    rig.save("two").await;
    let kept = fs::read_to_string(&unused).unwrap();
    assert_eq!((rig.content().as_str(), kept.as_str()), ("two", "not in force"));
    rig.save("three").await;
    assert_eq!(fs::read_to_string(&unused).unwrap(), "not in force");
}

/// A draft of a process that has ended is removed, and one that is in the way is named.
#[tokio::test]
async fn drafts_are_removed_or_named() {
    let mut rig = Rig::new();
    fs::create_dir_all(rig.state()).unwrap();
    let stale = rig.state().join(".running.toml.new.1");
    fs::write(&stale, "half").unwrap();
    let own = rig.state().join(format!(".running.toml.new.{}", std::process::id()));
    fs::create_dir(&own).unwrap();
    rig.save("one").await;
    assert!(rig.failure().contains(own.to_str().unwrap()), "{}", rig.failure());
    assert!(!stale.exists());
    fs::remove_dir(&own).unwrap();
    rig.save("one").await;
    assert_eq!(rig.content(), "one");
    // A start that resumes has the lock already.
    rig.autosave.release().await;
    fs::write(&stale, "half").unwrap();
    let lock = AutosaveLock::take(&rig.state()).ok();
    rig.autosave.folder = Some(AutosaveFolder::new(rig.state(), FoundAutosave { lock, has_unused: false }));
    rig.autosave.state_dir = Some(rig.state());
    rig.save("two").await;
    assert_eq!((rig.content().as_str(), stale.exists()), ("two", false));
}

#[tokio::test]
async fn a_link_in_its_place_is_replaced_and_never_read() {
    let mut rig = Rig::new();
    let other = rig.folder.path().join("other");
    fs::write(&other, "one").unwrap();
    fs::create_dir(rig.state()).unwrap();
    symlink(&other, rig.path()).unwrap();
    assert!(read(&rig.path()).is_err());
    rig.autosave = autosave(&rig.state(), true);
    rig.save("one").await;
    assert!(fs::symlink_metadata(rig.path()).unwrap().is_file());
    assert!(fs::symlink_metadata(unused_path_in(&rig.state())).is_err(), "a link has nothing to keep");
    fs::set_permissions(rig.path(), Permissions::from_mode(0o622)).unwrap();
    let refused = read(&rig.path()).unwrap_err();
    assert!(refused.to_string().contains("others"), "{refused}");
    assert!(read(&rig.folder.path().join("none")).unwrap().is_none());
}
