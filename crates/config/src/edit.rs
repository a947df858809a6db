//! Changes of single items in the text of a configuration. Comments, order and everything else stay as they are.
//!
//! An edit knows nothing of meanings: its result is a text, which is parsed and checked like any other. Which item is
//! meant follows from the configuration that the text stands for.

use std::fmt;

use toml_edit::{ArrayOfTables, DocumentMut, Item as Toml, Table, TableLike, Value};

use crate::model::{Config, Listeners, Route, ServerState, Weight};
use crate::print::print;
use crate::suggest::nearest;

mod place;
mod servers;
mod text;

/// What the text of the configuration in force is called, after an edit, in messages and as an origin.
pub const EDITED: &str = "admin API";

/// A kind of item that has a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    /// `[[listener]]`.
    Listener,
    /// `[[route]]`, called by what it matches: [`Route::name`](crate::model::Route::name).
    Route,
    /// `[backend.NAME]`.
    Backend,
    /// `[[certificate]]`, called by its files or names: [`Certificate::name`](crate::model::Certificate::name).
    Certificate,
}

/// One change.
#[derive(Clone, Debug)]
pub enum Edit {
    /// Adds an item at the end of those of its kind. A backend must not be there yet.
    Add {
        /// Its kind.
        item: Item,
        /// The name of a backend; others have theirs in the table.
        name: String,
        /// Its keys.
        table: Table,
    },
    /// Replaces the keys of an item.
    Replace {
        /// Its kind.
        item: Item,
        /// Its name.
        name: String,
        /// Its keys.
        table: Table,
    },
    /// Sets some keys of an item, and takes others away.
    Change {
        /// Its kind.
        item: Item,
        /// Its name.
        name: String,
        /// The keys that are set.
        table: Table,
        /// The keys that go.
        without: Vec<String>,
    },
    /// Removes an item.
    Remove {
        /// Its kind.
        item: Item,
        /// Its name.
        name: String,
    },
    /// Changes one server of a backend.
    Server {
        /// The backend.
        backend: String,
        /// The server's address, as it is written there.
        server: String,
        /// What changes.
        change: ServerEdit,
    },
    /// Sets a key of a section that is written once.
    Set {
        /// The section.
        section: &'static str,
        /// The key in it.
        key: &'static str,
        /// Its value.
        value: String,
    },
}

/// A change of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerEdit {
    /// Adds it: the address, and what may stand behind it.
    Add,
    /// Removes it.
    Remove,
    /// Changes its state or its share; what is `None` stays.
    Change {
        /// The state.
        state: Option<ServerState>,
        /// The share.
        weight: Option<Weight>,
    },
}

/// Why an edit cannot be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EditError {
    /// There is no item of that name.
    Unknown {
        /// What is missing: `route`, `backend`, `listener`, `certificate`, `server`.
        kind: &'static str,
        /// The name that was asked for.
        name: String,
        /// The name of an item that may be meant.
        nearest: Option<String>,
    },
    /// There is one of that name.
    Exists {
        /// What.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// Several items have that name.
    Ambiguous {
        /// What.
        kind: &'static str,
        /// Their name.
        name: String,
    },
    /// Others name it, and cannot be without it.
    InUse {
        /// What.
        kind: &'static str,
        /// Its name.
        name: String,
        /// The routes that name it.
        routes: Vec<String>,
    },
    /// It is written in another file, which this one includes.
    Elsewhere {
        /// Its name.
        name: String,
        /// That file; empty: it is written nowhere, but implied.
        file: String,
    },
    /// It is written in a form that edits do not know, such as an inline table.
    Form(String),
}

