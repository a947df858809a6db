//! The table of keys as the Markdown tables of `docs/config.md`.

use std::fmt::Write as _;

use super::{Default, Key, Reload, Support, TABLE, header, in_section, shared};

/// The tables of all supported sections, each under a heading, then the list of what is planned.
pub fn tables() -> String {
    let mut out = String::new();
    section(&mut out, "", "## Top level", None);
    let sections =
        TABLE.iter().filter(|key| key.support.is_now() && in_section(&inner(key)).next().is_some());
    for key in sections {
        let title = header(&inner(key)).replace('`', "");
        section(&mut out, &inner(key), &format!("## {title}"), Some(key));
    }
    planned(&mut out);
    out
}

/// The path that the keys within a section have as theirs.
fn inner(key: &Key) -> String {
    match key.kind {
        super::Kind::Named => format!("{}.*", key.path),
        _ => key.path.to_owned(),
    }
}

fn section(out: &mut String, path: &str, heading: &str, key: Option<&Key>) {
    // Writing to a String cannot fail.
    let _ = writeln!(out, "{heading}\n");
    if let Some(key) = key {
        let _ = writeln!(out, "{}. Absent: {}.\n", key.doc, default(key.default));
    }
    if shared(path).is_some() {
        let names: Vec<String> = in_section(path).map(|key| format!("`{}`", key.name())).collect();
        let _ = writeln!(out, "It takes these keys of [[route]]: {}.\n", names.join(", "));
        return;
    }
    let _ = writeln!(out, "| key | takes | default | reload | meaning |\n| --- | --- | --- | --- | --- |");
    let rows = in_section(path).filter(|key| !key.kind.is_section() || !path.is_empty());
    for key in rows.filter(|key| key.support.is_now()) {
        let mut takes =
            if key.kind.is_section() { "a table, see below".to_owned() } else { key.kind.to_string() };
        if key.can_be_off() {
            takes.push_str("; or `false`");
        }
        let reload = match key.reload {
            Reload::Live => "live",
            Reload::Restart => "upgrade",
        };
        let _ = writeln!(
            out,
            "| `{}` | {takes} | {} | {reload} | {} |",
            key.name(),
            default(key.default),
            key.doc
        );
    }
    out.push('\n');
}

fn default(default: Default) -> String {
    match default {
        Default::Toml(value) => format!("`{value}`"),
        Default::Absent(meaning) => meaning.to_owned(),
        Default::Required => "must be written".to_owned(),
    }
}

fn planned(out: &mut String) {
    if TABLE.iter().all(|key| key.support.is_now()) {
        return;
    }
    out.push_str(
        "## Planned\n\nThese are part of the language, and an error that says so in this version.\n\n",
    );
    out.push_str("| key | meaning |\n| --- | --- |\n");
    for key in TABLE.iter().filter(|key| key.support == Support::Planned) {
        let _ = writeln!(out, "| `{}` | {} |", key.path.replace('*', "NAME"), key.doc);
    }
    let mut values = String::new();
    for key in TABLE.iter().filter(|key| key.support.is_now()) {
        for choice in key.kind.choices().iter().filter(|choice| choice.support == Support::Planned) {
            let _ = writeln!(values, "| `{}` | `\"{}\"` |", key.path.replace('*', "NAME"), choice.word);
        }
    }
    if !values.is_empty() {
        let _ = write!(out, "\n| key | value |\n| --- | --- |\n{values}");
    }
}
