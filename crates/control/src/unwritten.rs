//! Changes in force that the file of the configuration does not have: those that were made through the admin API and not
//! written. A reload forgets them. An upgrade hands those of single items over, and refuses to lose any other.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use offramp_config::{Config, ConfigDiff, Edit, Environment, ServerEdit, keep_until_restart};

use crate::change::edited;
use crate::error::Error;

/// As many are remembered one by one; an operator who makes more writes them to the file. At worst each is read with the
/// whole configuration when it passes over.
const MOST: usize = 200;

/// Lines of the difference that are kept, and lines that a message has.
const LINES: usize = 200;
const FEW: usize = 10;

/// What is in force and not in the file.
#[derive(Clone, Debug)]
pub(crate) struct Unwritten {
    /// What the file had when it was read or written last.
    file: Arc<Config>,
    /// The changes of single items since, in their order.
    edits: Vec<Edit>,
    /// Whether there were other changes since.
    others: bool,
    /// What is different from the file, in the lines of a difference; bounded.
    lines: Arc<[String]>,
}

/// A change, as far as it matters here.
#[derive(Clone, Debug)]
pub(crate) enum Made {
    /// What is in force now is what the file has.
    Read,
    /// The whole of it was replaced.
    Whole,
    /// One item has changed.
    Item {
        edit: Box<Edit>,
        /// What the file has if the edit is written to it, where that is known.
        file: Option<Arc<Config>>,
    },
}

impl Unwritten {
    /// Nothing: `config` was read from the file.
    pub(crate) fn none(config: &Arc<Config>) -> Self {
        Self { file: Arc::clone(config), edits: Vec::new(), others: false, lines: Arc::default() }
    }

    /// Takes note of a change by which `config` is in force, and whether it was written to the file.
    pub(crate) fn note(&mut self, made: &Made, is_written: bool, config: &Arc<Config>) {
        match (made, is_written) {
            (Made::Read, _) | (Made::Whole, true) => *self = Self::none(config),
            (Made::Whole, false) => self.others = true,
            (Made::Item { file, edit }, true) => {
                if let Some(file) = file {
                    self.file = Arc::clone(file);
                }
                // What waits to pass over does not undo what was written since.
                if let Some(earlier) = self.earlier(edit) {
                    merge(earlier, edit);
                }
            }
            (Made::Item { edit, .. }, false) => self.push(edit),
        }
        self.lines = difference(&self.file, config);
        if self.lines.is_empty() {
            (self.edits, self.others) = (Vec::new(), false);
        }
    }

    /// Adds an edit; one of a server becomes part of an earlier one of the same server.
    fn push(&mut self, edit: &Edit) {
        if let Some(same) = self.earlier(edit) {
            merge(same, edit);
        } else if self.edits.len() < MOST {
            self.edits.push(edit.clone());
        } else {
            self.others = true;
        }
    }

    /// An edit before this one that both can become one with.
    fn earlier(&mut self, edit: &Edit) -> Option<&mut Edit> {
        let earlier = self.edits.iter_mut().rev();
        // Beyond one that adds or removes something, the server may be another.
        let mut earlier = earlier.take_while(|earlier| is_small(earlier));
        earlier.find(|earlier| is_of_same(earlier, edit))
    }

    /// What the configuration in force has that the file has not, in the lines of a difference.
    pub(crate) fn lines(&self) -> &Arc<[String]> {
        &self.lines
    }

    /// What the file had when it was read or written last.
    pub(crate) fn file(&self) -> &Config {
        &self.file
    }

