//! Edits of single items in the text of a configuration. Comments, order and everything else stay.
//!
//! Edits are purely textual: the result is parsed and checked like any other text. The configuration that the
//! text stands for identifies the item.

use std::fmt;

use toml_edit::{ArrayOfTables, DocumentMut, Item as Toml, Table, TableLike, Value};

use crate::model::{Config, Listeners, RouteConfig, ServerState, Weight};
use crate::print::print;
use crate::suggest::nearest;
use lines::LineEnds;

mod between;
mod lines;
mod meeting;
mod place;
mod restart;
mod servers;
mod text;

pub use meeting::EditMeeting;

/// The name of an edited text in messages and origins.
pub const EDITED: &str = "admin API";

/// A kind of item with names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    /// A `[[listener]]`, named by its key `name`.
    Listener,
    /// A `[[route]]`, named by its conditions: [`RouteConfig::name`](crate::model::RouteConfig::name).
    Route,
    /// A `[backend.NAME]` section.
    Backend,
    /// A `[[certificate]]`, named by its files or names:
    /// [`CertificateConfig::name`](crate::model::CertificateConfig::name).
    Certificate,
}

/// One change of a configuration's text.
#[derive(Clone, Debug)]
pub enum Edit {
    /// Adds an item after those of its kind. A backend of this name must not exist.
    Add {
        /// The kind of the item.
        item: Item,
        /// The name of a backend; other kinds have it in the table.
        name: String,
        /// The keys of the item.
        table: Table,
    },
    /// Replaces the keys of an item.
    Replace {
        /// The kind of the item.
        item: Item,
        /// The name of the item.
        name: String,
        /// The new keys of the item.
        table: Table,
    },
    /// Sets some keys of an item, and removes others.
    Change {
        /// The kind of the item.
        item: Item,
        /// The name of the item.
        name: String,
        /// The keys to set.
        table: Table,
        /// The keys to remove.
        without: Vec<String>,
    },
    /// Removes an item that nothing refers to.
    Remove {
        /// The kind of the item.
        item: Item,
        /// The name of the item.
        name: String,
    },
    /// Changes one server of a backend.
    Server {
        /// The name of the backend.
        backend: String,
        /// The server's address, as written there.
        server: String,
        /// The change of the server.
        change: ServerEdit,
    },
    /// Sets a key of a section that occurs once.
    Set {
        /// The name of the section.
        section: &'static str,
        /// The key within the section.
        key: &'static str,
        /// The value of the key.
        value: String,
    },
    /// Sets a plain key, or removes it.
    Setting {
        /// The path of the key, such as `limits.connections`.
        path: &'static str,
        /// The value in TOML; `None` removes the key.
        value: Option<String>,
    },
}

/// A change of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerEdit {
    /// Adds the server, by its address and optional attributes.
    Add,
    /// Removes the server from the backend.
    Remove,
    /// Changes state or weight; `None` keeps the present one.
    Change {
        /// The new administrative state.
        state: Option<ServerState>,
        /// The new share of the connections.
        weight: Option<Weight>,
    },
}

/// The reason for which an edit is impossible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EditError {
    /// There is no item of this name.
    Unknown {
        /// The kind: `route`, `backend`, `listener`, `certificate`, `server`.
        kind: &'static str,
        /// The name that was requested.
        name: String,
        /// The most similar existing name.
        nearest: Option<String>,
    },
    /// An item of this name exists already.
    Exists {
        /// The kind of the item.
        kind: &'static str,
        /// The name of the item.
        name: String,
    },
    /// Several items have this name.
    Ambiguous {
        /// The kind of the items.
        kind: &'static str,
        /// The name that they share.
        name: String,
    },
    /// The item is in use.
    InUse {
        /// The kind of the item.
        kind: &'static str,
        /// The name of the item.
        name: String,
        /// The routes that refer to the item.
        routes: Vec<String>,
    },
    /// The item is in another file, which this one includes.
    Elsewhere {
        /// The name of the item.
        name: String,
        /// The path of that file; empty for an implied item, which is in no file.
        file: String,
    },
    /// The item is written in an unsupported form, such as an inline table.
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

/// The number of routes that a message about an item in use lists.
const MOST_USERS: usize = 5;

