//! Edits of one configuration by two sides.

use super::{Edit, ServerEdit, place};

/// The relation of an edit to one that another side has made to the same configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EditMeeting {
    /// They change different things.
    Apart,
    /// They are the same change.
    Same,
    /// They change the same thing to different ends.
    Conflict,
}

impl Edit {
    /// Compares with an edit that another side has made to the same configuration.
    #[must_use]
    pub fn meets(&self, other: &Self) -> EditMeeting {
        if self.thing() != other.thing() {
            return EditMeeting::Apart;
        }
        if self.to_text() == other.to_text() {
            return EditMeeting::Same;
        }
        let is_apart = match (self, other) {
            (
                Self::Change { table, without, .. },
                Self::Change { table: other_table, without: other_without, .. },
            ) => {
                let changes =
                    |key: &str| other_table.contains_key(key) || other_without.iter().any(|one| one == key);
                !table.iter().map(|(key, _)| key).chain(without.iter().map(String::as_str)).any(changes)
            }
            (Self::Change { table, without, .. }, Self::Server { .. })
            | (Self::Server { .. }, Self::Change { table, without, .. }) => {
                !table.contains_key("servers") && !without.iter().any(|key| key == "servers")
            }
            (Self::Server { server, change, .. }, Self::Server { server: other, change: to, .. }) => {
                server != other || are_apart(change, to)
            }
            _ => false,
        };
        if is_apart { EditMeeting::Apart } else { EditMeeting::Conflict }
    }

    /// The item or key that the edit changes: its kind and its name.
    fn thing(&self) -> (&str, String) {
        match self {
            Self::Add { item, name, table } if name.is_empty() => {
                (item.word(), place::name_of(item.word(), table))
            }
            Self::Add { item, name, .. }
            | Self::Replace { item, name, .. }
            | Self::Change { item, name, .. }
            | Self::Remove { item, name } => (item.word(), name.clone()),
            Self::Server { backend, .. } => ("backend", backend.clone()),
            Self::Set { section, key, .. } => ("setting", format!("{section}.{key}")),
            Self::Setting { path, .. } => ("setting", (*path).to_owned()),
        }
    }
}

/// True if both change other attributes of a server.
fn are_apart(one: &ServerEdit, other: &ServerEdit) -> bool {
    match (one, other) {
        (
            ServerEdit::Change { state, weight },
            ServerEdit::Change { state: other_state, weight: other_weight },
        ) => {
            (state.is_none() || other_state.is_none() || state == other_state)
                && (weight.is_none() || other_weight.is_none() || weight == other_weight)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit(text: &str) -> Edit {
        Edit::from_text(text).unwrap_or_else(|| panic!("{text}"))
    }

    #[test]
    fn edits_of_one_thing_conflict_unless_they_are_the_same() {
        let change = |keys: &str, without: &str| {
            format!("change = \"route\"\nname = \"a\"\nwithout = [{without}]\n[keys]\n{keys}\n")
        };
        let server =
            |name: &str, what: &str| format!("backend = \"b\"\nname = \"{name}\"\nserver = {what}\n");
        let backend = "change = \"backend\"\nname = \"b\"\nwithout = []\n[keys]\n";
        let route =
            |keys: &str| format!("add = \"route\"\nname = \"\"\n[keys]\nhost = \"n.example\"\n{keys}\n");
        let setting = |path: &str, value: &str| format!("setting = \"{path}\"\nvalue = '{value}'\n");
        let removed = "remove = \"route\"\nname = \"a\"\n".to_owned();
        use EditMeeting::{Apart, Conflict, Same};
        for (one, other, meeting) in [
            (change("hsts = true", ""), change("backend = \"b\"", ""), Apart),
            (change("hsts = true", ""), change("hsts = true", ""), Same),
            (change("hsts = true", ""), change("hsts = false", ""), Conflict),
            (change("hsts = true", ""), change("", "\"hsts\""), Conflict),
            (change("hsts = true", ""), change("", "\"hosts\""), Apart),
            (change("hsts = true", ""), removed.clone(), Conflict),
            (change("hsts = true", ""), removed.replace("\"a\"", "\"b\""), Apart),
            (removed.clone(), removed, Same),
            (route("backend = \"b\""), route("backend = \"b\""), Same),
            (route("backend = \"b\""), route("backend = \"c\""), Conflict),
            (server("h:1", "\"remove\""), server("h:2", "\"remove\""), Apart),
            (server("h:1", "\"remove\""), server("h:1", "\"change\"\nweight = 2"), Conflict),
            (server("h:1", "\"change\"\nstate = \"drain\""), server("h:1", "\"change\"\nweight = 2"), Apart),
            (server("h:1", "\"change\"\nweight = 3"), server("h:1", "\"change\"\nweight = 2"), Conflict),
            (server("h:1", "\"add\""), format!("{backend}balance = \"least_conn\"\n"), Apart),
            (server("h:1", "\"add\""), format!("{backend}servers = []\n"), Conflict),
            (setting("limits.connections", "5"), setting("limits.connections", "6"), Conflict),
            (setting("limits.connections", "5"), setting("limits.connections", "5"), Same),
            (setting("limits.connections", "5"), setting("limits.idle_timeout", "\"5s\""), Apart),
        ] {
            let (one, other) = (edit(&one), edit(&other));
            assert_eq!((one.meets(&other), other.meets(&one)), (meeting, meeting), "{one} and {other}");
        }
    }
}
