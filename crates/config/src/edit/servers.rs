//! Edits of single servers in the list of a backend. The comments of the others stay with them.

use toml_edit::{Array, Item as Toml, RawString, TableLike, Value};

use super::{EditError, ServerEdit, form, unknown};
use crate::model::{BackendServer, Config};

/// Edits the list of servers in `table`, the section of a backend.
pub(super) fn edit(
    table: &mut dyn TableLike,
    config: &Config,
    backend: &str,
    server: &str,
    change: &ServerEdit,
) -> Result<(), EditError> {
    let known: Vec<String> = config
        .backends
        .iter()
        .filter(|one| one.name.as_str() == backend)
        .flat_map(|one| one.servers.iter().map(|server| server.address.to_string()))
        .collect();
    let servers = table.get_mut("servers").and_then(Toml::as_value_mut).ok_or_else(|| form("servers"))?;
    if let Value::String(only) = servers {
        let decor = only.decor().clone();
        let mut array = Array::new();
        array.push(only.value().as_str());
        *servers = Value::Array(array);
        *servers.decor_mut() = decor;
    }
    let array = servers.as_array_mut().ok_or_else(|| form("servers"))?;
    if *change == ServerEdit::Add {
        push_element(array, server);
        return Ok(());
    }
    // The list is as long as that of the model: a configuration in force has no invalid server.
    let at = known.iter().position(|name| name == server).filter(|at| *at < array.len());
    let at = at.ok_or_else(|| no_server(server, &known))?;
    let ServerEdit::Change { state, weight } = change else {
        remove_element(array, at);
        return Ok(());
    };
    let text = array.get(at).and_then(Value::as_str).ok_or_else(|| form("servers"))?;
    let mut written: BackendServer = text.parse().map_err(|_| form("servers"))?;
    written.state = state.unwrap_or(written.state);
    written.weight = weight.unwrap_or(written.weight);
    // Keeps the comments and the line of the old element.
    array.replace(at, written.to_string());
    Ok(())
}

/// The error for an unknown server. Of several equally similar ones, such as the ports of one host, the first
/// is suggested.
fn no_server(server: &str, known: &[String]) -> EditError {
    let host = |name: &str| name.rsplit_once(':').map(|(host, _)| host.to_owned());
    let same_host = known.iter().find(|one| host(one).is_some_and(|own| Some(own) == host(server)));
    match unknown("server", server, known.iter().map(String::as_str)) {
        EditError::Unknown { kind, name, nearest: None } => {
            EditError::Unknown { kind, name, nearest: same_host.cloned() }
        }
        other => other,
    }
}

/// Appends an element. In a list of several lines it gets a line of its own, indented like the previous
/// element, which keeps its trailing comment: that follows the comma, so it precedes the next element.
fn push_element(array: &mut Array, text: &str) {
    let comma = array.trailing_comma();
    let last = array.len().checked_sub(1);
    let decor = last.and_then(|last| array.get(last)).map(|last| last.decor().clone()).unwrap_or_default();
    let (prefix, suffix) = (raw(decor.prefix()), raw(decor.suffix()));
    let end = if comma { raw(Some(array.trailing())) } else { suffix };
    let indent = prefix.rsplit_once('\n').map(|(_, indent)| indent.to_owned());
    let (comment, rest) = match (end.split_once('\n'), &indent) {
        (Some((comment, rest)), _) => (comment, format!("\n{rest}")),
        (None, Some(_)) => ("", end.clone()),
        (None, None) => return array.push(text),
    };
    let prefix = format!("{comment}\n{}", indent.as_deref().unwrap_or(INDENT));
    if comma {
        array.push_formatted(Value::from(text).decorated(prefix, ""));
        array.set_trailing(rest);
    } else {
        if let Some(last) = last.and_then(|last| array.get_mut(last)) {
            last.decor_mut().set_suffix("");
        }
        array.push_formatted(Value::from(text).decorated(prefix, rest));
    }
}

/// The indentation of an element without a neighbour.
const INDENT: &str = "    ";

fn raw(text: Option<&RawString>) -> String {
    text.and_then(RawString::as_str).unwrap_or_default().to_owned()
}

/// Removes an element with the comment in its line, and keeps that of the previous line: both precede the
/// element after the comma.
fn remove_element(array: &mut Array, at: usize) {
    let removed = array.remove(at);
    let prefix = raw(removed.decor().prefix());
    let kept = prefix.split_once('\n').map_or("", |(line, _)| line);
    let after = |text: String| match text.find('\n') {
        Some(end) => format!("{kept}{}", &text[end..]),
        None => text,
    };
    if let Some(next) = array.get_mut(at) {
        let text = raw(next.decor().prefix());
        next.decor_mut().set_prefix(after(text));
    } else if array.trailing_comma() {
        let text = raw(Some(array.trailing()));
        array.set_trailing(after(text));
    } else if let Some(last) = at.checked_sub(1).and_then(|last| array.get_mut(last)) {
        // Without a trailing comma, the text after the last element belongs to it.
        last.decor_mut().set_suffix(after(raw(removed.decor().suffix())));
    }
}
