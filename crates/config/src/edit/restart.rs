//! Keys that take effect at a restart, carried from one text to another.

use toml_edit::{DocumentMut, Item as Toml, Table, TableLike};

use super::lines::LineEnds;
use super::{Edit, EditError, form, read, set};
use crate::keys::{self, Reload};

impl Edit {
    /// Gives `text` the keys that take effect at a restart as `file` writes them, and takes those away that it
    /// does not write. Everything else of `text` stays.
    ///
    /// # Errors
    /// One of the texts has a section in an unsupported form.
    pub fn with_restart_keys(text: &str, file: &str) -> Result<String, EditError> {
        let (mut document, source) = (read(text)?, read(file)?);
        for (key, _) in keys::settings().filter(|(key, _)| key.reload == Reload::Restart) {
            let (section, name) = (key.section(), key.name());
            let wanted = inner(&source, section)?.and_then(|table| table.get(name));
            match wanted {
                Some(wanted) => put(&mut document, section, name, wanted)?,
                None => take(&mut document, section, name)?,
            }
        }
        Ok(LineEnds::of(text).apply(document.to_string()))
    }
}

/// The section of a document, if it is there; the document itself for the empty name.
fn inner<'d>(document: &'d DocumentMut, section: &str) -> Result<Option<&'d dyn TableLike>, EditError> {
    if section.is_empty() {
        return Ok(Some(document.as_table()));
    }
    let Some(found) = document.get(section) else { return Ok(None) };
    found.as_table_like().map(Some).ok_or_else(|| form(section))
}

fn put(document: &mut DocumentMut, section: &str, name: &str, wanted: &Toml) -> Result<(), EditError> {
    let table: &mut dyn TableLike = if section.is_empty() {
        document.as_table_mut()
    } else {
        let found = document.entry(section).or_insert_with(|| Toml::Table(Table::new()));
        found.as_table_like_mut().ok_or_else(|| form(section))?
    };
    let plain = |item: &Toml| item.as_value().map(|value| value.clone().decorated("", "").to_string());
    let is_there = table.get(name).is_some_and(|found| plain(found) == plain(wanted));
    if is_there {
        return Ok(());
    }
    if table.contains_key(name) {
        set(table, name, wanted.clone());
    } else {
        table.insert(name, wanted.clone());
    }
    Ok(())
}

/// Removes a key, and its section if that is empty then.
fn take(document: &mut DocumentMut, section: &str, name: &str) -> Result<(), EditError> {
    if section.is_empty() {
        document.remove(name);
        return Ok(());
    }
    let Some(found) = document.get_mut(section) else { return Ok(()) };
    let table = found.as_table_like_mut().ok_or_else(|| form(section))?;
    if table.remove(name).is_some() && table.is_empty() {
        document.remove(section);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Environment, keep_until_restart, parse};

    const REST: &str = "[[route]]\nbackend = \"b\" # mine\n[backend.b]\nservers = [\"h:1\"]\n";

    #[test]
    fn keys_of_the_file_stay_whatever_the_text_says() {
        let files = [
            "",
            "state_dir = \"state\" # here\nuser = \"root\"\n",
            "sandbox = \"strict\"\nworkers = 1\n",
            "admin.enabled = false\n",
            "admin = { address = \"unix:/run/a\" }\n",
            "[admin]\naddress = \"127.0.0.1:1\"\ntoken_file = \"t\"\n",
            "[log_store]\nurl = \"sqlite:/x\"\nretention = \"9d\"\n",
        ];
        let read = |text: &str| parse(text, "/c/c.toml", &Environment::default()).unwrap().0;
        for file in files {
            for text in files {
                let (file, text) = (format!("{file}{REST}"), format!("{text}{REST}# tail\n"));
                let Ok(parsed) = parse(&text, "/c/c.toml", &Environment::default()) else { continue };
                let written = Edit::with_restart_keys(&text, &file).unwrap();
                assert!(written.contains("# mine") && written.contains("# tail"), "{written}");
                let mut now = read(&written);
                assert!(keep_until_restart(&read(&file), &mut now.clone()).is_empty(), "{file}\n{written}");
                keep_until_restart(&parsed.0, &mut now);
                assert_eq!(now, parsed.0, "{written}");
            }
        }
        // What is there already keeps its comments and its place.
        let text = format!("workers = 1 # few\n{REST}");
        assert_eq!(Edit::with_restart_keys(&text, &text).unwrap(), text);
        let other = Edit::with_restart_keys(&text, &format!("workers = 2\n{REST}")).unwrap();
        assert_eq!(other, text.replace("workers = 1", "workers = 2"));
    }
}
