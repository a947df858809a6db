use std::path::Path;

use offramp_config::model::{ServerState, Weight};
use offramp_config::{Environment, Item, ServerEdit, parse};

use super::*;

const TEXT: &str = "state_dir = \"/s\"\n[[listener]]\naddress = \"127.0.0.1:1\"\nmode = \"http\"\ntls = false\n\
                    [[route]]\nhost = \"a.example\"\nbackend = \"shop\"\n\
                    [backend.shop]\nservers = [\"127.0.0.1:2\", \"127.0.0.1:3\"] # both\n";
const PATH: &str = "/c/c.toml";
const DIGEST: u64 = 7;

struct Rig {
    source: Source,
    running: RunningConfig,
    read: FileRead,
}

fn read(text: &str) -> Config {
    parse(text, PATH, &Environment::default()).unwrap().0
}

impl Rig {
    fn new() -> Self {
        let source = Source { origin: Origin::File(PATH.into()), environment: Environment::default() };
        let config = Arc::new(read(TEXT));
        let running = RunningConfig::read(Arc::clone(&config), TEXT);
        Self { source, running, read: FileRead { config, digest: Some(DIGEST) } }
    }

    fn edit(&mut self, edit: &Edit) {
        let made = edited(&self.running, &[edit], &self.source).map_err(|(_, why)| why).unwrap();
        self.running = RunningConfig { config: Arc::new(made.config), text: made.text };
    }

    /// The changes, while the file has this text.
    fn beside(&self, text: &str) -> Result<KeptChanges, String> {
        let digest = if text == TEXT { DIGEST } else { DIGEST + 1 };
        let now = FileNow { config: Some(read(text)), digest: Some(digest) };
        KeptChanges::beside(now, &self.running, &self.read, &self.source)
    }

    /// The configuration of a new process from the changes and a file with this text.
    fn taken_over(&self, text: &str) -> Result<RunningConfig, Error> {
        let kept = self.beside(text).unwrap();
        let config = Arc::new(read(text));
        let digest = Some(if text == TEXT { DIGEST } else { DIGEST + 1 });
        kept.take_over(
            RunningConfig::read(Arc::clone(&config), text),
            &FileRead { config, digest },
            &self.source,
        )
    }

    fn leads(&self, text: &str) -> bool {
        is_same(&self.taken_over(text).unwrap().config, &self.running.config)
    }
}

fn server(port: u16, change: ServerEdit) -> Edit {
    Edit::Server { backend: "shop".to_owned(), server: format!("127.0.0.1:{port}"), change }
}

fn drain(port: u16) -> Edit {
    server(port, ServerEdit::Change { state: Some(ServerState::Drain), weight: None })
}

fn weight(port: u16, weight: u16) -> Edit {
    server(port, ServerEdit::Change { state: None, weight: Weight::new(weight) })
}

#[test]
fn the_whole_text_passes_while_the_file_is_as_it_was() {
    let mut rig = Rig::new();
    assert_eq!(KeptChanges::of(&rig.running, &rig.read, &rig.source), Ok(KeptChanges::default()));
    rig.edit(&drain(2));
    let taken = rig.taken_over(TEXT).unwrap();
    assert!(is_same(&taken.config, &rig.running.config));
    assert!(taken.text.contains("# both") && taken.text.contains("127.0.0.1:2 drain"), "{}", taken.text);
    // Any configuration does, one without edits too.
    let whole = format!("[limits]\nidle_timeout = \"9m\"\n{}", TEXT.replace("state_dir = \"/s\"\n", ""));
    let whole = format!("state_dir = \"/s\"\n{whole}");
    rig.running = RunningConfig::read(Arc::new(read(&whole)), &whole);
    assert!(rig.leads(TEXT));
    // The file may be changed before the new process reads it.
    let kept = rig.beside(TEXT).unwrap();
    let other = FileRead { digest: Some(DIGEST + 1), ..rig.read.clone() };
    assert!(kept.take_over(rig.running.clone(), &other, &rig.source).is_err());
    // Undone, nothing passes.
    rig.running = RunningConfig::read(Arc::clone(&rig.read.config), TEXT);
    assert_eq!(rig.beside(TEXT), Ok(KeptChanges::default()));
}