impl fmt::Display for EditError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { kind, name, nearest } => {
                write!(f, "there is no {kind} `{name}`")?;
                nearest.as_ref().map_or(Ok(()), |near| write!(f, "; the nearest one is `{near}`"))
            }
            Self::Exists { kind, name } => write!(f, "there is a {kind} `{name}` already"),
            Self::Ambiguous { kind, name } => {
                write!(f, "several {kind}s are called `{name}`; change the whole configuration instead")
            }
            Self::InUse { kind, name, routes } => {
                let few: Vec<String> =
                    routes.iter().take(MOST_USERS).map(|route| format!("`{route}`")).collect();
                let more = routes.len() - few.len();
                let more = if more > 0 { format!(" and {more} more") } else { String::new() };
                let (s, verb) = if routes.len() == 1 { ("", "uses") } else { ("s", "use") };
                let few = few.join(", ");
                write!(
                    f,
                    "the route{s} {few}{more} {verb} the {kind} `{name}`; change or remove the route{s} first"
                )
            }
            Self::Elsewhere { name, file } if file.is_empty() => {
                write!(f, "`{name}` is written in no file; write it into the configuration first")
            }
            Self::Elsewhere { name, file } => write!(f, "`{name}` is written in {file}; change it there"),
            Self::Form(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for EditError {}

/// How many routes a message names that use something.
const MOST_USERS: usize = 5;

impl Item {
    /// The word for people, and for paths.
    pub fn word(self) -> &'static str {
        match self {
            Self::Listener => "listener",
            Self::Route => "route",
            Self::Backend => "backend",
            Self::Certificate => "certificate",
        }
    }

    /// The names of the items of this kind in a configuration, with the file where each is written.
    fn names(self, config: &Config) -> Vec<(String, String)> {
        let file =
            |at: &crate::At| at.place().map(|place| place.file.as_ref().to_owned()).unwrap_or_default();
        match self {
            Self::Listener => {
                config.listeners.iter().map(|one| (one.name.to_string(), file(&one.at))).collect()
            }
            Self::Certificate => config.certificates.iter().map(|one| (one.name(), file(&one.at))).collect(),
            Self::Route => config.routes.iter().map(|one| (one.name(), file(&one.at))).collect(),
            Self::Backend => {
                config.backends.iter().map(|one| (one.name.to_string(), file(&one.at))).collect()
            }
        }
    }

    /// Where the item of that name is among those of the file.
    fn find(self, config: &Config, file: &str, name: &str) -> Result<usize, EditError> {
        let names = self.names(config);
        let mut named = names.iter().filter(|(other, _)| other == name);
        let Some((_, written)) = named.next() else {
            return Err(unknown(self.word(), name, names.iter().map(|(name, _)| name.as_str())));
        };
        if named.next().is_some() {
            return Err(EditError::Ambiguous { kind: self.word(), name: name.to_owned() });
        }
        if written != file {
            return Err(EditError::Elsewhere { name: name.to_owned(), file: written.clone() });
        }
        let here = names.iter().filter(|(_, written)| written == file);
        Ok(here.take_while(|(other, _)| other != name).count())
    }
}

fn unknown<'n>(kind: &'static str, name: &str, known: impl Iterator<Item = &'n str>) -> EditError {
    let nearest = nearest(name, known).map(str::to_owned);
    EditError::Unknown { kind, name: name.to_owned(), nearest }
}

impl Edit {
    /// The text of a configuration that edits are made in: everything that is not implied.
    pub fn text_of(config: &Config) -> String {
        print(&config.without_implied())
    }

    /// Makes the change in `text`, which `config` was read from; `file` is what the text is called there.
    ///
    /// # Errors
    /// The item is not in the text, or in a form that is not known.
    pub fn apply(&self, text: &str, config: &Config, file: &str) -> Result<String, EditError> {
        let mut document = read(text)?;
        self.apply_to(&mut document, config, file)?;
        Ok(document.to_string())
    }

    /// Makes changes in `text` one after the other, until one needs to know what those before it have made: what they lead
    /// to has to be read for that. Gives the text, and how many were made; at least one of several.
    ///
    /// # Errors
    /// As [`Edit::apply`], with the position of the change that cannot be made.
    pub fn apply_some(
        edits: &[&Edit],
        text: &str,
        config: &Config,
        file: &str,
    ) -> Result<(String, usize), (usize, EditError)> {
        let mut document = read(text).map_err(|error| (0, error))?;
        let mut made = 0;
        for edit in edits {
            if edits[..made].iter().any(|before| before.leads_elsewhere(edit)) {
                break;
            }
            edit.apply_to(&mut document, config, file).map_err(|error| (made, error))?;
            made += 1;
        }
        Ok((document.to_string(), made))
    }

