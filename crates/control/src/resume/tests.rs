use std::fs;
use std::path::PathBuf;

use offramp_config::Environment;
use offramp_process::sandbox::Reach;
use offramp_process::{Origin, Source};

use super::*;
use crate::config_file::FileText;

struct Rig {
    folder: tempfile::TempDir,
    source: Source,
    read: FileRead,
    text: String,
}

const TEXT: &str = "state_dir = \"state\"\n[[listener]]\naddress = \"127.0.0.1:0\"\nmode = \"http\"\ntls = false\n\
                    [[route]]\nserver = \"127.0.0.1:2\" # mine\n";

impl Rig {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("offramp.toml");
        fs::write(&path, TEXT).unwrap();
        let source = Source { origin: Origin::File(path.clone()), environment: Environment::default() };
        let file = FileText::read(&path, &source.environment).unwrap();
        fs::create_dir(folder.path().join("state")).unwrap();
        let read = FileRead { config: Arc::new(file.config), digest: Some(file.digest) };
        Self { folder, source, read, text: TEXT.to_owned() }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("state/running.toml")
    }

    /// Saves a text as a process with this file would.
    fn save(&self, text: &str) {
        self.write(&self.form(text));
    }

    fn form(&self, text: &str) -> String {
        let saved =
            Saved { digest: self.read.digest, changes: 1, text: text.into(), base: Some(TEXT.into()) };
        saved.form(Path::new("/c.toml"))
    }

    /// Changes the file, as a start finds it.
    fn edit(&mut self, text: &str) {
        let path = self.folder.path().join("offramp.toml");
        fs::write(&path, text).unwrap();
        let file = FileText::read(&path, &self.source.environment).unwrap();
        self.read = FileRead { config: Arc::new(file.config), digest: Some(file.digest) };
        self.text = text.to_owned();
    }

    fn write(&self, content: &str) {
        use std::os::unix::fs::PermissionsExt as _;
        fs::write(self.path(), content).unwrap();
        fs::set_permissions(self.path(), fs::Permissions::from_mode(0o600)).unwrap();
    }

    fn base(&self) -> RunningConfig {
        RunningConfig::read(Arc::clone(&self.read.config), &self.text)
    }

    fn look(&self) -> Resumed {
        let scope = Scope { source: &self.source, program: None, also: &Reach::default() };
        look(&self.path(), FileAtStart { base: &self.base(), read: &self.read }, scope)
    }

    /// The text that a start uses, and its part of the autosave.
    fn start(&self) -> (String, Resumption) {
        let base = self.base();
        let scope = Scope { source: &self.source, program: None, also: &Reach::default() };
        let file = FileAtStart { base: &base, read: &self.read };
        let (resumed, resumption) = resume(file, scope, &Log::silent());
        (resumed.unwrap_or(base).text.as_ref().to_owned(), resumption)
    }

    /// The same for a start that succeeds; set if the autosave has something that is not in force.
    fn started(&self) -> (String, bool) {
        let (text, resumption) = self.start();
        (text, resumption.succeed(&Log::silent()).has_unused)
    }
}

fn changed() -> String {
    TEXT.replace("127.0.0.1:2", "127.0.0.1:3")
}

#[test]
fn the_configuration_in_force_comes_back() {
    let rig = Rig::new();
    assert!(matches!(rig.look(), Resumed::Missing));
    assert_eq!(rig.started(), (TEXT.to_owned(), false));
    rig.save(&changed());
    assert_eq!(rig.started(), (changed(), false));
    // Keys that need a restart are those of the file.
    rig.save(&changed().replace("state_dir = \"state\"", "state_dir = \"other\"\nsandbox = \"off\""));
    let Resumed::Merged(Merged { running, .. }) = rig.look() else { panic!("it can be used") };
    assert_eq!(
        (&running.config.process.state_dir, running.config.process.sandbox),
        (&rig.read.config.process.state_dir, rig.read.config.process.sandbox)
    );
    rig.save(TEXT);
    assert!(matches!(rig.look(), Resumed::Nothing));
}