#[test]
fn keys_for_a_restart_are_always_those_of_the_file() {
    let mut rig = Rig::new();
    let moved = TEXT.replace("/s", "/other");
    rig.edit(&drain(2));
    rig.running.text = rig.running.text.replace("/s", "/other").into();
    assert_eq!(rig.taken_over(TEXT).unwrap().config.process.state_dir, Path::new("/s"));
    assert_eq!(rig.taken_over(&moved).unwrap().config.process.state_dir, Path::new("/other"));
}

#[test]
fn changes_are_made_to_a_file_that_was_changed_meanwhile() {
    let mut rig = Rig::new();
    rig.edit(&drain(2));
    rig.edit(&weight(3, 5));
    rig.edit(&weight(2, 7));
    let other = TEXT.replace("\"127.0.0.1:3\"", "\"127.0.0.1:3\", \"127.0.0.1:4\"");
    let taken = rig.taken_over(&other).unwrap();
    let servers: Vec<String> = taken.config.backends[0].servers.iter().map(ToString::to_string).collect();
    assert_eq!(servers, ["127.0.0.1:2 weight=7 drain", "127.0.0.1:3 weight=5", "127.0.0.1:4"]);
    assert!(taken.text.contains("# both"), "{}", taken.text);
}

#[test]
fn plain_keys_are_made_to_a_file_that_was_changed_meanwhile() {
    let mut rig = Rig::new();
    let whole = TEXT.replace("[[listener]]", "[limits]\nidle_timeout = \"9m\"\n[[listener]]");
    rig.running = RunningConfig::read(Arc::new(read(&whole)), &whole);
    let taken = rig.taken_over(&TEXT.replace("a.example", "b.example")).unwrap();
    assert_eq!(taken.config.limits.idle_timeout.as_secs(), 540);
    assert!(taken.text.contains("# both") && taken.text.contains("b.example"), "{}", taken.text);
}

#[test]
fn changes_without_an_edit_are_not_lost_beside_another_file() {
    let mut rig = Rig::new();
    let whole = TEXT.replace("[[listener]]", "[policy.p]\nmax_body = \"1MiB\"\n[[listener]]");
    rig.running = RunningConfig::read(Arc::new(read(&whole)), &whole);
    let other = TEXT.replace("a.example", "b.example");
    let lost = rig.beside(&other).unwrap_err();
    assert!(lost.contains("policy p"), "{lost}");
    assert!(rig.leads(&whole), "somebody has written them by hand");
}

#[test]
fn a_change_that_the_file_cannot_have_is_an_error_with_advice() {
    let mut rig = Rig::new();
    rig.edit(&drain(2));
    rig.edit(&Edit::Remove { item: Item::Route, name: "a.example".to_owned() });
    let error = rig.taken_over(&TEXT.replace("127.0.0.1:2", "127.0.0.1:9")).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("server 127.0.0.1:2: drain") && text.contains("--force"), "{text}");
    let unknown = KeptChanges { edits: vec!["change = \"soul\"".to_owned()], text: None };
    let error = unknown.take_over(rig.running.clone(), &rig.read, &rig.source).unwrap_err();
    assert!(error.to_string().contains("not known here"), "{error}");
}

#[test]
fn changes_that_somebody_has_written_into_the_file_are_not_made_twice() {
    let removed = TEXT.replace("\"127.0.0.1:2\", ", "");
    let added = removed.replace("\"127.0.0.1:3\"", "\"127.0.0.1:3\", \"127.0.0.1:4\"");
    let mut rig = Rig::new();
    rig.edit(&server(2, ServerEdit::Remove));
    assert_eq!(rig.beside(&removed), Ok(KeptChanges::default()));
    rig.edit(&server(4, ServerEdit::Add));
    assert_eq!(rig.beside(&added), Ok(KeptChanges::default()));
    // Some of them.
    rig.edit(&drain(3));
    let kept = rig.beside(&added).unwrap();
    assert!(matches!(&kept.edits[..], [one] if one.contains("drain")), "{kept:?}");
    assert!(rig.leads(&added));
    // Where the file has other changes besides, the next process says what does not fit.
    assert_eq!(rig.beside(&added.replace("a.example", "b.example")).unwrap().edits.len(), 3);
}