    /// The changes, as the process gets them that takes the place of this one. `found` is what the file has now, if it has
    /// no mistake: somebody may have written the changes into it meanwhile.
    ///
    /// # Errors
    /// What would be lost.
    pub(crate) fn hand_over(
        &self,
        config: &Config,
        found: Option<Config>,
        (path, environment): (&Path, &Environment),
    ) -> Result<Vec<String>, String> {
        if self.edits.is_empty() && !self.others {
            return Ok(Vec::new());
        }
        let mut edits: Vec<&Edit> = self.edits.iter().collect();
        if let Some(mut found) = found {
            keep_until_restart(config, &mut found);
            if is_same(&found, config) {
                return Ok(Vec::new());
            }
            if let Some(missing) = missing(found, &edits, config, (path, environment)) {
                edits = missing;
            }
        }
        let all: Vec<&Edit> = self.edits.iter().collect();
        // Other changes may have come between them, written ones too: they must lead to what is in force.
        let leads =
            || edited(&self.file, &all, path, environment).is_ok_and(|led| is_same(&led.config, config));
        if self.others || !leads() {
            return Err(few(&self.lines));
        }
        Ok(edits.into_iter().map(Edit::to_text).collect())
    }

    /// The configuration of the file with the changes that were handed over.
    ///
    /// # Errors
    /// One of them cannot be made.
    pub(crate) fn take_over(
        config: Config,
        texts: &[String],
        (path, environment): (&Path, &Environment),
    ) -> Result<(Config, Self), Error> {
        if texts.is_empty() {
            let none = Self::none(&Arc::new(config.clone()));
            return Ok((config, none));
        }
        let refused = |edit: &dyn fmt::Display, why: &dyn fmt::Display| {
            Error::one(format!(
                "a change is in force that the file does not have, and it cannot be made to what the file has now \
                 ({edit}: {why}); write it to the file, or go without it: `offramp ctl upgrade --force`"
            ))
        };
        let known = |text: &String| {
            Edit::from_text(text).ok_or_else(|| refused(&text.trim(), &"it is not known here"))
        };
        let edits = texts.iter().map(known).collect::<Result<Vec<Edit>, Error>>()?;
        let all: Vec<&Edit> = edits.iter().collect();
        let made = edited(&config, &all, path, environment).map_err(|(at, why)| match edits.get(at) {
            Some(edit) => refused(edit, &why),
            None => refused(&"all of them", &why),
        })?;
        let lines = difference(&config, &made.config);
        Ok((made.config, Self { file: Arc::new(config), edits, others: false, lines }))
    }

    /// How many changes were handed over.
    pub(crate) fn count(&self) -> usize {
        self.edits.len()
    }
}

/// The edits that the file has not, if it has the others: these cannot be made to it once more, and without them it leads to
/// what is in force.
fn missing<'e>(
    found: Config,
    edits: &[&'e Edit],
    config: &Config,
    (path, environment): (&Path, &Environment),
) -> Option<Vec<&'e Edit>> {
    if edited(&found, edits, path, environment).is_ok() {
        return None;
    }
    let (mut now, mut missing) = (found, Vec::new());
    for edit in edits {
        if let Ok(made) = edited(&now, &[edit], path, environment) {
            now = made.config;
            missing.push(*edit);
        }
    }
    is_same(&now, config).then_some(missing)
}

/// The lines in which a configuration differs from the file; the last says how many there are more.
fn difference(file: &Config, config: &Config) -> Arc<[String]> {
    let difference = ConfigDiff::between(file, config).to_string();
    let more = difference.lines().count().saturating_sub(LINES);
    let lines = difference.lines().take(LINES).map(str::to_owned);
    lines.chain((more > 0).then(|| format!("and {more} more"))).collect()
}

/// Some of the lines, in one.
pub(crate) fn few(lines: &[String]) -> String {
    let more = lines.len().saturating_sub(FEW);
    let few = lines[..lines.len() - more].join("; ");
    if more > 0 { format!("{few}; and {more} more: `offramp ctl --json status` has them") } else { few }
}

/// Whether two configurations do the same.
fn is_same(one: &Config, other: &Config) -> bool {
    ConfigDiff::between(one, other).is_empty()
}

/// Whether it neither adds nor removes an item.
fn is_small(edit: &Edit) -> bool {
    matches!(edit, Edit::Set { .. } | Edit::Server { change: ServerEdit::Change { .. }, .. })
}