/// The changes that the file does not have are made to what it has now; where both have changed the same, the file wins.
#[test]
fn changes_are_merged_with_a_file_that_was_changed() {
    let limits = |value: &str| format!("[limits]\nidle_timeout = \"{value}\"\n");
    let route = "[[route]]\nhost = \"new.example\"\nserver = \"127.0.0.1:9\"\n";
    let policy = "[policy.p]\nmax_body = \"1MiB\"\n";
    let backend = TEXT.replace("server = \"127.0.0.1:2\"", "backend = \"b\"");
    let backend = |servers: &str| format!("{backend}[backend.b]\nservers = [{servers}]\n");
    let (one, two) = ("\"h:1\", \"h:2\"", "\"h:1 drain\", \"h:2\"");
    let timeout = |value: &str| format!("{TEXT}response_timeout = \"{value}\"\n");
    let commented = |text: &str| text.replace("# mine", "# mine, edited");
    // Before, in force, the file now; the result, and a part of each conflict.
    let table: [(String, String, String, String, &[&str]); 12] = [
        (TEXT.into(), changed(), commented(TEXT), commented(&changed()), &[]),
        (TEXT.into(), changed(), format!("{TEXT}{route}"), format!("{}{route}", changed()), &[]),
        (
            backend(one),
            backend(two),
            format!("{}{route}", backend(one)),
            format!("{}{route}", backend(two)),
            &[],
        ),
        (
            backend(one),
            backend(two),
            backend("\"h:2\""),
            backend("\"h:2\""),
            &["server h:1: drain (the file has"],
        ),
        (backend(one), backend(two), backend(two), backend(two), &[]),
        (
            TEXT.into(),
            TEXT.replace("[[listener]]", &format!("{}[[listener]]", limits("9m"))),
            format!("{TEXT}{route}"),
            format!("{TEXT}{route}\n{}", limits("9m")),
            &[],
        ),
        (
            TEXT.into(),
            format!("{TEXT}{}", limits("9m")),
            format!("{TEXT}{}", limits("8m")),
            format!("{TEXT}{}", limits("8m")),
            &["limits.idle_timeout: changed (the file has"],
        ),
        (TEXT.into(), timeout("7s"), timeout("8s"), timeout("8s"), &["changed (the file has another"]),
        (
            TEXT.into(),
            timeout("7s"),
            TEXT.replace("[[route]]", "[[route]]\nhost = \"a.example\""),
            TEXT.replace("[[route]]", "[[route]]\nhost = \"a.example\""),
            &["(the file has another"],
        ),
        // There is no edit for a policy: a file that means the same as before takes it, another does not.
        (TEXT.into(), format!("{TEXT}{policy}"), commented(TEXT), format!("{TEXT}{policy}"), &[]),
        (
            TEXT.into(),
            format!("{TEXT}{policy}{route}"),
            format!("{TEXT}{}", limits("8m")),
            format!("{TEXT}{}\n{route}", limits("8m")),
            &["(it cannot be merged"],
        ),
        (
            TEXT.into(),
            format!("{TEXT}{policy}"),
            format!("{TEXT}{policy}{route}"),
            format!("{TEXT}{policy}{route}"),
            &[],
        ),
    ];
    for (before, in_force, now, result, expected) in table {
        let mut rig = Rig::new();
        rig.edit(&before);
        let digest = rig.read.digest;
        let base = offramp_config::Edit::text_of(&rig.read.config);
        let saved = Saved { digest, changes: 1, text: in_force.as_str().into(), base: Some(base.into()) };
        rig.write(&saved.form(Path::new("/c.toml")));
        rig.edit(&now);
        let conflicts = match rig.look() {
            Resumed::Merged(Merged { conflicts, .. }) => conflicts,
            Resumed::Nothing => Vec::new(),
            Resumed::Missing => panic!("it is there"),
            Resumed::Unusable(reason) => panic!("{reason}\n{in_force}"),
        };
        assert_eq!(conflicts.len(), expected.len(), "{conflicts:?}\n{in_force}");
        assert!(conflicts.iter().zip(expected).all(|(said, part)| said.contains(part)), "{conflicts:?}");
        let (text, has_unused) = rig.started();
        let read = |text: &str| {
            offramp_config::parse(text, rig.source.origin.path().to_str().unwrap(), &rig.source.environment)
                .unwrap()
                .0
        };
        assert!(is_same(&read(&text), &read(&result)), "{text}\nis not\n{result}");
        assert_eq!(has_unused, !expected.is_empty());
        // Comments of the file as it is now stay.
        if result.contains("edited") {
            assert_eq!(text, result);
        }
    }
}

#[test]
fn a_change_of_the_file_is_no_change_in_force() {
    let mut rig = Rig::new();
    // Where there was nothing but the file in force, nothing is lost.
    rig.write(
        &Saved { digest: None, changes: 0, text: changed().into(), base: None }.form(Path::new("/c.toml")),
    );
    assert!(matches!(rig.look(), Resumed::Nothing));
    rig.save(&changed());
    rig.edit(&changed());
    assert!(matches!(rig.look(), Resumed::Nothing));
}

