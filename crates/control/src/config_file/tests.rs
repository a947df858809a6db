use std::fs;

use offramp_process::Origin;

use super::*;

const TEXT: &str = "[[listener]]\naddress = \"127.0.0.1:0\"\nmode = \"http\"\ntls = false\n[[route]]\nbackend = \"b\"\n\
                    # Ours.\n[backend.b]\nservers = [\"127.0.0.1:2\"]\n";

struct Rig {
    folder: tempfile::TempDir,
    source: Source,
}

impl Rig {
    fn new(text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.toml");
        fs::write(&path, text).unwrap();
        Self { folder, source: Source { origin: Origin::File(path), environment: Environment::default() } }
    }

    fn path(&self) -> &Path {
        self.source.origin.path()
    }

    fn parse(&self, text: &str) -> Config {
        FileText::parse(self.path(), text.to_owned(), 0, &self.source.environment).unwrap().config
    }

    /// The file as a process reads it at its start.
    fn read(&self) -> FileRead {
        let now = FileText::read(self.path(), &self.source.environment).unwrap();
        FileRead { config: Arc::new(now.config), digest: Some(now.digest) }
    }

    /// A text in force in a process that has begun with the file.
    fn in_force(&self, text: &str) -> RunningConfig {
        let mut config = self.parse(text);
        keep_until_restart(&self.read().config, &mut config);
        RunningConfig { config: Arc::new(config), text: text.into() }
    }
}

#[test]
fn only_what_was_read_is_written_over() {
    let rig = Rig::new(&format!("include = \"*.more\"\n{TEXT}"));
    let read = rig.read();
    let unchanged =
        |read: &FileRead| FileText::unchanged(rig.path(), read, &rig.source.environment).map(|now| now.text);
    assert!(unchanged(&read).is_ok());
    assert!(unchanged(&FileRead { digest: None, ..read.clone() }).is_err(), "it may have been changed");
    fs::write(rig.folder.path().join("a.more"), "").unwrap();
    assert!(unchanged(&read).unwrap_err().contains("was changed since it was read"), "an included one");
    let read = rig.read();
    assert!(unchanged(&read).is_ok());
    let edited = format!("# mine\n{TEXT}");
    fs::write(rig.path(), &edited).unwrap();
    assert!(unchanged(&read).unwrap_err().contains("was changed since it was read"));
    let replaced = |text: &str| FileText::replaced_by(text, rig.path(), &read, &rig.source.environment);
    assert!(replaced(TEXT).is_err());
    assert!(replaced(&edited).is_ok(), "nothing is lost");
    fs::remove_file(rig.path()).unwrap();
    assert!(unchanged(&read).unwrap_err().starts_with("cannot read "));
}

/// Files and texts in force in the forms that users write.
#[test]
fn a_file_is_written_as_a_start_would_read_what_is_in_force() {
    let files = [
        "",
        "state_dir = \"/s\" # here\nuser = \"root\"\n",
        "sandbox = \"strict\"\nworkers = 1\n",
        "admin = { enabled = true, address = \"127.0.0.1:9\" }\n",
    ];
    let texts = [
        ("", "", true),
        ("workers = 3\n", "[limits]\nidle_timeout = \"2m\"\n", true),
        ("admin.address = \"127.0.0.1:8\"\n", "", true),
        // An inline form has no section to write into.
        ("log_store = { url = \"sqlite:/x\" }\n", "", true),
    ];
    for file in files {
        for (keys, more, keeps_comments) in texts {
            let rig = Rig::new(&format!("{file}{TEXT}"));
            let read = rig.read();
            let running = rig.in_force(&format!("{keys}{more}{TEXT}"));
            let change = FileChange::whole(&running, &read, &rig.source).unwrap();
            let FileWritten { read: now, .. } = change.replace().unwrap();
            let written = fs::read_to_string(rig.path()).unwrap();
            assert_eq!(now.digest, Some(sources(rig.path()).digest));
            assert_eq!(written.contains("# Ours."), keeps_comments, "{written}");
            assert_eq!(change.warnings().is_empty(), keeps_comments, "{:?}", change.warnings());
            let mut found = rig.parse(&written);
            assert!(restart_lines(&read.config, &found).is_empty(), "{written}");
            keep_until_restart(&running.config, &mut found);
            assert!(is_same(&found, &running.config) && is_same(&now.config, &running.config), "{written}");
        }
    }
    // Where the text says something else than what is in force, the printed form is written.
    let rig = Rig::new(&format!("workers = 2\n{TEXT}"));
    let read = rig.read();
    let running = rig.in_force(&TEXT.replace(":2\"", ":3\""));
    let other = RunningConfig { text: TEXT.into(), ..running.clone() };
    let change = FileChange::whole(&other, &read, &rig.source).unwrap();
    assert_eq!(change.warnings(), ["comments and order of the file are not kept"]);
    change.replace().unwrap();
    let found = rig.parse(&fs::read_to_string(rig.path()).unwrap());
    assert!(restart_lines(&read.config, &found).is_empty() && is_same(&found, &read_with(&read, &running)));
}

/// Configuration in force, with the keys of the file that need a restart.
fn read_with(read: &FileRead, running: &RunningConfig) -> Config {
    let mut config = Config::clone(&running.config);
    keep_until_restart(&read.config, &mut config);
    config
}

#[test]
fn what_is_written_has_a_bound_and_names_keys_that_change_at_the_next_start() {
    let rig = Rig::new(&format!("workers = 2\nuser = \"root\"\n{TEXT}"));
    let now = || FileText::read(rig.path(), &rig.source.environment).unwrap();
    let in_force = rig.read().config;
    let change = |text: String| {
        let config = rig.parse(&text);
        FileChange::new(rig.path(), now(), text, config, &in_force)
    };
    let change_of = |head: &str| change(format!("{head}{TEXT}")).unwrap();
    assert!(change_of("workers = 2\nuser = \"root\"\n# more\n").warnings().is_empty());
    let [warning] = change_of("workers = 3\nuser = \"root\"\n").warnings().to_vec().try_into().unwrap();
    assert!(warning.contains("workers: 2 -> 3") && !warning.contains("user"), "{warning}");
    let [warning]: [String; 1] = change_of("").warnings().to_vec().try_into().unwrap();
    assert!(warning.contains("workers") && warning.contains("user"), "{warning}");
    let large = format!("workers = 2\nuser = \"root\"\n{TEXT}# {}\n", "x".repeat(16 << 20));
    let refused = change(large).unwrap_err();
    assert!(refused.contains("and a configuration has 16777216 at most"), "{refused}");
}

#[test]
fn a_file_that_changes_between_reading_and_writing_stays() {
    let rig = Rig::new(&format!("include = \"*.more\"\n{TEXT}"));
    let in_force = rig.read().config;
    let text = format!("include = \"*.more\"\n# new\n{TEXT}");
    let now = FileText::unchanged(rig.path(), &rig.read(), &rig.source.environment).unwrap();
    let change = FileChange::new(rig.path(), now, text.clone(), rig.parse(&text), &in_force).unwrap();
    fs::write(rig.folder.path().join("a.more"), "").unwrap();
    assert!(change.replace().is_err_and(|why| why.contains("was changed meanwhile")));
    fs::remove_file(rig.folder.path().join("a.more")).unwrap();
    assert_eq!(change.replace().unwrap().read.digest, Some(sources(rig.path()).digest));
    assert!(change.replace().is_err(), "it was written");
}