/// Whether both change the same server, or set the same key.
fn is_of_same(one: &Edit, other: &Edit) -> bool {
    match (one, other) {
        (
            Edit::Server { backend, server, change: ServerEdit::Change { .. } },
            Edit::Server { backend: other_backend, server: other, change: ServerEdit::Change { .. } },
        ) => backend == other_backend && server == other,
        (Edit::Set { section, key, .. }, Edit::Set { section: other_section, key: other, .. }) => {
            section == other_section && key == other
        }
        _ => false,
    }
}

/// Makes of `earlier` what both come to, one after the other.
fn merge(earlier: &mut Edit, later: &Edit) {
    match (earlier, later) {
        (
            Edit::Server { change: ServerEdit::Change { state, weight }, .. },
            Edit::Server { change: ServerEdit::Change { state: new_state, weight: new_weight }, .. },
        ) => {
            *state = new_state.or(*state);
            *weight = new_weight.or(*weight);
        }
        (Edit::Set { value, .. }, Edit::Set { value: new, .. }) => value.clone_from(new),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use offramp_config::Item;
    use offramp_config::model::{ServerState, Weight};

    use super::*;

    const TEXT: &str = "state_dir = \"/s\"\n[[listener]]\naddress = \"127.0.0.1:1\"\nmode = \"http\"\ntls = false\n\
                        [[route]]\nhost = \"a.example\"\nbackend = \"shop\"\n\
                        [backend.shop]\nservers = [\"127.0.0.1:2\", \"127.0.0.1:3\"]\n";

    const PATH: &str = "/c/c.toml";

    struct Rig {
        environment: Environment,
        config: Arc<Config>,
        unwritten: Unwritten,
    }

    impl Rig {
        fn new() -> Self {
            let environment = Environment::default();
            let config = Arc::new(offramp_config::parse(TEXT, PATH, &environment).unwrap().0);
            let unwritten = Unwritten::none(&config);
            Self { environment, config, unwritten }
        }

        fn edit(&mut self, edit: Edit, is_written: bool) {
            let next = |config: &Config| {
                Arc::new(edited(config, &[&edit], Path::new(PATH), &self.environment).unwrap().config)
            };
            let (config, file) = (next(&self.config), next(&self.unwritten.file));
            self.config = config;
            self.unwritten.note(
                &Made::Item { edit: Box::new(edit), file: Some(file) },
                is_written,
                &self.config,
            );
        }

        fn hand_over(&self) -> Result<Vec<String>, String> {
            self.hand_over_beside(None)
        }

        /// With this text in the file now.
        fn hand_over_beside(&self, found: Option<&str>) -> Result<Vec<String>, String> {
            let found = found.map(|text| offramp_config::parse(text, PATH, &self.environment).unwrap().0);
            self.unwritten.hand_over(&self.config, found, (Path::new(PATH), &self.environment))
        }

        fn taken_over(&self) -> Result<Config, Error> {
            let file = Config::clone(&self.unwritten.file);
            let edits = self.hand_over().unwrap();
            Unwritten::take_over(file, &edits, (Path::new(PATH), &self.environment)).map(|(config, _)| config)
        }
    }

    fn server(port: u16, state: Option<ServerState>, weight: Option<u16>) -> Edit {
        let weight = weight.and_then(Weight::new);
        let change = ServerEdit::Change { state, weight };
        Edit::Server { backend: "shop".to_owned(), server: format!("127.0.0.1:{port}"), change }
    }

    #[test]
    fn changes_of_one_server_are_one_and_none_if_they_are_undone() {
        let mut rig = Rig::new();
        for _ in 0..2 * MOST {
            rig.unwritten.push(&server(2, Some(ServerState::Drain), None));
        }
        rig.edit(server(2, Some(ServerState::Drain), None), false);
        rig.edit(server(3, None, Some(5)), false);
        rig.edit(server(2, None, Some(7)), false);
        assert_eq!(rig.unwritten.count(), 2);
        let taken = rig.taken_over().unwrap();
        assert_eq!(ConfigDiff::between(&taken, &rig.config).to_string(), "");
        rig.edit(server(2, Some(ServerState::Enabled), Some(1)), false);
        rig.edit(server(3, None, Some(1)), false);
        assert_eq!((rig.unwritten.count(), rig.unwritten.lines().len()), (0, 0));
    }

    #[test]
    fn what_is_written_is_not_handed_over_and_what_would_be_lost_is_told() {
        let mut rig = Rig::new();
        rig.edit(server(2, Some(ServerState::Disabled), None), false);
        rig.edit(server(3, None, Some(5)), true);
        let edits = rig.hand_over().unwrap();
        assert_eq!(edits.len(), 1, "{edits:?}");
        // The server of the first change is enabled in the file now: it stays so.
        rig.edit(server(3, Some(ServerState::Drain), None), false);
        rig.edit(server(2, Some(ServerState::Enabled), Some(2)), true);
        assert!(is_same(&rig.taken_over().unwrap(), &rig.config));
        // One change after the other does not lead to what is in force any more.
        for (lifetime, is_written) in [("1h", false), ("2h", true)] {
            let text = format!(
                "change = \"route\"\nname = \"a.example\"\nwithout = []\n[keys]\nresponse_timeout = \"{lifetime}\"\n"
            );
            rig.edit(Edit::from_text(&text).unwrap(), is_written);
        }
        let lost = rig.hand_over().unwrap_err();
        assert!(lost.contains("server 127.0.0.1:3: enabled -> drain"), "{lost}");
        rig.unwritten.note(&Made::Whole, false, &Arc::clone(&rig.config));
        let lost = rig.hand_over().unwrap_err();
        assert!(lost.contains("backend shop"), "{lost}");
        rig.unwritten.note(&Made::Read, false, &Arc::clone(&rig.config));
        assert_eq!(rig.hand_over(), Ok(Vec::new()));
    }

    #[test]
    fn a_change_that_the_file_cannot_have_is_an_error_with_advice() {
        let mut rig = Rig::new();
        rig.edit(server(2, Some(ServerState::Drain), None), false);
        rig.edit(Edit::Remove { item: Item::Route, name: "a.example".to_owned() }, false);
        let edits = rig.hand_over().unwrap();
        let other = TEXT.replace("127.0.0.1:2", "127.0.0.1:9");
        let other = offramp_config::parse(&other, PATH, &rig.environment).unwrap().0;
        let error = Unwritten::take_over(other, &edits, (Path::new(PATH), &rig.environment)).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("server 127.0.0.1:2: drain") && text.contains("--force"), "{text}");
    }

    #[test]
    fn what_somebody_has_written_into_the_file_meanwhile_is_not_handed_over() {
        let change = |port: u16, change: ServerEdit| Edit::Server {
            backend: "shop".to_owned(),
            server: format!("127.0.0.1:{port}"),
            change,
        };
        let removed = TEXT.replace("\"127.0.0.1:2\", ", "");
        let added = removed.replace("\"127.0.0.1:3\"", "\"127.0.0.1:3\", \"127.0.0.1:4\"");
        let mut rig = Rig::new();
        rig.edit(change(2, ServerEdit::Remove), false);
        assert_eq!(rig.hand_over_beside(Some(&removed)), Ok(Vec::new()));
        rig.edit(change(4, ServerEdit::Add), false);
        assert_eq!(rig.hand_over_beside(Some(&added)), Ok(Vec::new()));
        // Some of it.
        rig.edit(server(3, Some(ServerState::Drain), None), false);
        let edits = rig.hand_over_beside(Some(&added)).unwrap();
        assert!(matches!(&edits[..], [one] if one.contains("drain")), "{edits:?}");
        // Where the file has other changes besides, the next process says what does not fit.
        let other = added.replace("a.example", "b.example");
        assert_eq!(rig.hand_over_beside(Some(&other)).unwrap().len(), 3);
        // And a whole configuration that was written by hand.
        let config = Arc::new(offramp_config::parse(&added, PATH, &rig.environment).unwrap().0);
        rig.unwritten.note(&Made::Whole, false, &config);
        rig.config = config;
        assert!(rig.hand_over().is_err());
        assert_eq!(rig.hand_over_beside(Some(&added)), Ok(Vec::new()));
    }
}