impl Item {
    /// The word for the kind, in messages and paths.
    pub fn word(self) -> &'static str {
        match self {
            Self::Listener => "listener",
            Self::Route => "route",
            Self::Backend => "backend",
            Self::Certificate => "certificate",
        }
    }

    /// The names of the items of this kind, with the file of each.
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

    /// The index of the named item among those of the file.
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
    /// The text for edits: everything that is not implied.
    pub fn text_of(config: &Config) -> String {
        print(&config.without_implied())
    }

    /// Applies the edit to `text`, from which `config` was parsed; `file` is the name of the text there.
    ///
    /// # Errors
    /// The item is not in the text, or in an unsupported form.
    pub fn apply(&self, text: &str, config: &Config, file: &str) -> Result<String, EditError> {
        let mut document = read(text)?;
        self.apply_to(&mut document, config, file)?;
        Ok(LineEnds::of(text).apply(document.to_string()))
    }

    /// Applies edits to `text` in order, until one depends on the result of an earlier one, which must be
    /// parsed first. Returns the text, and the number applied; at least one of several.
    ///
    /// # Errors
    /// Those of [`Edit::apply`], with the index of the edit that is impossible.
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
        Ok((LineEnds::of(text).apply(document.to_string()), made))
    }

    /// Returns `true` if `later` cannot find its item by the configuration before this edit.
    fn leads_elsewhere(&self, later: &Self) -> bool {
        let looks_at = |item: Item| match later {
            // Added at the end, whatever exists.
            Self::Add { item: added, .. } => *added == Item::Backend && item == Item::Backend,
            Self::Replace { item: other, .. } | Self::Change { item: other, .. } => *other == item,
            // Items in use are not removed.
            Self::Remove { item: other, .. } => *other == item || item == Item::Route,
            Self::Server { .. } => item == Item::Backend,
            Self::Set { .. } | Self::Setting { .. } => false,
        };
        match self {
            // Certificates may be named by the hosts of routes.
            Self::Add { item, .. }
            | Self::Replace { item, .. }
            | Self::Change { item, .. }
            | Self::Remove { item, .. } => {
                looks_at(*item) || *item == Item::Route && looks_at(Item::Certificate)
            }
            Self::Server { change: ServerEdit::Add | ServerEdit::Remove, backend, .. } => {
                matches!(later, Self::Server { backend: other, .. } if other == backend)
            }
            Self::Server { .. } | Self::Set { .. } | Self::Setting { .. } => false,
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
            Self::Setting { path, value } => set_plain(document, path, value.as_deref())?,
        }
        Ok(())
    }
}

/// Sets a plain key to a value in TOML, or removes it.
fn set_plain(document: &mut DocumentMut, path: &str, value: Option<&str>) -> Result<(), EditError> {
    let (section, key) = path.rsplit_once('.').unwrap_or(("", path));
    let mut table: &mut dyn TableLike = document.as_table_mut();
    for name in section.split('.').filter(|name| !name.is_empty()) {
        let inner = table.entry(name).or_insert_with(|| Toml::Table(Table::new()));
        table = inner.as_table_like_mut().ok_or_else(|| form(section))?;
    }
    match value {
        Some(value) => {
            let value: Value =
                value.parse().map_err(|_| EditError::Form(format!("`{path}` has no such value")))?;
            set(table, key, Toml::Value(value.decorated(" ", "")));
        }
        None => drop(table.remove(key)),
    }
    Ok(())
}

fn read(text: &str) -> Result<DocumentMut, EditError> {
    text.parse().map_err(|error: toml_edit::TomlError| EditError::Form(error.to_string()))
}

/// Rewrites a message about an edited text: `in line N` becomes the item in that line, with its place in the
/// file of `config`, the configuration in force.
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

/// The item in a line (from 1) of an edited text.
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

/// Gives `old` the keys of `new`; keys in both keep their comments.
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

/// Sets keys of an item, and removes others.
fn change(old: &mut dyn TableLike, new: &Table, without: &[String]) {
    for key in without {
        old.remove(key);
    }
    for (key, item) in new {
        set(old, key, item.clone());
    }
}

/// Checks that no route refers to an item.
fn unused(config: &Config, item: Item, name: &str) -> Result<(), EditError> {
    let uses = |route: &&RouteConfig| match item {
        Item::Backend => route.backends().into_iter().any(|backend| backend.as_str() == name),
        Item::Listener => match &route.listeners {
            Listeners::Named(names) => names.iter().any(|listener| listener.as_str() == name),
            Listeners::All => false,
        },
        Item::Route | Item::Certificate => false,
    };
    let routes: Vec<String> = config.routes.iter().filter(uses).map(RouteConfig::name).collect();
    if routes.is_empty() {
        return Ok(());
    }
    Err(EditError::InUse { kind: item.word(), name: name.to_owned(), routes })
}

/// Sets a key, and keeps the white space and comments around the old value.
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