    /// Whether `later` cannot find what it is about by the configuration before this change.
    fn leads_elsewhere(&self, later: &Self) -> bool {
        let looks_at = |item: Item| match later {
            // It is put at the end, whatever there is.
            Self::Add { item: added, .. } => *added == Item::Backend && item == Item::Backend,
            Self::Replace { item: other, .. } | Self::Change { item: other, .. } => *other == item,
            // What routes use is not removed.
            Self::Remove { item: other, .. } => *other == item || item == Item::Route,
            Self::Server { .. } => item == Item::Backend,
            Self::Set { .. } => false,
        };
        match self {
            // Certificates may be called by the hosts of routes.
            Self::Add { item, .. }
            | Self::Replace { item, .. }
            | Self::Change { item, .. }
            | Self::Remove { item, .. } => {
                looks_at(*item) || *item == Item::Route && looks_at(Item::Certificate)
            }
            Self::Server { change: ServerEdit::Add | ServerEdit::Remove, backend, .. } => {
                matches!(later, Self::Server { backend: other, .. } if other == backend)
            }
            Self::Server { .. } | Self::Set { .. } => false,
        }
    }

    fn apply_to(&self, document: &mut DocumentMut, config: &Config, file: &str) -> Result<(), EditError> {
        match self {
            Self::Add { item, name, table } => add(document, config, *item, name, table)?,
            Self::Replace { item, name, table } => {
                let at = item.find(config, file, name)?;
                replace(entry(document, *item, at, name)?, table);
            }
            Self::Change { item, name, table, without } => {
                let at = item.find(config, file, name)?;
                change(entry(document, *item, at, name)?, table, without);
            }
            Self::Remove { item, name } => {
                let at = item.find(config, file, name)?;
                unused(config, *item, name)?;
                remove(document, *item, at, name)?;
            }
            Self::Server { backend, server, change } => {
                let at = Item::Backend.find(config, file, backend)?;
                let table = entry(document, Item::Backend, at, backend)?;
                servers::edit(table, config, backend, server, change)?;
            }
            Self::Set { section, key, value } => {
                let inner = document.entry(section).or_insert_with(|| Toml::Table(Table::new()));
                let inner = inner.as_table_like_mut().ok_or_else(|| form(section))?;
                set(inner, key, Toml::Value(Value::from(value.as_str())));
            }
        }
        Ok(())
    }
}

fn read(text: &str) -> Result<DocumentMut, EditError> {
    text.parse().map_err(|error: toml_edit::TomlError| EditError::Form(error.to_string()))
}

/// What is said of a text that an edit has made, in words that lead to what it is about: `in line N` becomes the item in
/// that line, with its place in the file where `config`, which is in force, has it.
pub fn without_lines(said: &str, text: &str, config: &Config) -> String {
    let mut out = String::new();
    let mut rest = said;
    while let Some((before, after)) = rest.split_once(IN_LINE) {
        let end = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
        let item = after[..end].parse().ok().and_then(|line| place::item_at(text, line, config));
        out.push_str(before);
        out.push_str(&item.unwrap_or_else(|| format!("{IN_LINE}{}", &after[..end])));
        rest = &after[end..];
    }
    out + rest
}

/// The item that a line (from 1) of a text belongs to that an edit has made.
pub fn item_at(text: &str, line: usize, config: &Config) -> Option<String> {
    place::item_at(text, line, config)
}

const IN_LINE: &str = "in line ";

fn form(what: &str) -> EditError {
    EditError::Form(format!("`{what}` is written as an inline table or list; write it under a header"))
}