#[test]
fn an_autosave_that_cannot_be_used_prevents_no_start() {
    let rig = Rig::new();
    let form = |text: &str| rig.form(text);
    for (content, reason) in [
        (String::new(), "line 3 "),
        (form(&changed()).replace("# end\n", ""), "it ends before"),
        (form(&changed()).replace("# length = 1", "# length = 2"), "it was cut off or edited"),
        (form(&changed().replace("mode", "mood")), "running.toml:9:1: unknown key `mood`"),
        (form(&changed().replace("[[route]]", "[[route]")), "running.toml:11:"),
        (form("include = \"x.toml\"\n"), "it includes other files"),
        (form(&format!("{}[[certificate]]\ncert = \"none.pem\"\n", changed())), "none.pem"),
    ] {
        rig.write(&content);
        let Resumed::Unusable(said) = rig.look() else { panic!("{reason}") };
        assert!(said.contains(reason) && said.contains("running.toml"), "{said}");
        assert_eq!(rig.started(), (TEXT.to_owned(), true), "{reason}");
        assert_eq!(fs::read_to_string(rig.path()).unwrap(), content, "a start takes nothing away");
    }
    fs::remove_file(rig.path()).unwrap();
    std::os::unix::fs::symlink("../offramp.toml", rig.path()).unwrap();
    assert!(matches!(rig.look(), Resumed::Unusable(said) if said.contains("symbolic link")));
    assert_eq!(rig.started().0, TEXT);
    let mut edited = Rig::new();
    let saved = Saved { digest: Some(1), changes: 1, text: changed().into(), base: None };
    edited.write(&saved.form(Path::new("/c.toml")));
    edited.edit(&format!("# new\n{TEXT}"));
    assert!(matches!(edited.look(), Resumed::Unusable(said) if said.contains("no part of the file")));
}

/// A start that has used the autosave and has failed, in whatever way, is followed by one that does not.
#[test]
fn an_autosave_is_not_tried_for_ever() {
    let rig = Rig::new();
    rig.save(&changed());
    let tried = || rig.folder.path().join("state/running.tried").exists();
    let try_it = || {
        let (text, mut resumption) = rig.start();
        if text == changed() {
            resumption.try_saved(&Log::silent());
            assert!(tried());
        }
        (text, resumption)
    };
    // It is killed or ends by an error: the next start uses the file, and keeps what it does not use.
    drop(try_it().1);
    assert!(tried());
    let (text, resumption) = try_it();
    assert_eq!((text.as_str(), resumption.succeed(&Log::silent()).has_unused, tried()), (TEXT, true, false));
    // Where that start fails too the reason is another, and the autosave counts again.
    drop(try_it().1);
    let (text, resumption) = try_it();
    assert_eq!(text, TEXT);
    drop(resumption);
    let (text, mut resumption) = try_it();
    assert_eq!(text, changed());
    // The same where one start finds that neither can be used.
    resumption.fall_back(&Error::one("its port is taken"), &Log::silent());
    drop(resumption);
    assert!(!tried() && rig.path().exists());
    assert!(!try_it().1.succeed(&Log::silent()).has_unused);
    assert!(!tried());
}

/// Another process saves its configuration there: it is none of this start's business.
#[test]
fn the_autosave_of_another_process_is_left_alone() {
    let rig = Rig::new();
    rig.save(&changed());
    let (text, first) = rig.start();
    assert_eq!(text, changed());
    assert_eq!(rig.started(), (TEXT.to_owned(), false));
    drop(first);
    assert_eq!(rig.started(), (changed(), false));
}

/// Changes that the sandbox of the file does not allow are left out; the others are in force again.
#[test]
fn it_reaches_no_further_than_the_sandbox_of_the_file() {
    let rig = Rig::new();
    let log = "[log]\noutput = \"/somewhere/else/offramp.log\"\n";
    let base = offramp_config::Edit::text_of(&rig.read.config);
    for digest in [rig.read.digest, Some(1)] {
        let text = changed().replace("[[listener]]", &format!("{log}[[listener]]"));
        let saved = Saved { digest, changes: 2, text: text.into(), base: Some(base.as_str().into()) };
        rig.write(&saved.form(Path::new("/c.toml")));
        let Resumed::Merged(Merged { conflicts, .. }) = rig.look() else { panic!("a part is out of reach") };
        let [said] = &*conflicts else { panic!("{conflicts:?}") };
        assert!(said.contains("log.output") && said.contains("the sandbox does not let"), "{said}");
        let (text, has_unused) = rig.started();
        assert!(has_unused && text.contains("127.0.0.1:3") && !text.contains("somewhere"), "{text}");
    }
}