fn list(document: &mut DocumentMut, item: Item) -> Result<&mut ArrayOfTables, EditError> {
    let entry = document.entry(item.word()).or_insert_with(|| Toml::ArrayOfTables(ArrayOfTables::new()));
    entry.as_array_of_tables_mut().ok_or_else(|| form(item.word()))
}

fn entry<'d>(
    document: &'d mut DocumentMut,
    item: Item,
    at: usize,
    name: &str,
) -> Result<&'d mut dyn TableLike, EditError> {
    if item == Item::Backend {
        let backends = document.get_mut("backend").and_then(Toml::as_table_like_mut);
        let one = backends.and_then(|all| all.get_mut(name)).and_then(Toml::as_table_like_mut);
        return one.ok_or_else(|| form(name));
    }
    let one = list(document, item)?.get_mut(at);
    one.map(|table| -> &mut dyn TableLike { table }).ok_or_else(|| form(item.word()))
}

fn add(
    document: &mut DocumentMut,
    config: &Config,
    item: Item,
    name: &str,
    table: &Table,
) -> Result<(), EditError> {
    let mut table = table.clone();
    table.decor_mut().set_prefix("\n");
    if item != Item::Backend {
        list(document, item)?.push(table);
        return Ok(());
    }
    if config.backends.iter().any(|backend| backend.name.as_str() == name) {
        return Err(EditError::Exists { kind: item.word(), name: name.to_owned() });
    }
    let all = document.entry(item.word()).or_insert_with(|| {
        let mut all = Table::new();
        all.set_implicit(true);
        Toml::Table(all)
    });
    all.as_table_like_mut().ok_or_else(|| form(item.word()))?.insert(name, Toml::Table(table));
    Ok(())
}

fn remove(document: &mut DocumentMut, item: Item, at: usize, name: &str) -> Result<(), EditError> {
    if item == Item::Backend {
        let all = document.get_mut("backend").and_then(Toml::as_table_like_mut);
        return all.and_then(|all| all.remove(name)).map(drop).ok_or_else(|| form(name));
    }
    let all = list(document, item)?;
    if at >= all.len() {
        return Err(form(item.word()));
    }
    all.remove(at);
    if all.is_empty() {
        document.remove(item.word());
    }
    Ok(())
}

/// Gives `old` the keys of `new`; those that stay keep their comments.
fn replace(old: &mut dyn TableLike, new: &Table) {
    let gone: Vec<String> =
        old.iter().map(|(key, _)| key.to_owned()).filter(|key| !new.contains_key(key)).collect();
    for key in gone {
        old.remove(&key);
    }
    for (key, item) in new {
        set(old, key, item.clone());
    }
}

/// Gives an item these keys beside those that it has, and takes others away.
fn change(old: &mut dyn TableLike, new: &Table, without: &[String]) {
    for key in without {
        old.remove(key);
    }
    for (key, item) in new {
        set(old, key, item.clone());
    }
}

/// Whether no route needs an item.
fn unused(config: &Config, item: Item, name: &str) -> Result<(), EditError> {
    let uses = |route: &&Route| match item {
        Item::Backend => route.backends().into_iter().any(|backend| backend.as_str() == name),
        Item::Listener => match &route.listeners {
            Listeners::Named(names) => names.iter().any(|listener| listener.as_str() == name),
            Listeners::All => false,
        },
        Item::Route | Item::Certificate => false,
    };
    let routes: Vec<String> = config.routes.iter().filter(uses).map(Route::name).collect();
    if routes.is_empty() {
        return Ok(());
    }
    Err(EditError::InUse { kind: item.word(), name: name.to_owned(), routes })
}

/// Sets a key, and keeps what stands around the value of before.
fn set(table: &mut dyn TableLike, key: &str, mut item: Toml) {
    let old = table.get(key).and_then(Toml::as_value).map(|value| value.decor().clone());
    if let (Some(decor), Some(value)) = (old, item.as_value_mut()) {
        *value.decor_mut() = decor;
    }
    match table.get_mut(key) {
        Some(place) => *place = item,
        None => drop(table.insert(key, item)),
    }
}

#[cfg(test)]
mod tests;
